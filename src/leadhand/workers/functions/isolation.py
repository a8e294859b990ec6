"""A function in a child Python, the host's side; the child's side is `isolated`.

The child gets one JSON document on standard input and answers with lines of JSON on standard
output: progress while it works, and its report as the last line. Whatever the function prints
goes to standard error and becomes the report's output. Exceptions are turned into typed
failures in the child, by the same table as everywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.core.report import Report
from leadhand.ports import Spawned
from leadhand.workers.processes.capture import LiveStreams, shown_live
from leadhand.workers.reports import bounded_text, report_from_doc
from leadhand.workers.sandbox.confinement import python_folders
from leadhand.workers.sandbox.sandbox import NoSandbox

if TYPE_CHECKING:
    from leadhand.ports import Context, Task
    from leadhand.workers.processes.runner import Captured, Finished, Process, Processes
    from leadhand.workers.sandbox.confinement import Confinement


RESULT_BYTES_MAX = 64 << 20
GRACE_S = 5.0
PACKAGE_FOLDER = Path(__file__).parents[3]
LOADED_PREFIX = "leadhand_loaded_"
"""How modules are named that were loaded from a path; a child must load them the same way."""


Sources = Mapping[str, tuple[str, bool, bytes]]
"""Modules by name: path, whether a package, content."""


class Target(NamedTuple):
    """Where a child finds a function."""

    module: str
    file: str
    qualname: str


class Walls(NamedTuple):
    """The sandbox of a function, and the variables that it gets."""

    confinement: Confinement
    names: tuple[str, ...]

    async def wrapped(
        self,
        stack: contextlib.AsyncExitStack,
        argv: list[str],
        cwd: Path,
        hidden: tuple[Path, ...],
    ) -> tuple[list[str], dict[str, str]]:
        """Return what to start in place of a child Python, and its environment."""
        given = ("PATH", "LANG", "TZ", *self.names)
        env = {name: os.environ[name] for name in given if name in os.environ}
        env["PYTHONPATH"] = _environment()["PYTHONPATH"]
        around = self.confinement.around(argv, cwd, env, hidden=hidden, readable=python_folders())
        found = await stack.enter_async_context(around)
        return [*found.argv], found.env


def target_of(function: Callable[..., Any]) -> Target | None:
    """Return where another process finds a function; None if it cannot."""
    plain = inspect.unwrap(function)
    name = getattr(plain, "__qualname__", "<none>")
    module = sys.modules.get(getattr(plain, "__module__", None) or "")
    if module is None or "<" in name or inspect.ismethod(function):
        return None
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None or inspect.unwrap(found) is not plain:
        return None
    file = getattr(module, "__file__", None) or ""
    known, spec = module.__name__, getattr(module, "__spec__", None)
    if known == "__main__":
        known = spec.name if spec else ""
    elif known.startswith(LOADED_PREFIX):
        known = ""
    file = str(Path(file).absolute()) if file else ""
    return Target(known, file, name) if known or file else None


async def run_isolated(
    processes: Processes,
    target: Target,
    task: Task,
    context: Context,
    *,
    wants: bool,
    sources: Sources | None = None,
    walls: Walls | None = None,
) -> Report:
    """Run one attempt in a child process; cancelling kills it.

    `sources` are the modules that the child loads as they are here, even if their files have
    changed: `Snapshot.restore`. Behind `walls` it gets named variables only, and not the host's
    own.
    """
    from leadhand.workers.processes.leftovers import ProcessError
    from leadhand.workers.processes.runner import SpawnError

    argv = [sys.executable, "-P", "-m", "leadhand.workers.functions.isolated"]
    argv += [target.module or target.file, target.qualname]
    cwd = Path.cwd()  # the child stands where the host stands
    try:
        async with contextlib.AsyncExitStack() as stack:
            env = _environment()
            if walls is not None:
                argv, env = await walls.wrapped(stack, argv, cwd, processes.hidden)
            process = await processes.spawn(
                argv,
                cwd=cwd,
                env=env,
                stdin=_request(target, task, context if wants else None, sources or {}),
                stdout_limit=RESULT_BYTES_MAX,
                on_output=_Listener(context),
            )
            finished = await followed(process, context)
    except (SpawnError, NoSandbox) as error:
        return Report.failed("unavailable", str(error))
    except ProcessError as error:
        return Report.failed("lost", str(error), effect="unknown")
    return replace(_result(finished), output=text_of(finished.stderr))


async def followed(process: Process, context: Any, grace_s: float = GRACE_S) -> Finished:
    """Tell the engine which process it is, and wait for it; end it when cancelled."""
    tell = getattr(context, "spawned", None)
    if tell is not None:
        tell(Spawned(process.pid, process.start_time, process.boot_id))
    try:
        return await process.wait()
    except asyncio.CancelledError:
        # Until nothing of it is left, however often we are cancelled: no orphan may run
        # beside a retry.
        ending = asyncio.ensure_future(process.end(grace_s))
        while not ending.done():
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await asyncio.shield(ending)
        ending.exception()
        raise


def _environment() -> dict[str, str]:
    paths = [str(PACKAGE_FOLDER), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _request(target: Target, task: Task, context: Context | None, sources: Sources) -> bytes:
    request = {
        "sources": sources,
        "file": target.file,
        "path": [entry for entry in sys.path if isinstance(entry, str)],
        "pythonpath": os.environ.get("PYTHONPATH"),
        "action": task.action,
        "parameters": task.parameters,
        "context": None if context is None else context_document(context),
    }
    return msgspec.json.encode(request)


def context_document(context: Context) -> dict[str, Any]:
    """Return a context's data, read on the loop: other threads must not read the engine's state."""
    return {
        "goal": context.goal,
        "run": context.run,
        "step": context.step,
        "attempt": context.attempt,
        "key": context.key,
        "failures": context.failures,
        "results": context.results,
        "answers": getattr(context, "answers", ()),
    }


class _Listener:
    """Reads the child's progress as it comes; the report is read at the end."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._rest = b""
        self._live = LiveStreams()
        shown_live(context, self._live.sink)

    def __call__(self, stream: str, chunk: bytes) -> None:
        if stream != "stdout":
            self._live(stream, chunk)
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b'{"progress":'):
                said = msgspec.json.decode(line)["progress"]
                self._context.progress(said["message"], said["fraction"])
        if len(self._rest) > 1 << 16:
            self._rest = b"-"  # The report itself; it is not needed here.


