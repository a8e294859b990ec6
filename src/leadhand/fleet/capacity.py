"""Capacity of a planned fleet: how much it would land, simulated in virtual time. PURE.

    agent works ─► its own gate ─► the train ─► main, and the next task
         ▲             │ red           │ red
         └─────────────┴───────────────┘

The train is the real one (`train.py`); agents, gates and git are numbers. An agent works for a time
that is drawn, waits for one of the gates, and is sent back when its work is red. What is green by
itself goes to the train, which may still find it red on top of others' work. Gates are queues: when
all of them are busy, the next one waits. Ten thousand agents for a day take seconds.

What it leaves out: the time git needs, trouble of any kind, tasks that wait for each other or for
the same paths. So a real fleet lands less than this; what it says is where the limit would be, and
which knob moves it.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leadhand.fleet.merge.train import (
    BATCH_MAX,
    Added,
    Cancel,
    Eject,
    Land,
    Probe,
    Rules,
    Train,
    TrainVerdict,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WAITING = 0.1
"""Agents that wait for something for this share of their time are held up by it."""


class Draw(Protocol):
    """Chance, from outside."""

    def random(self) -> float:
        """Between 0 and 1."""

    def expovariate(self, lambd: float, /) -> float:
        """1 / lambd on average."""


class CapacityPlan(NamedTuple):
    """The fleet that is asked about; times in seconds."""

    agents: int = 100
    hours: float = 8.0
    work_s: float = 900.0
    """How long an agent works on a task, on average."""
    gate_s: float = 300.0
    gates: int = 16
    """Gates for what agents did, before the train."""
    tracks: int = 16
    """Gates of the train."""
    unsound: float = 0.3
    """Share of attempts that are red by themselves."""
    clashing: float = 0.02
    """Share of sound changes that are red on top of others' work."""
    strict: bool = False
    batch_max: int = BATCH_MAX
    cost: float = 0.0
    """Of one attempt."""


class Capacity(NamedTuple):
    """The expected result."""

    landed: int
    per_hour: float
    attempts: int
    working: float
    """Share of the agents' time in which they work, rather than wait or are tested."""
    gates_busy: float
    tracks_busy: float
    gate_wait_s: float
    """How long the middle one waited for a gate of its own."""
    train_s: float
    """How long the middle one was on the train until it landed."""
    train_late_s: float
    """The same for the slowest twentieth."""
    gate_runs: float
    """Runs of the gate for each landed change, in all."""
    cost: float
    """Of each landed change."""
    limit: str
    """What would have to grow first."""


