"""The event stream: one follower of the store, any number of readers.

    store ─► follower ─► frame (made once) ─► ring ─► reader, reader, reader …
                                                └── too far behind: pages of the store

The follower is woken by commits and reads durable entries, so no reader ever sees an event that a
crash could revert, and no commit ever waits for a reader. A frame is the bytes of one event on the
wire, made once for all. The ring holds the latest frames, bounded in number and bytes. A reader has
a position and nothing else: it takes later frames from the ring, or, when that has moved on, from
the store. No frames are queued for it; a reader that takes nothing for a while is disconnected, and
comes back with its position.

`patch` gives the state of the run: as of that event or later, never earlier. It carries every step
that the event touched, or says `whole`: then the run is to be read again. So a page that applies
patches in order ends with the truth, also after a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from leadhand.app.step_graph import StepNode, node_row
from leadhand.codec.events import decode
from leadhand.core import events as ev
from leadhand.core.calendar import iso
from leadhand.core.events import Event, QuestionAnswered
from leadhand.core.state.evolve import STEP_HANDLERS, evolve
from leadhand.core.state.model import State
from leadhand.core.views.ledger import describe, ledger_of
from leadhand.core.views.run import awaiting, money_of, run_status, settled_steps, shown_status
from leadhand.engine.fold import fold
from leadhand.errors import LeadhandError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from leadhand.ports import Entry
    from leadhand.server.cached_reader import CachedReader, CachedReaders
    from leadhand.stores.log import Log

RING_FRAMES = 8192
RING_BYTES = 8 << 20
CHUNK_BYTES = 64 << 10
"""The size of one chunk to a reader, and of all that is ever gathered for it."""
SLICE = 8
"""The number of frames made before the loop may continue: some 0.3 ms."""
CATCH_UP_MAX = 100_000
"""The number of events a reader may have missed; after more it must read everything again."""
PAGE = 200
PING_S = 15.0
GATHER_S = 0.02
"""How long commits may gather before they are read and sent together."""
ROUND_S = 0.2
TICK_S = 0.002
"""Readers are woken in turn, a few in each tick, so that commits come in between: all of them in
one round, which is the longest wait for news besides the gathering."""
STATES_MAX = 2000
STEPS_MAX = 200_000
TEXT_MAX = 2000
CHANGED_MAX = 200
NARROW = frozenset(STEP_HANDLERS) | {ev.ModelCalled}
"""Events that touch only the step they name and its dependents."""
SILENT: frozenset[type[Event]] = frozenset(
    (
        ev.RunHosted,
        ev.LinkUsed,
        ev.RunPaused,
        ev.RunResumed,
        ev.CancelRequested,
        ev.StopDecided,
        ev.PlannerAsked,
        ev.PlannerAnswered,
        ev.PlannerFailed,
        ev.ProposalRefused,
        ev.ReviewRequested,
        ev.RevisionExamined,
        ev.ApprovalGiven,
        ev.WorkersChanged,
        ev.GoalCheckStarted,
        ev.GoalChecked,
        ev.DraftRefused,
    )
)
"""Events that touch no step. All others may touch any: their patch says so."""


class Frame(NamedTuple):
    """One event on the wire."""

    run: str
    data: bytes


class RunStatus:
    """The state of one run, with its steps counted by status."""

    __slots__ = ("state", "tally")

    def __init__(self, state: State) -> None:
        self.state = state
        self.tally = Counter(step.status for step in state.steps.values())

    def evolve(self, event: Event, at: int) -> list[str] | None:
        """Apply one event; return the steps it touched, or None if it may have touched any."""
        state, kind = self.state, type(event)
        name = _subject(state, event)
        if kind in SILENT or (kind in NARROW and not name):
            evolve(state, event, at)
            return []
        subject = state.steps.get(name) if kind in NARROW else None
        if subject is None or len(subject.dependents) > CHANGED_MAX:
            evolve(state, event, at)
            self.tally = Counter(step.status for step in state.steps.values())
            return None
        touched = [subject.id, *(name for name, _ in subject.dependents)]
        for name in touched:
            self.tally[state.steps[name].status] -= 1
        evolve(state, event, at)
        for name in touched:
            self.tally[state.steps[name].status] += 1
        return touched


def _subject(state: State, event: Event) -> str:
    """Return the step that an event is about, or ""."""
    name = getattr(event, "step", None) or ""
    if not name and isinstance(event, QuestionAnswered):
        question = state.questions.get(event.id)
        name = question.step if question is not None else ""
    return str(name)


class StepCounts(msgspec.Struct, kw_only=True):
    """How the steps of a run stand, in numbers."""

    steps: int
    settled: int
    succeeded: int
    failed: int
    replaced: int
    running: int


class StepStatus(msgspec.Struct, kw_only=True):
    """How a step stands, in one word."""

    id: str
    status: str


class RunPatch(msgspec.Struct, kw_only=True):
    """How a run stands after an event, with the steps that the event touched."""

    status: str
    counts: StepCounts
    cost: float
    money: float
    waiting: int
    awaiting: str
    """For what: `approval`, `input`, or "" if nothing waits for a person."""
    revision: int
    whole: bool
    """Whether other steps may have changed too: then the run is to be read again."""
    step: StepNode | UnsetType = UNSET
    dependents: list[StepStatus] | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class StreamEvent(msgspec.Struct, kw_only=True):
    """One event as the stream tells it."""

    position: int
    run: str
    seq: int
    at: str
    type: str
    ledger: str
    step: str | None
    text: str
    patch: RunPatch | None
    """Null for an event of no run."""


class Board:
    """The states of the runs whose events pass."""

    def __init__(self, cached_readers: CachedReaders) -> None:
        self._cached_readers = cached_readers
        self._runs: OrderedDict[str, RunStatus] = OrderedDict()

    async def patch(self, entry: Entry, event: Event) -> RunPatch | None:
        """Return the changes for a client that shows the run; None for an event of no run.

        `step` and `dependents` are the steps that the event touched. With `whole` it may have
        touched others too: the client reads the run again.
        """
        if entry.run.startswith("$"):
            return None
        try:
            standing, touched = await self._at(entry, event)
        except LeadhandError:
            return None  # a log that does not verify is reported by `verify`, not by a stream
        state, tally = standing.state, standing.tally
        counts = StepCounts(
            steps=len(state.steps),
            settled=settled_steps(state),
            succeeded=state.succeeded,
            failed=tally["failed"],
            replaced=tally["superseded"],
            running=len(state.in_flight),
        )
        found = RunPatch(
            status=run_status(state),
            counts=counts,
            cost=round(state.spent, 6),
            money=money_of(state),
            waiting=len(state.questions),
            awaiting=awaiting(state),
            revision=state.revision,
            whole=touched is None,
        )
        if touched is None:
            name = _subject(state, event)
            touched = [name] if name in state.steps else []
        if touched:
            found.step = node_row(state, state.steps[touched[0]])
            others = (state.steps[name] for name in touched[1:])
            found.dependents = [StepStatus(id=s.id, status=shown_status(s)) for s in others]
        if state.ended is not None:
            found.reason = state.ended.reason
        return found

    async def _at(self, entry: Entry, event: Event) -> tuple[RunStatus, list[str] | None]:
        """Return the run at this event or later, and the steps it touched, if known."""
        run = entry.run
        standing = self._runs.pop(run, None)
        touched: list[str] | None = None
        if standing is None and entry.seq == 1:
            standing = RunStatus(State())
        if standing is not None and standing.state.seq == entry.seq - 1:
            touched = standing.evolve(event, entry.at)
        elif standing is None or standing.state.seq < entry.seq:

            def look(desk: CachedReader) -> State:
                return fold(desk.verified(run))

            standing = RunStatus(await self._cached_readers.read(look))
        self._runs[run] = standing
        if standing.state.ended is not None or len(self._runs) > STATES_MAX:
            self._trim()
        return standing, touched

    def _trim(self) -> None:
        """Drop runs that ended, and those that were quiet for longest."""
        steps = sum(len(each.state.steps) for each in self._runs.values())
        ended = [run for run, each in self._runs.items() if each.state.ended is not None]
        for run in (*ended[:-8], *self._runs):
            if len(self._runs) <= STATES_MAX and steps <= STEPS_MAX and run not in ended:
                break
            if (standing := self._runs.pop(run, None)) is not None:
                steps -= len(standing.state.steps)

    def forget(self) -> None:
        """Drop all runs: there are no readers."""
        self._runs.clear()


class StreamHub:
    """Feeds all streams of a server."""

    def __init__(self, store: Log, cached_readers: CachedReaders) -> None:
        self._store = store
        self._cached_readers = cached_readers
        self._board = Board(cached_readers)
        self._ring: dict[int, Frame] = {}
        self._bytes = 0
        self._floor = 0
        """The ring holds frames after this position."""
        self._head = 0
        self._told = 0
        """The position up to which readers have been woken."""
        self._wakers: set[asyncio.Event] = set()
        self._follower: asyncio.Task[None] | None = None
        self._waking: asyncio.TimerHandle | None = None
        self._shared: tuple[int, int, bytes] = (0, 0, b"")
        self._closed = False
        self.sent = 0

    @property
    def readers(self) -> int:
        """The number of readers."""
        return len(self._wakers)

    async def events(self, after: int | None, run: str) -> AsyncGenerator[bytes]:
        """Yield the chunks for one reader, from a position or from now on, until it leaves."""
        waker = asyncio.Event()
        self._begin()
        self._wakers.add(waker)
        try:
            position = self._head if after is None else after
            yield f"retry: 2000\n: listening\nid: {position}\n\n".encode()
            while not self._closed:
                waker.clear()
                if position > self._head or self._head - position > CATCH_UP_MAX:
                    position = self._head
                    yield reset(position)
                elif position < self._floor:
                    position, chunk = await self._behind(position, run)
                    if chunk:
                        yield chunk
                elif position < self._head:
                    position, chunk = self._take(position, run)
                    if chunk:
                        yield chunk
                elif not await _woken(waker):
                    yield f": ping\nid: {position}\n\n".encode()
        finally:
            self._wakers.discard(waker)
            if not self._wakers:
                self._rest()

    async def close(self) -> None:
        """Disconnect all readers; they come back to the next server with their position."""
        self._closed = True
        follower, self._follower = self._follower, None
        self._wake()
        if follower is not None:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)

    # The follower.

    def _begin(self) -> None:
        if self._follower is None and not self._closed:
            self._floor = self._head = self._store.last_position()
            self._follower = asyncio.get_running_loop().create_task(self._follow())

    def _rest(self) -> None:
        """Stop the follower: the last reader has left."""
        if self._follower is not None:
            self._follower.cancel()
            self._follower = None
        self._ring.clear()
        self._bytes = 0
        self._shared = (0, 0, b"")
        self._board.forget()

    async def _follow(self) -> None:
        made = 0
        async with contextlib.aclosing(self._store.follow(self._head, GATHER_S)) as entries:
            async for position, entry in entries:
                self._keep(position, await self._frame(position, entry))
                made += 1
                if made % SLICE == 0:
                    await asyncio.sleep(0)

    def _keep(self, position: int, frame: Frame) -> None:
        self._ring[position] = frame
        self._bytes += len(frame.data)
        self._head = position
        while len(self._ring) > RING_FRAMES or self._bytes > RING_BYTES:
            oldest = next(iter(self._ring))
            self._bytes -= len(self._ring.pop(oldest).data)
            self._floor = oldest
        if self._waking is None:
            self._waking = asyncio.get_running_loop().call_later(TICK_S, self._wake)

    def _wake(self, left: tuple[asyncio.Event, ...] = ()) -> None:
        """Wake all readers, a few at a time; and again if new frames came meanwhile."""
        if not left:
            left, self._told = tuple(self._wakers), self._head
        few = len(left) if self._closed else 1 + int(len(self._wakers) * TICK_S / ROUND_S)
        for waker in left[:few]:
            waker.set()
        rest = left[few:]
        self._waking = None
        if rest or self._head > self._told:
            self._waking = asyncio.get_running_loop().call_later(TICK_S, self._wake, rest)

    # Frames.

    async def _frame(self, position: int, entry: Entry) -> Frame:
        event = decode(entry.version, entry.body)
        kind = type(event).__name__
        doc = StreamEvent(
            position=position,
            run=entry.run,
            seq=entry.seq,
            at=iso(entry.at),
            type=kind,
            ledger=ledger_of(event),
            step=getattr(event, "step", None) or None,
            text=describe(event)[:TEXT_MAX],
            patch=await self._board.patch(entry, event),
        )
        body = msgspec.json.encode(doc)
        head = f"id: {position}\nevent: {kind}\ndata: ".encode()
        return Frame(entry.run, b"".join((head, body, b"\n\n")))

    def _take(self, position: int, run: str) -> tuple[int, bytes]:
        """Return the frames of the ring after a position, up to a chunk."""
        if not run and self._shared[0] == position < self._shared[1] <= self._head:
            self.sent += self._shared[1] - position
            return self._shared[1], self._shared[2]
        parts, size, last = list[bytes](), 0, position
        for place in range(position + 1, self._head + 1):
            frame = self._ring.get(place)
            last = place
            if frame is not None and (not run or frame.run == run):
                parts.append(frame.data)
                size += len(frame.data)
                if size >= CHUNK_BYTES:
                    break
        chunk = b"".join(parts)
        self.sent += len(parts)
        if not run:
            self._shared = (position, last, chunk)
        return last, chunk

    async def _behind(self, position: int, run: str) -> tuple[int, bytes]:
        """Return frames from the store, for a reader that was away."""

        def look(desk: CachedReader) -> list[tuple[int, Entry]]:
            return desk.store.page(position, PAGE)

        rows = await self._cached_readers.read(look)
        parts, size = list[bytes](), 0
        for place, entry in rows:
            if place > self._floor or size >= CHUNK_BYTES:
                break
            position = place
            if not run or entry.run == run:
                frame = await self._frame(place, entry)
                parts.append(frame.data)
                size += len(frame.data)
        self.sent += len(parts)
        return position if rows else self._floor, b"".join(parts)


def reset(position: int) -> bytes:
    """Return the message that asks a reader to read everything again, from this position."""
    return f'id: {position}\nevent: reset\ndata: {{"position":{position}}}\n\n'.encode()


async def _woken(waker: asyncio.Event) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PING_S):
            await waker.wait()
            return True
    return False
