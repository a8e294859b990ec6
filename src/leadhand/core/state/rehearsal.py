"""The start order of competing steps, found by simulating the plan before it runs.

Without scarce capacity, the longest tail first is optimal. Where steps compete (for pools, workers,
the run's own limit), the best order differs from plan to plan, so several orders are simulated on
the estimates, the way the engine starts steps (greedy, best first), and the order that ends first
is taken:

    by tail             the time from a step's start to the end of all that waits for it
    by what is left     the same without the step itself
    by late start       the plan is played backwards, from its end, so that everything happens as
                        late as the limits let it; what then starts first should start first.
                        Backwards in four ways: by tail and by what is left, of the graph turned
                        round; and what ended last first, in each of the two plays above

Only the order is kept, not the schedule: when estimates prove wrong, it still separates urgent
steps from the rest. The simulation runs once per revision, at a cost bounded in looks, not in
seconds; large plans are ordered by their tails. Everything is deterministic.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from leadhand.core.plan import graph as graphs
from leadhand.core.state.ready import uses_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from leadhand.core.plan.model import Doc
    from leadhand.core.policy import Policy

    Graph = Mapping[str, Collection[str]]

STEPS_MAX = 1000
"""The size of the largest plan that is simulated, in steps."""
LOOKS_MAX = 60_000
"""The total number of times a step is examined: some 50 ms."""

Use = tuple[tuple[str, int], ...]
"""The capacity a step holds while it runs: limits, with amounts."""


def urgency(
    steps: Iterable[Doc],
    graph: Graph,
    est: Mapping[str, float],
    policy: Policy,
    worker_limit: Callable[[str], int | None],
) -> dict[str, float]:
    """Return the urgency of each step, in seconds before the end; highest first.

    `graph` maps each step to its dependencies, `est` to its duration.
    """
    tails = graphs.tails(graph, est)
    if len(graph) > STEPS_MAX:
        return tails
    room = {f"resource {name}": amount for name, amount in policy.resources.items()}
    room["run"] = policy.max_concurrency
    uses: dict[str, Use] = {}
    for step in steps:
        worker = step["worker"]
        limit = worker_limit(worker)
        if limit is not None:
            room[f"worker {worker}"] = limit
        wanted = {f"resource {name}": amount for name, amount in uses_of(step)}
        wanted |= {"run": 1, f"worker {worker}": 1}
        # A step that asks for more than the capacity gets all of it, alone.
        uses[step["id"]] = tuple(
            (name, min(amount, room[name])) for name, amount in wanted.items() if name in room
        )
    if not _scarce(est, uses, room):
        return tails
    heads = graphs.tails(graphs.dependents(graph), est)
    best = _best(
        _Stage(graph, est, uses, room),
        [tails.get(name, 0.0) for name in graph],
        [heads.get(name, 0.0) for name in graph],
    )
    return {name: -rank / 1e6 for name, rank in zip(graph, best, strict=True)}


def _scarce(est: Mapping[str, float], uses: Mapping[str, Use], room: Mapping[str, int]) -> bool:
    """Return whether running all steps at once would exceed a limit."""
    wanted: dict[str, int] = {}
    for name in est:
        for limit, amount in uses[name]:
            wanted[limit] = wanted.get(limit, 0) + amount
    return any(amount > room[limit] for limit, amount in wanted.items())


class _Schedule(NamedTuple):
    end: int
    starts: list[int]


class _TooLong(Exception):
    """The limit of looks is reached."""


class _Stage:
    """The plan in numbers: times in microseconds, steps by index."""

    def __init__(
        self,
        graph: Graph,
        est: Mapping[str, float],
        uses: Mapping[str, Use],
        room: Mapping[str, int],
    ) -> None:
        number = {name: i for i, name in enumerate(graph)}
        self.time = [int(est.get(name, 0.0) * 1e6) for name in graph]
        self.uses = [uses[name] for name in graph]
        self.room = room
        self.before = [[number[n] for n in names if n in number] for names in graph.values()]
        self.after = [[number[n] for n in names] for names in graphs.dependents(graph).values()]
        self.looks = 0

    def play(self, rank: Sequence[int], *, mirrored: bool = False) -> _Schedule:
        """Simulate: start every step that can start, lowest rank first, until all are done."""
        before, after = (self.after, self.before) if mirrored else (self.before, self.after)
        waiting = [len(names) for names in before]
        free = dict(self.room)
        groups: dict[Use, list[tuple[int, int]]] = {}
        running: list[tuple[int, int]] = []
        starts = [0] * len(rank)
        fresh, now = [i for i, count in enumerate(waiting) if not count], 0
        while True:
            for i in fresh:
                heappush(groups.setdefault(self.uses[i], []), (rank[i], i))
            for i in self._started(groups, free):
                starts[i] = now
                heappush(running, (now + self.time[i], i))
            if not running:
                return _Schedule(now, starts)
            now, fresh = running[0][0], []
            while running and running[0][0] == now:
                i = heappop(running)[1]
                for limit, amount in self.uses[i]:
                    free[limit] += amount
                for other in after[i]:
                    waiting[other] -= 1
                    if not waiting[other]:
                        fresh.append(other)

    def _started(self, groups: dict[Use, list[tuple[int, int]]], free: dict[str, int]) -> list[int]:
        """Return the steps that start now; steps of the same use form a group, led by its first."""
        heads = [(group[0], use) for use, group in groups.items() if group]
        heapify(heads)
        found = []
        while heads:
            self.looks += 1
            (_, i), use = heappop(heads)
            if all(free[limit] >= amount for limit, amount in use):
                for limit, amount in use:
                    free[limit] -= amount
                found.append(i)
                group = groups[use]
                heappop(group)
                if group:
                    heappush(heads, (group[0], use))
        if self.looks > LOOKS_MAX:
            raise _TooLong
        return found


def _best(stage: _Stage, tails: Sequence[float], heads: Sequence[float]) -> list[int]:
    """Return the order that ends soonest, as ranks; the first tried among equals."""
    ranks = _ranks(tails, stage)
    least = -min(ranks[0])
    best = ranks[0]
    try:
        plays = [stage.play(rank) for rank in ranks]
        soonest = min(plays, key=_end)
        best = ranks[plays.index(soonest)]
        behind = [*_ranks(heads, stage), *(_last_first(each, stage) for each in plays)]
        for rank in behind:
            if soonest.end <= least:
                break
            late = _last_first(stage.play(rank, mirrored=True), stage)
            played = stage.play(late)
            if played.end < soonest.end:
                soonest, best = played, late
    except _TooLong:
        pass
    return best


def _ranks(tails: Sequence[float], stage: _Stage) -> tuple[list[int], list[int]]:
    """Return the ranks by tail, and by remaining time; the lowest rank comes first."""
    by_tail = [-int(tail * 1e6) for tail in tails]
    return by_tail, [rank + spent for rank, spent in zip(by_tail, stage.time, strict=True)]


def _end(schedule: _Schedule) -> int:
    return schedule.end


def _last_first(schedule: _Schedule, stage: _Stage) -> list[int]:
    return [-(start + spent) for start, spent in zip(schedule.starts, stage.time, strict=True)]
