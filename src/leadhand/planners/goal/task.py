"""The planning problem in numbers: facts and operators by index, states as bit sets.

A task is made once per decision, after everything that cannot matter was left out. A state is
an int with one bit for each fact: applying an operator is two operations on ints, and a set of
seen states costs little.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from leadhand.planners.goal.operators import Operator

LEAN_MAX = 200
"""The size of the longest plan that is searched for superfluous steps."""


class PlanningTask:
    """Operators that matter, the facts they speak of, and where we stand."""

    def __init__(
        self,
        operators: Sequence[Operator],
        prices: Mapping[str, float],
        true: Collection[str],
        wanted: Iterable[str],
    ) -> None:
        self.operators = operators
        self.true, self.wanted = true, tuple(wanted)
        self.prices = [prices[each.name] for each in operators]
        self.facts: dict[str, int] = {}
        self.goal = self._codes(self.wanted)
        self.needs = [self._codes(each.needs) for each in operators]
        self.gives = [self._codes(each.gives) for each in operators]
        drops = [[fact for fact in each.drops if fact not in each.gives] for each in operators]
        # A fact that no operator needs can be dropped freely.
        self.drops = [
            tuple(self.facts[fact] for fact in each if fact in self.facts) for each in drops
        ]
        self.need_bits = [bits(each) for each in self.needs]
        self.need_counts = [len(each) for each in self.needs]
        self.give_bits = [bits(each) for each in self.gives]
        self.keep_bits = [~bits(each) for each in self.drops]
        self.goal_bits = bits(self.goal)
        self.start = bits(self.facts[fact] for fact in true if fact in self.facts)
        self.needers: list[list[int]] = [[] for _ in self.facts]
        self.givers: list[list[int]] = [[] for _ in self.facts]
        self.free: list[int] = []
        """Operators that need nothing."""
        for number, needs in enumerate(self.needs):
            for fact in needs:
                self.needers[fact].append(number)
            if not needs:
                self.free.append(number)
        for number, gives in enumerate(self.gives):
            for fact in gives:
                self.givers[fact].append(number)

    def only(self, numbers: Iterable[int]) -> PlanningTask:
        """Return the same task with some of its operators."""
        some = [self.operators[number] for number in numbers]
        prices = {self.operators[n].name: price for n, price in enumerate(self.prices)}
        return PlanningTask(some, prices, self.true, self.wanted)

    def distinct(self, keep: Collection[int] = ()) -> PlanningTask:
        """Return the task with the cheapest of operators with the same needs, gives and drops."""
        least: dict[tuple[int, int, int], int] = {}
        for number, price in enumerate(self.prices):
            key = self.need_bits[number], self.give_bits[number], self.keep_bits[number]
            other = least.setdefault(key, number)
            if price < self.prices[other]:
                least[key] = number
        chosen = {*least.values(), *keep}
        return self if len(chosen) == len(self.operators) else self.only(sorted(chosen))

    def without_drops(self) -> PlanningTask:
        """Return the same task in which no operator drops a fact."""
        free = copy(self)
        free.drops = [()] * len(self.drops)
        free.keep_bits = [-1] * len(self.keep_bits)
        return free

    def _codes(self, names: Iterable[str]) -> tuple[int, ...]:
        facts = self.facts
        return tuple(facts.setdefault(name, len(facts)) for name in dict.fromkeys(names))

    @property
    def drops_something(self) -> bool:
        """Return whether any operator drops a fact that another may need."""
        return any(self.drops)

    def after(self, state: int, operator: int) -> int:
        """Return the state after an operator."""
        return state & self.keep_bits[operator] | self.give_bits[operator]

    def price(self, plan: Iterable[int]) -> float:
        """Return the cost of a plan."""
        return sum(self.prices[each] for each in plan)

    def works(self, plan: Iterable[int]) -> bool:
        """Return whether a plan can be carried out from the start, in this order, to the goal."""
        state = self.start
        for each in plan:
            if state & self.need_bits[each] != self.need_bits[each]:
                return False
            state = self.after(state, each)
        return state & self.goal_bits == self.goal_bits

    def directly(self, plan: list[int]) -> list[int]:
        """Return the plan, or one operator that reaches the goal at once and costs no more."""
        if len(plan) < 2:
            return plan
        limit = self.price(plan) * (1 + 1e-9)
        alone = [
            (price, number)
            for number, price in enumerate(self.prices)
            if price <= limit and self.works([number])
        ]
        return [min(alone)[1]] if alone else plan

    def lean(self, plan: Sequence[int]) -> list[int]:
        """Return the plan without dispensable operators; the dearest is tried first."""
        kept = list(plan)
        if len(kept) > LEAN_MAX:
            return kept
        places = sorted(range(len(kept)), key=lambda i: (-self.prices[kept[i]], -i))
        gone: set[int] = set()
        for place in places:
            rest = [each for i, each in enumerate(kept) if i not in gone and i != place]
            if self.works(rest):
                gone.add(place)
        return [each for i, each in enumerate(kept) if i not in gone]


def bits(facts: Iterable[int]) -> int:
    """Facts as a bit set."""
    found = 0
    for fact in facts:
        found |= 1 << fact
    return found


def members(state: int) -> list[int]:
    """Return the facts of a bit set, lowest first."""
    found = []
    while state:
        low = state & -state
        found.append(low.bit_length() - 1)
        state ^= low
    return found
