"""Group commit: appends that are committed together, and the thread that commits them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from leadhand.errors import Bug
from leadhand.stores.body_form import shorten

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Sequence

    from leadhand.errors import LeadhandError
    from leadhand.ports import Entry


_PLACE = b"%20d" * 2
_ENTRY = b"%20d" * 7
_HEAD = b"%20d" * 9


class AppendRequest(NamedTuple):
    """One append on its way to the disk."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    run: str
    expected: int
    entries: Sequence[Entry]
    summary: bytes | None
    size: int


def misfit(run: str, expected: int, entries: Sequence[Entry]) -> Bug | None:
    """Return the bug if entries cannot follow seq `expected` of a run in any log."""
    if not run or not entries:
        return Bug("an append needs a run and at least one entry")
    for seq, entry in enumerate(entries, expected + 1):
        if entry.seq != seq or entry.run != run:
            return Bug(f"{run}: entry {entry.seq} of {entry.run} where {seq} was due")
    return None


class Head(NamedTuple):
    """The end of a run's log."""

    id: int
    seq: int
    hash: bytes
    position: int = 0
    """Of the last entry; 0 if there is none, or where the store keeps no such thing."""


class Touched:
    """The changes of a group to one run."""

    __slots__ = ("created", "head", "last", "summary", "updated")

    def __init__(self, head: Head, created: int) -> None:
        self.head = head
        self.created = created
        self.updated = created
        self.last = 0
        self.summary: bytes | None = None


class Layout(NamedTuple):
    """The values of writer.sql's intake that hold many rows each."""

    rows: int
    numbers: bytes
    hashes: bytes
    runs: int
    heads: bytes
    data: bytes


class CommitGroup:
    """A group of appends. `last_run_id` and `last_position` are the highest in use before it."""

    def __init__(self, last_run_id: int, last_position: int) -> None:
        self.last_run_id = last_run_id
        self._last_position = last_position
        self.hashes: list[bytes] = []
        self.touched: dict[str, Touched] = {}
        self._numbers: list[bytes] = []
        self._data: list[bytes] = [b"\0"]  # never empty: SQLite's substr of an empty blob is null
        self._place = 2

    @property
    def next_position(self) -> int:
        """The position of the entry that is added next."""
        return self._last_position + len(self.hashes) + 1

    def add(self, request: AppendRequest, head: Head) -> None:
        """Add an append; if this raises, nothing of it was added."""
        run, entries, owner, place = request.run, request.entries, head.id, self._place
        first = self.next_position
        back = first - head.position if head.position else 0
        numbers, bodies = [], []
        for _, seq, at, version, body, _ in entries:
            stored = shorten(body)
            bodies.append(stored)
            numbers.append(_ENTRY % (owner, seq, at, version, back, place, len(stored)))
            place += len(stored)
            back = 1
        hashes = [entry[5] for entry in entries]
        data = b"".join(bodies)
        if len(b"".join(numbers)) != 140 * len(entries) or len(b"".join(hashes)) != 32 * len(
            entries
        ):
            raise Bug("an entry has a number of more than 20 digits, or a hash not of 32 bytes")
        touched = self.touched.get(run)
        if touched is None:
            touched = self.touched[run] = Touched(head, entries[0].at)
            self.last_run_id = max(self.last_run_id, owner)
        self.hashes += hashes
        self._numbers += numbers
        self._data.append(data)
        self._place = place
        last = entries[-1]
        touched.head = Head(owner, last.seq, last.hash, first + len(entries) - 1)
        touched.updated = last.at
        touched.last = len(self.hashes) - 1
        if request.summary is not None:
            touched.summary = request.summary

    def layout(self) -> Layout:
        """Return the group in the layout of writer.sql."""
        heads, data, place = [], list(self._data), self._place
        for run, one in self.touched.items():
            name, summary = run.encode(), one.summary
            behind = place + len(name)
            length = -1 if summary is None else len(summary)
            numbers = (one.head.id, one.created, one.updated, one.head.seq, one.last)
            heads.append(_HEAD % (*numbers, place, len(name), behind, length))
            data += [name, summary or b""]
            place = behind + max(length, 0)
        return Layout(
            rows=len(self.hashes),
            numbers=b"".join(self._numbers),
            hashes=b"".join(self.hashes),
            runs=len(heads),
            heads=b"".join(heads),
            data=b"".join(data),
        )


