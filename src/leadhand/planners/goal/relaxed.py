"""The relaxed problem, in which nothing is ever taken away: what can be reached, and how cheaply.

`explore` spreads from a state over the operators, cheapest fact first (additive cost: a need
shared by two is paid twice). `extract` follows the cheapest givers back from the goal; each
operator counts once there, so the sum is a good guess of what is still to be paid, and where
nothing is dropped the operators found are a plan.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from leadhand.planners.goal.task import members

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadhand.planners.goal.task import PlanningTask

NOBODY = -1


class RelaxedReach(NamedTuple):
    """What a state leads to."""

    cost: list[float]
    """Of each fact; infinite when there is no way."""
    giver: list[int]
    """Of each fact: the operator that gives it most cheaply."""
    order: list[int]
    """Operators in the order in which they became possible."""


def explore(
    task: PlanningTask, state: int, prices: Sequence[float], *, whole: bool = False
) -> RelaxedReach:
    """Spread from a state until the goal is reached, or (`whole`) as far as it goes."""
    cost = [inf] * len(task.facts)
    giver = [NOBODY] * len(task.facts)
    gives, needers = task.gives, task.needers
    missing = task.need_counts.copy()
    paid = list(prices)
    heap: list[tuple[float, int]] = []
    order: list[int] = []
    wanted = -1 if whole else len(task.goal)
    goal = task.goal_bits
    for fact in members(state):
        cost[fact] = 0.0
        heap.append((0.0, fact))
    opened: Sequence[int] = task.free
    while True:
        for operator in opened:
            total = paid[operator]
            if total == inf:
                continue
            order.append(operator)
            for fact in gives[operator]:
                if total < cost[fact]:
                    cost[fact] = total
                    giver[fact] = operator
                    heappush(heap, (total, fact))
        if not heap:
            break
        price, fact = heappop(heap)
        opened = ()
        if price > cost[fact]:
            continue
        if goal >> fact & 1:
            wanted -= 1
            if not wanted:
                break
        ready = []
        for operator in needers[fact]:
            paid[operator] += price
            missing[operator] -= 1
            if not missing[operator]:
                ready.append(operator)
        opened = ready
    return RelaxedReach(cost, giver, order)


def extract(task: PlanningTask, reach: RelaxedReach, goal: Iterable[int]) -> list[int] | None:
    """The operators that give the goal, each once, in an order in which they can be done."""
    cost, giver, needs = reach.cost, reach.giver, task.needs
    chosen: set[int] = set()
    stack = list(goal)
    seen: set[int] = set()
    while stack:
        fact = stack.pop()
        if fact in seen:
            continue
        seen.add(fact)
        if cost[fact] == inf:
            return None
        operator = giver[fact]
        if operator != NOBODY and operator not in chosen:
            chosen.add(operator)
            stack += needs[operator]
    return [operator for operator in reach.order if operator in chosen]
