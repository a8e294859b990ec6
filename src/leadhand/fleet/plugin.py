"""The entry point of the fleet's commands, which keeps their imports lazy."""

from leadhand.plugins import CommandPart

COMMAND = CommandPart(
    "leadhand.fleet.commands.fleet:fleet", "Many coding agents on one repository", "Runs"
)
