"""The door to a database from any process: through its host if one is alive, else in person.

With no host alive, the command takes ownership for the moment, appends what was said, and
lets go; `leadhand resume RUN` hosts the run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from leadhand import errors
from leadhand.app.anchors import Anchorer
from leadhand.app.store_factory import ask_host, open_store
from leadhand.audit.anchors import Anchoring
from leadhand.codec.events import escaped
from leadhand.engine import library_store
from leadhand.engine.fold import NoWorkers
from leadhand.engine.host import EmbeddedHost
from leadhand.engine.host_socket import word
from leadhand.errors import Conflict, LeadhandError, NotAllowed, PlanInvalid, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.plan.model import Doc
    from leadhand.ports import Workers
    from leadhand.stores.location import Place


async def say(
    place: Place,
    run: str,
    verb: str,
    *,
    actor: str,
    anchoring: Anchoring | None = None,
    workers: Workers | Callable[[], Workers] | None = None,
    **details: Any,
) -> Doc:
    """Say something to a run, or to the host (`stop_all`, `lift`); durable when it returns.

    `workers`, where they are at hand, tell which of their secrets must not be written down, and
    are known to the run from now on; a function gives them if nothing hosts the run.
    """
    request = {"verb": verb, "run": run, "actor": actor, "details": details}
    answer = await _ask(place, request)
    if answer is not None:
        return {**answer, "hosted": True}
    # The library is no run's: nobody's workflow is forked by what is written there.
    store, lock = open_store(place, for_service=verb in library_store.VERBS)
    try:
        host = EmbeddedHost(store)
        await host.open()
        anchorer = Anchorer(store, anchoring or Anchoring(), lambda _text: None)
        try:
            here = workers() if callable(workers) else workers
            spoken = host.load(run, here or NoWorkers()) if run else None
            return {**await word(host, spoken, verb, actor, details), "hosted": False}
        finally:
            await host.close()
            await anchorer.close()
    finally:
        lock.release()


async def progress(place: Place, run: str) -> Doc | None:
    """What workers say of how far they are; None when no host is alive."""
    return await _ask(place, {"verb": "progress", "run": run})


async def step_back(place: Place) -> bool:
    """Ask the host to leave the database to this process; false when it does not.

    Only a run's own process does, which goes on beside the new host. One that is just opening or
    letting go of the database says nothing: then it is worth asking again.
    """
    try:
        await _ask(place, {"verb": "step_back"})
    except NotAllowed:
        return False
    except (LeadhandError, OSError):
        return True
    return True


async def hosted_runs(place: Place) -> list[str]:
    """The runs that a database's host has in hand, as far as it says so."""
    try:
        answer = await _ask(place, {"verb": "ping"}) or {}
    except (LeadhandError, OSError):
        return []
    return [str(run) for run in answer.get("runs", ())]


async def _ask(place: Place, request: Doc) -> Doc | None:
    """Ask the host; None when nobody listens."""
    line = await ask_host(place, msgspec.json.encode(escaped(request)))
    if line is None:
        return None
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
