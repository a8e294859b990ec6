"""One hosted run: its state, its outbox, and the loop of the engine.

    inputs (reports, words of people, timers) ─► events ─► evolve at once
         ─► decide until there is nothing more to do ─► commit everything together
         ─► when durable: perform the effects

Laws of this file
1. Events are evolved in memory at once; their effects wait until the commit. So two reports in one
   batch can never start a step twice, and no worker is called before its start is durable.
2. An input leaves the queue only when the batch that holds it is durable. A failed commit discards
   the memory of this run, folds it again from the store, and submits the inputs once more: fencing
   makes that safe.
3. One append for each turn of the loop, with all its inputs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.audit.chain import GENESIS, link
from leadhand.codec.events import encode, refuse_unreadable
from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.decide.circuit_breaker import UNHEARD
from leadhand.core.decide.decide import decide, next_wake
from leadhand.core.decide.effects import Move, StartAttempt, StartProbe
from leadhand.core.review.holds import void_approval, workers_changed
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import Now, State
from leadhand.core.views.run import run_status, summary
from leadhand.engine.approvals import invalid_entries, names_people, refuse_unsigned
from leadhand.engine.budget import RunBudget
from leadhand.engine.fold import fold
from leadhand.engine.reviewers import changed_spec
from leadhand.errors import Bug, Conflict, Fenced, StoreCorrupt, StoreFull
from leadhand.ports import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leadhand.core.decide.effects import Effect
    from leadhand.engine.host import EmbeddedHost
    from leadhand.engine.secrets import Secrets
    from leadhand.ports import Planner, Workers


# The one timer of a run: it fires at the next moment at which something is due.


SLACK_S = 0.001


class Alarm:
    """A timer that fires once. Firing early is harmless: the run looks, and sets it again."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._when = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def set(self, delay_s: float) -> None:
        """Fire after at most `delay_s` seconds."""
        loop = asyncio.get_running_loop()
        when = loop.time() + delay_s
        if self._handle is not None:
            if self._when <= when + SLACK_S:  # it fires before that, and is then set again
                return
            self._handle.cancel()
        self._when, self._handle = when, loop.call_at(when, self._rings)

    def drop(self) -> None:
        """Cancel the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _rings(self) -> None:
        self._handle = None
        self._ring()


LATE_US = 250_000
"""A timer that is overdue by this much says that the loop was blocked."""
CATCH_UP_S = 0.2
"""The time in which a loop that was blocked reads what came, before anything is overdue."""
CALENDAR_LOOK_S = 1.0
"""The interval of looks at the calendar, since the calendar may jump."""
ROOM_LOOK_S = 0.1
"""The interval of looks at a store without room for new work."""

CONFLICTS_MAX = 5
"""No other process writes here, so repeated conflicts of an append mean a damaged log."""


class _Batch(NamedTuple):
    inputs: list[Any]
    effects: list[Effect]
    waiters: list[asyncio.Future[None]]


class Run:
    """A run that this host drives."""

    def __init__(
        self, host: EmbeddedHost, ident: str, workers: Workers, planner: Planner | None
    ) -> None:
        self.host = host
        self.id = ident
        self.workers = workers
        self.planner = planner
        self.state = State()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.contexts: dict[str, Any] = {}
        self.progress: dict[str, tuple[str, float | None]] = {}
        self.secrets: Secrets | None = None
        """The secrets to keep out of the log, if there are any."""
        self.driven = False
        """False for a run that is only loaded for commands: nothing is decided or performed."""
        self.admitted = True
        """Whether its permissions were checked since the log was read."""
        self._names_people = False
        self._head = GENESIS
        self._seq = 0
        self._inputs: deque[tuple[Any, asyncio.Future[None] | None]] = deque()
        self._outstanding: deque[_Batch] = deque()
        self._undone: list[tuple[Any, asyncio.Future[None] | None]] = []
        self._scheduled = False
        self._catching_up = False
        self._folding = False
        self._alarm = Alarm(self.poke)
        self._status = ""
        self._waiting = 0
        self._counted = 0
        self._alone = False
        """Whether the host is otherwise idle: then the loop may wait for the disk itself."""
        self._failure: BaseException | None = None
        self._conflicts = 0
        self._awaited = 0
        """The number of waiters for it to settle, which hold on to this very object."""
        self._settled: asyncio.Event = asyncio.Event()

    def planner_now(self) -> Planner | None:
        """Return the planner to ask: the run's own, or the one that a person handed the run to."""
        if not self.state.planner.handed:
            return self.planner
        successor = self.host.successor
        return successor(self.workers) if successor is not None else None

    # Loading.

    def load_from(self, entries: Sequence[Entry]) -> None:
        """Initialize from a log."""
        self.state = state = fold(entries)
        self.admitted, self._names_people = not entries, names_people(entries)
        self._seq = len(entries)
        self._head = entries[-1].hash if entries else GENESIS
        self._status = run_status(state) if entries else ""
        self._waiting = len(state.questions)
        if state.ended is not None:
            self._settled.set()

    # Inputs.

    def submit(self, what: Callable[[State, Now], Move], *, wait: bool = False) -> Any:
        """Submit an input: a function that returns a move when its turn comes.

        With `wait`, return a future that resolves once the move is durable, or carries the reason
        of its refusal.
        """
        future = asyncio.get_running_loop().create_future() if wait else None
        if future is not None and self.host.failed is not None:
            future.set_exception(self.host.failed)
            return future
        self._inputs.append((what, future))
        self.poke()
        return future

    async def submit_and_wait(self, what: Callable[[State, Now], Move]) -> None:
        """Submit an input and wait until it is durable."""
        await self.submit(what, wait=True)

    def reported(self, event: ev.AttemptReported) -> None:
        """Submit a worker's verified report."""
        self._inputs.append((event, None))
        if not self._scheduled:
            self.poke()

    def task_over(self, key: str, context: object) -> None:
        """Remove the task of an attempt that is over."""
        if self.contexts.get(key) is context:  # else the next attempt is already there
            del self.contexts[key], self.tasks[key]
            if self.progress:
                self.progress.pop(key, None)
        if self.host.waiting_for_capacity:
            self.host.wake_waiting()

    def poke(self) -> None:
        """Schedule one turn of the run in this iteration of the event loop."""
        if not self._scheduled and not self._folding:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    # The loop.

    def _turn(self) -> None:
        self._scheduled = False
        if self._folding or self.host.closing or self.host.failed is not None:
            return
        now = self.host.time()
        if self._was_blocked(now):
            return
        batch = _Batch([], [], [])
        entries: list[Entry] = []
        try:
            self._take_inputs(batch, entries, now)
            if self.driven:
                self._decide(batch, entries, now)
        except Exception as error:  # noqa: BLE001 - the core never raises; if it does, we stop
            self._inputs.extendleft(reversed(batch.inputs))
            self.host.fail(Bug.behind(error))
            return
        self._flush(batch, entries)
        if self.driven:
            self._set_timer(now)

    def _was_blocked(self, now: Now) -> bool:
        """Postpone a turn if the loop was blocked beyond a timer; return whether it is postponed.

        What came in the meantime is read first: otherwise an attempt that has ended in time, but
        whose report could not be read, would be found overdue.
        """
        timers = self.state.timers
        if self._catching_up or not self.tasks or not timers or now.at - timers[0][0] < LATE_US:
            self._catching_up = False
            return False
        due, _ = next_wake(self.state)
        if due is None or now.at - due < LATE_US:
            return False
        self._catching_up = self._scheduled = True
        asyncio.get_running_loop().call_later(CATCH_UP_S, self._turn)
        return True

    def _take_inputs(self, batch: _Batch, entries: list[Entry], now: Now) -> None:
        while self._inputs:
            what, waiter = self._inputs.popleft()
            if type(what) is ev.AttemptReported:
                batch.inputs.append((what, None))
                if not what.met or self.host.breakers.alert:
                    self._heard(what.step, what.epoch, what.failure)
                self._apply(commands.report(self.state, what), batch, entries, now)
                continue
            try:
                move = what(self.state, now)
                if self.secrets is not None:
                    self.secrets.refuse(move.events)
                refuse_unsigned(self.state, move.events, self.host.approvers)
                refuse_unreadable(move.events)
            except Exception as error:
                if waiter is None:
                    raise Bug(f"an input failed: {error!r}") from error
                if not waiter.done():
                    waiter.set_exception(error)
                continue
            batch.inputs.append((what, waiter))
            if waiter is not None:
                batch.waiters.append(waiter)
            self._apply(move, batch, entries, now)

    def _decide(self, batch: _Batch, entries: list[Entry], now: Now) -> None:
        state = self.state
        if not self.admitted:
            self._admit(batch, entries, now)
        self._recount()
        self._alone = not self.tasks and len(self.host.runs) == 1
        room = self.host.room()
        state.open_circuits = self.host.breakers if self.host.shared.circuits else frozenset()
        while (move := decide(state, now, room)) is not None:
            if move.effects and (changed := self._changed(move.effects[0], now)) is not None:
                move = changed
            if move.effects and type(effect := move.effects[0]) is StartAttempt:
                room -= 1
                if self.host.shared.circuits:
                    self.host.breakers.started(self, effect)
            elif type(lost := move.events[0]) is ev.AttemptLost:
                self._heard(lost.step, lost.epoch, {"class": lost.failure_class})
                state.open_circuits = (
                    self.host.breakers if self.host.shared.circuits else frozenset()
                )
            self._apply(move, batch, entries, now)
            if room <= 0:  # the move may have freed capacity: an attempt that was lost
                self._recount()
                room = self.host.room()
        if room <= 0:
            self.host.waiting_for_capacity[self] = None
        self._recount()

    def _admit(self, batch: _Batch, entries: list[Entry], now: Now) -> None:
        """Check the permissions in the log before anything rests on them; hold invalid ones."""
        self.admitted, host = True, self.host
        if not self.rests_on_people:
            return
        log, known = host.store.read(self.id), self.state.permits.voided
        for fault in invalid_entries(self.id, log, host.approvers, host.shared.used, known):
            voided = ev.ApprovalVoided(fault.entry, fault.reason, fault.revisions)
            self._apply(Move(*void_approval(self.state, voided)), batch, entries, now)

    @property
    def rests_on_people(self) -> bool:
        """Whether its log records permissions of people, or approvers are configured."""
        return bool(self._names_people or self.host.approvers or self.state.policy.approvers)

    def _changed(self, effect: Effect, now: Now) -> Move | None:
        """Return the consequences of a worker's change, if it changed since it was allowed."""
        if not isinstance(effect, StartAttempt | StartProbe):
            return None
        spec = changed_spec(self.state, self.workers, effect.worker)
        return None if spec is None else Move(*workers_changed(self.state, [spec], now.latest))

    def _heard(self, ident: str, epoch: int, failure: Any) -> None:
        """Tell the host's circuit breakers the outcome of a current attempt."""
        if commands.is_current(self.state, ident, epoch):
            if self.state.steps[ident].with_caller:
                return  # what one caller does says nothing about another
            worker = self.state.steps[ident].worker
            loaded = self.workers.get(worker) is not None
            self.host.breakers.heard(self, ident, worker, failure if loaded else UNHEARD)

    def _recount(self) -> None:
        """Update the host's count of attempts in flight, over all runs."""
        busy, before = len(self.state.in_flight) - self.state.handed_out, self._counted
        self.host.in_flight += busy - before
        self._counted = busy
        if busy < before:
            self.host.wake_waiting()

    def _apply(self, move: Move, batch: _Batch, entries: list[Entry], now: Now) -> None:
        at, version = now.at, ev.EVENT_VERSION
        if self.secrets is not None:
            move = self.secrets.clean(move)
        for event in move.events:
            evolve(self.state, event, at)
            body = encode(event)
            self._seq += 1
            self._head = link(self._head, self.id, self._seq, at, version, body)
            entries.append(Entry(self.id, self._seq, at, version, body, self._head))
        batch.effects.extend(move.effects)

    def _flush(self, batch: _Batch, entries: list[Entry]) -> None:
        if not entries:
            if self._outstanding:  # the answers would rest on events that are not durable yet
                self._outstanding[-1].inputs.extend(batch.inputs)
                self._outstanding[-1].waiters.extend(batch.waiters)
                return
            self._finish_waiters(batch)
            self._after(batch)
            return
        self._settled.clear()
        known = not (self.driven or self.state.questions or self._status == "failed")
        status = self._status if known else run_status(self.state)
        told, waiting = None, len(self.state.questions)
        changed = status != self._status or waiting != self._waiting
        if changed or self._seq == len(entries) or self.state.ended is not None:
            told = msgspec.json.encode(summary(self.state))
            self._status, self._waiting = status, waiting
        alone = self._alone and not self._outstanding and not self.state.planner.epoch
        expected = self._seq - len(entries)
        self._outstanding.append(batch)
        future = self.host.store.append(self.id, expected, entries, told, alone=alone)
        if future.done():
            self._committed(future)
        else:
            future.add_done_callback(self._committed)

    def _committed(self, future: asyncio.Future[None]) -> None:
        batch = self._outstanding.popleft()
        error = None if future.cancelled() else future.exception()
        if error is None and not future.cancelled() and not self._folding:
            self.host.full_since = None
            self._conflicts = 0
            self._finish_waiters(batch)
            self._after(batch)
            return
        self._undo(batch, error)

    def _after(self, batch: _Batch) -> None:
        if self.driven and self.host.failed is None:
            for effect in batch.effects:
                self.host.perform(self, effect)
        if not self._outstanding and not self._inputs:
            self._note_status()

    def _finish_waiters(self, batch: _Batch) -> None:
        for waiter in batch.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _note_status(self) -> None:
        if self._awaits_command():
            self._settled.set()
        else:
            self._settled.clear()

    def _awaits_command(self) -> bool:
        """Return whether nothing more happens here without a command."""
        if self.state.ended is not None:
            return True
        if len(self.state.in_flight) > self.state.handed_out or self.state.planner.epoch:
            return False
        return self.host.shared.stopped or run_status(self.state) in ("waiting", "paused")

    def is_idle(self) -> bool:
        """Return whether nothing happens here before its next timer, unless a command arrives.

        Such a run is only a fold of its log: it can be unloaded and resumed.
        """
        state = self.state
        if self._inputs or self._outstanding or self._scheduled or self._folding or self._awaited:
            return False
        if (
            self.tasks
            or len(state.in_flight) > state.handed_out
            or state.planner.epoch
            or self in self.host.waiting_for_capacity
        ):
            return False
        if (
            state.undecided
            or state.to_skip
            or state.ended is not None
            or state.stopping is not None
        ):
            return False
        if state.pending is not None and not state.pending.examined:
            return False
        return state.paused or (state.next_ready() is None and not state.ready.parked)

    @property
    def is_ahead(self) -> bool:
        """Whether the state holds what is not on the disk yet."""
        return bool(self._outstanding or self._folding or self._inputs)

    async def wait_idle(self) -> str:
        """Wait until the run has ended or waits for a person, with everything durable."""
        self._awaited += 1
        try:
            while True:
                await self._settled.wait()
                if self.host.failed is not None:
                    raise self.host.failed
                if self._awaits_command() and not self._outstanding:
                    return run_status(self.state)
                self._settled.clear()
        finally:
            self._awaited -= 1

    async def wait_durable(self) -> None:
        """Wait until all submitted inputs are durable."""
        while self._inputs or self._outstanding or self._scheduled:
            await asyncio.sleep(0.001)
            if self.host.failed is not None:
                return

    # When a commit fails.

    def _undo(self, batch: _Batch, error: BaseException | None) -> None:
        """Keep the inputs of a batch that did not become durable, and fold again."""
        self._undone.extend(batch.inputs)
        known = isinstance(error, (StoreFull, Conflict)) and not isinstance(error, Fenced)
        if error is not None and not known:
            self.host.fail(error)
        first = not self._folding
        self._folding = True
        if first:
            self._failure = error
        if not self._outstanding:
            self._inputs.extendleft(reversed(self._undone))
            self._undone.clear()
            self.host.spawn(self._fold_again())

    async def _fold_again(self) -> None:
        self._conflicts += isinstance(self._failure, Conflict)
        if self._conflicts > CONFLICTS_MAX:
            self.host.fail(StoreCorrupt(f"the log of run {self.id} is not as it was left"))
        if self.host.failed is None:
            await self.host.wait_for_space(self._failure)
        self.load_from(self.host.store.read(self.id))
        if self.state.owner > self.host.owner:
            self.host.fail(Fenced(f"another host has taken over run {self.id}"))
        if self.host.failed is not None:
            self._fail_waiters(self.host.failed)
            return
        self._folding = False
        self.poke()

    def _fail_waiters(self, error: BaseException) -> None:
        for _what, waiter in self._inputs:
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)

    def fail(self, error: BaseException) -> None:
        """Wake all waiters: the host cannot continue."""
        self._fail_waiters(error)
        self._settled.set()

    # Timers.

    def _set_timer(self, now: Now) -> None:
        clock_at, wall_at = next_wake(self.state)
        delays = []
        if clock_at is not None:
            delays.append(max(0.0, (clock_at - now.at) / 1e6))
        if wall_at is not None:
            delays.append(min(CALENDAR_LOOK_S, max(0.0, (wall_at - now.wall) / 1e6)))
        if self in self.host.waiting_for_capacity and not self.host.store.room():
            delays.append(ROOM_LOOK_S)
        if delays and self.state.ended is None:
            self._alarm.set(min(delays))
        else:
            self._alarm.drop()

    def close(self) -> None:
        """Cancel the timers; tasks belong to the host."""
        self.driven = False
        self._alarm.drop()

    # For contexts.

    @cached_property
    def budget(self) -> RunBudget:
        """The budget for model calls."""
        return RunBudget(self)

    async def live(self, step: str) -> dict[str, Any] | None:
        """Return the progress of a step in flight: attempt, message, fraction, output."""
        context = self.contexts.get(step)
        found: dict[str, Any] | None = None if context is None else context.live()
        return found

    def note_progress(self, step: str, message: str, fraction: float | None) -> None:
        """Store the progress that a worker reported."""
        message = message[:500]
        self.progress[step] = (message, fraction)
        self.host.noted(self.id, "note_progress", (step, message, fraction))
