"""What each coding agent gets, and where.

Claude Code   one folder that is a plugin, `.claude/skills/leadhand`: skill, commands, MCP server.
              The gate is a plugin of its own, `leadhand-gate`. Both load once a folder is trusted.
Codex         `[mcp_servers.leadhand]` in config.toml; skills in `.agents/skills`, one for each
              command, since Codex has no commands of projects; the gate in hooks.json.
Cursor        `mcpServers.leadhand` in mcp.json; a skill, commands, and the gate in hooks.json.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

from leadhand.connect.edits import Entry, OwnFile, Record

Agent = Literal["claude", "codex", "cursor"]
Scope = Literal["project", "user"]
SCOPES: tuple[Scope, ...] = ("project", "user")
AGENTS: dict[Agent, str] = {"claude": "Claude Code", "codex": "Codex", "cursor": "Cursor"}
COMMANDS = ("plan", "run", "inbox")
SERVE = ("mcp", "serve")
GATE_TIMEOUT_S = 60
START_S = 60
APPROVAL_WAIT_S = 3600
"""How long Codex waits for a tool: `wait_for_run` waits for a person."""


class Place(NamedTuple):
    """Where an agent is connected: the project, or everything of this account."""

    agent: Agent
    scope: Scope
    root: Path
    """The folder of the project, or the home of the account."""
    env: Mapping[str, str]

    @property
    def settings(self) -> Path:
        """The folder of the agent's settings."""
        folder = self.root / f".{self.agent}"
        variable = {"claude": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME"}.get(self.agent, "")
        given = self.env.get(variable) if self.scope == "user" and variable else ""
        return Path(given) if given else folder

    @property
    def skills(self) -> Path:
        """The folder of the agent's skills."""
        return (self.root / ".agents" if self.agent == "codex" else self.settings) / "skills"


def program(place: Place) -> str:
    """Return the program that the agent starts: a name for a project's files, which may be shared.

    The name is used if it leads to this installation, and else the path.
    """
    own = Path(sys.executable).with_name("leadhand")
    named = shutil.which("leadhand", path=place.env.get("PATH"))
    if own.exists():
        same = named is not None and Path(named).resolve() == own.resolve()
        return "leadhand" if same and place.scope == "project" else str(own)
    return named or "leadhand"


def parts_of(place: Place, *, gate: bool) -> list[OwnFile | Entry]:
    """Return everything that connecting an agent writes; `gate`: with the hook."""
    made = {"claude": _claude, "codex": _codex, "cursor": _cursor}[place.agent]
    return list(made(place, program(place), gate))


def gate_parts(place: Place) -> list[OwnFile | Entry]:
    """Return the parts that only the gate needs."""
    without = parts_of(place, gate=False)
    return [each for each in parts_of(place, gate=True) if each not in without]


def has_gate(place: Place, record: Record) -> bool:
    """Return whether the gate was written before."""
    return any(
        str(each.file) in record.files
        if isinstance(each, OwnFile)
        else record.entry(each) is not None
        for each in gate_parts(place)
    )


def _source(*names: str) -> str:
    found = files("leadhand.connect").joinpath("claude", *names)
    return found.read_text(encoding="utf-8")


def _document(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def gate_command(place: Place, name: str) -> str:
    """Return the line of a hook. A gate that cannot answer denies: exit code 2 does."""
    return f"{shlex.quote(name)} plan-gate {place.agent} || exit 2"


def _claude(place: Place, name: str, gate: bool) -> Iterator[OwnFile | Entry]:  # noqa: FBT001 - all take it
    folder = place.skills / "leadhand"
    manifest = (".claude-plugin", "plugin.json")
    yield OwnFile(folder.joinpath(*manifest), _source("leadhand", *manifest))
    yield OwnFile(folder / "SKILL.md", _source("leadhand", "SKILL.md"))
    for each in COMMANDS:
        relative = ("commands", f"{each}.md")
        yield OwnFile(folder.joinpath(*relative), _source("leadhand", *relative))
    server = json.loads(_source("leadhand", ".mcp.json"))
    server["mcpServers"]["leadhand"]["command"] = name
    yield OwnFile(folder / ".mcp.json", _document(server))
    if gate:
        folder = place.skills / "leadhand-gate"
        yield OwnFile(folder.joinpath(*manifest), _source("leadhand-gate", *manifest))
        hooks = json.loads(_source("leadhand-gate", "hooks", "hooks.json"))
        hooks["hooks"]["PreToolUse"][0]["hooks"][0]["command"] = gate_command(place, name)
        yield OwnFile(folder / "hooks" / "hooks.json", _document(hooks))


def _codex(place: Place, name: str, gate: bool) -> Iterator[OwnFile | Entry]:  # noqa: FBT001 - all take it
    table: dict[str, Any] = {"command": name, "args": list(SERVE)}
    table |= {"startup_timeout_sec": START_S, "tool_timeout_sec": APPROVAL_WAIT_S}
    config = place.settings / "config.toml"
    yield Entry(config, "table", ("mcp_servers", "leadhand"), table)
    yield OwnFile(place.skills / "leadhand" / "SKILL.md", _source("leadhand", "SKILL.md"))
    for each in COMMANDS:
        about, body = _command(each)
        head = f"name: leadhand-{each}\ndescription: {about}. Use it when the user names it.\n"
        text = body.replace("$ARGUMENTS", "what the user said beside the name of this skill")
        yield OwnFile(place.skills / f"leadhand-{each}" / "SKILL.md", f"---\n{head}---\n{text}")
    if gate:
        hook = {"type": "command", "command": gate_command(place, name), "timeout": GATE_TIMEOUT_S}
        item = {"matcher": "*", "hooks": [hook]}
        yield Entry(place.settings / "hooks.json", "item", ("hooks", "PreToolUse"), item)


def _cursor(place: Place, name: str, gate: bool) -> Iterator[OwnFile | Entry]:  # noqa: FBT001 - all take it
    server = {"command": name, "args": list(SERVE)}
    yield Entry(place.settings / "mcp.json", "member", ("mcpServers", "leadhand"), server)
    yield OwnFile(place.skills / "leadhand" / "SKILL.md", _source("leadhand", "SKILL.md"))
    for each in COMMANDS:
        _about, body = _command(each)
        text = body.replace("$ARGUMENTS", "what the user said after this command")
        yield OwnFile(place.settings / "commands" / f"leadhand-{each}.md", text.lstrip("\n"))
    if gate:
        item = {"command": gate_command(place, name), "failClosed": True}
        yield Entry(
            place.settings / "hooks.json",
            "item",
            ("hooks", "preToolUse"),
            item,
            first={"version": 1},
        )


def _command(name: str) -> tuple[str, str]:
    """Return the description of a command and its text, without its front matter."""
    _, head, body = _source("leadhand", "commands", f"{name}.md").split("---\n", 2)
    (about,) = (line for line in head.splitlines() if line.startswith("description: "))
    return about.removeprefix("description: "), body


def home(env: Mapping[str, str]) -> Path:
    """Return the home of this account."""
    return Path(env.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 - follows HOME too
