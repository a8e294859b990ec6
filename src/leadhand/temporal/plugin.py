"""Temporal's entry points, loaded before anything of it is used."""

from leadhand.plugins import CommandPart, HostPart

COMMAND = CommandPart(
    "leadhand.temporal.commands:worker",
    "Run steps for a Temporal server",
    "More",
)
HOST = HostPart(
    "--temporal",
    "HOST:PORT",
    "The Temporal server that hosts the runs; the default is [temporal] address.",
    "temporal.address",
    threads="temporalio.client",
)
