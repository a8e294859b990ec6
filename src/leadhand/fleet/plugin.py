"""The fleet's part of the command line: its command, found without importing the fleet."""

from leadhand.plugins import CommandPart

COMMAND = CommandPart(
    "leadhand.fleet.commands.fleet:fleet", "Many coding agents on one repository", "Runs"
)
