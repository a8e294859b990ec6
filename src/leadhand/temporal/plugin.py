"""Temporal's entry points, loaded before anything of it is used."""

from leadhand.plugins import CommandPart, HostPart

COMMAND = CommandPart(
    "leadhand.temporal.commands:worker",
    "Carry out steps of runs that a Temporal server hosts",
    "Runs",
)
HOST = HostPart(
    "--temporal",
    "HOST:PORT",
    "The Temporal server that hosts runs; else [temporal] address.",
    "temporal.address",
    threads="temporalio.client",
)
