"""`--detach`: a background host, and the message it sends when its start is durable.

The parent checks everything, then starts `leadhand host` in a session of its own with a request on
standard input and a pipe for one answer: the run's id, or the reason why there is none. So the
caller gets the right message and exit code for every failure of the start.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from leadhand.cli.console import Console
from leadhand.cli.group import ConsoleCommand, error_document
from leadhand.cli.rendering.text import clean, clean_lines
from leadhand.errors import LeadhandError, UsageError
from leadhand.settings import Settings, load_settings
from leadhand.settings.folders import FOLDER, make_store_folder
from leadhand.stores.location import home, public
from leadhand.stores.permissions import create_private, tighten

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc
    from leadhand.stores.location import StoreLocation


LOG_TAIL_BYTES = 2000


class _NotStarted(LeadhandError):
    """The background host could not start; carries its message and exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]


def log_path(place: StoreLocation) -> Path:
    """Return the log file of a background host."""
    store = home(place)
    return store.parent / "host.log" if store.parent.name == FOLDER else Path(f"{store}.log")


class BackgroundRun(NamedTuple):
    """A run in a process of its own."""

    run: str
    pid: int
    log: Path


def start_background(console: Console, settings: Settings, request: Doc) -> int:
    """Start a run in a process of its own, wait until that is durable, and print the run's id."""
    ident, pid, log = launch(settings, request)
    if console.json:
        console.document({"run": ident, "pid": pid, "log": str(log)})
    else:
        console.out(ident)
        console.say(f"run {ident} goes on in the background (process {pid}, log {log})")
        console.say(f"Watch it with: {console.command(f'watch {ident}')}")
    return 0


def launch(settings: Settings, request: Doc) -> BackgroundRun:
    """Start a run in a process of its own; return once its start is durable.

    The process has the interpreter, the folder and the environment of this one. It is the host of
    the database, or drives the run beside the host.
    """
    make_store_folder(settings.store)
    log = log_path(settings.store)
    told, tell = os.pipe()
    try:
        create_private(log)
        tighten(log)
        with log.open("ab") as output:
            begin = output.tell()
            # -P: a file of the project must not shadow a module of ours.
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "leadhand.cli", "host", "--tell", str(tell)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[tell],
                start_new_session=True,
            )
    finally:
        os.close(tell)
    assert child.stdin is not None
    try:
        child.stdin.write(json.dumps(request).encode())
        child.stdin.close()
    except BrokenPipeError:
        pass  # it died; the answer below has the reason
    with os.fdopen(told, "rb") as pipe:
        answer = pipe.read()
    ident = _understood(answer, child, log, begin)
    child.returncode = 0  # it outlives us on purpose: suppress the warning
    return BackgroundRun(ident, child.pid, log)


def _understood(answer: bytes, child: subprocess.Popen[bytes], log: Path, begin: int) -> str:
    try:
        found = json.loads(answer)
    except ValueError:
        child.wait()
        with log.open("rb") as file:
            file.seek(begin)
            said = file.read()[-LOG_TAIL_BYTES:].decode("utf-8", "replace")
        message = f"the background host ended before it began: {clean_lines(said.strip())}"
        raise _NotStarted(message, child.returncode if child.returncode > 0 else 1) from None
    if "error" in found:
        child.wait()
        error = found["error"]
        fix = f" Fix: {error['fix']}" if error.get("fix") else ""
        raise _NotStarted(f"{error['message']}{fix}", int(error["exit"]))
    return str(found["run"])


@click.command("host", cls=ConsoleCommand, hidden=True, example="(used by --detach)")
@click.option("--tell", type=int, required=True)
def host(console: Console, tell: int) -> int:
    """Run one run in the background; the request is read from standard input."""
    os.set_inheritable(tell, False)
    try:
        request = json.loads(sys.stdin.buffer.read())
    except ValueError:
        raise UsageError("the request is incomplete: the process that sent it has ended") from None

    def answer(doc: Doc) -> None:
        nonlocal tell
        if tell >= 0:
            # The caller may have been killed: a started run continues all the same.
            with contextlib.suppress(OSError):
                os.write(tell, json.dumps(doc).encode())
            os.close(tell)
            tell = -1

    try:
        return _host(console, request, lambda run: answer({"run": run}))
    except BaseException as error:
        answer(error_document(error) or {"error": {"message": clean(error), "exit": 1}})
        raise


def _host(console: Console, request: Doc, started: Any) -> int:
    from dataclasses import replace

    from leadhand.cli.foreground import host as host_job

    if load_settings().store != load_settings({"project.store": request["store"]}).store:
        console.store = public(request["store"])
    if request.get("rollback"):
        job = _rollback_job(request)
    elif request.get("rerun"):
        job = _rerun_job(request)
    else:
        job = _resume_job(request) if request.get("resume") else _run_job(request)
    make = job.lead

    def beside(on_notice: Any) -> Any:
        lead = make(on_notice)
        lead.beside = True
        return lead

    return host_job(console, replace(job, lead=beside, stay=True, started=started))


def _settings(request: Doc) -> Settings:
    from dataclasses import replace

    import msgspec

    from leadhand.core.policy import Policy

    settings = load_settings({"project.store": request["store"]}, context=request.get("context"))
    if request.get("policy") is None:
        return settings
    return replace(settings, policy=msgspec.convert(request["policy"], Policy))


def _run_job(request: Doc) -> Any:
    from leadhand.app.composition import registry_of
    from leadhand.app.contexts import goal_registry
    from leadhand.cli.commands.run import CheckedPlan, job_of
    from leadhand.core.plan.model import Goal

    settings = _settings(request)
    sources = tuple(request["workers"])
    goal = None if request["goal"] is None else Goal.from_doc(request["goal"])
    planned = goal is not None or request["planner"]
    prepared = CheckedPlan(
        settings,
        goal_registry(settings, sources) if planned else registry_of(settings, sources),
        sources,
        request["actor"],
        request["doc"],
        request["values"],
        goal,
        request["planner"],
        request.get("origin"),
        tuple(request.get("approvals") or ()),
        labels=tuple(request.get("labels") or ()),
        run_id=str(request.get("run") or ""),
    )
    return job_of(prepared, approve=request["approve"])


def _resume_job(request: Doc) -> Any:
    from leadhand.app.resumable_run import load_resumable
    from leadhand.cli.commands.resume import job_of
    from leadhand.cli.options import reading

    settings = _settings(request)
    with reading(settings) as reader:
        state = reader.state(request["resume"])
    found = load_resumable(settings, state, tuple(request["workers"]), request["planner"])
    return job_of(found, request["actor"], approve=request["approve"])


def _rollback_job(request: Doc) -> Any:
    from leadhand.cli.commands.rollback import job_of
    from leadhand.cli.options import reading

    settings = _settings(request)
    with reading(settings) as reader:
        state = reader.state(request["rollback"])
    return job_of(settings, state, tuple(request["workers"]), request["actor"], request["approve"])


def _rerun_job(request: Doc) -> Any:
    from leadhand.app.rerun import prepare_rerun
    from leadhand.cli.commands.rerun import job_of
    from leadhand.cli.options import reading

    settings = _settings(request)
    with reading(settings) as reader:
        state, found = prepare_rerun(reader.store, request["rerun"], request["from"])
    return job_of(settings, state, found, request)
