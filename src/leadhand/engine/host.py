"""The host: the one process that runs the engine for a database.

It owns the store (a lock beside the file, and an owner epoch that every append is checked against),
drives any number of runs, grants starts within the limits of the machine, and notifies listeners.
It decides nothing about a run: that is the task of the core.

A host stops on the first error that leaves it unsure of the content of the disk. The next host
finds the attempts in flight in the log and declares them lost: there is no second recovery
mechanism.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from leadhand.audit.chain import GENESIS, link, verify, verify_head
from leadhand.codec.events import decode, encode, refuse_start, refuse_unreadable
from leadhand.core import events as ev
from leadhand.core import host_events as hosting
from leadhand.core.calendar import iso
from leadhand.core.decide.circuit_breaker import (
    FailureStreak,
    is_silent,
    is_trouble,
    open_for_s,
    requested_pause_s,
)
from leadhand.core.decide.decide import next_wake
from leadhand.core.decide.effects import (
    SECOND,
    CallPlanner,
    Examine,
    Move,
    Notify,
    StartAttempt,
    StartProbe,
    StopAttempt,
    VerifyGoal,
)
from leadhand.core.decide.planner_answer import record_answer
from leadhand.core.host_events import CircuitClosed, CircuitOpened
from leadhand.core.review.holds import workers_changed
from leadhand.core.state.model import Now
from leadhand.core.views.run import run_status
from leadhand.engine import perform
from leadhand.engine.approvals import admit
from leadhand.engine.fold import NoWorkers, gc_paused
from leadhand.engine.guest.host_side import GuestRun, Guests
from leadhand.engine.host_socket import perform_command
from leadhand.engine.reviewers import changed_specs, examine
from leadhand.engine.run import Run
from leadhand.engine.secrets import secrets_of
from leadhand.errors import (
    Bug,
    Conflict,
    Fenced,
    LeadhandError,
    StoreCorrupt,
    StoreFull,
    UsageError,
)
from leadhand.models.telemetry import Runs as Spans
from leadhand.ports import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from leadhand.core.decide.effects import Effect, StartAttempt
    from leadhand.core.plan.model import Doc
    from leadhand.core.review.approval import Approval
    from leadhand.core.state.model import State
    from leadhand.engine.secrets import Secrets
    from leadhand.ports import Machine, Planner, Reviewer, RunHandle, Store, Workers


# The run clock is the wall clock at start plus elapsed monotonic time: a jump of the wall clock
# moves no deadline and no backoff. The calendar is the current time of the operating system.


class SystemClock:
    """The clocks of the operating system."""

    def __init__(self, not_before: int = 0) -> None:
        """Start the run clock now, or at `not_before` (the newest time of a log) if later."""
        self._base = max(time.time_ns() // 1000, not_before) - time.monotonic_ns() // 1000

    def now(self) -> int:
        """Return the time of the run clock in microseconds."""
        return self._base + time.monotonic_ns() // 1000

    def wall(self) -> int:
        """Return the calendar time in microseconds."""
        return time.time_ns() // 1000


SPACE_PATIENCE_S = 30.0
"""How long a store may stay full before the host gives up."""


# The host's circuit breakers: workers that are not called now, by any run.
#
# `core/decide/circuit_breaker.py` has the rules. Runs test `worker in breakers` when they look for
# a step to start, and report the outcome of attempts. When the time of a circuit is up, one attempt
# is let through (the trial); all others wait until it ends well.


SLACK_S = 0.001


class Breakers:
    """The circuit breakers, one for each worker that was ever in trouble."""

    def __init__(self, host: EmbeddedHost) -> None:
        self._host = host
        self._records: dict[str, FailureStreak] = {}
        self._trials: dict[str, tuple[Run, str, int]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def __contains__(self, worker: object) -> bool:
        circuit = self._host.shared.circuits.get(str(worker))
        if circuit is None:
            return False
        return circuit.until > self._host.time().at or self._trying(str(worker))

    def why(self, worker: str) -> str:
        """Return until when a worker is not called, and why; "" if its circuit is closed."""
        circuit = self._host.shared.circuits.get(worker)
        if circuit is None:
            return ""
        reason = f": {circuit.reason}" if circuit.reason else ""
        if circuit.until <= self._host.time().at:
            return f"is being tried by one step first{reason}"
        return f"is unavailable until {iso(circuit.until)}{reason}"

    def _trying(self, worker: str) -> bool:
        if worker not in self._trials:
            return False
        run, step, epoch = self._trials[worker]
        return run.driven and run.state.in_flight.get(step) == epoch

    def _is_trial(self, run: Run, step: str, worker: str) -> bool:
        return worker in self._trials and self._trials[worker][:2] == (run, step)

    @property
    def alert(self) -> bool:
        """Whether any worker is or was in trouble, so that successes matter."""
        return bool(self._records or self._host.shared.circuits)

    def watch_all(self) -> None:
        """Set a timer for each open circuit, when the host starts."""
        for worker in self._host.shared.circuits:
            self._watch(worker)

    def started(self, run: Run, effect: StartAttempt) -> None:
        """Record a started attempt; with an open circuit it is the trial."""
        if effect.worker in self._host.shared.circuits:
            self._trials[effect.worker] = (run, effect.step, effect.epoch)

    def heard(self, run: Run, step: str, worker: str, failure: Doc | None) -> None:
        """Record the outcome of an attempt."""
        trial = self._is_trial(run, step, worker)
        if trial:
            del self._trials[worker]
        if is_silent(failure):
            if trial:
                self._look_again()  # the next attempt is the trial
            return
        now, circuit = self._host.time().at, self._host.shared.circuits.get(worker)
        if not is_trouble(failure):
            self._records.pop(worker, None)
            # An attempt started before the circuit opened does not close it early.
            if circuit is not None and (trial or circuit.until <= now):
                self._tell(CircuitClosed(worker))
            return
        record = self._records.setdefault(worker, FailureStreak())
        record.add(run.id, step)
        asked_s = requested_pause_s(failure)
        if circuit is not None and circuit.until <= now:
            trips = circuit.trips + 1
            wait_s = max(asked_s, open_for_s(trips))
            reason = f"it failed again, so for {wait_s:g} s"
        elif record.enough and circuit is None:
            trips, wait_s = 1, max(asked_s, open_for_s(1))
            reason = f"it failed {record.failures} times in a row, so for {wait_s:g} s"
        else:
            trips, wait_s = circuit.trips if circuit else 1, asked_s
            reason = f"it asked for {asked_s:g} s"
        until = now + int(wait_s * 1e6)
        if wait_s > 0 and (circuit is None or until > circuit.until):
            self._tell(CircuitOpened(worker, until, trips, reason))

    def close(self) -> None:
        """Cancel the timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _tell(self, event: CircuitOpened | CircuitClosed) -> None:
        self._host.tell_host_later(event)
        if isinstance(event, CircuitOpened):
            self._watch(event.worker)
        else:
            self._look_again()

    def _watch(self, worker: str) -> None:
        until = self._host.shared.circuits[worker].until
        delay = max(SLACK_S, (until - self._host.time().at) / 1e6)
        if worker in self._timers:
            self._timers[worker].cancel()
        loop = asyncio.get_running_loop()
        self._timers[worker] = loop.call_later(delay, self._due, worker)

    def _due(self, worker: str) -> None:
        circuit = self._host.shared.circuits.get(worker)
        if circuit is not None and circuit.until > self._host.time().at:
            self._watch(worker)  # it fired early: runs would wait for ever
        else:
            self._look_again()

    def _look_again(self) -> None:
        for run in self._host.runs.values():
            run.state.circuit_closed()
        self._host.poke_all()


