"""The server's entry points, loaded before its command is used."""

from leadhand.plugins import CommandPart

NOTIFY = CommandPart(
    "leadhand.server.notify_commands:notify",
    "Manage messages to people and their signed links",
    "More",
)
COMMAND = CommandPart(
    "leadhand.server.commands:serve",
    "Start the dashboard and HTTP API",
    "Runs",
)
