"""Whether any plan keeps within a cost: an exact answer, before "unaffordable" is said.

The cheap plans of `cheapest` are near the best, not always the best, so that their cost proves
nothing. Here every plan is ruled out or one is found, with a lower bound that never overestimates:
the landmark cut (Helmert and Domshlak, 2009). A cut is a set of operators of which every plan
holds at least one; it is charged once, its operators get cheaper by that much, and the next cut
is looked for until the goal costs nothing.

Where nothing is dropped a plan is a set of operators, and every plan holds one of a cut: the
search branches over the operators of the smallest one, and each branch leaves out those of the
branches before it. Where something is dropped it is an A* over states.

Costs are what workers declare, since that is what the budget counts. The budget of the search is
in nodes and in operators looked at, never in seconds.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from leadhand.planners.goal.relaxed import explore, extract
from leadhand.planners.goal.task import bits, members

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from leadhand.planners.goal.task import PlanningTask

CLOSE = 1e-9
"""Costs that differ by less are the same."""
WORK_MAX = 1_500_000
"""Operators looked at in one search."""
UNDERCUT_NODES_MAX = 300
UNDERCUT_MAX = 60_000
"""Nodes, and operators looked at, to find a cheaper plan than a cheap one."""
LESS = 0.005
"""The least share by which it must be cheaper: rounds for less are not worth their time."""
START = -1
"""Stands for "nothing is needed" among the facts."""


class _Work:
    """How much a search may still do."""

    def __init__(self, nodes: int, looks: int) -> None:
        self.nodes, self._nodes_max, self._looks = 0, nodes, looks

    def done(self, looks: int) -> None:
        """One node more, for which so many operators were looked at."""
        self.nodes += 1
        self._looks -= looks

    @property
    def over(self) -> bool:
        """Whether that was enough."""
        return self.nodes >= self._nodes_max or self._looks <= 0


class _Node(NamedTuple):
    """A part of all plans: those that hold some operators and not others."""

    spent: float
    chosen: frozenset[int]
    barred: frozenset[int]


class ExactResult(NamedTuple):
    """A plan within the cost, or whether it is certain that there is none."""

    plan: list[int] | None
    proved: bool
    nodes: int


def within(task: PlanningTask, cost: float, nodes_max: int) -> Generator[None, None, ExactResult]:
    """A plan that costs at most `cost`, if there is one. Yields now and then."""
    costs = [
        each.cost if price < inf else inf
        for each, price in zip(task.operators, task.prices, strict=True)
    ]
    work = _Work(nodes_max, WORK_MAX)
    if task.drops_something:
        return (yield from _over_states(task, costs, cost + CLOSE, work))
    return (yield from _over_cuts(task, costs, cost + CLOSE, work))


def undercut(task: PlanningTask, plan: list[int]) -> Generator[None, None, list[int]]:
    """The plan, or a cheaper one found by a short search, where nothing is dropped."""
    best, work = plan, _Work(UNDERCUT_NODES_MAX, UNDERCUT_MAX)
    # A bound takes about as many rounds over the operators as the plan has steps.
    while len(task.operators) * len(plan) <= UNDERCUT_MAX // 4 and not work.over:
        limit = task.price(best) * (1 - LESS) - CLOSE
        answer = yield from _over_cuts(task, task.prices, limit, work)
        if answer.plan is None:
            break
        best = answer.plan
    return best


def _over_cuts(
    task: PlanningTask, costs: Sequence[float], limit: float, work: _Work
) -> Generator[None, None, ExactResult]:
    """Branch and bound over what every plan must hold, for tasks in which nothing is dropped.

    It goes down the cheapest operator first, so that a plan is found early where there is room.
    """
    stack = [_Node(0.0, frozenset(), frozenset())]
    while stack:
        node = stack.pop()
        reduced = list(costs)
        for each in node.chosen:
            reduced[each] = 0.0
        for each in node.barred:
            reduced[each] = inf
        bound, cut = landmarks(task, task.start, reduced, work)
        if node.spent + bound > limit:
            continue
        if not cut:
            return ExactResult(_of(task, costs, node.chosen), proved=True, nodes=work.nodes)
        if work.over:
            return ExactResult(None, proved=False, nodes=work.nodes)
        yield
        order = sorted(cut, key=lambda each: (costs[each], each))
        stack += [
            _Node(
                node.spent + costs[each],
                node.chosen | {each},
                node.barred.union(order[:i]),
            )
            for i, each in reversed(list(enumerate(order)))
        ]
    return ExactResult(None, proved=True, nodes=work.nodes)


def _of(task: PlanningTask, costs: Sequence[float], chosen: frozenset[int]) -> list[int]:
    """The plan that some operators, and those that cost nothing, come to."""
    prices = [
        price if each in chosen or not costs[each] else inf
        for each, price in enumerate(task.prices)
    ]
    plan = extract(task, explore(task, task.start, prices), task.goal)
    return task.lean(plan or [])


def _over_states(
    task: PlanningTask, costs: Sequence[float], limit: float, work: _Work
) -> Generator[None, None, ExactResult]:
    """A* over states, for tasks in which something is dropped."""
    numbers = [number for number, cost in enumerate(costs) if cost < inf]
    bound, _ = landmarks(task, task.start, costs, work)
    heap: list[tuple[float, float, int, float, int]] = []
    paid: dict[int, float] = {task.start: 0.0}
    bounds: dict[int, float] = {task.start: bound}
    came: dict[int, tuple[int, int]] = {}
    done: set[int] = set()
    age = 0
    if bound <= limit:
        heappush(heap, (bound, bound, 0, 0.0, task.start))
    while heap:
        _, _, _, spent, state = heappop(heap)
        if state in done or spent > paid[state]:
            continue
        done.add(state)
        if state & task.goal_bits == task.goal_bits:
            return ExactResult(_walk(state, task.start, came), proved=True, nodes=work.nodes)
        for number in numbers:
            if state & task.need_bits[number] != task.need_bits[number]:
                continue
            after, total = task.after(state, number), spent + costs[number]
            if after == state or total >= paid.get(after, inf):
                continue
            if after not in bounds:
                bounds[after] = landmarks(task, after, costs, work)[0]
            paid[after], came[after] = total, (state, number)
            done.discard(after)
            if total + bounds[after] <= limit:
                age += 1
                estimate = round(total + bounds[after], 9)
                heappush(heap, (estimate, bounds[after], -age, total, after))
        yield
        if work.over and heap:
            return ExactResult(None, proved=False, nodes=work.nodes)
    return ExactResult(None, proved=True, nodes=work.nodes)


def _walk(state: int, start: int, came: dict[int, tuple[int, int]]) -> list[int]:
    plan = []
    while state != start:
        state, number = came[state]
        plan.append(number)
    return plan[::-1]


def landmarks(
    task: PlanningTask, state: int, costs: Sequence[float], work: _Work | None = None
) -> tuple[float, tuple[int, ...]]:
    """The least that reaching the goal can cost, and the smallest cut that was found.

    Without drops the bound is infinite exactly where there is no way, and there is no cut exactly
    where operators that cost nothing lead to the goal.
    """
    rest, total, rounds = list(costs), 0.0, 0
    smallest: tuple[int, ...] = ()
    while True:
        value, holds = _dearest(task, state, rest)
        rounds += 1
        top = max(task.goal, key=value.__getitem__, default=None)
        settled = top is None or value[top] <= CLOSE
        if top is None or settled or value[top] == inf:
            if work is not None:
                work.done(rounds * len(costs))
            return (total, smallest) if settled else (inf, ())
        zone = _zone(task, top, rest, holds)
        cut = _cut(task, state, zone, rest, holds)
        least = min(rest[each] for each in cut)
        total += least
        for each in cut:
            rest[each] = max(0.0, rest[each] - least)
        if not smallest or len(cut) < len(smallest):
            smallest = tuple(cut)


def _dearest(
    task: PlanningTask, state: int, costs: Sequence[float]
) -> tuple[list[float], list[int]]:
    """What each fact costs if of several needs only the dearest counts; and which that is."""
    value = [inf] * len(task.facts)
    holds = [START] * len(costs)
    missing = [len(each) for each in task.needs]
    heap: list[tuple[float, int]] = []
    for fact in members(state):
        value[fact] = 0.0
        heap.append((0.0, fact))

    def give(number: int, before: float) -> None:
        total = before + costs[number]
        for fact in task.gives[number]:
            if total < value[fact]:
                value[fact] = total
                heappush(heap, (total, fact))

    for number in task.free:
        if costs[number] < inf:
            give(number, 0.0)
    while heap:
        price, fact = heappop(heap)
        if price > value[fact]:
            continue
        for number in task.needers[fact]:
            missing[number] -= 1
            if not missing[number] and costs[number] < inf:
                holds[number] = fact  # The last of its needs to come is the dearest.
                give(number, price)
    return value, holds


def _zone(task: PlanningTask, top: int, costs: Sequence[float], holds: Sequence[int]) -> int:
    """The facts from which operators that cost nothing lead to the goal."""
    zone, stack = 1 << top, [top]
    while stack:
        fact = stack.pop()
        for number in task.givers[fact]:
            need = holds[number]
            if costs[number] <= CLOSE and need != START and not zone >> need & 1:
                zone |= 1 << need
                stack.append(need)
    return zone


def _cut(
    task: PlanningTask, state: int, zone: int, costs: Sequence[float], holds: Sequence[int]
) -> list[int]:
    """The operators through which one enters the zone from where we stand."""
    seen = state & ~zone
    stack = members(seen)
    found: set[int] = set()
    ready = [each for each in task.free if costs[each] < inf]
    while ready or stack:
        if not ready:
            fact = stack.pop()
            ready = [n for n in task.needers[fact] if holds[n] == fact and costs[n] < inf]
            continue
        number = ready.pop()
        if task.give_bits[number] & zone:
            found.add(number)
        new = bits(task.gives[number]) & ~zone & ~seen
        seen |= new
        stack += members(new)
    return sorted(each for each in found if costs[each] > CLOSE)
