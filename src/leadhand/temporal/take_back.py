"""Taking runs back from a Temporal server, to be hosted by processes of ours again.

Its engines must have ended: the lock proves it. Workflows that still exist for runs of this log are
ended, so that none of them writes later; if the server cannot be reached, that is reported. From
then on the log says that its runs are hosted here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from leadhand.app.store_factory import host_state, open_store
from leadhand.codec.events import decode
from leadhand.core.events import RunHosted
from leadhand.core.host_events import TemporalLeft
from leadhand.engine.host import EmbeddedHost
from leadhand.errors import UsageError
from leadhand.temporal.cluster import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.host_events import TemporalOpened
    from leadhand.stores.location import StoreLocation
    from leadhand.stores.log import KeptStore
    from leadhand.temporal.cluster import Cluster


async def take_back(
    place: StoreLocation,
    cluster: Cluster,
    actor: str,
    reason: str,
    tell: Callable[[str], None],
) -> bool:
    """Let the runs of a log be hosted here again; return False if they already are.

    `cluster` is the connection to the server.
    """
    store, lock = open_store(place, for_service=True)
    host = EmbeddedHost(store)
    try:
        there = host_state(store).temporal
        if there is None:
            return False
        known = replace(cluster, namespace=there.namespace)
        await _end_workflows(store, known, there, f"taken back by {actor}: {reason}", tell)
        # Owner numbers that Temporal gave to runs count from one: ours must be higher than all.
        highest = _highest_owner(store)
        while store.claim() < highest:
            pass
        await host.open()
        await host.tell_host(TemporalLeft(actor, reason))
        return True
    finally:
        await host.close()
        lock.release()


async def _end_workflows(
    store: KeptStore,
    cluster: Cluster,
    there: TemporalOpened,
    why: str,
    tell: Callable[[str], None],
) -> None:
    try:
        require()
        from temporalio.service import RPCError

        from leadhand.temporal.cluster_status import hosted_runs, workflow_id
        from leadhand.temporal.host import connect
    except UsageError as error:
        tell(_unsure(error))
        return
    try:
        client = await connect(cluster)
        for run in sorted(await hosted_runs(client, there.prefix)):
            if store.header(run) is None:
                continue
            await client.get_workflow_handle(workflow_id(there.prefix, run)).terminate(reason=why)
            tell(f"run {run} is no longer hosted by Temporal")
    except (UsageError, RPCError) as error:
        tell(_unsure(error))


def _unsure(error: Exception) -> str:
    words = str(error).partition(" Fix: ")[0].rstrip(".")
    return (
        f"whether Temporal still has these runs is not known: {words}. "
        "Let no engine serve them again"
    )


def _highest_owner(store: KeptStore) -> int:
    highest = 0
    for header in store.runs():
        if header.run.startswith("$"):
            continue
        for entry in store.read(header.run):
            if b'"RunHosted"' in entry.body:
                event = decode(entry.version, entry.body)
                highest = max(highest, event.owner if isinstance(event, RunHosted) else 0)
    return highest
