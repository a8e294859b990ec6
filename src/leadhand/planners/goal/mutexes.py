"""Which two facts can ever be true together: quick to compute, and often all the proof it takes.

Two facts go together if they do at the start, or if an operator whose needs all go together gives
both, or gives one and leaves the other be. What remains can never be: a goal that wants both is
impossible, and an operator that needs both can be left out. (The converse does not hold: facts
that go together two by two may still not all be true at once.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.planners.goal.task import members

if TYPE_CHECKING:
    from leadhand.planners.goal.task import PlanningTask


class Pairs:
    """For each fact those that can be true with it, and the operators that can ever be used."""

    def __init__(self, task: PlanningTask) -> None:
        self.task = task
        self.mates = [0] * len(task.facts)
        for fact in members(task.start):
            self.mates[fact] = task.start
        self.used: list[int] = []
        self._ever = 0
        """Facts that can ever be true."""
        self._spread()

    def _spread(self) -> None:
        """Apply every operator until nothing is new; one only again after its needs have moved."""
        task = self.task
        self._ever = task.start
        idle = [number for number in range(len(task.operators)) if task.needs[number]]
        waiting = set(idle)
        used: set[int] = set()
        due = dict.fromkeys(range(len(task.operators)))
        while due:
            moved: set[int] = set()
            for number in due:
                if number in waiting:
                    if not self.possible(task.need_bits[number]):
                        continue
                    waiting.discard(number)
                used.add(number)
                self._apply(number, moved)
            due = dict.fromkeys(sorted({n for fact in moved for n in task.needers[fact]}))
            if moved:
                due |= dict.fromkeys(task.free)
        self.used = sorted(used)

    def _apply(self, number: int, moved: set[int]) -> None:
        """Let an operator bring facts together; `moved` gets the facts that have new mates."""
        task, mates = self.task, self.mates
        beside = -1 if task.needs[number] else self._ever
        for need in task.needs[number]:
            beside &= mates[need]
        beside = beside & task.keep_bits[number] | task.give_bits[number]
        self._ever |= beside
        for fact in task.gives[number]:
            new = beside & ~mates[fact]
            if new:
                moved.add(fact)
                mates[fact] |= new
                bit = 1 << fact
                for other in members(new):
                    mates[other] |= bit
                    moved.add(other)

    def possible(self, facts: int) -> bool:
        """Whether facts go together, two by two."""
        return all(self.mates[fact] & facts == facts for fact in members(facts))

    def clash(self) -> tuple[str, str] | None:
        """Two wanted facts that can never be true together."""
        names = list(self.task.facts)
        goal = self.task.goal_bits
        for fact in self.task.goal:
            for other in members(goal & ~self.mates[fact]):
                return names[fact], names[other]
        return None
