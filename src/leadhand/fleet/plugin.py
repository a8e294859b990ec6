"""The fleet's part of the command line: its command, found without importing the fleet."""

from leadhand.plugins import CommandPart

COMMAND = CommandPart(
    "leadhand.fleet.commands.fleet:fleet",
    "Run coding agents on a repository; merge what passes the gate",
    "Runs",
)
