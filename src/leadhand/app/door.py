"""The door to a database from any process: through its host if one is alive, else in person.

With no host alive, the command takes ownership for the moment, appends what was said, and
lets go; `leadhand resume RUN` hosts the run again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand import errors
from leadhand.app.anchoring import Anchorer
from leadhand.audit.anchors import Anchoring
from leadhand.codec.events import escaped
from leadhand.engine.fold import NoWorkers
from leadhand.engine.host import Host
from leadhand.engine.service import LINE_BYTES_MAX, socket_path, word
from leadhand.errors import Conflict, LeadhandError, NotAllowed, PlanInvalid, UsageError
from leadhand.stores.lock import HostLock
from leadhand.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from leadhand.core.plan import Doc
    from leadhand.ports import Workers

ANSWER_WAIT_S = 30.0


async def say(
    path: Path,
    run: str,
    verb: str,
    *,
    actor: str,
    anchoring: Anchoring | None = None,
    workers: Workers | None = None,
    **details: Any,
) -> Doc:
    """Say something to a run, or to the host (`stop_all`, `lift`); durable when it returns.

    `workers`, where they are at hand, tell which of their secrets must not be written down.
    """
    request = {"verb": verb, "run": run, "actor": actor, "details": details}
    answer = await _ask(path, request)
    if answer is not None:
        return {**answer, "hosted": True}
    lock = HostLock(path)
    lock.acquire()
    try:
        store = SqliteStore(path)
        host = Host(store)
        await host.open()
        anchorer = Anchorer(store, anchoring or Anchoring(), lambda _text: None)
        try:
            spoken = host.load(run, workers or NoWorkers()) if run else None
            return {**await word(host, spoken, verb, actor, details), "hosted": False}
        finally:
            await host.close()
            await anchorer.close()
    finally:
        lock.release()


async def progress(path: Path, run: str) -> Doc | None:
    """What workers say of how far they are; None when no host is alive."""
    return await _ask(path, {"verb": "progress", "run": run})


async def hosted_runs(path: Path) -> list[str]:
    """The runs that a database's host has in hand, as far as it says so."""
    try:
        answer = await _ask(path, {"verb": "ping"}) or {}
    except (LeadhandError, OSError):
        return []
    return [str(run) for run in answer.get("runs", ())]


def host_info(path: Path) -> Doc | None:
    """Who hosts a database now."""
    return HostLock(path).holder()


async def _ask(path: Path, request: Doc) -> Doc | None:
    """Ask the host; None when nobody listens."""
    try:
        reader, writer = await asyncio.open_unix_connection(
            str(socket_path(path)), limit=LINE_BYTES_MAX
        )
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    try:
        writer.write(msgspec.json.encode(escaped(request)) + b"\n")
        await writer.drain()
        line = await asyncio.wait_for(reader.readline(), ANSWER_WAIT_S)
    except (ConnectionError, TimeoutError) as error:
        raise Conflict(
            f"the host of {path} did not answer: {str(error) or 'it took too long'}. "
            "What was said may still be carried out."
        ) from None
    finally:
        writer.close()
    if not line:
        raise Conflict(f"the host of {path} ended before it answered; try again")
    answer = msgspec.json.decode(line, type=dict[str, Any])
    if "error" in answer:
        raise _rebuilt(str(answer.get("kind")), str(answer["error"]))
    return dict(answer["ok"])


def _rebuilt(name: str, message: str) -> LeadhandError:
    if name == PlanInvalid.__name__:
        return PlanInvalid([message])
    kind = getattr(errors, name, None)
    known = isinstance(kind, type) and issubclass(kind, (UsageError, Conflict, NotAllowed))
    return kind(message) if kind is not None and known else LeadhandError(message)
