"""A store in memory: the same contract, no input or output, no thread.

For tests, the simulator, and runs that need not be kept. The content of the disk is a separate
object, so that a crash can be simulated: `reopen` returns a new store with only the committed
entries. With `auto=False` appends wait until `commit` is called, one by one if need be; `fail_next`
makes one fail.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Self

from leadhand.audit.chain import GENESIS, Batch, link_batch
from leadhand.errors import (
    Conflict,
    Fenced,
    LeadhandError,
    StoreBroken,
    StoreCorrupt,
    StoreError,
)
from leadhand.ports import Entry, RunHeader, RunQuery, RunSlice
from leadhand.stores.artifacts import digest_in, ref_of
from leadhand.stores.group_commit import misfit
from leadhand.stores.run_list import PREFIXED_MAX, choose, prefixed, summed, summed_by_day

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


class MemoryDisk:
    """The durable content."""

    def __init__(self) -> None:
        self.epoch = 0
        self.logs: dict[str, list[Entry]] = {}
        self.headers: dict[str, RunHeader] = {}
        self.order: list[Entry] = []
        self.batches: list[Batch] = []
        self.artifacts: dict[str, bytes] = {}

    def copy(self) -> MemoryDisk:
        # Entries are immutable: sharing them is safe, and a copy for each crash stays cheap.
        """Return a copy that shares the immutable entries."""
        twin = MemoryDisk()
        twin.epoch = self.epoch
        twin.logs = {run: list(log) for run, log in self.logs.items()}
        twin.headers = dict(self.headers)
        twin.order = list(self.order)
        twin.batches = list(self.batches)
        twin.artifacts = dict(self.artifacts)
        return twin


class _Request(NamedTuple):
    future: asyncio.Future[None]
    run: str
    expected: int
    entries: Sequence[Entry]
    summary: bytes | None


class _Fault(NamedTuple):
    error: LeadhandError
    written: bool


class MemoryStore:
    """A store in memory. Call `claim` before the first append."""

    def __init__(self, *, auto: bool = True, disk: MemoryDisk | None = None) -> None:
        self.auto = auto
        self._disk = disk or MemoryDisk()
        self._epoch: int | None = None
        self._pending: deque[_Request] = deque()
        self._fault: _Fault | None = None
        self._refusal: LeadhandError | None = None
        self._wakers: set[asyncio.Event] = set()
        self._closed = False

    # The port.

    def claim(self) -> int:
        """Become the owner. Return the new epoch, which every later append is checked against."""
        if self._refusal is not None and not isinstance(self._refusal, Fenced):
            raise self._refusal
        self._refusal = None
        self._disk.epoch += 1
        self._epoch = self._disk.epoch
        return self._epoch

    def append(
        self,
        run: str,
        expected: int,
        entries: Sequence[Entry],
        summary: bytes | None = None,
        *,
        alone: bool = False,
    ) -> asyncio.Future[None]:
        """Append entries to a run's log; the future resolves once they are committed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append(_Request(future, run, expected, entries, summary))
        if self.auto:
            self.commit()
        return future

    @property
    def database_id(self) -> str:
        """An id that no other store has while this one lives."""
        return f"memory-{id(self):x}"

    def room(self) -> bool:
        """Return whether new work should be started."""
        return True

    def read(self, run: str, after: int = 0) -> list[Entry]:
        """Return a run's entries with a seq above `after`, in order."""
        return self._disk.logs.get(run, [])[max(after, 0) :]

    def runs(self) -> list[RunHeader]:
        """Return all runs, oldest first."""
        return list(self._disk.headers.values())

    def header(self, run: str) -> RunHeader | None:
        """Return the header of one run, or None."""
        return self._disk.headers.get(run)

    def find_runs(self, query: RunQuery) -> RunSlice:
        """Return one page of the runs that `query` is for."""
        return choose(self.runs(), query)

    def runs_by_prefix(self, prefix: str, limit: int = PREFIXED_MAX) -> list[str]:
        """Return the ids of runs that begin with `prefix`, sorted: at most `limit`."""
        return prefixed(self.runs(), prefix, limit)

    def last_change(self) -> int:
        """Return when the last entry of any run was written; 0 if there is none."""
        return max((header.updated for header in self.runs()), default=0)

    def totals(self, first_day: int, last_day: int, *, plans: bool = False) -> dict[str, int]:
        """Return the sums over ended runs created on these days, by key; see `Log.totals`."""
        return summed(self.runs(), first_day, last_day, plans=plans)

    def daily_totals(self, first_day: int, last_day: int) -> list[tuple[int, str, int]]:
        """Return the sums by day and key, without the keys of single plans, workers and so on."""
        return summed_by_day(self.runs(), first_day, last_day)

    def batches(self) -> list[Batch]:
        """Return the batch chain."""
        return list(self._disk.batches)

    def positions(self) -> list[tuple[int, bytes]]:
        """Return every entry's position and hash, in commit order."""
        return [(place, entry.hash) for place, entry in enumerate(self._disk.order, 1)]

    async def follow(self, after: int = 0) -> AsyncIterator[tuple[int, Entry]]:
        """Yield each entry of all runs with a position above `after`, in commit order, for ever."""
        waker = asyncio.Event()
        self._wakers.add(waker)
        try:
            while not self._closed:
                waker.clear()
                while after < len(self._disk.order):
                    after += 1
                    yield after, self._disk.order[after - 1]
                await waker.wait()
        finally:
            self._wakers.discard(waker)

    def put_artifact(self, data: bytes) -> str:
        """Store bytes; return their name, `sha256:…`."""
        ref = ref_of(data)
        self._disk.artifacts[ref] = bytes(data)
        return ref

    def get_artifact(self, ref: str) -> bytes:
        """Return the bytes of an artifact. Raise `StoreCorrupt` if they are missing or altered."""
        digest_in(ref)
        data = self._disk.artifacts.get(ref)
        if data is None:
            raise StoreCorrupt(f"{ref}: the artifact is missing")
        return data

    async def close(self) -> None:
        """Finish all queued appends and close the store."""
        self.commit()
        self._closed = True
        self._wake()

    # For tests.

    @property
    def pending(self) -> int:
        """The number of appends that wait for `commit`."""
        return len(self._pending)

    def commit(self, count: int | None = None) -> None:
        """Commit the first `count` waiting appends, or all of them, as one batch."""
        disk, first = self._disk, len(self._disk.order)
        for _ in range(len(self._pending) if count is None else min(count, len(self._pending))):
            self._answer(self._pending.popleft())
        if new := [entry.hash for entry in disk.order[first:]]:
            prev = disk.batches[-1].hash if disk.batches else GENESIS
            digest = link_batch(prev, first + 1, len(disk.order), new)
            disk.batches.append(Batch(len(disk.batches) + 1, first + 1, len(disk.order), digest))
        self._wake()

    def fail_next(self, error: LeadhandError, *, written: bool = False) -> None:
        """Make the next committed append fail; `written` if it is stored all the same.

        After StoreBroken, as in reality, every later append is refused.
        """
        self._fault = _Fault(error, written)

    def beside(self) -> Self:
        """Return a second store on the same disk, as another process would have it."""
        return type(self)(auto=self.auto, disk=self._disk)

    def snapshot(self) -> Self:
        """Return a store with a copy of the committed content; this one continues."""
        return type(self)(auto=self.auto, disk=self._disk.copy())

    def reopen(self) -> Self:
        """Simulate a crash: this store never answers or writes again; return its successor."""
        self._pending.clear()
        self._refusal = StoreError("this store crashed")
        return self.beside()

    # How an append is carried out.

    def _answer(self, request: _Request) -> None:
        error = self._check(request)
        fault = self._fault
        if error is None and fault is not None:
            self._fault, error = None, fault.error
            if fault.written:
                self._write(request)
            if isinstance(error, StoreBroken | Fenced):
                self._refusal = error
        elif error is None:
            self._write(request)
        if request.future.done():
            return
        if error is None:
            request.future.set_result(None)
        else:
            request.future.set_exception(type(error)(*error.args))

    def _check(self, request: _Request) -> LeadhandError | None:
        run, expected, entries = request.run, request.expected, request.entries
        if self._closed:
            return StoreError("closed")
        if self._refusal is not None:
            return self._refusal
        if self._epoch is None or self._epoch != self._disk.epoch:
            self._refusal = Fenced("another host has taken over this store, or it was not claimed")
            return self._refusal
        if (wrong := misfit(run, expected, entries)) is not None:
            return wrong
        if (end := len(self._disk.logs.get(run, ()))) != expected:
            return Conflict(f"{run}: the log ends at {end}, not at {expected}")
        return None

    def _write(self, request: _Request) -> None:
        disk, run, entries, last = self._disk, request.run, request.entries, request.entries[-1]
        disk.logs.setdefault(run, []).extend(entries)
        disk.order.extend(entries)
        old = disk.headers.get(run)
        created = old.created if old else entries[0].at
        summary = request.summary if request.summary is not None else old.summary if old else b""
        disk.headers[run] = RunHeader(run, created, last.at, last.seq, last.hash, summary)

    def _wake(self) -> None:
        for waker in self._wakers:
            waker.set()