@dataclass(slots=True)
class _Fleet:
    plan: CapacityPlan
    draw: Draw
    train: Train
    now: float = 0.0
    events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    count: int = 0
    line: deque[tuple[float, Callable[[], None]]] = field(default_factory=deque)
    free: int = 0
    running: dict[int, float] = field(default_factory=dict)
    """By test of the train: since when."""
    verdicts: dict[int, bool] = field(default_factory=dict)
    bad: set[str] = field(default_factory=set)
    since: dict[str, float] = field(default_factory=dict)
    owners: dict[str, Callable[[], None]] = field(default_factory=dict)
    attempts: int = 0
    landed: int = 0
    worked_s: float = 0.0
    gate_s: float = 0.0
    track_s: float = 0.0
    own_runs: int = 0
    waits: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def at(self, delay_s: float, do: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + delay_s, self.count, do))

    def run(self) -> None:
        end = self.plan.hours * 3600
        for _ in range(self.plan.agents):
            # They did not all begin at this very moment.
            self.at(self.draw.random() * self.plan.work_s, self.work)
        while self.events and self.events[0][0] <= end:
            self.now, _, do = heapq.heappop(self.events)
            do()
        self.now = end

    # --- an agent --------------------------------------------------------------------------

    def work(self) -> None:
        """Begin one attempt: half of its time is the same for all, half is random."""
        took = self.plan.work_s * (0.5 + 0.5 * self.draw.expovariate(1.0))
        self.attempts += 1
        self.at(took, lambda: self.worked(took))

    def worked(self, took: float) -> None:
        self.worked_s += took
        self.line.append((self.now, self.gated))
        self.open_gates()

    def open_gates(self) -> None:
        while self.free and self.line:
            since, then = self.line.popleft()
            self.waits.append(self.now - since)
            self.free -= 1
            self.at(self.plan.gate_s, then)

    def gated(self) -> None:
        self.free += 1
        self.own_runs += 1
        self.gate_s += self.plan.gate_s
        self.open_gates()
        if self.draw.random() < self.plan.unsound:
            self.work()
            return
        self.count += 1
        change = f"{self.count}"
        if self.draw.random() < self.plan.clashing:
            self.bad.add(change)
        self.since[change], self.owners[change] = self.now, self.work
        self.step(Added(change))

    # --- the train -------------------------------------------------------------------------

    def step(self, event: Added | TrainVerdict) -> None:
        for action in self.train.step(event):
            match action:
                case Probe(test, changes):
                    self.running[test] = self.now
                    self.verdicts[test] = self.bad.isdisjoint(changes)
                    self.at(self.plan.gate_s, lambda test=test: self.tested(test))  # type: ignore[misc]
                case Cancel(test):
                    self.stop(test)
                case Land(changes):
                    self.landed += len(changes)
                    for change in changes:
                        self.times.append(self.now - self.since[change])
                        self.settled(change)
                case Eject(change):
                    self.settled(change)

    def stop(self, test: int) -> None:
        self.track_s += self.now - self.running.pop(test)

    def tested(self, test: int) -> None:
        green = self.verdicts.pop(test)
        if test in self.running:
            self.stop(test)
            self.step(TrainVerdict(test, green))

    def settled(self, change: str) -> None:
        self.bad.discard(change)
        del self.since[change]
        self.owners.pop(change)()


def capacity(plan: CapacityPlan, draw: Draw) -> Capacity:
    """Try a plan out."""
    rules = Rules(slots=plan.tracks, strict=plan.strict, batch_max=plan.batch_max)
    fleet = _Fleet(plan, draw, Train(rules), free=plan.gates)
    fleet.run()
    whole = plan.hours * 3600
    # Agents still at work when the time is over have used it too.
    track_s = fleet.track_s + sum(fleet.now - since for since in fleet.running.values())
    on_train = fleet.times + [fleet.now - since for since in fleet.since.values()]
    at_gates = fleet.waits + [fleet.now - since for since, _ in fleet.line]
    train_wait = sum(max(0.0, each - plan.gate_s) for each in on_train) / (plan.agents * whole)
    gate_wait = sum(at_gates) / (plan.agents * whole)
    landed = fleet.landed
    return Capacity(
        landed=landed,
        per_hour=landed / plan.hours,
        attempts=fleet.attempts,
        working=fleet.worked_s / (plan.agents * whole),
        gates_busy=fleet.gate_s / (plan.gates * whole),
        tracks_busy=track_s / (plan.tracks * whole),
        gate_wait_s=_share(at_gates, 0.5),
        train_s=_share(on_train, 0.5),
        train_late_s=_share(on_train, 0.95),
        gate_runs=(fleet.own_runs + fleet.train.tests) / landed if landed else 0.0,
        cost=fleet.attempts * plan.cost / landed if landed else 0.0,
        limit=_limit(gate_wait, train_wait),
    )


def _limit(gate_wait: float, train_wait: float) -> str:
    if max(gate_wait, train_wait) < WAITING:
        return "agents"
    return "gates" if gate_wait >= train_wait else "merge queue"


def _share(values: Sequence[float], share: float) -> float:
    found = sorted(values)
    return found[min(len(found) - 1, int(len(found) * share))] if found else 0.0
