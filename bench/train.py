"""The merge train beside a serial gate and bors-style batches: same changes, one run, virtual time.

    python bench/train.py [--changes 4000] [--slots 16] [--rates 0.5,1,2,5,10]

Nothing is merged and no test is run: a gate takes a fixed time of a virtual clock. Each change is
bad by itself, or only together with one other, at the given rate in all; all designs get the very
same ones, in the same order. Shown is how many land in an hour with a gate of ten minutes while
there is always something to land, and how many gate runs each landed change took. All designs must
land the same changes in the same order; the run fails if they do not.

    serial   one gate, one change at a time
    bors     one gate, batches of 16, halved when red
    chain    a gate for each change, all ahead of main at once (this train, in strict mode)
    train    this train
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

from leadhand.fleet.merge.train import Added, Cancel, Eject, Land, Probe, Rules, Train, TrainVerdict

GATE_MIN = 10.0
BORS_BATCH = 16
GOAL = 5.0


class Work:
    """Changes, and which of them are bad, alone or with another."""

    def __init__(self, count: int, rate: float, seed: int) -> None:
        chance = random.Random(seed)
        self.changes = [f"c{number}" for number in range(count)]
        self.bad = {change for change in self.changes if chance.random() < rate / 2}
        self.partner: dict[str, str] = {}
        for at, change in enumerate(self.changes[40:], 40):
            if chance.random() < rate / 2:
                self.partner[change] = self.changes[at - chance.randrange(1, 40)]

    def green(self, landed: set[str], fresh: Iterable[str]) -> bool:
        """Whether main with some changes on top is green; main itself is."""
        held = set(fresh)
        return not any(
            change in self.bad or any(self.partner.get(change) in side for side in (held, landed))
            for change in held
        )


@dataclass
class Result:
    """What a design did."""

    landed: list[str]
    minutes: float
    runs: int
    events: int = 0
    seconds: float = 0.0

    @property
    def per_hour(self) -> float:
        return 60 * len(self.landed) / self.minutes


def serial(work: Work) -> Result:
    """One by one."""
    landed: list[str] = []
    on_main: set[str] = set()
    for change in work.changes:
        if work.green(on_main, [change]):
            landed.append(change)
            on_main.add(change)
    return Result(landed, GATE_MIN * len(work.changes), len(work.changes))


def bors(work: Work) -> Result:
    """Batches; a red one is halved, its first half first, until the culprit stands alone."""
    landed: list[str] = []
    on_main: set[str] = set()
    runs, waiting = 0, list(reversed(work.changes))
    stack: list[list[str]] = []
    while waiting or stack:
        if not stack:
            stack.append([waiting.pop() for _ in range(min(BORS_BATCH, len(waiting)))])
        batch = stack.pop()
        runs += 1
        if work.green(on_main, batch):
            landed += batch
            on_main.update(batch)
        elif len(batch) > 1:
            middle = len(batch) // 2
            stack += [batch[middle:], batch[:middle]]
    return Result(landed, GATE_MIN * runs, runs)


def train(work: Work, rules: Rules) -> Result:
    """The decider, driven by a heap of gates that end."""
    state, clock, runs, events = Train(rules), 0.0, 0, 0
    ends: list[tuple[float, int]] = []
    tests: dict[int, tuple[str, ...]] = {}
    landed: list[str] = []
    on_main: set[str] = set()
    gone: set[str] = set()
    began = time.perf_counter()

    def perform(event: Added | TrainVerdict) -> None:
        nonlocal runs, events
        events += 1
        for action in state.step(event):
            match action:
                case Probe(test, changes):
                    runs += 1
                    tests[test] = changes
                    heapq.heappush(ends, (clock + GATE_MIN, test))
                case Cancel(test):
                    tests.pop(test, None)
                case Land(changes, _):
                    landed.extend(changes)
                    on_main.update(changes)
                case Eject(change, _, _):
                    gone.add(change)

    for change in work.changes:
        perform(Added(change))
    while ends:
        at, test = heapq.heappop(ends)
        changes = tests.pop(test, None)
        if changes is not None:
            clock = at
            fresh = [change for change in changes if change not in on_main]
            perform(TrainVerdict(test, work.green(on_main, fresh)))
    assert len(landed) + len(gone) == len(work.changes)
    return Result(landed, clock, runs, events, time.perf_counter() - began)


def main() -> int:
    """Print the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--changes", type=int, default=4000)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--rates", default="0.5,1,2,5,10,20", help="failures in percent")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    good = True
    print(f"{given.changes} changes, {given.slots} gate slots, a gate of {GATE_MIN:g} minutes")
    print("landed per hour (gate runs per landed change)\n")
    print("failures       serial          bors         chain         train   x serial  us/event")
    for percent in (float(text) for text in given.rates.split(",")):
        work = Work(given.changes, percent / 100, given.seed)
        results = [
            serial(work),
            bors(work),
            train(work, Rules(slots=given.slots, strict=True)),
            train(work, Rules(slots=given.slots)),
        ]
        cells = "  ".join(f"{r.per_hour:5.1f} ({r.runs / len(r.landed):4.2f})" for r in results)
        ours = results[-1]
        ratio = ours.per_hour / results[0].per_hour
        cost = 1e6 * ours.seconds / ours.events
        print(f"{percent:6.1f} %  {cells}   {ratio:7.1f}  {cost:8.1f}")
        if any(result.landed != results[0].landed for result in results):
            print("         the designs did not land the same changes")
            good = False
        if percent == 1 and ratio < GOAL:
            good = False
    print(f"\ngoal at 1 %: {GOAL:g} x serial, same outcome: {'met' if good else 'MISSED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
