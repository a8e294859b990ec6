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
    from leadhand.planners.goal.task import Task


class Pairs:
    """For each fact those that can be true with it, and the operators that can ever be used."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.mates = [0] * len(task.facts)
        for fact in members(task.start):
            self.mates[fact] = task.start
        self.used: list[int] = []
        self._spread()

    def _spread(self) -> None:
        task = self.task
        rest, used = list(range(len(task.operators))), []
        changed = True
        while changed:
            changed = False
            possible = [number for number in rest if self.possible(task.need_bits[number])]
            if possible:
                rest = [number for number in rest if number not in set(possible)]
                used += possible
            for number in used:
                changed |= self._apply(number)
        self.used = sorted(used)

    def _apply(self, number: int) -> bool:
        """Let an operator bring facts together; whether anything is new."""
        task, mates = self.task, self.mates
        beside = -1 if task.needs[number] else _ever(mates)
        for need in task.needs[number]:
            beside &= mates[need]
        beside = beside & task.keep_bits[number] | task.give_bits[number]
        found = False
        for fact in task.gives[number]:
            new = beside & ~mates[fact]
            if new:
                found = True
                mates[fact] |= new
                for other in members(new):
                    mates[other] |= 1 << fact
        return found

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


def _ever(mates: list[int]) -> int:
    found = 0
    for each in mates:
        found |= each
    return found
