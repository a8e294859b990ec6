"""The entry points of `leadhand connect`, loaded before its commands are used."""

from leadhand.plugins import CommandPart

COMMAND = CommandPart(
    "leadhand.connect.commands:connect",
    "Connect Claude Code, Codex or Cursor to this project",
    "Get started",
)
GATE = CommandPart(
    "leadhand.connect.plan_gate:plan_gate",
    "Answer an agent's hook: deny tools without an approved plan",
    "More",
)
