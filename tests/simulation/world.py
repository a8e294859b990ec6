"""The world around simulated hosts: the disk, the calendar, the supervisor, the effects.

Everything here is outside the hosts and survives their crashes. The world boots a host, makes
things go wrong as its scenario says, writes down what workers really did, and boots the next
host when one is gone. It judges on the spot what only the moment can show (intent before act,
two calls of one step at once); the rest is judged at the end, by `judge`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.codec.events import decode
from leadhand.core import events as ev
from leadhand.core.hashing import canonical, digest
from leadhand.core.views.ledger import describe
from leadhand.errors import Fenced, LeadhandError, StoreError, StoreFull
from leadhand.planners.document import DocumentPlanner, RevisableDocument
from leadhand.stores.memory import MemoryDisk
from leadhand.testing.clock import Calendar, SimClock
from leadhand.testing.loop import PROCESS, SimLoop
from tests.simulation.actors import SimPlanner, SimWorkers
from tests.simulation.agents import Agents
from tests.simulation.host import SimHost
from tests.simulation.people import attend, say_something
from tests.simulation.scenario import Act, draw, draw_act
from tests.simulation.store import SimStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.ports import Entry, Planner, Task, Workers
    from tests.simulation.scenario import RunPlan

HEALED_ACT = Act(cost=0.1)
PATIENCE_S = 29.0
"""How long a host at least waits for space; a second less than it does."""
FENCED_MAX = 20
"""Refusals after which a host that was replaced should long have stopped."""


class WorkerCall(NamedTuple):
    """One call of a worker."""

    number: int
    process: int
    worker: str
    task: Task


class World:
    """One simulated world."""

    def __init__(self, seed: int, *, trace: Callable[[str], None] | None = None) -> None:
        self.random = Random(seed)
        self.scenario = draw(seed, self.random)
        self.loop = SimLoop(self.random, shuffle=self.scenario.shuffle)
        self.calendar = Calendar(self.loop)
        self.disk = MemoryDisk()
        self.violations: list[str] = []
        self.effects: dict[tuple[str, str], list[WorkerCall]] = {}
        self.hosts: dict[int, SimHost] = {}
        self.current = 0
        """The process that owns the disk."""
        self.booted = 0
        self.crashes = 0
        self.full = self.crowded = self.broken_next = False
        self.refused_at: float | None = None
        """When the disk first was full, unless it took something since."""
        self.healed = self.over = False
        self.unanswered: dict[int, str] = {}
        """What people said and have not heard back about, by a running number."""
        self.looked: set[tuple[str, str]] = set()
        """Reviews, by run and question, that somebody approved as they were shown."""
        self.claims: dict[tuple[str, int], str] = {}
        """What became of the attempts, as their workers know it."""
        self.durable: set[tuple[str, int]] = set()
        """Epochs of starts and planner calls that are on disk."""
        self._trace = trace
        self._acts: dict[tuple[str, str], int] = {}
        self._calls: dict[int, WorkerCall] = {}
        self._count = 0
        self._jumped = -100.0
        self._outside = contextvars.Context()

    def wrong(self, message: str) -> None:
        """Note a violation."""
        self.violations.append(message)
        self.note(f"VIOLATION: {message}")

    def note(self, text: str) -> None:
        """A line of the trace, if anybody reads it."""
        if self._trace is not None:
            self._trace(f"{self.loop.time():10.4f}  {text}")

    def later(self, seconds: float, what: Callable[..., object], *args: Any) -> None:
        """Do something outside of any process."""
        self.loop.call_later(seconds, what, *args, context=self._outside)

    # Hosts come and go.
    def begin(self) -> None:
        """Boot the first host, and set out what goes wrong when."""
        self.boot()
        chaos_s, faults, random = self.scenario.chaos_s, self.scenario.faults, self.random
        self.later(chaos_s, self.heal)
        events: list[tuple[int, Callable[[], None]]] = [
            (faults.takeovers, self._take_over),
            (faults.restarts, self._restart),
            (faults.full, self._fill),
            (faults.broken, self._break),
            (faults.crowded, self._crowd),
            (faults.jumps, self._jump),
            (faults.stalls, self._stall),
        ]
        for count, what in events:
            for _ in range(count):
                self.later(random.random() * min(chaos_s, 20.0), what)
        for moment, verb in self.scenario.words:
            self.later(moment, say_something, self, verb)
        Agents(self).begin()

    def boot(self) -> None:
        """A new host comes up on the same disk."""
        if self.over:
            return
        self.booted += 1
        self.note(f"host {self.booted} boots")
        self.loop.run_in(self.booted, self._live(self.booted))

    def claimed(self, process: int) -> None:
        """A host has become the owner of the disk."""
        self.current = process

    async def _live(self, process: int) -> None:
        random, faults = self.random, self.scenario.faults
        store = SimStore(self, self.disk)
        latest = max((header.updated for header in store.runs()), default=0)
        clock = SimClock(self.loop, self.calendar, latest)
        host = SimHost(self, process, store, clock)
        self.hosts[process] = host
        missing = ""
        if not self.healed and random.random() < faults.unloaded:
            missing = random.choice(self.scenario.workers).name
        named = random.choice(self.scenario.workers).name
        newer = {named: f"{process}"} if process > 1 and random.random() < faults.newer else {}
        if not self.healed and self._is_strict(process):
            host.approvers = {"stranger": "a key that no person of this world holds"}
        try:
            await host.open()
            host.ready = True
            for plan in self.scenario.runs:
                self.loop.create_task(self.host_run(host, plan, SimWorkers(self, missing, newer)))
        except (Fenced, StoreError) as error:
            host.fail(error)

    def _is_strict(self, process: int) -> bool:
        """Whether a host's settings name none of the world's people as approvers. Has own dice.

        It finds no approval in a log that holds, and takes none, until the world is healed.
        """
        random = Random(f"{self.scenario.seed}/strict/{process}")
        return process > 1 and random.random() < 0.4

    async def host_run(self, host: SimHost, plan: RunPlan, workers: Workers) -> None:
        """Start a run or take it up, and see to it."""
        try:
            if plan.ident in self.disk.logs:
                run = await host.resume(plan.ident, workers, self._planner(plan))
            else:
                await asyncio.sleep(plan.begins_s)
                run = await host.start(self._started(plan), workers, self._planner(plan))
                if plan.ident not in self.disk.logs:
                    self.wrong(f"I1: the start of {plan.ident} was acknowledged and is not on disk")
            await attend(self, host, run)
        except LeadhandError as error:
            if host.failed is None:
                self.wrong(f"host {host.process} could not host {plan.ident}: {error!r}")

    def _planner(self, plan: RunPlan) -> Planner:
        if plan.planner == "document":
            return DocumentPlanner(plan.doc)
        planner = SimPlanner(self, plan)
        return RevisableDocument(plan.doc, planner) if plan.planner == "revisable" else planner

    def _started(self, plan: RunPlan) -> ev.RunStarted:
        planner = self._planner(plan)
        steps = plan.doc["steps"]
        head = {key: value for key, value in plan.doc.items() if key != "steps"}
        if plan.planner == "revisable":
            head["planner"] = planner.name
        return ev.RunStarted(
            run=plan.ident,
            goal=plan.doc["goal"],
            policy=plan.policy,
            planner=planner.name,
            catalog=self.scenario.workers,
            replans=planner.replans,
            deaf=getattr(planner, "deaf", False),
            splits=planner.splits,
            consult=planner.consult,
            plan=head,
            actor="person",
            linted=digest(canonical(steps)),
            decide_version=ev.DECIDE_VERSION,
        )

    def kill(self, process: int, why: str) -> None:
        """A host is gone, from one instruction to the next."""
        if not self.loop.alive(process):
            return
        self.note(f"host {process} dies: {why}")
        self.loop.kill(process)
        self._calls = {n: call for n, call in self._calls.items() if call.process != process}
        self.later(self.random.choice((0.0, 0.1, 3.0, 40.0)), self._boot_next)

    def _boot_next(self) -> None:
        """Boot a host unless one owns the disk, or is about to."""
        processes = range(1, self.booted + 1)
        coming = any(self.loop.alive(p) and p not in self.hosts for p in processes)
        owned = self.current and self.loop.alive(self.current)
        if not owned and not coming:
            self.boot()

    def host_failed(self, process: int, error: BaseException) -> None:
        """A host stopped by itself: it exits, and the next comes up."""
        if not isinstance(error, (Fenced, StoreError)):
            self.wrong(f"host {process} stopped: {error!r}")
        patient = self.loop.time() - (self.refused_at or 0.0) > PATIENCE_S
        if isinstance(error, StoreFull) and self.hosts[process].ready and not patient:
            self.wrong(f"host {process} gave up on a full disk too soon")
        self.later(self.random.choice((0.0, 0.05)), self.kill, process, f"it failed: {error}")

    def fenced(self, process: int, times: int) -> None:
        """A host heard that another owns the disk."""
        if times == FENCED_MAX and self.loop.alive(process):
            self.wrong(f"host {process} was replaced and goes on trying")
            self.kill(process, "it does not stop by itself")

    # What goes wrong.

    def heal(self) -> None:
        """Faults are over; from here on everything must come to an end."""
        self.note("healed")
        self.healed = True
        self.full = self.crowded = self.broken_next = False
        self.calendar.offset_us = 0
        self._jumped = self.loop.time()
        for process, host in self.hosts.items():
            host.approvers = {}
            self.loop.resume(process)

    def _take_over(self) -> None:
        old = self.current
        if self.over or self.healed or not self.loop.alive(old):
            return
        if self.random.random() < 0.5:
            self.loop.stall(old)
            self.later(self.random.choice((0.5, 5.0)), self.loop.resume, old)
        self.note(f"another host takes over from host {old}")
        self.boot()

    def _restart(self) -> None:
        host = self.hosts.get(self.current)
        if host is None or self.healed or self.over or not self.loop.alive(self.current):
            return
        self.note(f"host {self.current} is closed")
        self.loop.run_in(self.current, self._close(host))

    async def _close(self, host: SimHost) -> None:
        if self.random.random() < 0.5:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(host.drain(), 20.0)
        await host.close()
        self.later(0.0, self.kill, host.process, "it was closed")

    def _fill(self) -> None:
        self.full = not self.healed
        self.note("the disk is full")
        self.later(self.random.choice((0.5, 5.0, 29.0, 50.0)), self._empty)

    def _empty(self) -> None:
        self.full = False

    def _break(self) -> None:
        self.broken_next = not self.healed

    def _crowd(self) -> None:
        self.crowded = not self.healed
        self.note("the store has no room for new work")
        self.later(self.random.choice((0.2, 4.0)), self._uncrowd)

    def _uncrowd(self) -> None:
        self.crowded = False

    def _jump(self) -> None:
        if not self.healed:
            by_s = self.random.choice((-3600, -5, 5, 3600))
            self.note(f"the calendar jumps by {by_s} s")
            self.calendar.offset_us += by_s * 1_000_000
            self._jumped = self.loop.time()

    def _stall(self) -> None:
        if not self.healed:
            by_s = self.random.choice((0.3, 3.0, 30.0))
            self.note(f"the machine stands still for {by_s} s")
            self.loop.skip(by_s)

    # The disk.

    def commit_delay(self) -> float:
        """How long a commit takes."""
        random, faults = self.random, self.scenario.faults
        if not self.healed and faults.slow and random.random() < faults.slow:
            return random.choice((0.5, 4.0))
        return random.choice((0.0, 0.0002, 0.001, 0.005))

    def committed(self, process: int, entries: list[Entry]) -> None:
        """Something is durable; this is when hosts die."""
        for entry in entries:
            if entry.body.startswith((b'{"type":"AttemptStarted"', b'{"type":"PlannerAsked"')):
                event = decode(entry.version, entry.body)
                self.durable.add((entry.run, getattr(event, "epoch", 0)))
            if self._trace is not None:
                text = describe(decode(entry.version, entry.body))
                self.note(f"{entry.run} {entry.seq:3} {text}")
        faults = self.scenario.faults
        if self.healed or self.crashes >= faults.crashes_max:
            return
        if self.random.random() < faults.crash:
            self.crashes += 1
            delay = self.random.choice((0.0, 0.0, 0.001, 0.5))
            if delay:
                self.later(delay, self.kill, process, "it crashed")
            else:
                self.kill(process, "it crashed after a commit")

    # What workers and planners do.

    def next_act(self, task: Task) -> Act:
        """What the next call for a step does."""
        return HEALED_ACT if self.healed else draw_act(self.random, self.scenario)

    def enter(self, worker: str, task: Task) -> WorkerCall:
        """A worker is called."""
        process = PROCESS.get()
        self._count += 1
        call = WorkerCall(self._count, process, worker, task)
        what = f"{task.run} {task.step} attempt {task.attempt}"
        if (task.run, task.epoch) not in self.durable:
            self.wrong(f"L2: {what} was called before its start was durable")
        self._check_moment(process, task)
        for other in self._calls.values():
            same = (other.task.run, other.task.step, other.process)
            if same == (task.run, task.step, process):
                self.wrong(f"L2: {what} was called while attempt {other.task.attempt} still runs")
        self._calls[call.number] = call
        busy = sum(c.process == process and self._counts(c) for c in self._calls.values())
        if busy > self.scenario.host_concurrency:
            self.wrong(f"I16: {what} is one more than host {process} may run at once")
        self.note(f"{task.run} {worker} is called for {task.step} attempt {task.attempt}")
        return call

    def _check_moment(self, process: int, task: Task) -> None:
        """A step with `not_before` is not called before it, by the calendar as it is now."""
        doc = self.hosts[process].runs[task.run].state.steps[task.step].doc
        if "not_before" not in doc or self.loop.time() - self._jumped < 10.0:
            return
        moment = datetime.fromisoformat(doc["not_before"]).timestamp()
        if self.calendar.now() < moment * 1e6:
            self.wrong(f"{task.run} {task.step} was called before {doc['not_before']}")

    def _counts(self, call: WorkerCall) -> bool:
        """Whether a call is of an attempt that its host has not given up."""
        task, runs = call.task, self.hosts[call.process].runs
        return task.run in runs and runs[task.run].state.in_flight.get(task.step) == task.epoch

    def leave(self, call: WorkerCall) -> None:
        """A worker returns."""
        self._calls.pop(call.number, None)

    def affect(self, call: WorkerCall) -> None:
        """A worker changes the world.

        What a host that was replaced still has running cannot be reached by anybody: such an
        effect is real, but nobody could have prevented it, so it is not counted.
        """
        task = call.task
        self.note(f"{task.run} {task.step} attempt {task.attempt} HAPPENS")
        if call.process == self.current:
            self.effects.setdefault((task.run, task.step), []).append(call)

    def affect_outside(self, worker: str, task: Task) -> None:
        """An agent outside of every host changes the world."""
        self._count += 1
        self.note(f"{task.run} {task.step} attempt {task.attempt} HAPPENS")
        call = WorkerCall(self._count, self.current, worker, task)
        self.effects.setdefault((task.run, task.step), []).append(call)

    def probe_begins(self, task: Task) -> None:
        """A probe is called: what it asks about must be over."""
        for call in self._calls.values():
            same = (call.task.run, call.task.step, call.process)
            if same == (task.run, task.step, PROCESS.get()):
                self.wrong(f"L6: {task.run} {task.step} was probed while it still runs")

    def planner_begins(self, run: str, call: int, process: int) -> None:
        """A planner is called."""
        log = self.disk.logs.get(run, [])
        if not any(f'"PlannerAsked","call":{call},'.encode() in entry.body for entry in log):
            self.wrong(f"L2: planner call {call} of {run} was made before it was durable")

    def value_of(self, task: Task) -> int:
        """What a step's data says: the same whoever does it, whenever."""
        return sum(task.step.encode()) % 7

    def log(self, run: str) -> list[tuple[int, ev.Event]]:
        """A run's log as it is on disk."""
        return [(e.at, decode(e.version, e.body)) for e in self.disk.logs.get(run, ())]
