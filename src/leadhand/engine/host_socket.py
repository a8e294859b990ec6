"""The host's socket: how other processes send commands to the owner of the database.

A Unix socket beside the database (mode 0600, so only its owner may connect), one JSON document per
line in each direction. Every request is answered only after its effect is durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core import host_events as hosting
from leadhand.core.commands import command_result, move_of
from leadhand.core.review.agents import refuse_agent_host_command
from leadhand.core.rollback import rollback_id
from leadhand.core.views.run import run_status
from leadhand.core.wording import listed
from leadhand.engine import callers, library_store
from leadhand.engine.agent_session import actor_behind, unix_peer
from leadhand.engine.fold import NoWorkers
from leadhand.engine.guest.host_side import GuestRun
from leadhand.errors import Conflict, LeadhandError, NotAllowed, UsageError

if TYPE_CHECKING:
    from leadhand.core.decide.effects import Move
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import Now, State
    from leadhand.engine.host import EmbeddedHost
    from leadhand.engine.run import Run


TAKES_IN = ("amend", "redo", "answer", "resume", "release")
"""Commands by which a run continues, with the current versions of its workers."""
LINE_BYTES_MAX = 16 << 20
"""A command may contain a whole plan: a document has at most 10 MiB."""
HELLO_BYTES = 200
SOCKET_PATH_MAX = 100
"""Unix socket paths are short; for a longer one a substitute in `SHORT_FOLDER` is used."""
SHORT_FOLDER = Path("/tmp")  # noqa: S108 - a private folder is made in it
"""Not TMPDIR: that may be long, and another process may have another one."""


def socket_path(database: Path) -> Path:
    """Return the socket path of a database's host."""
    beside = Path(f"{database.resolve()}.sock")
    if len(os.fsencode(beside)) <= SOCKET_PATH_MAX:
        return beside
    name = hashlib.sha256(os.fsencode(beside)).hexdigest()[:24]
    folder = SHORT_FOLDER / f"leadhand-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise UsageError(f"{folder} is not a private folder of yours; remove it or move the store")
    return folder / f"{name}.sock"


async def perform_command(
    host: EmbeddedHost, run: Run | None, verb: str, actor: str, details: Doc
) -> Doc:
    """Carry out one command of a person; return its result once it is durable."""
    if verb in ("stop_all", "lift", *library_store.VERBS):
        refuse_agent_host_command(verb, actor)
    if verb == "stop_all":
        await host.tell_host(hosting.StopAllRequested(actor, str(details.get("reason", ""))))
        return {"stopped": True}
    if verb == "lift":
        await host.tell_host(hosting.StopAllLifted(actor))
        return {"stopped": False}
    if verb in library_store.VERBS:
        return await library_store.perform_library_command(host, verb, actor, details)
    if run is None:
        raise UsageError(f"{verb} needs a run")
    if isinstance(run, GuestRun):
        return await run.speak(verb, actor, details)
    if verb in callers.VERBS:
        return await callers.take_request(host, run, verb, actor, details)
    if verb == "redo" and host.store.header(rollback_id(run.id)) is not None:
        raise Conflict(
            f"what run {run.id} did was taken back by run {rollback_id(run.id)}. "
            "Fix: run the plan again"
        )
    if verb in TAKES_IN:
        changed = await host.update_workers(run)
        if changed and (verb == "release" or details.get("choice") in ("approve", "release")):
            raise Conflict(
                f"{listed(sorted(changed))} changed since you looked. Nothing was allowed. "
                f"Fix: look again with `leadhand review {run.id}` or `leadhand inbox`"
            )
    make, heard = move_of(verb, actor, details), dict[str, Any]()

    def said(state: State, now: Now) -> Move:
        move = make(state, now)
        heard.update(command_result(move.events))
        return move

    await run.submit_and_wait(said)
    if verb in TAKES_IN:  # it may have been reopened
        await host.update_workers(run)
    return {"run": run.id, "status": run_status(run.state), **heard}


class Answers:
    """Answers requests for one host, from any transport."""

    def __init__(self, host: EmbeddedHost) -> None:
        self._host = host

    async def answer(self, line: bytes, peer: int = 0) -> bytes:
        """Return the answer to one request; `peer` is the process that sent it, if known."""
        return msgspec.json.encode(await self._answer(line, peer))

    async def _answer(self, line: bytes, peer: int) -> Doc:
        try:
            request = msgspec.json.decode(line, type=dict[str, Any])
            return {"ok": await self._do(request, peer)}
        except LeadhandError as error:
            return {"error": str(error), "kind": type(error).__name__}
        except msgspec.DecodeError as error:
            return {"error": f"not a request: {error}", "kind": "UsageError"}
        except Exception as error:  # noqa: BLE001 - whatever is asked gets an answer
            return {"error": f"cannot be done: {error!r}", "kind": "UsageError"}

    async def _do(self, request: Doc, peer: int) -> Doc:
        verb = str(request.get("verb", ""))
        if verb == "ping":
            return {"pid": os.getpid(), "runs": [*self._host.runs, *self._host.asleep]}
        if verb == "step_back":
            return await self._step_back()
        ident = str(request.get("run", ""))
        if ident.startswith("$"):
            raise UsageError(f"{ident} is not a run")
        run = self._host.runs.get(ident)
        if verb == "progress":
            notes = dict(run.progress) if run else {}
            return {step: {"message": m, "fraction": f} for step, (m, f) in notes.items()}
        if ident and run is None:
            run = self._host.load(ident, NoWorkers())
        details = request.get("details") or {}
        actor = str(request.get("actor", ""))
        actor = actor_behind(actor, peer) if peer else actor
        return await perform_command(self._host, run, verb, actor, details)

    async def _step_back(self) -> Doc:
        step_back = getattr(self._host, "step_back", None)
        if step_back is None:
            raise NotAllowed(f"process {os.getpid()} does not leave the database to another")
        await step_back()
        return {"pid": os.getpid()}


class Service:
    """The listening socket."""

    def __init__(self, host: EmbeddedHost, path: Path) -> None:
        self._host = host
        self._answers = Answers(host)
        self._path = path
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen. Remove the old socket of a dead host first: the lock proves that we own it."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        mask = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, path=str(self._path), limit=LINE_BYTES_MAX
            )
        finally:
            os.umask(mask)

    async def close(self) -> None:
        """Stop listening; guests look for the next host."""
        await self._host.guests.close()
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                if (hello := _joining(line)) is not None:
                    await self._host.guests.attend(hello, reader, writer)
                    return
                peer = unix_peer(writer.get_extra_info("socket"))
                writer.write(await self._answers.answer(line, peer) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


def _joining(line: bytes) -> Doc | None:
    """Return the request if it is a guest's `join`: the connection then becomes its line."""
    if b'"join"' not in line[:HELLO_BYTES]:
        return None
    try:
        request = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    return request if request.get("verb") == "join" else None
