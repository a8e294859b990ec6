"""Reading the database in threads: the loop belongs to the engine, and must not wait for a disk.

Each thread has a reader of its own. It caches a few folded runs, so that looking at the same run
again costs only what has happened since, not its whole log.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from leadhand.app.documents import Driver
from leadhand.app.reader import Reader
from leadhand.codec.events import decode_all
from leadhand.core.state.evolve import evolve_all
from leadhand.core.views.rows import RowFold
from leadhand.engine.fold import fold, gc_paused
from leadhand.errors import StoreCorrupt
from leadhand.server.problems import missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.state.model import State
    from leadhand.ports import RunHeader
    from leadhand.stores.location import StoreLocation


T = TypeVar("T")
THREADS = 3
RUNS_KEPT = 16
ROWS_KEPT = 3
STEPS_KEPT = 50_000
"""The number of steps over all runs that a reader caches."""


class CachedReader(Reader):
    """A reader with a cache of folded runs."""

    def __init__(self, place: StoreLocation) -> None:
        super().__init__(place)
        self._kept: OrderedDict[str, State] = OrderedDict()
        self._rows: OrderedDict[str, RowFold] = OrderedDict()
        self.driver = Driver()

    def header(self, run: str) -> RunHeader:
        """Return a run's header by its whole id. Raise a 404 refusal if there is none."""
        found = None if run.startswith("$") else self.store.header(run)
        if found is None:
            raise missing(f"run {run[:100]} not found")
        return found

    def state(self, run: str) -> State:
        """Return the folded state of a run, as it is now on disk. Callers must not keep it."""
        kept = self._kept.pop(run, None)
        state = self._further(run, kept) if kept is not None else fold(self.verified(run))
        if state.started is None:
            raise StoreCorrupt(f"the log of run {run} has no beginning")
        self._kept[run] = state
        while len(self._kept) > RUNS_KEPT or (
            len(self._kept) > 1 and sum(len(s.steps) for s in self._kept.values()) > STEPS_KEPT
        ):
            self._kept.popitem(last=False)
        return state

    def rows(self, run: str) -> RowFold:
        """Return the rows of plan and execution of a run, as it is now on disk."""
        fold = self._rows.pop(run, None) or RowFold()
        with gc_paused():
            entries = self.verified(run, fold.state.seq)
            events = decode_all([(entry.version, entry.body) for entry in entries])
            for entry, event in zip(entries, events, strict=True):
                fold.add(entry.at, event)
        self._rows[run] = fold
        while len(self._rows) > ROWS_KEPT:
            self._rows.popitem(last=False)
        return fold

    def _further(self, run: str, state: State) -> State:
        with gc_paused():
            entries = self.verified(run, state.seq)
            events = decode_all([(entry.version, entry.body) for entry in entries])
            evolve_all(state, zip([entry.at for entry in entries], events, strict=True))
        return state


class CachedReaders:
    """All cached readers of a server."""

    def __init__(self, place: StoreLocation) -> None:
        self._place = place
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="leadhand-read")
        self._own = threading.local()
        self._all: list[CachedReader] = []
        self.driver = Driver()
        """The process that hosts the database: this one."""

    async def read(self, look: Callable[[CachedReader], T]) -> T:
        """Run `look` with a reader in a thread, and return its result."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._look, look)

    def _look(self, look: Callable[[CachedReader], T]) -> T:
        desk: CachedReader | None = getattr(self._own, "desk", None)
        if desk is None:
            desk = self._own.desk = CachedReader(self._place)
            self._all.append(desk)
        desk.driver = self.driver
        return look(desk)

    def close(self) -> None:
        """Close all readers."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for desk in self._all:
            desk.store.close_reader()
