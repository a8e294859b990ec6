"""What the command line knows of the fleet before its command is used."""

from leadhand.plugins import CommandPart

COMMAND = CommandPart(
    "leadhand.fleet.commands.fleet:fleet", "Many coding agents on one repository", "Runs"
)
