"""The server's entry points, loaded before its command is used."""

from leadhand.plugins import CommandPart

COMMAND = CommandPart(
    "leadhand.server.commands:serve",
    "The HTTP API and the page, hosting all runs of a database",
    "Runs",
)
