"""Runs on Temporal, for a Lead: the host that is elsewhere, and what serves it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadhand.app.planning import taken_up
from leadhand.stores.places import need_driver, there
from leadhand.stores.postgres.address import Address
from leadhand.stores.reader import SqliteReader
from leadhand.temporal.cluster import require

if TYPE_CHECKING:
    from leadhand.app.lead import Lead
    from leadhand.core.plan import Doc
    from leadhand.core.state import State
    from leadhand.ports import Planner, Store
    from leadhand.stores.places import Place
    from leadhand.temporal.activities import Engine
    from leadhand.temporal.client import Distant
    from leadhand.temporal.cluster import Cluster

STORE_WAIT_S = 10.0
LOOK_S = 0.1


async def distant(cluster: Cluster, place: Place | Store) -> Distant:
    """The host of runs that a Temporal server hosts; their log is read here."""
    require()
    from leadhand.temporal.client import Distant, connect

    store = await log_of(place)
    client = await connect(cluster.address, cluster.namespace, store)
    return Distant(client, store, cluster.ways, lent=store is place)


async def log_of(place: Place | Store) -> Any:
    """The log, for reading, and for what is too large to cross.

    An engine that has just begun may still be making the file.
    """
    if not isinstance(place, (Path, Address)):
        return place
    if isinstance(place, Address):
        need_driver()
        from leadhand.stores.postgres.store import PostgresStore

        return PostgresStore(place, shared=True)
    until = time.monotonic() + STORE_WAIT_S
    while not await asyncio.to_thread(there, place) and time.monotonic() < until:  # noqa: ASYNC110 - a file
        await asyncio.sleep(LOOK_S)
    return _Beside(place)


class _Beside(SqliteReader):
    """A file that another process writes, and its folder of artifacts, which takes from any."""

    def put_artifact(self, data: bytes) -> str:
        """Keep bytes; their name."""
        return self._artifacts.put(data)


async def distant_say(
    cluster: Cluster, place: Place, run: str, verb: str, actor: str, details: Doc
) -> Doc:
    """Say something to a run that Temporal hosts, or to all of them."""
    host = await distant(cluster, place)
    try:
        return await host.say(run, verb, actor, details)
    finally:
        await host.close()


def engine_of(lead: Lead, store: Store, **more: Any) -> Engine:
    """The engine's activities for the workers, planner and reviewers of a Lead."""
    require()
    from leadhand.temporal.activities import Engine

    def planner(state: State) -> Planner | None:
        name = state.started.planner if state.started is not None else ""
        return taken_up(name, lead.planner, lead.registry.methods)

    reviewers = dict(lead.reviewers)
    return Engine(store, lead.registry, planner=planner, reviewers=reviewers, **more)