def _result(finished: Finished) -> Report:
    if finished.signal is not None:
        message = f"the process was ended by signal {finished.signal}"
        return Report.failed("lost", message, effect="unknown")
    kept = finished.stdout
    tail = kept.data[kept.head :] if kept.truncated else kept.data
    line = tail.rstrip(b"\n").rpartition(b"\n")
    if kept.truncated and not line[1]:
        message = f"the result is larger than {RESULT_BYTES_MAX:,} bytes"
        return Report.failed("invalid_output", message, effect="unknown")
    try:
        doc = msgspec.json.decode(line[2])
        return report_from_doc(doc["report"])
    except (msgspec.MsgspecError, TypeError, KeyError, RecursionError):
        message = f"the process ended with {finished.exit_code} and no report"
        return Report.failed("lost", message, effect="unknown")


def text_of(captured: Captured, limit: int = 1 << 20) -> str:
    """Return a stream as text that JSON can hold, with a note where it was cut."""
    head, tail = captured.data[: captured.head], captured.data[captured.head :]
    gap = b""
    if captured.truncated:
        gap = b"\n[... %d bytes left out ...]\n" % (captured.total - len(captured.data))
    else:
        head, tail = captured.data, b""
    text = (head + gap + tail).decode("utf-8", "backslashreplace")
    return bounded_text(text, limit + 100)
