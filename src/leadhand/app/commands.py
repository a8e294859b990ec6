"""Commands to a database from any process: through its live host, else directly.

Without a live host, the command owns the database for the moment, appends its event, and releases
it; `leadhand resume RUN` hosts the run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from leadhand import errors
from leadhand.app.anchors import Anchorer
from leadhand.app.store_factory import ask_host, open_store
from leadhand.audit.anchors import Anchoring
from leadhand.codec.events import escape_surrogates
from leadhand.engine import library_store
from leadhand.engine.fold import NoWorkers
from leadhand.engine.host import EmbeddedHost
from leadhand.engine.host_socket import perform_command
from leadhand.errors import Conflict, LeadhandError, NotAllowed, PlanInvalid, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.app.reader import LogAccess
    from leadhand.core.plan.model import Doc
    from leadhand.ports import Workers
    from leadhand.stores.location import StoreLocation


async def send_command(
    place: StoreLocation,
    run: str,
    verb: str,
    *,
    actor: str,
    anchoring: Anchoring | None = None,
    workers: Workers | Callable[[], Workers] | None = None,
    access: LogAccess | None = None,
    **details: Any,
) -> Doc:
    """Send a command to a run, or to the host (`stop_all`, `lift`); durable on return.

    `workers`, if known, tell which of their secrets must not be logged, and become the run's
    current workers; a function returns them, called only if the run is not hosted. `access`: the
    caller's, closed before this process writes, and told the run's new state.
    """
    request = {"verb": verb, "run": run, "actor": actor, "details": details}
    answer = await ask(place, request)
    if answer is not None:
        return {**answer, "hosted": True}
    if access is not None:
        access.close()
    # The library belongs to no run: writing to it forks no workflow.
    store, lock = open_store(place, for_service=verb in library_store.VERBS)
    try:
        host = EmbeddedHost(store)
        await host.open()
        anchorer = Anchorer(store, anchoring or Anchoring(), lambda _text: None)
        try:
            here = workers() if callable(workers) else workers
            spoken = host.load(run, here or NoWorkers()) if run else None
            result = await perform_command(host, spoken, verb, actor, details)
            if access is not None and spoken is not None:
                access.wrote(spoken.state)
            return {**result, "hosted": False}
        finally:
            await host.close()
            await anchorer.close()
    finally:
        lock.release()


async def progress(place: StoreLocation, run: str) -> Doc | None:
    """Return the progress reported by workers; None without a live host."""
    return await ask(place, {"verb": "progress", "run": run})


async def step_back(place: StoreLocation) -> bool:
    """Ask the host to leave the database to this process; return False if it refuses.

    Only a run's own process does so, and continues beside the new host. A process that is just
    opening or releasing the database does not answer: then it is worth asking again.
    """
    try:
        await ask(place, {"verb": "step_back"})
    except NotAllowed:
        return False
    except (LeadhandError, OSError):
        return True
    return True


async def hosted_runs(place: StoreLocation) -> list[str]:
    """Return the runs that a database's host drives, as far as it says."""
    try:
        answer = await ask(place, {"verb": "ping"}) or {}
    except (LeadhandError, OSError):
        return []
    return [str(run) for run in answer.get("runs", ())]


async def ask(place: StoreLocation, request: Doc) -> Doc | None:
    """Send a request to the host; None if no host listens."""
    line = await ask_host(place, msgspec.json.encode(escape_surrogates(request)))
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
