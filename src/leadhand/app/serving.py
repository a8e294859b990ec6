"""Serving runs that Temporal hosts, from settings: a machine for steps, an engine, or both.

The engine's processes hold the log. In a file there can be one of them; in PostgreSQL as many as
there are machines. A machine only reads and writes what is too large for the log.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadhand.app.distributed import log_of
from leadhand.app.loading import registry_of, reviewers_of, telemetry_of
from leadhand.app.opening import open_store
from leadhand.app.taking_up import planner_again
from leadhand.engine.host import Host
from leadhand.errors import UsageError
from leadhand.stores.postgres.address import Address
from leadhand.temporal.cluster import require
from leadhand.workers.machine import LocalMachine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from leadhand.settings import Settings
    from leadhand.stores.log import KeptStore
    from leadhand.temporal.activities import Machine
    from leadhand.temporal.serving import Serving


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a process should serve."""

    settings: Settings
    kinds: tuple[str, ...] = ()
    """Names or kinds of workers; all that are loaded when there are none."""
    steps: bool = True
    engine: bool = False
    concurrency: int = 100
    drain_s: float = 3600.0
    notice: Callable[[str, str, str], None] = lambda _kind, _run, _text: None


class Up:
    """A process that serves."""

    def __init__(
        self, serving: Serving, machine: Machine, names: list[str], store: KeptStore
    ) -> None:
        self.serving, self.machine, self.names, self.store = serving, machine, names, store

    @property
    def ready(self) -> bool:
        """Whether it takes work."""
        return self.serving.ready


@asynccontextmanager
async def serving_temporal(wanted: Wanted) -> AsyncIterator[Up]:
    """Serve until the block ends; then drain."""
    require()
    from leadhand.temporal.activities import Engine, Machine
    from leadhand.temporal.client import connect
    from leadhand.temporal.serving import Serving, engine_worker, machine_workers, served

    settings, cluster = wanted.settings, wanted.settings.temporal
    if cluster is None:
        raise UsageError(
            "which Temporal server? Fix: give --temporal HOST:PORT, or set [temporal] address"
        )
    registry = registry_of(settings)
    names = served(registry, wanted.kinds) if wanted.steps else []
    if wanted.steps and not names:
        known = ", ".join(registry.catalog().workers) or "none"
        raise UsageError(f"there is nothing to serve; workers that are loaded: {known}")
    telemetry_of(settings)
    async with AsyncExitStack() as stack:
        store = await _store(stack, wanted)
        client = await connect(cluster.address, cluster.namespace, store)
        local = LocalMachine(_mark(settings))
        await local.clear()
        local.attach(registry)
        stack.push_async_callback(local.close)
        machine, prefix = Machine(registry, store), cluster.ways.prefix
        workers = machine_workers(
            client,
            prefix,
            machine,
            names,
            concurrency=wanted.concurrency,
            drain_s=wanted.drain_s,
        )
        if wanted.engine:
            engine = Engine(
                store,
                registry,
                planner=lambda state: planner_again(settings, state),
                reviewers=reviewers_of(settings),
                on_notice=wanted.notice,
            )
            workers.append(engine_worker(client, prefix, engine))
        serving = await stack.enter_async_context(Serving(workers))
        yield Up(serving, machine, names, store)


async def _store(stack: AsyncExitStack, wanted: Wanted) -> Any:
    """The log: held by an engine on a file, shared on PostgreSQL, read by a machine."""
    place = wanted.settings.store
    if not wanted.engine or isinstance(place, Address):
        store = await log_of(place)
        stack.push_async_callback(store.close)
        return store
    kept, lock = open_store(place)
    stack.callback(lock.release)
    host = Host(kept)  # it drives nothing: it owns the file, and says so there
    stack.push_async_callback(host.close)
    await host.open()
    return kept


def _mark(settings: Settings) -> str:
    """What programs that this process starts are marked with: the next one here ends them."""
    return f"temporal-{os.getuid()}-{settings.root.stat().st_ino:x}-{os.getpid()}"
