"""Requirements of a worker beside its parameters: programs, variables, hosts, people.

A program that is missing is found before anybody approves the plan (`missing_programs`).

Only what is declared can be known: a Python function may open whatever it likes.
"""

from __future__ import annotations

import os
import shutil
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leadhand.core.lint.findings import Finding
from leadhand.core.plan import graph
from leadhand.core.promises import as_names
from leadhand.core.wording import shown
from leadhand.workers.commands.worker import CommandWorker
from leadhand.workers.http.request import Url
from leadhand.workers.http.worker import HttpWorker
from leadhand.workers.mcp.tool import McpTool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from leadhand.core.lint.rules import Level
    from leadhand.core.plan.model import Doc
    from leadhand.ports import Worker
    from leadhand.workers.commands.worker import CommandAction
    from leadhand.workers.http.request import HttpAction
    from leadhand.workers.mcp.server import McpServer
    from leadhand.workers.registry import Registry


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
    """Return what one action of a worker requires, each once."""
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


def _of_program(worker: str, program: CommandAction) -> Iterator[Requirement]:
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


def _of_call(worker: str, call: HttpAction) -> Iterator[Requirement]:
    for each in (call, *([call.probe] if call.probe else [])):
        if each.url.host is not None:
            host, port = each.url.host
            fallback = 443 if each.url.scheme == "https" else 80
            yield Requirement("host", host, worker, port=port or fallback)
        for header in each.headers:
            if header.env:
                yield Requirement("environment", header.env, worker)


def program_path(need: Requirement) -> str:
    """Return where the program of a requirement is on this machine; "" when it is not there."""
    if os.sep not in need.name:
        return shutil.which(need.name, path=os.environ.get("PATH")) or ""
    path = need.folder / need.name
    return str(path) if path.is_file() and os.access(path, os.X_OK) else ""


def missing_programs(doc: Doc, registry: Registry, level: Level = "error") -> list[Finding]:
    """Return a finding for each step of a linted plan whose program is not on this machine.

    A step that has an alternative with its program gets a warning. A program that a step before
    it `writes` is no finding: the plan makes it.

    Args:
        doc: a plan document without lint errors.
        registry: the workers of this machine.
        level: of a finding that keeps the step from being done.
    """
    found = []
    seen: dict[tuple[str, str], Requirement | None] = {}
    for step in doc["steps"]:
        if (doer := (step["worker"], step.get("action", ""))) not in seen:
            seen[doer] = _missing(step["worker"], step, registry)
    if not any(seen.values()):
        return []
    steps = {step["id"]: step for step in doc["steps"]}
    before = graph.edges(doc["steps"])
    for index, step in enumerate(doc["steps"]):
        missing = seen[step["worker"], step.get("action", "")]
        if missing is None or _made_before(missing, step["id"], steps, before):
            continue
        others = step.get("alternatives", ())
        known = [name for name in others if registry.get(name) is not None]
        spare = [name for name in known if not _missing(name, step, registry)]
        message = f"worker {shown(step['worker'])} runs {shown(missing.name)}, and there is no such"
        fix = "Install it, or mend its path or permissions; if a step before it makes it, name it "
        finding = Finding(
            "program-missing",
            "warning" if spare else level,
            f"steps[{index}].worker",
            f"{message} program on this machine",
            f"{fix}in that step's writes.",
            step["id"],
        )
        found.append(finding)
    return found


def _missing(name: str, step: Doc, registry: Registry) -> Requirement | None:
    """Return the first program that a worker needs for a step and that is not there."""
    worker = registry.get(name)
    if worker is None or worker.spec.kind != "command":
        return None  # an MCP server was started already, or could not be
    needed = requirements(worker, step.get("action", ""))
    programs = (each for each in needed if each.kind == "program")
    return next((each for each in programs if not program_path(each)), None)


def _made_before(
    need: Requirement, step: str, steps: Mapping[str, Doc], before: Mapping[str, Iterable[str]]
) -> bool:
    """Tell whether a step that comes before `step` declares that it writes the program."""
    spellings = {need.name, os.path.normpath(need.name), str(need.folder / need.name)}
    todo, seen = list(before.get(step, ())), set()
    while todo:
        ident = todo.pop()
        if ident in seen or ident not in steps:
            continue
        seen.add(ident)
        patterns = as_names(steps[ident].get("writes"))
        if any(fnmatchcase(each, pattern) for each in spellings for pattern in patterns):
            return True
        todo += before.get(ident, ())
    return False
