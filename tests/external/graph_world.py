"""Worker graphs, the world they change, and a judge that knows everything about it.

Nothing here comes from leadhand: what is true, what can be reached and what it costs at best are
worked out anew, from the graph as it was drawn and from the calls that workers really got. A graph
says what every worker needs, gives, drops and costs, and what is wrong with it, which no planner is
told. `World` is the account of one run. `best` looks at every set of facts that can be reached.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

PASSING = {"transient": 5, "rate_limited": 5, "hang": 5, "unavailable": 1, "silent": 1}
"""Faults that pass, each with how many failures in a row still leave the worker worth a try."""
ONCE = frozenset({"permanent", "denied", "too_complex", "needs_info"})
"""Failures after which the same again cannot help."""
SPLITTING = "too_complex"
STEP = 1e-9
"""What a step costs beyond its price: of two ways that cost the same, the shorter one."""
MARK = "?"
"""Begins the pseudo fact "a giver of this was found too complex", which opens methods."""


class Fault(NamedTuple):
    """What is wrong with a worker; `times` calls fail, or all of them."""

    kind: str = ""
    times: int = 0
    hint: str = ""
    """The fact it wants to know beyond its parameters, of kind `needs_info`."""
    wait_s: float = 0.0
    """How long it asks to be left alone."""

    @property
    def passes(self) -> bool:
        """Whether trying again is enough."""
        if not self.kind or self.kind == "needs_info":
            return True
        return 0 < self.times <= PASSING.get(self.kind, 0)


class Job(NamedTuple):
    """A worker of a graph."""

    name: str
    needs: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    cost: float = 0.0
    fault: Fault = Fault()
    idempotent: bool = True
    takes_s: float = 0.0
    loose: tuple[str, ...] = ()
    """Parameters that are no facts: only a method fills them."""
    items: int = 0
    """How many items it gives as a list, if it splits something."""
    stage: bool = False
    """Whether it does a part of something, which makes no fact true."""


class Method(NamedTuple):
    """A way to give a fact in smaller steps, by names of workers."""

    fact: str
    name: str
    stages: tuple[str, ...]


class Graph(NamedTuple):
    """What is there, what is wanted, who can do what, and how far the money goes."""

    jobs: tuple[Job, ...]
    have: tuple[str, ...]
    want: tuple[str, ...]
    methods: tuple[Method, ...] = ()
    budget: float | None = None

    def job(self, name: str) -> Job:
        """A worker by name."""
        return next(each for each in self.jobs if each.name == name)

    @property
    def faulty(self) -> bool:
        """Whether anything is wrong that a planner is not told."""
        return any(each.fault.kind for each in self.jobs)


def is_flag(fact: str) -> bool:
    """Whether a fact carries no data."""
    return ":" in fact


class Way(NamedTuple):
    """The cheapest way to the wanted facts."""

    cost: float
    names: tuple[str, ...]


class _Move(NamedTuple):
    name: str
    needs: int
    keeps: int
    gives: int
    cost: float


def best(
    graph: Graph,
    facts: Iterable[str],
    broken: Iterable[str] = (),
    *,
    blind: bool = False,
    unlocked: Iterable[str] = (),
) -> Way | None:
    """The cheapest way from some facts, by looking at every set of facts that can be reached.

    `broken` are the workers that never work. `blind` leaves faults out, as a planner sees it.
    `unlocked` are facts whose givers were found too complex already.
    """
    bits: dict[str, int] = {}

    def mask(names: Iterable[str]) -> int:
        return sum(1 << bits.setdefault(name, len(bits)) for name in set(names))

    gone = frozenset(broken)
    moves = [
        _Move(each.name, mask(each.needs), ~mask(each.drops), mask(each.gives), each.cost)
        for each in _operators(graph, gone, blind=blind)
    ]
    start = mask([*facts, *(MARK + fact for fact in unlocked)])
    goal = mask(graph.want)
    return _dijkstra(moves, start, goal)


def _dijkstra(moves: Sequence[_Move], start: int, goal: int) -> Way | None:
    cost = {start: 0.0}
    before: dict[int, tuple[int, str]] = {}
    queue = [(0.0, start)]
    while queue:
        spent, state = heapq.heappop(queue)
        if spent > cost[state]:
            continue
        if state & goal == goal:
            names: list[str] = []
            while state in before:
                state, name = before[state]
                names.append(name)
            return Way(round(spent - STEP * len(names), 6), tuple(reversed(names)))
        for move in moves:
            if state & move.needs != move.needs:
                continue
            after = state & move.keeps | move.gives
            total = spent + move.cost + STEP
            if after != state and total < cost.get(after, float("inf")):
                cost[after] = total
                before[after] = (state, move.name)
                heapq.heappush(queue, (total, after))
    return None


def _operators(graph: Graph, broken: frozenset[str], *, blind: bool) -> list[Job]:
    """Everything that changes facts, seen by one that knows the faults, or by one that does not."""
    found: list[Job] = []
    whole = [each for each in graph.jobs if not each.stage]
    for job in [each._replace(needs=(*each.needs, *each.loose)) for each in whole]:
        if blind or (job.fault.passes and job.name not in broken):
            hint = (job.fault.hint,) if job.fault.hint and not blind else ()
            found.append(job._replace(needs=(*job.needs, *hint)))
        elif job.fault.kind == SPLITTING:
            opens = tuple(MARK + fact for fact in job.gives)
            found.append(Job(job.name, job.needs, opens))
    if not blind:
        found += [each for method in graph.methods if (each := _whole(graph, method, broken))]
    return found


def _whole(graph: Graph, method: Method, broken: frozenset[str], depth: int = 0) -> Job | None:
    """A method as one worker, if all of its stages work, or can be split in their turn."""
    needs: set[str] = {MARK + method.fact} if depth == 0 else set()
    cost, items = 0.0, 1
    for text in method.stages:
        job = graph.job(text.rstrip("*"))
        if job.fault.kind == SPLITTING and not job.fault.passes and depth < 5:
            nested = [_whole(graph, each, broken, depth + 1) for each in graph.methods]
            fits = [each for each in nested if each and each.gives[0] in job.gives]
            if not fits:
                return None
            job = job._replace(cost=min(each.cost for each in fits))
        elif not job.fault.passes or job.name in broken:
            return None
        needs |= set(job.needs)
        cost += job.cost * (items if text.endswith("*") else 1)
        items = job.items or items
    return Job(f"@{method.name}", tuple(needs), (method.fact,), (), cost)


@dataclass
class World:
    """What is really so, in one run: the facts with their values, and every call."""

    graph: Graph
    facts: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, list[Any]] = field(default_factory=dict)
    """Every value of a fact since it last became true: until it is dropped an older one will do."""
    spent: float = 0.0
    tried: Counter[str] = field(default_factory=Counter)
    impossible: list[str] = field(default_factory=list)
    """Calls whose needs were not true, or whose values were not those of the facts."""
    repeated: list[str] = field(default_factory=list)
    """Finished steps that were run again though they are not idempotent."""
    blind: list[str] = field(default_factory=list)
    """What failed for good, tried again on the same input though nobody said so."""
    repaired: set[str] = field(default_factory=set)
    doubted: set[str] = field(default_factory=set)
    """Flags that a worker should have given and did not: a planner need not believe them."""
    unlocked: set[str] = field(default_factory=set)
    done: dict[str, Any] = field(default_factory=dict)
    """What each step that really succeeded gave, by its id."""
    _failed: dict[tuple[str, str], int] = field(default_factory=dict)
    _words: int = 0
    _last: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph) -> World:
        """Before anything happened."""
        world = cls(graph)
        world._make({fact: value_of(fact, "have", 0) for fact in graph.have})
        return world

    @property
    def reached(self) -> bool:
        """Whether everything that is wanted is there."""
        return all(fact in self.facts for fact in self.graph.want)

    def _make(self, made: Mapping[str, Any]) -> None:
        self.facts |= made
        self.doubted -= set(made)
        for fact, value in made.items():
            self.versions.setdefault(fact, []).append(value)

    def _lose(self, fact: str) -> None:
        self.facts.pop(fact, None)
        self.versions.pop(fact, None)

    def returns(self, result: Any) -> bool:
        """Whether a result is what is wanted: the value, or an object with each under its name."""
        want = self.graph.want
        values = {want[0]: result} if len(want) == 1 else result
        if not isinstance(values, dict) or set(values) != set(want):
            return False
        return all(value in self.versions.get(fact, ()) for fact, value in values.items())

    def way(self) -> Way | None:
        """The cheapest way from here that the money allows, for one that knows the faults."""
        broken = [each.name for each in self.graph.jobs if not self.sound(each)]
        graph = self.graph
        if self.repaired:
            fixed = (
                j._replace(fault=Fault()) if j.name in self.repaired else j for j in graph.jobs
            )
            graph = graph._replace(jobs=tuple(fixed))
        found = best(graph, set(self.facts) - self.doubted, broken, unlocked=self.unlocked)
        if found and graph.budget is not None and self.spent + found.cost > graph.budget + 1e-6:
            return None
        return found

    def sound(self, job: Job) -> bool:
        """Whether a worker works, sooner or later."""
        return job.fault.passes or job.name in self.repaired

    def begin(self, job: Job, step: str, given: Mapping[str, Any]) -> str:
        """A worker is called: what is wrong with that, if anything is."""
        last = self._last.get(job.name)
        if not job.idempotent:
            whole = last is not None and all(
                self.facts.get(fact, 0) == value and fact not in self.doubted
                for fact, value in last.items()
            )
            if step in self.done or whole:
                self.repeated.append(f"{job.name} as {step}")
        wrong = self._unmet(job, given)
        if wrong:
            self.impossible.append(f"{job.name} as {step}: {wrong}")
        return wrong

    def _unmet(self, job: Job, given: Mapping[str, Any]) -> str:
        for fact in job.needs:
            if fact not in self.facts:
                return f"{fact} is not true"
            if not is_flag(fact) and given.get(fact) not in self.versions[fact]:
                return f"{fact} is given as {given.get(fact)!r}, not {self.facts[fact]!r}"
        lacks = [name for name in job.loose if given.get(name) is None]
        return f"{lacks[0]} is not given" if lacks else ""

    def fails(self, job: Job, given: Mapping[str, Any]) -> Fault | None:
        """The fault that strikes this call, if one does."""
        self.tried[job.name] += 1
        fault = job.fault
        if not fault.kind or job.name in self.repaired:
            return None
        if fault.kind == "needs_info":
            if given.get(fault.hint) is not None:
                return None
        elif fault.times and self.tried[job.name] > fault.times:
            return None
        if fault.kind in ONCE:
            self._remember(job, given)
        if fault.kind == SPLITTING:
            self.unlocked |= set(job.gives)
        return fault

    def _remember(self, job: Job, given: Mapping[str, Any]) -> None:
        key = (job.name, repr(sorted(given.items())))
        if self._failed.get(key) == self._words:
            self.blind.append(f"{job.name} with {key[1]}")
        self._failed[key] = self._words

    def end(self, job: Job, step: str) -> Any:
        """A worker has done it: what it gives."""
        self.spent += job.cost
        if job.idempotent and step in self.done:
            return self.done[step]
        number = self.tried[job.name]
        if job.stage:
            parts = [f"{job.name} #{number}.{i}" for i in range(job.items)]
            self.done[step] = parts or f"{job.name} #{number}"
            return self.done[step]
        made = {fact: value_of(fact, job.name, number) for fact in job.gives}
        for fact in job.drops:
            if fact not in made:
                self._lose(fact)
        self._make(made)
        self._last[job.name] = made
        artefacts = [fact for fact in job.gives if not is_flag(fact)]
        several = {fact: made[fact] for fact in artefacts}
        self.done[step] = made[artefacts[0]] if len(artefacts) == 1 else several or True
        return self.done[step]

    def lied(self, job: Job) -> None:
        """A worker broke its promise: flags that it should have given may be doubted from here."""
        self.doubted |= {fact for fact in job.gives if is_flag(fact)}

    def give(self, facts: Iterable[str]) -> dict[str, Any]:
        """A person gives facts."""
        self._words += 1
        made = {fact: value_of(fact, "person", self._words) for fact in facts}
        self._make(made)
        return made

    def retry(self, *, repaired: bool) -> None:
        """A person says that what failed is to be tried again, with or without a reason."""
        self._words += 1
        if repaired:
            self.repaired |= {each.name for each in self.graph.jobs if not each.fault.passes}


def value_of(fact: str, by: str, number: int) -> Any:
    """The value of a fact: a flag is true, an artefact says who made it and when."""
    return True if is_flag(fact) else f"{fact} by {by} #{number}"