T = TypeVar("T")
VERSION = "0.1.0"
SPACE_LOOK_S = 1.0
"""The interval of retries on a full disk, in seconds."""


class Sleep(NamedTuple):
    """A driven run that is not in memory, with the time at which it must be resumed."""

    at: int | None
    """On the run clock."""
    wall: int | None
    """On the calendar."""
    status: str
    secrets: Secrets | None
    """Kept, so that notices of other runs do not reveal them."""

    def due(self, now: Now, ahead_s: float = 0.0) -> bool:
        """Return whether a timer is due now, or within `ahead_s` seconds."""
        ahead = int(ahead_s * SECOND)
        on_clock = self.at is not None and self.at <= now.at + ahead
        return on_clock or (self.wall is not None and self.wall <= now.wall + ahead)


class EmbeddedHost:
    """Drive runs on one store."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Any = None,
        machine: Machine | None = None,
        max_concurrency: int = 1000,
        on_notice: Callable[[str, str, str], None] | None = None,
    ) -> None:
        """Create a host; `open` makes it the owner of the store.

        - `clock`: a `Clock`; the system's by default.
        - `machine`: ends leftover processes and lets workers start programs.
        - `max_concurrency`: the attempts in flight over all runs.
        - `on_notice(kind, run, text)`: called when a person is awaited, a run ends, or there is
          trouble.
        - `space_patience_s`: how long to wait for space on a full disk before stopping.
        """
        self.store = store
        self.runs: dict[str, Run] = {}
        self.asleep: dict[str, Sleep] = {}
        """Idle runs that were unloaded, with the time of their next timer."""
        self.in_flight = 0
        self.draining = False
        self.closing = False
        self.waiting_for_capacity: dict[Run, None] = {}
        self.failed: BaseException | None = None
        self.shared = hosting.HostState()
        self.owner = 0
        self._clock = clock
        self._machine = machine
        self._max_concurrency = max_concurrency
        self._on_notice = on_notice or (lambda _kind, _run, _text: None)
        self._head = GENESIS
        self.full_since: int | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self.breakers = Breakers(self)
        self.spans = Spans()
        self.reviewers: dict[str, Reviewer] = {}
        """Automatic reviewers, by the names that runs record."""
        self.approvers: Mapping[str, str] = {}
        """Approvers of the settings, each with a public key."""
        self.refuse_altered: Callable[[str], None] | None = None
        """Raises if the log of a run was altered: checks hash chain and anchors."""
        self.claim_approval: Callable[[Approval, str], None] | None = None
        """Records outside of the database that a run uses an approval; raises if another has used
        it."""
        self.not_before = 0
        """A time known to have passed: the run clock starts no earlier."""
        self.guests: Guests = Guests(self)
        """Processes that drive runs beside this host, and write through it."""
        self.successor: Callable[[Any], Planner] | None = None
        """Makes the planner of a run that a person hands over, for its workers."""
        self.launched: Callable[[str], None] = lambda _run: None
        """Never called: a run that is started here begins at once."""

    async def open(self) -> None:
        """Become the owner of the store and record that in the `$host` stream."""
        entries = self._fold()
        if self._clock is None:
            latest = self.store.last_change()
            self._clock = SystemClock(not_before=max(latest, self.not_before))
        self.owner = self.store.claim()
        if self.owner <= self.shared.owner:
            raise StoreCorrupt(
                f"the database's count of hosts went back from {self.shared.owner} to "
                f"{self.owner}: it was changed by hand, or is damaged. Fix: put back a copy."
            )
        if self._machine is not None and entries:
            await self._machine.clear()
        opened = hosting.HostOpened(self.owner, os.getpid(), VERSION, self._max_concurrency)
        await self.tell_host(opened)
        self.breakers.watch_all()

    def _fold(self) -> list[Entry]:
        """Read the host's own stream from disk, discarding all other knowledge of it."""
        entries = self.store.read(hosting.HOST_STREAM)
        self.shared = hosting.HostState()
        for entry in entries:
            hosting.evolve_host(self.shared, decode(entry.version, entry.body))
        self._head = entries[-1].hash if entries else GENESIS
        return entries

    async def tell_host(self, event: ev.Event) -> None:
        """Append one event to the `$host` stream; return once it is durable."""
        await self._told(self._say_of_host(event))

    def tell_host_later(self, event: ev.Event) -> None:
        """Append one event to the `$host` stream without waiting; a full disk loses it."""

        async def wait(said: asyncio.Future[None]) -> None:
            with suppress(StoreFull, Conflict):
                await self._told(said)

        self.spawn(wait(self._say_of_host(event)))

    async def _told(self, said: asyncio.Future[None]) -> None:
        try:
            await said
            self.guests.tell_shared()
        except LeadhandError as error:
            self._fold()
            self.poke_all()
            if isinstance(error, Fenced) or not isinstance(error, (StoreFull, Conflict)):
                self.fail(error)
            raise
        self.poke_all()

    def _say_of_host(self, event: ev.Event) -> asyncio.Future[None]:
        refuse_unreadable([event])
        hosting.evolve_host(self.shared, event)
        body, seq, at = encode(event), self.shared.seq, self.time().at
        self._head = link(self._head, hosting.HOST_STREAM, seq, at, ev.EVENT_VERSION, body)
        entry = Entry(hosting.HOST_STREAM, seq, at, ev.EVENT_VERSION, body, self._head)
        alone = not self.in_flight
        return self.store.append(hosting.HOST_STREAM, seq - 1, [entry], alone=alone)

    # Runs.

    async def start(self, started: ev.RunStarted, workers: Workers, planner: Planner) -> Run:
        """Start a run; return once its start is durable."""
        self._attach(workers)
        run = Run(self, started.run, workers, planner)
        run.secrets = secrets_of(started, workers)
        proposal = getattr(planner, "proposal", None)
        if run.secrets is not None:
            run.secrets.refuse([started], proposal)
        refuse_start(started, proposal)
        await self.take(run.id)
        await admit(self, started, proposal)
        self.runs[run.id] = run
        run.driven = True
        hosted = self.hosted_event()
        if proposal is None:
            await run.submit_and_wait(lambda _state, _now: Move([started, hosted], []))
            return run
        # A given plan is part of the start: both are durable, or neither.
        limit = int(started.policy.planner_timeout_s * SECOND)
        run.submit(
            lambda _state, now: Move(
                [started, hosted, ev.PlannerAsked(1, 1, now.at + limit, "start")], []
            )
        )
        await run.submit_and_wait(
            lambda state, now: Move(*record_answer(state, 1, 1, proposal, now))
        )
        return run

    def load(self, ident: str, workers: Workers, planner: Planner | None = None) -> Run:
        """Load a run from its log, without driving it."""
        if ident in self.runs:
            return self.runs[ident]
        run = Run(self, ident, workers, planner)
        self.asleep.pop(ident, None)
        with gc_paused():
            entries = self.store.read(ident)
            if not entries:
                raise UsageError(f"there is no run {ident}")
            header = self.store.header(ident)
            problems = verify(entries) or (verify_head(entries, header) if header else [])
            if problems:
                raise StoreCorrupt(f"the log of run {ident} does not verify: {problems[0]}")
            run.load_from(entries)
        run.secrets = secrets_of(run.state.started, workers)
        self.runs[ident] = run
        return run

    async def find(self, ident: str, workers: Workers) -> Run:
        """Fold a run from its log, without driving it."""
        return self.load(ident, workers)

    async def look_shared(self) -> hosting.HostState:
        """Return what belongs to no single run."""
        return self.shared

    async def engines(self) -> list[str]:
        """Return this process, which drives its runs."""
        return [f"process {os.getpid()}"]

    async def send_command(
        self, ident: str, verb: str, actor: str, details: Doc, workers: Workers
    ) -> Doc:
        """Carry out a command of a person; return its answer once it is durable."""
        run = self.load(ident, workers) if ident else None
        return await perform_command(self, run, verb, actor, details)

    def discard(self, ident: str) -> None:
        """Let go of what is known of a run, which is read again when it is needed."""
        self.runs.pop(ident, None)

    async def resume(self, ident: str, workers: Workers, planner: Planner | None) -> Run:
        """Resume a run: attempts in flight under an earlier host are lost, the rest continues.

        Raise `Conflict` if another process drives it.
        """
        run = self.load(ident, workers, planner)
        if run.state.ended is not None:
            return run
        if isinstance(run, GuestRun):
            raise Conflict(f"run {ident} is hosted by process {run.pid} already")
        if self.refuse_altered is not None and not run.admitted and run.rests_on_people:
            self.refuse_altered(ident)
        await self.take(ident)
        if run.state.process is not None and self._machine is not None:
            await self._machine.end(run.state.process)
        self._attach(workers)
        run.workers = workers
        run.secrets = secrets_of(run.state.started, workers)
        run.planner = planner
        run.driven = True

        def hosted(state: State, _now: Now) -> Move:
            if state.owner > self.owner:
                self.fail(Fenced(f"another host has taken over run {ident}"))
            if state.owner >= self.owner or state.ended is not None:
                return Move([], [])
            changed = changed_specs(state, workers)
            wall = self.time().latest
            events, effects = workers_changed(state, changed, wall) if changed else ([], [])
            return Move([self.hosted_event(), *events], effects)

        await run.submit_and_wait(hosted)
        if run.state.pending is not None and not run.state.pending.examined:
            self.perform(run, Examine(run.state.pending.number))
        return run

    async def take(self, _run: str) -> None:
        """Take a run before it is started or resumed.

        Nothing to do here: this host owns the database.
        """

    def hosted_event(self) -> ev.RunHosted:
        """Return the event that records that a run is started or resumed here."""
        return ev.RunHosted(self.owner)

    def noted(self, _run: str, _what: str, _details: tuple[Any, ...]) -> None:
        """Handle a note that is not logged (`NOTES` of `guest/host_side.py`).

        Nothing to do here: the run keeps it.
        """

    async def update_workers(self, run: Run, workers: Workers | None = None) -> list[str]:
        """Update a run to the current versions of the workers; return the names of changed ones."""
        names: list[str] = []
        if isinstance(workers or run.workers, NoWorkers):
            return names
        if workers is not None and workers is not run.workers:
            self._attach(workers)
            run.workers = workers
            run.secrets = secrets_of(run.state.started, workers)

        def taken(state: State, now: Now) -> Move:
            if state.started is None or state.ended is not None:
                return Move([], [])
            changed = changed_specs(state, run.workers)
            names.extend(spec.name for spec in changed if spec.name in state.catalog.workers)
            return Move(*workers_changed(state, changed, now.latest)) if changed else Move([], [])

        await run.submit_and_wait(taken)
        return names

    def _attach(self, workers: Workers) -> None:
        if self._machine is not None:
            self._machine.attach(workers)

    def forget(self, run: RunHandle) -> None:
        """Unload a run that has ended, once its end is on the disk.

        While a commit that failed is waited out, the state of a run is ahead of its log.
        """
        if run.state.ended is not None and not (isinstance(run, Run) and run.is_ahead):
            self.runs.pop(run.id, None)
            run.close()
            self.spans.leave(run.id, run.state.ended.status)

    def unload(self, run: Run, *, ahead_s: float) -> bool:
        """Unload an idle run; its log is all there is to know of it.

        The host must resume it (`adopt`) when its sleep is `due`, which keeps its timers, defaults
        and expiries; a command for it loads it earlier (`load`).

        A run with a timer within `ahead_s` seconds stays. Return whether it was unloaded.
        """
        if not run.is_idle():
            return False
        at, wall = next_wake(run.state) if run.driven else (None, None)
        sleep = Sleep(at, wall, run_status(run.state), run.secrets)
        if sleep.due(self.time(), ahead_s):
            return False
        self.runs.pop(run.id, None)
        self.asleep[run.id] = sleep
        run.close()
        return True

    def time(self) -> Now:
        """Return the time of both clocks."""
        return Now(self._clock.now(), self._clock.wall())

    def room(self) -> int:
        """Return how many more attempts may start."""
        if self.draining or self.shared.stopped or self.failed is not None:
            return 0
        if not self.store.room():
            return 0
        held = 0 if self._machine is None else self._machine.held()
        return self._max_concurrency - self.in_flight - held

    def poke_all(self) -> None:
        """Schedule a turn of every driven run."""
        for run in self.runs.values():
            if run.driven:
                run.poke()

    # Effects.

    def perform(self, run: Run, effect: Effect) -> None:
        """Carry out one effect whose events are durable."""
        match effect:
            case StartAttempt():
                tasks, context = run.tasks, perform.context_of(run, effect)
                work = perform.attempt(run, effect, context, tasks.get(effect.step))
                tasks[effect.step] = asyncio.get_running_loop().create_task(work)
            case StopAttempt():
                perform.stop(run, effect)
            case StartProbe():
                context, before = perform.context_of(run, effect), run.tasks.get(effect.step)
                self._run_task(run, effect.step, perform.probe(run, effect, context, before))
            case CallPlanner():
                self._run_task(run, "", perform.ask(run, effect))
            case Examine():
                self.spawn(examine(run, effect.number))
            case VerifyGoal():
                self.spawn(perform.verify_goal(run, effect))
            case Notify():
                self.notice(effect.kind, run.id, effect.text)
            case _:
                self.fail(Bug(f"no handler for effect {type(effect).__name__}"))

    def _run_task(self, run: Run, key: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        run.tasks[key] = task
        task.add_done_callback(lambda done: self._task_done(run, key, done))

    def _task_done(self, run: Run, key: str, task: asyncio.Task[None]) -> None:
        if run.tasks.get(key) is task:
            del run.tasks[key]
            run.contexts.pop(key, None)
            run.progress.pop(key, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)
        self.wake_waiting()

    def wake_waiting(self) -> None:
        """Schedule a turn of the runs that wait for capacity: some was freed."""
        if self.waiting_for_capacity:
            starved, self.waiting_for_capacity = self.waiting_for_capacity, {}
            for run in starved:
                run.poke()

    def notice(self, kind: str, run: str, text: str) -> None:
        """Notify the listener; its failure harms no run."""
        kept = [run.secrets for run in self.runs.values()]
        kept += [sleep.secrets for sleep in self.asleep.values()]
        for secrets in kept:
            if secrets is not None:
                text = secrets.text(text)
        try:
            self._on_notice(kind, run, text)
        except Exception as error:  # noqa: BLE001 - user code, and nothing rests on it
            print(f"leadhand: on_notice failed: {error!r}", file=sys.stderr)  # noqa: T201

    async def blocking(self, call: Callable[..., T], *args: Any) -> T:
        """Run a slow synchronous call without blocking the loop."""
        return await asyncio.to_thread(call, *args)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; its failure fails the host."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background_done)

    def _background_done(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    # Trouble.

    def fail(self, error: BaseException) -> None:
        """Stop at once: the disk has the truth, and the next host continues from it."""
        if self.failed is not None:
            return
        self.failed = error
        self.notice("trouble", "", str(error))
        for run in self.runs.values():
            run.fail(error)

    async def wait_for_space(self, error: BaseException | None) -> None:
        """Wait for space on a full disk; stop cleanly when the patience is over."""
        if not isinstance(error, StoreFull):
            if error is not None and not isinstance(error, Conflict):
                self.fail(error)
            return
        if self.full_since is None:
            self.full_since = self.time().at
            self.notice("trouble", "", f"{error} Waiting for space; nothing is lost.")
        elif self.time().at - self.full_since > SPACE_PATIENCE_S * 1e6:
            self.fail(error)
            return
        await asyncio.sleep(SPACE_LOOK_S)

    async def drain(self) -> None:
        """Start nothing new, and wait for the attempts in flight."""
        self.draining = True
        while tasks := [task for run in self.runs.values() for task in run.tasks.values()]:
            await asyncio.wait(tasks)
        for run in list(self.runs.values()):
            await run.wait_durable()

    async def close(self) -> None:
        """Stop all attempts, wait until they are gone, and release the store."""
        self.closing = True
        self.breakers.close()
        tasks = [task for run in self.runs.values() for task in run.tasks.values()]
        for run in self.runs.values():
            run.close()
            self.spans.leave(run.id, run_status(run.state))
            for context in run.contexts.values():
                context.cancelled = True
        for ident, sleep in self.asleep.items():
            self.spans.leave(ident, sleep.status)
        for task in (*tasks, *self._background):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._machine is not None:
            await self._machine.close()
        await self.store.close()


def new_run_id(random: Callable[[int], bytes] = os.urandom) -> str:
    """Return a run id: twelve letters and digits, none of which look alike."""
    alphabet = "23456789abcdefghjkmnpqrstuvwxyz"
    number = int.from_bytes(random(10), "big")
    letters = []
    for _ in range(12):
        number, index = divmod(number, len(alphabet))
        letters.append(alphabet[index])
    return "".join(letters)
