"""Opening the host of runs that Temporal hosts, and the log that it reads."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadhand.app.store_factory import host_folded, host_state, open_store
from leadhand.app.used_approvals import UsedApprovals
from leadhand.core.host_events import HOST_STREAM, TemporalOpened, refuse_other
from leadhand.core.state.model import Now
from leadhand.engine import library_store
from leadhand.errors import UsageError
from leadhand.stores.location import StoreAddress, there
from leadhand.stores.postgres.address import Address
from leadhand.stores.sqlite.reader import SqliteReader
from leadhand.temporal.cluster import own_names, require

if TYPE_CHECKING:
    from leadhand.app.lead import Lead
    from leadhand.engine.host import EmbeddedHost
    from leadhand.ports import Entry, Store
    from leadhand.stores.location import StoreLocation
    from leadhand.stores.log import KeptStore
    from leadhand.temporal.activities import EngineActivities
    from leadhand.temporal.cluster import Cluster
    from leadhand.temporal.host import TemporalHost

STORE_WAIT_S = 10.0
LOOK_S = 0.1


async def open_host(cluster: Cluster, place: StoreLocation | Store) -> TemporalHost:
    """Open the host of runs on a Temporal server; their log is read here."""
    require()
    from leadhand.temporal.host import TemporalHost, connect

    if isinstance(place, Path) and not there(place):
        await connect(cluster)  # report an unreachable server first
    store = await open_log(place, speaks=True)
    try:
        cluster = own_names(cluster, store)
        refuse_other(host_state(store), cluster.namespace, cluster.ways.prefix)
        client = await connect(cluster, shelf=store)
    except BaseException:
        if store is not place:
            await store.close()
        raise
    host = TemporalHost(client, store, cluster.ways, lent=store is place)
    host.claim_approval = UsedApprovals(store.database_id).claim
    return host


async def open_log(place: StoreLocation | Store, *, speaks: bool = False) -> Any:
    """Open the log for reading, and for large payloads.

    `speaks`: also to record commands to all runs; no process of ours may host it meanwhile. An
    engine that has just started may still be creating the file.
    """
    if not isinstance(place, (Path, StoreAddress)):
        return place
    if isinstance(place, Address):
        if speaks:
            return open_store(place, for_service=True, beside=True)[0]
        from leadhand.stores.postgres.kind import need_driver
        from leadhand.stores.postgres.store import PostgresStore

        need_driver()
        return PostgresStore(place, shared=True)
    if isinstance(place, StoreAddress):
        raise UsageError(f"{place}: runs on Temporal have their log in a file or in PostgreSQL")
    until = time.monotonic() + STORE_WAIT_S
    while not await asyncio.to_thread(there, place) and time.monotonic() < until:  # noqa: ASYNC110 - a file
        await asyncio.sleep(LOOK_S)
    if not await asyncio.to_thread(there, place):
        raise UsageError(
            f"{place}: there is no log yet: an engine makes it. Fix: leadhand worker --engine, or "
            "leadhand serve, with this store; then again"
        )
    return _Beside(place)


async def mark(host: EmbeddedHost | LogOwner, cluster: Cluster) -> None:
    """Record the service that hosts the runs of a log, for readers while no engine runs.

    `cluster`: with the log's own names.
    """
    namespace, prefix = cluster.namespace, cluster.ways.prefix
    wanted = TemporalOpened(cluster.address, namespace, prefix)
    if isinstance(host, LogOwner):

        def decide(entries: list[Entry]) -> TemporalOpened | None:
            known = host_folded(entries)
            refuse_other(known, namespace, prefix)
            return None if known.temporal == wanted else wanted

        await library_store.append_to(host, HOST_STREAM, decide)
        return
    refuse_other(host.shared, namespace, prefix)
    if host.shared.temporal != wanted:
        await host.tell_host(wanted)


class LogOwner:
    """The part of a host that appends to the `$host` stream, beside other writers."""

    in_flight = 0

    def __init__(self, store: KeptStore) -> None:
        self.store = store

    def time(self) -> Now:
        """Return this machine's clock."""
        wall = time.time_ns() // 1000
        return Now(wall, wall)

    def fail(self, error: BaseException) -> None:
        """Do nothing: the waiting caller gets the error."""


class _Beside(SqliteReader):
    """A file that another process writes, with its folder of artifacts, which any may add to."""

    def put_artifact(self, data: bytes) -> str:
        """Store bytes; return their name."""
        return self._artifacts.put(data)


def engine_of(lead: Lead, store: Store, **more: Any) -> EngineActivities:
    """Return the engine's activities for the workers, planner and reviewers of a Lead."""
    require()
    from leadhand.temporal.activities import EngineActivities

    reviewers = dict(lead.reviewers)
    planner = lead.planner_of_run
    return EngineActivities(store, lead.registry, planner=planner, reviewers=reviewers, **more)
