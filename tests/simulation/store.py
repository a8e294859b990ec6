"""The memory store with a disk that takes its time, fills up, breaks, and changes hands."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from leadhand.errors import Fenced, StoreBroken, StoreError, StoreFull
from leadhand.stores.memory import MemoryDisk, MemoryStore
from leadhand.testing.loop import PROCESS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.ports import Entry
    from tests.simulation.world import World


class SimStore(MemoryStore):
    """Commits what waits, all at once, some virtual time after the first of it came."""

    def __init__(self, world: World, disk: MemoryDisk) -> None:
        super().__init__(auto=False, disk=disk)
        self._world = world
        self._process = PROCESS.get()
        self._due = False
        self.fenced = 0
        """How many appends were refused because another host owns the disk."""

    @property
    def database_id(self) -> str:
        """There is one simulated database at a time."""
        return "simulated"

    def claim(self) -> int:
        """Become the owner."""
        self._world.claimed(self._process)
        return super().claim()

    def room(self) -> bool:
        """Whether new work may be granted."""
        return not self._world.crowded

    def append(
        self,
        run: str,
        expected: int,
        entries: Sequence[Entry],
        summary: bytes | None = None,
        *,
        alone: bool = False,
    ) -> asyncio.Future[None]:
        """Queue an append for the next commit."""
        future = super().append(run, expected, entries, summary)
        if not self._due:
            self._due = True
            delay = self._world.commit_delay()
            asyncio.get_running_loop().call_later(delay, self._commit)
        return future

    def _commit(self) -> None:
        self._due = False
        world = self._world
        if world.broken_next:
            world.broken_next = False
            self._break()
            return
        if world.full and self._epoch == self._disk.epoch:
            world.refused_at = world.refused_at or world.loop.time()
            while self._pending:
                request = self._pending.popleft()
                if not request.future.done():
                    request.future.set_exception(StoreFull("the simulated disk is full."))
            return
        first = len(self._disk.order)
        self.commit()
        if isinstance(self._refusal, Fenced):
            self.fenced += 1
            world.fenced(self._process, self.fenced)
        new = self._disk.order[first:]
        if new:
            world.refused_at = None
            world.committed(self._process, new)

    def _break(self) -> None:
        """The whole group fails: locked (nothing was written), or nobody knows (both may be)."""
        chance = self._world.random.random
        waiting = list(self._pending)
        self._pending.clear()
        error: StoreError = StoreError("the simulated database is locked")
        if chance() < 0.7:
            error = StoreBroken("simulated")
            if chance() < 0.5:
                loop = asyncio.get_running_loop()
                for request in waiting:
                    unheard = loop.create_future()
                    unheard.add_done_callback(asyncio.Future.exception)
                    self._pending.append(request._replace(future=unheard))
                self.commit()
            self._refusal = error
        for request in waiting:
            if not request.future.done():
                request.future.set_exception(type(error)(*error.args))

    def put_artifact(self, data: bytes) -> str:
        """Keep bytes, unless there is no space."""
        if self._world.full:
            self._world.refused_at = self._world.refused_at or self._world.loop.time()
            raise StoreFull("the simulated disk is full.")
        return super().put_artifact(data)
