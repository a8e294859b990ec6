"""Finding a plan: the relaxed problem, mutexes, A* search, an exact search, and a cheap plan. Pure.

    explore, extract    the relaxed problem, in which no operator drops a fact
    Pairs               which two facts can be true together
    search              a weighted A* over states, for problems whose operators drop facts
    within, undercut    an exact search: whether any plan keeps within a cost
    cheapest            a cheap plan by the quickest of these ways

`search`: states are looked at lazily: a successor waits in the queue under its parent's guess, and
its own is computed only when its turn comes. Operators of the relaxed plan wait in a second queue
that is served first as long as it helps. What is cut short is only the order: with enough nodes
every state that can be reached is looked at, so that "no plan" is a proof.

The budget is in nodes, not in seconds, and ties are broken by age, so that the same problem
has the same answer on every machine.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from leadhand.planners.goal.task import LEAN_MAX, bits, members

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from leadhand.planners.goal.task import PlanningTask


# The relaxed problem, in which no fact is ever dropped: reachable facts and their costs.
#
# `explore` spreads from a state over the operators, cheapest fact first (additive cost: a need
# shared by two is paid twice). `extract` follows the cheapest givers back from the goal; each
# operator counts once there, so the sum is a good guess of what is still to be paid, and where
# nothing is dropped the operators found are a plan.


NOBODY = -1


class RelaxedReach(NamedTuple):
    """The facts that can be reached from a state, with their costs."""

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
    """Return the operators that give the goal, each once, in an order that can be carried out."""
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


# Mutexes: which two facts can be true together. Quick to compute, and often proof enough.
#
# Two facts go together if they do at the start, or if an operator whose needs all go together gives
# both, or gives one and leaves the other be. What remains can never be: a goal that wants both is
# impossible, and an operator that needs both can be left out. (The converse does not hold: facts
# that go together two by two may still not all be true at once.)


class Pairs:
    """For each fact the facts that can be true with it, and the operators that can ever be used."""

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
        """Return whether every two of these facts can be true together."""
        return all(self.mates[fact] & facts == facts for fact in members(facts))

    def clash(self) -> tuple[str, str] | None:
        """Two wanted facts that can never be true together."""
        names = list(self.task.facts)
        goal = self.task.goal_bits
        for fact in self.task.goal:
            for other in members(goal & ~self.mates[fact]):
                return names[fact], names[other]
        return None


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


# The exact search: whether any plan keeps within a cost, before "unaffordable" is said.
#
# The cheap plans of `cheapest` are near the best, not always the best, so that their cost proves
# nothing. Here every plan is ruled out or one is found, with a lower bound that never
# overestimates: the landmark cut (Helmert and Domshlak, 2009). A cut is a set of operators of which
# every plan holds at least one; it is charged once, its operators get cheaper by that much, and the
# next cut is looked for until the goal costs nothing.
#
# Where nothing is dropped a plan is a set of operators, and every plan holds one of a cut: the
# search branches over the operators of the smallest one, and each branch leaves out those of the
# branches before it. Where something is dropped it is an A* over states.
#
# Costs are what workers declare, since that is what the budget counts. The budget of the search is
# in nodes and in operators looked at, never in seconds.


CLOSE = 1e-9
"""Costs that differ by less are the same."""
EXACT_WORK_MAX = 1_500_000
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
        """Count one more node, for which `looks` operators were looked at."""
        self.nodes += 1
        self._looks -= looks

    @property
    def over(self) -> bool:
        """Return whether the budget of the search is used up."""
        return self.nodes >= self._nodes_max or self._looks <= 0


class _Node(NamedTuple):
    """A set of plans: those that hold some operators and exclude others."""

    spent: float
    chosen: frozenset[int]
    barred: frozenset[int]


class ExactResult(NamedTuple):
    """A plan within the cost, or whether it is certain that there is none."""

    plan: list[int] | None
    proved: bool
    nodes: int


def within(task: PlanningTask, cost: float, nodes_max: int) -> Generator[None, None, ExactResult]:
    """Return a plan that costs at most `cost`, if there is one; yield now and then."""
    costs = [
        each.cost if price < inf else inf
        for each, price in zip(task.operators, task.prices, strict=True)
    ]
    work = _Work(nodes_max, EXACT_WORK_MAX)
    if task.drops_something:
        return (yield from _over_states(task, costs, cost + CLOSE, work))
    return (yield from _over_cuts(task, costs, cost + CLOSE, work))


def undercut(task: PlanningTask, plan: list[int]) -> Generator[None, None, list[int]]:
    """Return the plan, or a cheaper one found by a short search, for tasks without drops."""
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
    """Branch and bound over the cuts that every plan must hold, for tasks without drops.

    The cheapest operator comes first, so that a plan is found early if there is one.
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
    """Return the plan that consists of `chosen` and of operators that cost nothing."""
    prices = [
        price if each in chosen or not costs[each] else inf
        for each, price in enumerate(task.prices)
    ]
    plan = extract(task, explore(task, task.start, prices), task.goal)
    return task.lean(plan or [])


