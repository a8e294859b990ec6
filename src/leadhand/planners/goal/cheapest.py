"""A cheap plan, by the quickest way there is.

Where nothing is dropped, the relaxed plan is a plan. Additive costs pay a shared need twice, so
the first one is some 15 % too dear on average; two loops bring it close to the best: what is
chosen already counts as nearly free, so that others lean on it, and then each chosen operator is
left out once, to see whether the others do better without it. Where a lower bound leaves room for
a cheaper plan, a short exact search looks for one.

Where something is dropped, the same plan will do if it can be put in an order in which nothing is
missed. Else `search` finds a first plan; less greedy searches with a few times its nodes then try
to undercut it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from leadhand.planners.goal.exact import undercut
from leadhand.planners.goal.relaxed import explore, extract
from leadhand.planners.goal.search import NODES_MAX, search
from leadhand.planners.goal.task import LEAN_MAX

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from leadhand.planners.goal.task import PlanningTask

WORK_MAX = 30_000
"""Operators looked at while improving a plan in which nothing is dropped."""
ROUNDS_MAX = 4
CHOSEN = 0.01
"""The share of its price that an operator counts for once it is chosen."""
NEAR = 1.005
"""How much dearer than the cheapest without drops a plan may be that is taken without a search."""
FURTHER = (2.0, 1.0)
"""Weights of the searches that try to undercut the first plan."""


class CheapestPlan(NamedTuple):
    """A plan, or how far we looked for one."""

    plan: list[int] | None
    proved: bool = False
    """There is certainly none."""
    nodes: int = 0


def cheapest(task: PlanningTask, nodes_max: int = NODES_MAX) -> Generator[None, None, CheapestPlan]:
    """A cheap plan. Yields now and then, to let others have a turn."""
    if task.drops_something:
        return (yield from _searched(task, nodes_max))
    plan = _undropped(task)
    if plan is None:
        return CheapestPlan(None, proved=True)
    return CheapestPlan((yield from undercut(task, plan)))


def sequence(task: PlanningTask) -> Generator[None, None, list[int] | None]:
    """A plan for a task with drops, where one that pays no heed to them can be put in order.

    No plan can undercut what the problem without drops costs, so there is nothing to search for.
    None where the order does not come out, or only that of a dearer one: that proves nothing.
    """
    free = task.without_drops()
    plan = _relaxed(free, free.prices)
    first = None if plan is None else in_order(task, plan)
    if first is None:
        return None
    way = yield from cheapest(free)
    if way.plan is None:
        return None
    better = in_order(task, way.plan) or first
    return better if task.price(better) <= NEAR * task.price(way.plan) else None


def in_order(task: PlanningTask, plan: Sequence[int]) -> list[int] | None:
    """Operators in an order in which none takes away what a later one or the goal needs."""
    left = list(plan)
    users = [0] * len(task.facts)
    for fact in (*task.goal, *(need for each in left for need in task.needs[each])):
        users[fact] += 1
    state, found = task.start, []
    while left:
        place = next((i for i, each in enumerate(left) if _harmless(task, each, state, users)), -1)
        if place < 0:
            return None
        each = left.pop(place)
        for fact in task.needs[each]:
            users[fact] -= 1
        state = task.after(state, each)
        found.append(each)
    return found if task.works(found) else None


def _harmless(task: PlanningTask, operator: int, state: int, users: Sequence[int]) -> bool:
    """Whether an operator can be done now and takes away nothing that another one uses."""
    own = task.need_bits[operator]
    return state & own == own and all(
        users[fact] <= (own >> fact & 1) for fact in task.drops[operator]
    )


def _searched(task: PlanningTask, nodes_max: int) -> Generator[None, None, CheapestPlan]:
    first = yield from search(task, nodes_max=nodes_max)
    if first.plan is None:
        return CheapestPlan(None, first.proved, first.nodes)
    plan, nodes = task.lean(first.plan), first.nodes
    for weight in FURTHER:
        room = min(3 * first.nodes + 200, nodes_max)
        found = yield from search(task, weight=weight, nodes_max=room, below=task.price(plan))
        nodes += found.nodes
        if found.plan is None and found.nodes >= room:
            break  # A search that is less greedy still would take longer.
        plan = task.lean(found.plan) if found.plan else plan
    return CheapestPlan(plan, nodes=nodes)


def _undropped(task: PlanningTask) -> list[int] | None:
    best = _relaxed(task, task.prices)
    if best is None:
        return None
    # One look at the operators, and one through the plan for what it can do without.
    look = len(task.operators) + min(len(best), LEAN_MAX) ** 2 // 10
    work = look
    for _ in range(ROUNDS_MAX):
        before = task.price(best)
        best = _leaning(task, task.prices, best)
        work += look
        for each in sorted(best, key=lambda number: (-task.prices[number], number)):
            if work > WORK_MAX:
                return best
            without = list(task.prices)
            without[each] = inf
            work += 2 * look
            other = _relaxed(task, without)
            if other is not None:
                other = _leaning(task, without, other)
                if task.price(other) < task.price(best) - 1e-9:
                    best = other
        if task.price(best) >= before - 1e-9:
            return best
    return best


def _leaning(task: PlanningTask, prices: Sequence[float], plan: list[int]) -> list[int]:
    """The plan, or a cheaper one found by counting what it holds as nearly free."""
    nearly = list(prices)
    for each in plan:
        nearly[each] *= CHOSEN
    other = _relaxed(task, nearly)
    return other if other is not None and task.price(other) < task.price(plan) - 1e-9 else plan


def _relaxed(task: PlanningTask, prices: Sequence[float]) -> list[int] | None:
    plan = extract(task, explore(task, task.start, prices), task.goal)
    return None if plan is None else task.lean(plan)
