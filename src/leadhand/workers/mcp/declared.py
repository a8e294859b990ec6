"""MCP servers from the `[mcp.NAME]` tables of leadhand.toml.

    [mcp.files]
    command = ["files-server", "/data"]
    tools = ["read_file", "list_folder"]

    [mcp.tickets]
    url = "https://tickets.example.com/mcp"
    headers = {Authorization = {env = "TICKETS_TOKEN", prefix = "Bearer "}}

    [mcp.tickets.tools.create_ticket]
    risk = "high"
    effects = ["tickets"]
    gives = "ticket"

`tools` names the tools that become workers, as a list, or as tables that say more of each; without
it they all do. What a table of a tool may say can also stand in the server's, for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leadhand.core.plan.model import RISKS
from leadhand.core.wording import closest
from leadhand.errors import UsageError
from leadhand.workers.declaration import DeclarationTable, read_checks
from leadhand.workers.mcp.definition import worker_name
from leadhand.workers.mcp.pins import FILE, Pins
from leadhand.workers.mcp.server import McpServer, read_all
from leadhand.workers.reports import bounded

if TYPE_CHECKING:
    from pathlib import Path

    from leadhand.workers.mcp.tool import McpTool

REACH_KEYS = {"command", "cwd", "env", "secrets", "set_env", "public", "url", "headers"}
SERVER_KEYS = {"tools", "connect_timeout", "max_bytes"}
TEXT_KEYS = ("effects", "needs", "gives", "drops", "reads", "writes")
TERM_KEYS = {"risk", "idempotent", "timeout", "est", "cost", "trusted", "max_concurrency"}
TERM_KEYS |= {"checks", "check", *TEXT_KEYS}
TOOL_KEYS = TERM_KEYS | {"name", "description"}


def declared_servers(tables: Mapping[str, Any], folder: Path) -> dict[str, McpServer]:
    """The servers of these tables; UsageError lists everything that is wrong with them."""
    return {name: server for name, (server, _) in _read(tables, folder).items()}


def declared_tools(
    tables: Mapping[str, Any], folder: Path, left_out: dict[str, str] | None = None
) -> list[McpTool]:
    """The workers of these tables. Servers that are not pinned are asked, all at once.

    A tool that its server describes wrongly is left out, and nothing else of that server.

    Args:
        tables: the `[mcp.NAME]` tables by name.
        folder: of the file they stand in.
        left_out: gets the workers that are left out, by name, with the reason.
    Raises:
        UsageError: a table is wrong, names a tool that its server does not list, or a server that
            is not pinned does not answer.
    """
    found = _read(tables, folder)
    asked = [server for server, _ in found.values() if not server.is_known]
    if asked:
        for server, listing in zip(asked, read_all(asked), strict=True):
            server.known(listing)
    tools: list[McpTool] = []
    notes = {} if left_out is None else left_out
    for server, (common, each) in found.values():
        listing, names = server.listing(), set[str]()
        own = dict.fromkeys((*listing.tools, *listing.unusable), common) if each is None else each
        for name, terms in own.items():
            if name in listing.unusable:
                notes[worker_name(server.name, name)] = bounded(listing.unusable[name], 300)
                continue
            tool = server.tool(name, **terms)
            worker = tool.spec.name  # a tool that the server does not list is said now
            if each is None and worker in names:
                notes[f"{worker} ({bounded(name, 60)})"] = "another tool has the same name here"
                continue
            names.add(worker)
            tools.append(tool)
    return tools


Terms = tuple[dict[str, Any], dict[str, dict[str, Any]] | None]


def _read(tables: Mapping[str, Any], folder: Path) -> dict[str, tuple[McpServer, Terms]]:
    problems: list[str] = []
    pins = Pins.read(folder / FILE)
    found: dict[str, tuple[McpServer, Terms]] = {}
    for name, given in tables.items():
        table = DeclarationTable(f"mcp.{name}", given, problems)
        _known_keys(table, REACH_KEYS | SERVER_KEYS | TERM_KEYS)
        before = len(problems)
        made = _server(name, table, folder, pins), _terms_of(table)
        if len(problems) == before and made[0] is not None:
            found[name] = (made[0], made[1])
    if problems:
        raise UsageError("\n".join(problems))
    return found


def _server(name: str, table: DeclarationTable, folder: Path, pins: Pins) -> McpServer | None:
    command = table.values.get("command", [])
    if not isinstance(command, list):
        table.problem("command", "must be a list of texts: the program and each argument")
        command = []
    options: dict[str, Any] = {"timeout": table.seconds("timeout")}
    options["connect_timeout"] = table.seconds("connect_timeout")
    options["max_bytes"] = table.count("max_bytes")
    cwd = folder / (table.text("cwd") or ".")
    if not cwd.is_dir():
        table.problem("cwd", f"{cwd} is no folder")
    try:
        return McpServer(
            name=name,
            command=command,
            url=table.text("url") or "",
            headers=table.mapping("headers"),
            cwd=cwd,
            env=table.texts("env"),
            secrets=table.texts("secrets"),
            set_env=table.text_map("set_env"),
            public=table.texts("public"),
            pins=pins,
            **{key: value for key, value in options.items() if value},
        )
    except UsageError as error:
        table.problem("", str(error).removeprefix(f"mcp {name}: "))
        return None


def _terms_of(table: DeclarationTable) -> Terms:
    """What holds for every tool, and the tools that are named with what holds for each."""
    common = _terms(table)
    tools = table.values.get("tools")
    if tools is None:
        return common, None
    if isinstance(tools, Mapping):
        named: dict[str, dict[str, Any]] = {}
        for tool, values in tools.items():
            if not isinstance(values, Mapping):
                table.problem(f"tools.{tool}", "must be a table")
                continue
            own = DeclarationTable(f"{table.place}.tools.{tool}", values, table.problems)
            _known_keys(own, TOOL_KEYS)
            named[tool] = common | _terms(own)
            for key in ("name", "description"):
                if (text := own.text(key)) is not None:
                    named[tool][key] = text
        return common, named
    return common, dict.fromkeys(table.texts("tools"), common)


def _terms(table: DeclarationTable) -> dict[str, Any]:
    """The terms that a table gives; what it does not say stays unsaid."""
    values = table.values
    found: dict[str, Any] = {key: table.texts(key) for key in TEXT_KEYS if key in values}
    for key in ("timeout", "est"):
        if key in values:
            found[key] = table.seconds(key)
    for key in ("idempotent", "trusted"):
        if key in values:
            found[key] = table.flag(key)
    if "risk" in values:
        found["risk"] = table.choice("risk", RISKS)
    if "cost" in values:
        found["cost"] = table.number("cost")
    if "max_concurrency" in values:
        found["max_concurrency"] = table.count("max_concurrency")
    checks, check = read_checks(table)
    return found | ({"checks": checks} if checks else {}) | ({"check": check} if check else {})


def _known_keys(table: DeclarationTable, known: set[str]) -> None:
    for key in table.values:
        if key not in known:
            guess = closest(key, known)
            table.problem(key, "is not known" + (f"; did you mean {guess}?" if guess else ""))
