"""The way where something is dropped: a weighted A* over states, with the relaxed plan as guide.

States are looked at lazily: a successor waits in the queue under its parent's guess, and its
own is computed only when its turn comes. Operators of the relaxed plan wait in a second queue
that is served first as long as it helps. What is cut short is only the order: with enough
nodes every state that can be reached is looked at, so that "no plan" is a proof.

The budget is in nodes, not in seconds, and ties are broken by age, so that the same problem
has the same answer on every machine.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from leadhand.planners.goal.relaxed import explore, extract

if TYPE_CHECKING:
    from collections.abc import Generator

    from leadhand.planners.goal.task import PlanningTask

WEIGHT = 5.0
NODES_MAX = 20_000
BOOST = 1000
"""How long the second queue is preferred after it led closer to the goal."""

Entry = tuple[float, int, int, int]
"""(estimate, age, state it comes from, operator)."""


class SearchResult(NamedTuple):
    """How a search ended."""

    plan: list[int] | None
    nodes: int
    proved: bool
    """Without a plan: every state was looked at, so there is none."""


def search(
    task: PlanningTask, *, weight: float = WEIGHT, nodes_max: int = NODES_MAX, below: float = inf
) -> Generator[None, None, SearchResult]:
    """Look for a plan cheaper than `below`. Yields now and then, to let others have a turn."""
    queues: tuple[list[Entry], list[Entry]] = ([], [])
    turns = [0, 0]
    paid: dict[int, float] = {task.start: 0.0}
    guesses: dict[int, float] = {}
    came: dict[int, tuple[int, int]] = {}
    best, age, nodes = inf, 0, 0
    prices, need_bits = task.prices, task.need_bits
    numbers = [number for number, price in enumerate(prices) if price < inf]
    state, spent = task.start, 0.0
    while True:
        if state & task.goal_bits == task.goal_bits:
            return SearchResult(_walk(state, task.start, came), nodes, proved=False)
        reach = explore(task, state, prices)
        relaxed = extract(task, reach, task.goal)
        nodes += 1
        if relaxed is not None:
            guess = guesses[state] = task.price(relaxed)
            if guess < best:
                best = guess
                turns[1] -= BOOST
            helpful = set(relaxed)
            for number in numbers:
                if state & need_bits[number] != need_bits[number]:
                    continue
                total = spent + prices[number]
                after = task.after(state, number)
                if total >= below or total >= paid.get(after, inf):
                    continue
                age += 1
                entry = (total + weight * guess, age, state, number)
                heappush(queues[0], entry)
                if number in helpful:
                    heappush(queues[1], entry)
        else:
            guesses[state] = inf
        if nodes % 100 == 0:
            yield
        while True:
            which = 0 if not queues[1] else 1 if not queues[0] else int(turns[1] <= turns[0])
            if not queues[which]:
                return SearchResult(None, nodes, proved=below == inf)
            if nodes >= nodes_max:
                return SearchResult(None, nodes, proved=False)
            _, _, parent, number = heappop(queues[which])
            turns[which] += 1
            state = task.after(parent, number)
            spent = paid[parent] + prices[number]
            if spent < paid.get(state, inf) and spent < below and guesses.get(state) != inf:
                paid[state] = spent
                came[state] = (parent, number)
                break


def _walk(state: int, start: int, came: dict[int, tuple[int, int]]) -> list[int]:
    plan = []
    while state != start:
        state, number = came[state]
        plan.append(number)
    return plan[::-1]
