"""What a worker takes beside its parameters: programs, environment names, hosts, people.

Only what is declared can be known: a Python function may open whatever it likes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leadhand.workers.command import CommandWorker
from leadhand.workers.http import HttpWorker
from leadhand.workers.mcp.tool import McpTool
from leadhand.workers.request import Url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leadhand.ports import Worker
    from leadhand.workers.command import Program
    from leadhand.workers.mcp.server import McpServer
    from leadhand.workers.request import Call


class Requirement(NamedTuple):
    """One thing that must be there for a worker to do its work."""

    kind: str
    """program, environment, host or person."""
    name: str
    worker: str
    must: bool = True
    """False: it is passed on if it is there."""
    folder: Path = Path()
    """Where a program is looked for that is named by a path."""
    port: int = 0


def requirements(worker: Worker, action: str) -> list[Requirement]:
    """What one action of a worker takes, each once."""
    found: list[Requirement] = []
    name = worker.spec.name
    if isinstance(worker, CommandWorker) and (program := worker.program(action)) is not None:
        found += _of_program(name, program)
    elif isinstance(worker, HttpWorker) and (call := worker.call(action)) is not None:
        found += _of_call(name, call)
    elif isinstance(worker, McpTool):
        found += _of_server(name, worker.server)
    elif worker.spec.kind == "human":
        found.append(Requirement("person", name, name))
    return list(dict.fromkeys(found))


def _of_program(worker: str, program: Program) -> Iterator[Requirement]:
    for argv in (program.argv, program.probe):
        if argv:
            yield Requirement("program", argv[0].fill({}), worker, folder=program.cwd)
    for name in program.env:
        yield Requirement("environment", name, worker, must=False)


def _of_server(worker: str, server: McpServer) -> Iterator[Requirement]:
    if server.command:
        yield Requirement("program", server.command[0], worker, folder=server.cwd)
        for name in (*server.env, *server.secrets):
            yield Requirement("environment", name, worker, must=False)
        return
    url = Url.of(server.url)
    if url.host is not None:
        host, port = url.host
        yield Requirement("host", host, worker, port=port or (443 if url.scheme == "https" else 80))
    for name in server.secret_names:
        yield Requirement("environment", name, worker)


def _of_call(worker: str, call: Call) -> Iterator[Requirement]:
    for each in (call, *([call.probe] if call.probe else [])):
        if each.url.host is not None:
            host, port = each.url.host
            fallback = 443 if each.url.scheme == "https" else 80
            yield Requirement("host", host, worker, port=port or fallback)
        for header in each.headers:
            if header.env:
                yield Requirement("environment", header.env, worker)
