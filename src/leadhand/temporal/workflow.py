"""One run as one workflow. Its body is the pure core; Temporal is its memory and its clock.

    inputs (reports, words of people, timers) ─► events ─► evolve
         ─► decide until there is nothing more to do ─► activities, and the log

Laws of this file
1. Nothing is read here but the workflow's input, its history and its clock. The core derives its
   jitter from run, step and attempt; nothing is random.
2. The history is the authority. A start and the activity that carries it out are recorded in one
   workflow task, so intent is durable before act; the log is written behind (`log_writer.py`).
3. A history that has grown ends when nothing is in flight, and the run continues as new from a
   position in its log: a number and a hash. The entries read from there must end in that hash, and
   old events always load, so the log is the snapshot, and its versions are the events'. (A dump of
   the state would be a second format to keep readable, and no shorter.)
4. Changes that reorder the content of a history break replay: `docs/reference/temporal.md` says
   what to do.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from collections.abc import Callable

    from leadhand.codec.events import refuse_unreadable
    from leadhand.core import events as ev
    from leadhand.core.commands import Command, command_result
    from leadhand.core.decide.decide import decide, next_wake
    from leadhand.core.decide.effects import SECOND, Effect, Examine, Move, StartAttempt
    from leadhand.core.decide.planner_answer import record_answer
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.evolve import evolve
    from leadhand.core.state.model import Now, State
    from leadhand.core.views.run import run_status
    from leadhand.engine.approvals import refuse_unsigned
    from leadhand.engine.fold import fold
    from leadhand.errors import Conflict, LeadhandError, UsageError
    from leadhand.ports import Entry
    from leadhand.temporal.messages import (
        LOG,
        MORE,
        ORDER_VERSION,
        RUN,
        SAY,
        Begin,
        LogLine,
        More,
        StateRequest,
        newest,
    )

from leadhand.temporal.dispatch import Dispatch, engine_queue
from leadhand.temporal.log_writer import AGAIN, LogWriter

Said = Callable[[State, Now], Move]
BREATH_S = 0.001
LOAD_S = 120.0
OWNER = 1
"""The owner number of a run that started here: its workflow is its only host."""


@workflow.defn(name=RUN)
class RunFlow:
    """The workflow of one run."""

    @workflow.init
    def __init__(self, begin: Begin) -> None:
        if begin.version > ORDER_VERSION:  # the task fails, and waits for an engine that knows it
            raise RuntimeError(f"this history was begun by a newer Leadhand ({begin.version})")
        self.ways = begin.ways
        self.version = begin.version
        """The order of this history: see `ORDER_VERSION`."""
        self.state = State()
        self.pipe = LogWriter(begin.run, begin.ways, engine_queue(begin.ways.prefix))
        self._hands = Dispatch(self)
        self._inputs: list[tuple[Said, asyncio.Future[None] | None]] = []
        self._ready = False
        self._starts = self._start_bytes = self._starts_max = 0
        self._wakes: dict[int, asyncio.Task[None]] = {}
        self._rang = False
        self._stopped = begin.stopped
        self._last_at = 0

    @workflow.run
    async def run(self, begin: Begin) -> str:
        """Drive the run to its end, or to the next history."""
        if begin.place is not None:
            await self._load(begin)
        else:
            self._start(begin)
        self._ready = True
        writing = asyncio.create_task(self.pipe.drive(lambda: self.state, self._resting))
        while True:
            self._turn()
            if self._over():
                break
            if self._turn_full():
                await workflow.sleep(BREATH_S)
                continue
            await workflow.wait_condition(lambda: bool(self._inputs) or self._rang or self._over())
        writing.cancel()
        if self.state.ended is None:
            place, stopped = self.pipe.place, self._stopped
            again = Begin(begin.run, self.ways, place=place, stopped=stopped)
            workflow.continue_as_new(newest(again))
        return run_status(self.state)

    def _over(self) -> bool:
        """Return whether this history is over: the run has ended, or may continue as new."""
        if self._inputs or not self.pipe.empty or not workflow.all_handlers_finished():
            return False
        return self.state.ended is not None or self._may_continue()

    # The beginning.

    def _start(self, begin: Begin) -> None:
        started, proposal = begin.started, begin.proposal
        assert started is not None
        now = self.now()
        events: list[ev.Event] = [started, ev.RunHosted(OWNER)]
        if proposal is not None:
            limit = int(started.policy.planner_timeout_s * SECOND)
            events.append(ev.PlannerAsked(1, 1, now.at + limit, "start"))
        self._record(Move(events, []), now)
        if proposal is not None:
            self.hand_in(lambda state, at: Move(*record_answer(state, 1, 1, proposal, at)))

    async def _load(self, begin: Begin) -> None:
        assert begin.place is not None
        lines = await workflow.execute_activity(
            LOG,
            StateRequest(begin.run, begin.place, self.ways.heartbeat_s),
            task_queue=engine_queue(self.ways.prefix),
            start_to_close_timeout=timedelta(seconds=LOAD_S),
            heartbeat_timeout=timedelta(seconds=self.ways.heartbeat_s),
            retry_policy=AGAIN,
            result_type=list[LogLine],
        )
        self.state = fold([_entry(begin.run, line) for line in lines])
        self.pipe.go_on(begin.place, self.state)
        self._last_at = self.state.last_at
        if begin.hosted:
            self.hand_in(self._hosted)

    def _hosted(self, state: State, _now: Now) -> Move:
        """Take over from another host, including an unfinished examination."""
        effects: list[Effect] = []
        if state.pending is not None and not state.pending.examined:
            effects.append(Examine(state.pending.number))
        return Move([ev.RunHosted(state.owner + 1)], effects)

    # What comes in.

    def hand_in(self, what: Said, waiter: asyncio.Future[None] | None = None) -> None:
        """Submit an input for the next turn."""
        self._inputs.append((what, waiter))

    @workflow.update(name=SAY)
    async def say(self, word: Command) -> Doc:
        """Apply a command of a person; it is in the log on return."""
        await workflow.wait_condition(lambda: self._ready)
        if word.verb in ("stop_all", "lift"):
            self._stopped, self._rang = word.verb == "stop_all", True
            return {"stopped": self._stopped}
        heard: Doc = {}

        def said(state: State, now: Now) -> Move:
            move = _asked(state, word, now)
            heard.update(command_result(move.events))
            return move

        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.hand_in(said, waiter)
        try:
            await waiter
        except LeadhandError as error:
            raise refusal(error) from error
        await self.pipe.until_written()
        return {"run": self.state.run, "status": run_status(self.state), **heard}

    @say.validator
    def check(self, word: Command) -> None:
        """Refuse a command that cannot be carried out now, before anything is recorded."""
        if self._ready and word.verb not in ("stop_all", "lift"):
            try:
                _asked(self.state, word, self._time())
                if self.pipe.fork:
                    raise Conflict(f"the run is parked: {self.pipe.fork}")
            except LeadhandError as error:
                raise refusal(error) from error

    @workflow.update(name=MORE)
    async def more(self, want: More) -> float:
        """Return more budget to an attempt or planner call that has not enough for a model."""
        return await self._hands.money.more(want)

    @workflow.query(name="leadhand.place")
    def place(self) -> Doc:
        """Return the position of the run, written or not, and the problem of its log."""
        place = self.pipe.place
        return {
            "seq": place.seq,
            "head": place.head,
            "written": self.pipe.written,
            "fork": self.pipe.fork,
            "status": run_status(self.state) if self._ready else "loading",
        }

    # The loop.

    def now(self) -> Now:
        """Return the server's time; it never goes back."""
        now = self._time()
        self._last_at = now.at
        return now

    def _time(self) -> Now:
        at = max(self._last_at, int(workflow.now().timestamp() * 1e6))
        return Now(at, at)

    def _turn(self) -> None:
        self._rang, self._starts, self._start_bytes = False, 0, 0
        busy = bool(self.state.in_flight)
        self._starts_max = self.ways.turn_more_max if busy else self.ways.turn_starts_max
        now, effects = self.now(), list[Effect]()
        while self._inputs:
            what, waiter = self._inputs.pop(0)
            try:
                move = what(self.state, now)
            except LeadhandError as error:
                if waiter is None:
                    raise
                waiter.set_exception(error)
                continue
            effects += self._record(move, now)
            if waiter is not None:
                waiter.set_result(None)
        room = self._room()
        while (next_move := decide(self.state, now, room)) is not None:
            effects += self._record(next_move, now)
            for each in next_move.effects:
                if isinstance(each, StartAttempt):
                    self._starts += 1
                    self._start_bytes += self._hands.orders.size(each)
            room = self._room()
        for effect in effects:
            self._hands.perform(effect)
        self._set_alarm(now)

    def _record(self, move: Move, now: Now) -> list[Effect]:
        for event in move.events:
            evolve(self.state, event, now.at)
            self.pipe.add(event, now.at)
        return move.effects

    def _room(self) -> int:
        """Return how many more attempts may start."""
        if self._stopped or self.pipe.fork or self._full() or self._turn_full():
            return 0
        # An activity told to stop still counts until it ends.
        return self.ways.in_flight_max - self._hands.busy - self._starts

    def _turn_full(self) -> bool:
        """Return whether a turn has started as much as it may."""
        many = self._starts >= self._starts_max > 0
        return many or self._start_bytes >= self.ways.turn_bytes_max

    # Timers.

    def _set_alarm(self, now: Now) -> None:
        """Set a timer for the next due moment. A timer that fires early is harmless."""
        times = [each for each in next_wake(self.state) if each is not None]
        if not times or self.state.ended is not None:
            return
        when = min(times)
        if any(set_for <= when for set_for in self._wakes):
            return
        for task in self._wakes.values():
            task.cancel()
        self._wakes = {when: asyncio.create_task(self._ring(when, when - now.at))}

    async def _ring(self, when: int, delay_us: int) -> None:
        await workflow.sleep(max(0.001, delay_us / 1e6))
        self._wakes.pop(when, None)
        self._rang = True

    # The end of a history.

    def _resting(self) -> bool:
        """Return whether nothing more happens without a command or a timer."""
        return not self.state.in_flight and not self.state.planner.epoch

    def _full(self) -> bool:
        """Return whether the history is so long that nothing new may start."""
        info = workflow.info()
        length, size = info.get_current_history_length(), info.get_current_history_size()
        return length >= self.ways.history_max or size >= self.ways.history_bytes_max

    def _may_continue(self) -> bool:
        """Return whether the run should continue as new, and nothing is in flight."""
        if not self._full() and not workflow.info().is_continue_as_new_suggested():
            return False
        return self._hands.busy == 0


def _asked(state: State, word: Command, now: Now) -> Move:
    try:
        move = word(state, now)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{word.verb} cannot be understood: {error!r}") from error
    refuse_unsigned(state, move.events)
    refuse_unreadable(move.events)
    return move


def refusal(error: LeadhandError) -> ApplicationError:
    """Return the error for the sender of a command."""
    return ApplicationError(str(error), type=type(error).__name__, non_retryable=True)


def _entry(run: str, line: LogLine) -> Entry:
    body: Any = bytes(line.body)
    return Entry(run, line.seq, line.at, line.version, body, bytes.fromhex(line.hash))