class CommitDurations:
    """A histogram of commit times: how many were within each bound, in seconds."""

    BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

    def __init__(self) -> None:
        self.counts = [0] * (len(self.BOUNDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Add one commit time."""
        self.counts[bisect_left(self.BOUNDS, seconds)] += 1
        self.seconds += seconds


def name_list(runs: Collection[str]) -> dict[str, int | bytes]:
    """Return the values of writer.sql's find_heads."""
    names = [run.encode() for run in runs]
    places, place = [], 1
    for name in names:
        places.append(_PLACE % (place, len(name)))
        place += len(name)
    return {"count": len(names), "places": b"".join(places), "names": b"".join(names)}


# The thread that commits the appends of all runs, for every database.
#
#     event loop                        writer thread
#     append() ── request ──► queue ──► take everything queued
#                                       commit it together            (a store's own part)
#     futures  ◄── one call per loop ── outcomes
#                                       work after the answers        (a store's own part)
#
# Appends queued while a group is being committed form the next group: none waits longer for it, and
# a burst pays for one commit. `ask` runs another task in the same thread, in turn.


C = TypeVar("C")
GROUP_ROWS_MAX = 65_536
GROUP_BYTES_MAX = 64 * 1024 * 1024


class _Errand(NamedTuple):
    """Another task for the writer's thread, between two groups."""

    do: Callable[[Any], Any]
    done: Future[Any]
    last: bool


class Committer(ABC, Generic[C]):
    """The owner of the writing connection and of the thread that uses it."""

    def __init__(self, connection: C) -> None:
        self._connection = connection
        self._queue: SimpleQueue[AppendRequest | _Errand] = SimpleQueue()
        self._busy = threading.Lock()
        """Held by the user of the connection."""
        self.settled_bytes = 0
        """The total size of requests that have left the queue. Changed only under the lock."""
        self.refusal: LeadhandError | None = None
        """Why appends are refused, if they are."""
        self.delivered: Callable[[], None] = lambda: None
        """Called in the event loop after each group."""

    def start(self) -> None:
        """Start to take requests, once everything is in place."""
        threading.Thread(target=self._work, name="leadhand-writer", daemon=True).start()

    def put(self, request: AppendRequest) -> None:
        """Queue an append. Called from the event loop's thread."""
        self._queue.put(request)

    def ask(self, do: Callable[[C], Any], *, last: bool = False) -> Future[Any]:
        """Run `do` in the writer's thread, after everything queued; `last` ends the thread."""
        done: Future[Any] = Future()
        self._queue.put(_Errand(do, done, last))
        return done

    def commit_together(self, requests: list[AppendRequest]) -> None:
        """Commit exactly these appends as one commit, for a copy that keeps all commits."""
        for outcome in self.ask(lambda _connection: self._commit(requests)).result():
            if outcome is not None:
                raise outcome

    @abstractmethod
    def _commit(self, requests: list[AppendRequest]) -> list[LeadhandError | None]:
        """Write a group; return for each request why it failed, or None."""

    def _rest(self) -> None:
        """Do work that is due after the answers are out."""

    # All below runs in the writer's thread, but for _deliver.

    def _work(self) -> None:
        errand: _Errand | None = None
        while errand is None or not errand.last:
            requests, errand = self._take()
            if requests:
                with self._busy:
                    outcomes = self._commit(requests)
                self._settle(requests, outcomes)
                with self._busy:
                    self._rest()
            if errand is not None:
                with self._busy:
                    self._run(errand)

    def _run(self, errand: _Errand) -> None:
        try:
            errand.done.set_result(errand.do(self._connection))
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked
            errand.done.set_exception(error)

    def _take(self) -> tuple[list[AppendRequest], _Errand | None]:
        """Wait for work; then take everything queued."""
        requests: list[AppendRequest] = []
        rows = size = 0
        item = self._queue.get()
        while isinstance(item, AppendRequest):
            requests.append(item)
            rows += len(item.entries)
            size += item.size
            if rows >= GROUP_ROWS_MAX or size >= GROUP_BYTES_MAX:
                return requests, None
            try:
                item = self._queue.get_nowait()
            except Empty:
                return requests, None
        return requests, item

    def _settle(self, requests: list[AppendRequest], outcomes: list[LeadhandError | None]) -> None:
        """Answer all requests, with one call for each event loop."""
        answers: dict[
            asyncio.AbstractEventLoop, list[tuple[AppendRequest, LeadhandError | None]]
        ] = {}
        for request, outcome in zip(requests, outcomes, strict=True):
            answers.setdefault(request.loop, []).append((request, outcome))
        for loop, answered in answers.items():
            try:
                loop.call_soon_threadsafe(self._deliver, answered)
            except RuntimeError:  # the loop is closed, and with it all waiters
                continue

    def _deliver(self, answers: list[tuple[AppendRequest, LeadhandError | None]]) -> None:
        """Resolve the futures, in the event loop."""
        for request, outcome in answers:
            if request.future.done():
                continue
            if outcome is None:
                request.future.set_result(None)
            else:  # one exception each: raising adds to its traceback
                request.future.set_exception(type(outcome)(*outcome.args))
        self.delivered()