def _over_states(
    task: PlanningTask, costs: Sequence[float], limit: float, work: _Work
) -> Generator[None, None, ExactResult]:
    """Search by A* over states, for tasks in which facts are dropped."""
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


def landmarks(
    task: PlanningTask, state: int, costs: Sequence[float], work: _Work | None = None
) -> tuple[float, tuple[int, ...]]:
    """Return a lower bound of the cost to the goal, and the smallest cut that was found.

    Without drops the bound is infinite exactly if there is no plan, and there is no cut exactly if
    operators that cost nothing lead to the goal.
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
    """Return the cost of each fact if only the dearest of several needs counts; and that need."""
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
    """Return the facts from which operators that cost nothing lead to the goal."""
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
    """Return the operators through which a plan from `state` enters the zone."""
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


# A cheap plan, by the quickest of these ways.
#
# Where nothing is dropped, the relaxed plan is a plan. Additive costs pay a shared need twice, so
# the first one is some 15 % too dear on average; two loops bring it close to the best: what is
# chosen already counts as nearly free, so that others lean on it, and then each chosen operator is
# left out once, to see whether the others do better without it. Where a lower bound leaves room for
# a cheaper plan, a short exact search looks for one.
#
# Where something is dropped, the same plan will do if it can be put in an order in which nothing is
# missed. Else `search` finds a first plan; less greedy searches with a few times its nodes then try
# to undercut it.


CHEAPEST_WORK_MAX = 30_000
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
    """Return a cheap plan; yield now and then, so that other tasks can run."""
    if task.drops_something:
        return (yield from _searched(task, nodes_max))
    plan = _undropped(task)
    if plan is None:
        return CheapestPlan(None, proved=True)
    return CheapestPlan((yield from undercut(task, plan)))


def sequence(task: PlanningTask) -> Generator[None, None, list[int] | None]:
    """Return a plan for a task with drops, if one that ignores them can be put in order.

    No plan can cost less than the problem without drops, so no search is needed then. None proves
    nothing: the order failed, or only that of a dearer plan was found.
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
    """Return operators in an order in which none drops what a later one or the goal needs."""
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
    """Return whether an operator can be applied now and drops nothing that another one uses."""
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
            if work > CHEAPEST_WORK_MAX:
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
    """Return the plan, or a cheaper one found by counting its operators as nearly free."""
    nearly = list(prices)
    for each in plan:
        nearly[each] *= CHOSEN
    other = _relaxed(task, nearly)
    return other if other is not None and task.price(other) < task.price(plan) - 1e-9 else plan


def _relaxed(task: PlanningTask, prices: Sequence[float]) -> list[int] | None:
    plan = extract(task, explore(task, task.start, prices), task.goal)
    return None if plan is None else task.lean(plan)
