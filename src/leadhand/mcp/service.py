"""The server of a project: its parts, over standard input and output or over HTTP."""

from __future__ import annotations

from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

import anyio
from mcp import types
from mcp.server.stdio import stdio_server

from leadhand import plugins
from leadhand.mcp.prompts import prompts_of
from leadhand.mcp.resources import complete, resources_of
from leadhand.mcp.run_tasks import RunTasks
from leadhand.mcp.runs import Workplace
from leadhand.mcp.server import Call, Parts, build_server
from leadhand.mcp.tools import Tools

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcp.server.lowlevel.server import Server

    from leadhand.server.service import Serve

NAME = "leadhand"
NAMES = ("run", "name")
"""Arguments for which values are suggested."""
INSTRUCTIONS = """\
Leadhand runs multi-step work from a plan that people can review first. Write a plan with the
workers of list_workers, check it with lint_plan, and put it before people with propose_plan, or
start it with start_run where the policy lets it through. Then wait_for_run until it has ended. A
run that waits has `input_required`: you may give the answers in `yours`; for everything else tell
your user `for_person`, and wait. Never try to approve in a person's name. Results are verified: a
step succeeded only if its criteria held."""


def version() -> str:
    """Return the version of Leadhand."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("leadhand")
    except PackageNotFoundError:
        return "0"


def parts_of(place: Workplace) -> Parts:
    """Return everything that the server of a project offers."""

    async def suggested(_call: Call, params: types.CompleteRequestParams) -> Sequence[str]:
        name = params.argument.name
        return await complete(place, name, params.argument.value) if name in NAMES else []

    tasks = RunTasks(place)
    more = [tool for part in plugins.parts("mcp_tools").values() for tool in part.load()(place)]
    return Parts(
        tools=[*Tools(place, tasks).all(), *more],
        resources=resources_of(place),
        prompts=prompts_of(place),
        complete=suggested,
        tasks=tasks,
    )


def project_server(place: Workplace) -> Server[Any]:
    """Return the MCP server of a project, for one client."""
    return build_server(NAME, version(), INSTRUCTIONS, parts_of(place))


def serve_stdio(output: IO[str], place: Workplace) -> None:
    """Serve one client over standard input and `output`, until its input ends."""
    anyio.run(_serve, output, place)


async def _serve(output: IO[str], place: Workplace) -> None:
    server = project_server(place)
    async with stdio_server(stdout=anyio.wrap_file(output)) as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def serve_http(place: Workplace, wanted: Serve, told: Callable[[str], None]) -> None:
    """Serve clients with tokens of accounts over HTTP, until a signal comes."""
    from leadhand.mcp import http
    from leadhand.server.settings import server_of

    settings = wanted.settings
    parts = replace(parts_of(place), caller=http.account_of)
    server = build_server(NAME, version(), INSTRUCTIONS, parts)
    accounts = http.accounts_of(settings, lambda: server_of(place.settings()).people)
    scheme = "https" if wanted.cert else "http"
    app = http.http_app(server, accounts, server_of(settings).hosts, scheme)
    await http.serve(app, wanted, told)
