"""`leadhand mcp tools`: the tools of the configured MCP servers, and whether they are as pinned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from leadhand.app.composition import mcp_servers_of
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import settings_of, trust_option
from leadhand.cli.rendering.text import clean, count, table
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc
    from leadhand.settings import Settings
    from leadhand.workers.mcp.pins import Pins
    from leadhand.workers.mcp.server import Listing, McpServer


PINNED, NEW = "as pinned", "not pinned"


@dataclass(slots=True)
class LookedAt:
    """One server that was contacted."""

    server: str
    said: str
    problem: str = ""
    fix: str = ""
    answered: bool = True
    tools: list[Doc] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """Tools that cannot be used, with the reason."""

    @property
    def warning(self) -> bool:
        """Whether this is only a warning: none of its tools was pinned yet."""
        return self.answered and all(each["state"] == NEW for each in self.tools)


@command("tools", "leadhand mcp tools\nleadhand mcp tools files --pin")
@click.argument("servers", nargs=-1, metavar="[NAME]...")
@click.option(
    "--pin", is_flag=True, help="Write the current definitions of the tools to leadhand.mcp.json."
)
@trust_option
def tools(console: Console, servers: tuple[str, ...], *, pin: bool) -> int:
    """List the tools of MCP servers, and pin their definitions.

    Without NAME all servers of [mcp.NAME] are asked. A pinned tool is described without asking
    its server, and a tool that its server has changed is refused. Read what changed before you
    pin it again: descriptions are untrusted text from the server.
    """
    settings = settings_of(executes=console)
    if not settings.mcp:
        raise UsageError("no MCP servers are configured. Fix: add [mcp.NAME] to leadhand.toml.")
    if unknown := sorted(set(servers) - set(settings.mcp)):
        raise UsageError(
            f"there is no [mcp.{unknown[0]}]. There are: {', '.join(sorted(settings.mcp))}."
        )
    looks = compare_pins(settings, servers, pin=pin)
    bad = [each for each in looks if each.problem and not each.warning]
    if console.json:
        console.document({"servers": [_document(each) for each in looks]})
        return 1 if bad else 0
    for each in looks:
        console.out(f"{each.server}: {clean(each.said)}")
        rows = (
            (
                f"  {clean(row['tool'], 60)}",
                clean(" ".join(row["parameters"].get("properties", {})), 40),
                row["state"],
                clean(str(row["description"]).partition("\n")[0], 60),
            )
            for row in each.tools
        )
        for line in table((), rows)[1:]:
            console.out(line)
        for tool, why in each.left_out.items():
            console.say(f"{each.server}: left out: {clean(tool, 60)}: {clean(why, 300)}")
        for text in (each.problem, each.fix):
            if text:
                console.say(f"{each.server}: {clean(text)}")
    return 1 if bad else 0


def compare_pins(
    settings: Settings, names: tuple[str, ...] = (), *, pin: bool = False
) -> list[LookedAt]:
    """Ask each server for its tools, and compare them with the pinned ones."""
    from leadhand.workers.mcp.server import ask_all

    chosen = [
        server for name, server in mcp_servers_of(settings).items() if not names or name in names
    ]
    answers = ask_all(chosen)
    looks: list[LookedAt] = []
    for server, answer in zip(chosen, answers, strict=True):
        if isinstance(answer, str):
            fix = "See that its command or url is right, and that it runs."
            looks.append(LookedAt(server.name, "does not answer", answer, fix, answered=False))
            continue
        if pin:
            _pin(server, answer)
        looks.append(_compared(server, answer))
    return looks


def _pin(server: McpServer, listing: Listing) -> None:
    pins: Pins | None = server.pins
    assert pins is not None
    pins.put(server.name, listing.name, server.identity, listing.tools)
    pins.write()


def _compared(server: McpServer, listing: Listing) -> LookedAt:
    from leadhand.workers.mcp.pins import reached

    found = server.pins.servers.get(server.name) if server.pins is not None else None
    pinned = found.tools if found is not None else {}
    rows: list[Doc] = []
    for name in sorted({*listing.tools, *pinned}):
        now, then = listing.tools.get(name), pinned.get(name)
        definition = now or then
        assert definition is not None
        changed = then.changes(now) if then is not None else ""
        state = NEW if then is None else f"changed: {changed}" if changed else PINNED
        rows.append(
            {
                "tool": name,
                "state": state,
                "version": definition.digest(server.identity),
                "parameters": definition.parameters,
                "hints": definition.hints,
                "description": definition.shown,
            }
        )
    look = LookedAt(server.name, f"{listing.name or 'no name'}, {count(len(rows), 'tool')}")
    look.tools, look.left_out = rows, listing.unusable
    if any(row["state"] != PINNED for row in rows):
        some = [row["tool"] for row in rows if row["state"] != PINNED]
        look.problem = f"not as pinned: {clean(', '.join(some), 200)}"
        look.fix = f"Look at them, then: leadhand mcp tools {server.name} --pin"
    if found is not None and found.reached != reached(server.identity):
        look.problem = "is reached in another way than when it was pinned"
        look.fix = f"leadhand mcp tools {server.name} --pin"
    return look


def _document(look: LookedAt) -> Doc:
    return {
        "server": look.server,
        "answers": look.answered,
        "said": look.said,
        "problem": look.problem or None,
        "tools": look.tools,
        "left_out": look.left_out,
    }
