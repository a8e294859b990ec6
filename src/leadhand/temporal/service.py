"""Serving runs that Temporal hosts, from settings: a machine for steps, an engine, or both.

The engine's processes hold the log. For a file there can be one of them; for PostgreSQL any number.
A machine only reads and writes large payloads.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadhand.app.anchors import ANCHORED, Anchorer
from leadhand.app.composition import registry_of, reviewers_of, telemetry_of
from leadhand.app.resumable_run import planner_from_log
from leadhand.app.store_factory import open_store
from leadhand.engine.host import EmbeddedHost
from leadhand.errors import LeadhandError, UsageError
from leadhand.stores.postgres.address import Address
from leadhand.temporal.cluster import own_names, require
from leadhand.temporal.host_factory import LogOwner, mark, open_log
from leadhand.workers.processes.machine import LocalMachine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    Notice = Callable[[str, str, str], None]

    from leadhand.settings import Settings
    from leadhand.stores.log import KeptStore
    from leadhand.temporal.activities import StepActivities
    from leadhand.temporal.cluster import Cluster
    from leadhand.temporal.processes import RunningWorkers

LOOK_S = 0.5
"""The interval of checks whether the log still accepts writes of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """What a process should serve."""

    settings: Settings
    cluster: Cluster
    kinds: tuple[str, ...] = ()
    """Names or kinds of workers; all loaded workers if empty."""
    steps: bool = True
    engine: bool = False
    concurrency: int = 100
    drain_s: float = 3600.0
    notice: Callable[[str, str, str], None] = lambda _kind, _run, _text: None


class RunningService:
    """A process that serves."""

    def __init__(
        self,
        serving: RunningWorkers,
        machine: StepActivities | None,
        names: list[str],
        store: KeptStore | None,
        *,
        writes: bool,
    ) -> None:
        """Create it; `writes`: it is an engine, which writes the log.

        A product's own kind of worker has neither `machine` nor `store`.
        """
        self.serving, self.machine, self.names, self.store = serving, machine, names, store
        self._writes = writes
        self.began = 0
        """The end of the log before anything was served: later entries came since."""

    @property
    def ready(self) -> bool:
        """Whether it takes work, and could record the results."""
        return self.serving.ready and self._refusal() is None

    async def failed(self) -> None:
        """Wait until the log refuses writes of this process, and raise the reason."""
        while (refusal := self._refusal()) is None:  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(LOOK_S)
        raise refusal

    def _refusal(self) -> LeadhandError | None:
        return self.store.refusal if self._writes and self.store is not None else None


@asynccontextmanager
async def running_service(options: ServiceOptions) -> AsyncIterator[RunningService]:
    """Serve until the block ends; then drain."""
    require()
    from leadhand.temporal.activities import EngineActivities, StepActivities
    from leadhand.temporal.host import connect
    from leadhand.temporal.processes import RunningWorkers, engine_worker, machine_workers, served

    settings, cluster = options.settings, options.cluster
    registry = registry_of(settings)
    names = served(registry, options.kinds) if options.steps else []
    if options.steps and not names:
        known = ", ".join(registry.catalog().workers) or "none"
        raise UsageError(f"no workers to serve; loaded workers: {known}")
    telemetry_of(settings)
    async with AsyncExitStack() as stack:
        store = await _store(stack, options)
        cluster = own_names(cluster, store)
        client = await connect(cluster, shelf=store)
        notice = await _own(stack, options, store, cluster) if options.engine else options.notice
        local = LocalMachine(_mark(settings))
        await local.clear()
        local.attach(registry)
        stack.push_async_callback(local.close)
        machine, prefix = StepActivities(registry, store), cluster.ways.prefix
        workers = machine_workers(
            client,
            prefix,
            machine,
            names,
            concurrency=options.concurrency,
            drain_s=options.drain_s,
        )
        if options.engine:
            engine = EngineActivities(
                store,
                registry,
                planner=lambda state: planner_from_log(settings, state, methods=registry.methods),
                reviewers=reviewers_of(settings),
                on_notice=notice,
            )
            workers.append(engine_worker(client, prefix, engine))
        began = store.last_position() if options.engine else 0
        serving = await stack.enter_async_context(RunningWorkers(workers))
        up = RunningService(serving, machine, names, store, writes=options.engine)
        up.began = began
        yield up


async def _store(stack: AsyncExitStack, options: ServiceOptions) -> Any:
    """Open the log: held by an engine on a file, shared on PostgreSQL, read by a machine."""
    if not options.engine:
        store = await open_log(options.settings.store)
        stack.push_async_callback(store.close)
        return store
    kept, lock = open_store(options.settings.store, for_service=True, beside=True)
    stack.callback(lock.release)
    stack.push_async_callback(kept.close)
    return kept


async def _own(
    stack: AsyncExitStack, options: ServiceOptions, store: KeptStore, cluster: Cluster
) -> Notice:
    """Record that Temporal hosts the runs of the log, and anchor what is written there.

    Return the function that gets notices of runs.
    """
    anchorer = Anchorer(
        store, options.settings.anchoring, lambda text: options.notice("trouble", "", text)
    )
    anchorer.refuse_cut()
    stack.push_async_callback(_last_anchor, store, anchorer)
    host = None
    if not isinstance(options.settings.store, Address):
        host = EmbeddedHost(store)  # it drives nothing: it owns the file, and records that
        stack.push_async_callback(host.close)
        await host.open()
    await mark(host or LogOwner(store), cluster)
    anchorer.open()

    def noticed(kind: str, run: str, text: str) -> None:
        if kind in ANCHORED:
            anchorer.soon()
        options.notice(kind, run, text)

    return noticed


async def _last_anchor(store: KeptStore, anchorer: Anchorer) -> None:
    """Write the last anchor: once the store is closed its head can no longer move."""
    await store.close()
    await anchorer.close()


def _mark(settings: Settings) -> str:
    """Return the mark of programs that this process starts: the next process here ends them."""
    return f"temporal-{os.getuid()}-{settings.root.stat().st_ino:x}-{os.getpid()}"
