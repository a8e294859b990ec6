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

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from leadhand.codec.tables import (
    Count,
    Number,
    Seconds,
    Table,
    TableSchema,
    Text,
    Texts,
    keys,
    read,
    reader,
)
from leadhand.core.plan.model import Risk
from leadhand.errors import UsageError
from leadhand.workers.declaration import Expression
from leadhand.workers.mcp.definition import worker_name
from leadhand.workers.mcp.oauth import OAuth
from leadhand.workers.mcp.pins import FILE, Pins
from leadhand.workers.mcp.server import McpServer, read_all
from leadhand.workers.reports import bounded_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from leadhand.workers.mcp.tool import McpTool


class TermsTable(TableSchema):
    """What a table says of a tool, or of all tools of a server; None: nothing."""

    risk: Risk | None = None
    """The risk level. Default: medium."""
    idempotent: bool | None = None
    """Whether calling it twice has the same effect as calling it once. Default: false."""
    timeout: Seconds | None = None
    """The longest that one call may take. Default: 60 s."""
    est: Seconds | None = None
    """How long a call usually takes."""
    cost: Number | None = None
    """What one call may cost, in cost units."""
    trusted: bool | None = None
    """Whether results are trusted. Default: false, they are data from outside."""
    max_concurrency: Count | None = None
    """The number of calls at once. Default: no limit."""
    checks: dict[str, Expression] | None = None
    """Expressions over the report by name, for the success criteria of steps."""
    check: Expression | None = None
    """The expression that every report must satisfy."""
    effects: Texts | None = None
    """What it changes in the world. Default: unknown."""
    needs: Texts | None = None
    """Facts that must be true before it. Default: its required parameters."""
    gives: Texts | None = None
    """Facts that are true after it."""
    drops: Texts | None = None
    """Facts that are no longer true after it."""
    reads: Texts | None = None
    """Paths and places that it reads."""
    writes: Texts | None = None
    """Paths and places that it writes."""


class ToolTable(TermsTable):
    """The keys of `[mcp.NAME.tools.TOOL]`."""

    name: Text | None = None
    """The name of the worker. Default: `SERVER.TOOL`."""
    description: Text | None = None
    """The description of the worker. Default: that of the server."""


def _tools(value: Any) -> Any:
    return read(value, dict[str, ToolTable] if isinstance(value, dict) else Texts)


if TYPE_CHECKING:
    Tools: TypeAlias = dict[str, ToolTable] | tuple[str, ...]
else:
    Tools = reader(_tools, "a list of texts, or tables of tools")


class ServerTable(TermsTable):
    """The keys of `[mcp.NAME]`."""

    command: list[Any] = msgspec.field(default_factory=list)
    """The program of the server and its arguments."""
    cwd: Text = "."
    """The working directory, relative to the settings file."""
    env: Texts = ()
    """Names of environment variables that are passed on."""
    secrets: Texts = ()
    """Names of environment variables that are passed on and whose values never get into the log."""
    set_env: dict[str, str] = msgspec.field(default_factory=dict)
    """Environment variables with their values."""
    public: Texts = ()
    """Names of variables of `env` and `set_env` whose values may be shown."""
    url: str = ""
    """The address of the server, in place of `command`."""
    headers: dict[str, Any] = msgspec.field(default_factory=dict)
    """Headers with values from the environment: `{Authorization = {env = "TOKEN", prefix = "Bearer
    "}}`."""
    auth: OAuth | None = None
    """How Leadhand signs in to a server behind OAuth: see [mcp.NAME.auth]."""
    tools: Tools | None = None
    """The tools that become workers: names, or a table for each. Default: all tools."""
    connect_timeout: Seconds = 0.0
    """The longest that the server may take to start. Default: 30 s."""
    max_bytes: Count | None = None
    """The largest answer, in bytes. Default: 10 MiB."""


def declared_servers(
    tables: Mapping[str, Any], folder: Path, tokens: Path | None = None
) -> dict[str, McpServer]:
    """Return the servers of these tables. Raise `UsageError` with every problem in them.

    `folder` is that of the settings, `tokens` the one in which sign-ins are kept.
    """
    return {name: server for name, (server, _) in _read(tables, folder, tokens).items()}


def declared_tools(
    tables: Mapping[str, Any],
    folder: Path,
    left_out: dict[str, str] | None = None,
    tokens: Path | None = None,
) -> list[McpTool]:
    """Return the workers of these tables. Servers that are not pinned are asked, all at once."""
    found = _read(tables, folder, tokens)
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
                notes[worker_name(server.name, name)] = bounded_text(listing.unusable[name], 300)
                continue
            tool = server.tool(name, **terms)
            worker = tool.spec.name  # a tool that the server does not list is said now
            if each is None and worker in names:
                notes[f"{worker} ({bounded_text(name, 60)})"] = (
                    "another tool has the same name here"
                )
                continue
            names.add(worker)
            tools.append(tool)
    return tools


Terms = tuple[dict[str, Any], dict[str, dict[str, Any]] | None]


def _read(
    tables: Mapping[str, Any], folder: Path, tokens: Path | None
) -> dict[str, tuple[McpServer, Terms]]:
    problems: list[str] = []
    pins = Pins.read(folder / FILE)
    found: dict[str, tuple[McpServer, Terms]] = {}
    for name, given in tables.items():
        table = Table(f"mcp.{name}", given, problems)
        values = table.read(ServerTable)
        server = None if values is None else _server(name, table, values, folder, pins, tokens)
        if values is not None and server is not None:
            found[name] = (server, _terms_of(values))
    if problems:
        raise UsageError("\n".join(problems))
    return found


def _server(
    name: str,
    table: Table,
    values: ServerTable,
    folder: Path,
    pins: Pins,
    tokens: Path | None,
) -> McpServer | None:
    cwd = folder / values.cwd
    if not cwd.is_dir():
        table.problem("cwd", f"{cwd} is no folder")
    options: dict[str, Any] = {
        "timeout": values.timeout,
        "connect_timeout": values.connect_timeout,
        "max_bytes": values.max_bytes,
    }
    try:
        return McpServer(
            name=name,
            command=values.command,
            url=values.url,
            headers=values.headers,
            cwd=cwd,
            env=values.env,
            secrets=values.secrets,
            set_env=values.set_env,
            public=values.public,
            pins=pins,
            auth=values.auth,
            tokens=tokens,
            **{key: value for key, value in options.items() if value},
        )
    except UsageError as error:
        table.problem("", str(error).removeprefix(f"mcp {name}: "))
        return None


def _terms_of(values: ServerTable) -> Terms:
    """Return what holds for every tool, and the tools that are named with what holds for each."""
    common = _terms(values, TermsTable)
    tools = values.tools
    if isinstance(tools, dict):
        return common, {name: common | _terms(each, ToolTable) for name, each in tools.items()}
    return common, None if tools is None else dict.fromkeys(tools, common)


def _terms(values: TermsTable, schema: type[TermsTable]) -> dict[str, Any]:
    """Return the terms that a table gives; what it does not say stays unsaid."""
    given = {key: getattr(values, key) for key in keys(schema)}
    return {key: value for key, value in given.items() if value is not None}
