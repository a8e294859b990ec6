"""The server's entry points, loaded before its command is used."""

from leadhand.plugins import CommandPart

COMMAND = CommandPart(
    "leadhand.server.commands:serve",
    "Start the dashboard and HTTP API",
    "Runs",
)
