"""`leadhand mcp tools`, `login` and `logout`: the configured MCP servers, as a client.

`tools` lists their tools and says whether they are as pinned; `login` and `logout` are for those
behind OAuth.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from leadhand.app.composition import mcp_servers_of
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import settings_of, trust_option
from leadhand.cli.rendering.text import clean, count, table
from leadhand.core.durations import seconds
from leadhand.errors import Denied, NotAllowed, UsageError, WorkerFailure

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
    _refuse_unknown(settings, servers)
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


def _refuse_unknown(settings: Settings, names: tuple[str, ...]) -> None:
    """Raise `UsageError` for a server that is not configured."""
    if not settings.mcp:
        raise UsageError("no MCP servers are configured. Fix: add [mcp.NAME] to leadhand.toml.")
    if unknown := sorted(set(names) - set(settings.mcp)):
        raise UsageError(
            f"there is no [mcp.{unknown[0]}]. There are: {', '.join(sorted(settings.mcp))}."
        )


@command("login", "leadhand mcp login tickets\nleadhand mcp login tickets --paste")
@click.argument("name")
@click.option(
    "--paste",
    is_flag=True,
    help="Paste the address that the browser was sent to, for a browser on another machine.",
)
@click.option(
    "--timeout",
    default="5m",
    show_default=True,
    metavar="DURATION",
    help="How long the sign-in may take.",
)
@trust_option
def login(console: Console, name: str, timeout: str, *, paste: bool) -> int:
    """Sign in to an MCP server that wants OAuth.

    NAME is a server of [mcp.NAME] with an `auth` table. The command prints an address; open it in
    a browser and sign in there. The browser then returns to a port of this machine. Runs use the
    sign-in and refresh it; when a step says that a sign-in is missing or does not allow a call,
    sign in again and answer the step's question.
    """
    server = _server_of(settings_of(executes=console), name)
    from leadhand.workers.mcp.connection import sdk

    sdk()
    from leadhand.workers.mcp.sign_in import LoopbackReturn, PastedReturn, sign_in

    wanted = 0 if server.auth is None else server.auth.redirect_port
    port = wanted or (0 if server.token_file is None else server.token_file.read().redirect_port)
    way = PastedReturn(port, _pasted) if paste else LoopbackReturn(port, firm=bool(wanted))

    async def show(url: str) -> None:
        console.say(f"Open this address in a browser and sign in to {name}:\n\n{clean(url)}\n")
        if paste:
            console.say("Then paste the address to which the browser was sent, also if it fails:")

    try:
        listing = asyncio.run(sign_in(server, way, show, seconds(timeout)))
    except WorkerFailure as error:
        kind = NotAllowed if isinstance(error, Denied) else UsageError
        raise kind(f"mcp {name}: {clean(error)}") from None
    if console.json:
        console.document({"server": name, "signed_in": True, "tools": sorted(listing.tools)})
        return 0
    console.out(f"{name}: signed in, {count(len(listing.tools), 'tool')}")
    return 0


@command("logout", "leadhand mcp logout tickets")
@click.argument("name")
@trust_option
def logout(console: Console, name: str) -> int:
    """Forget the sign-in to an MCP server.

    The tokens are deleted on this machine. The authorization server is not told: end the session
    there too if the tokens may have been seen.
    """
    server = _server_of(settings_of(executes=console), name)
    there = server.token_file is not None and server.token_file.remove()
    if console.json:
        console.document({"server": name, "signed_in": False, "was_signed_in": there})
        return 0
    console.out(f"{name}: {'signed out' if there else 'was not signed in'}")
    return 0


def _server_of(settings: Settings, name: str) -> McpServer:
    _refuse_unknown(settings, (name,))
    return mcp_servers_of(settings)[name]


def _pasted() -> str:
    return sys.stdin.readline()


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
            told = "Fix: " in answer
            fix = "" if told else "See that its command or url is right, and that it runs."
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
