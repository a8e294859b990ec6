"""The step graph: which steps must come before which.

A step waits for the steps it names in `depends_on`, and for those whose results it uses (a
reference in its parameters, a name in its `context`): using a result implies the dependency. Only
`dependencies` knows this rule.

Every other function takes the graph as a mapping from id to the ids it waits for. All are linear in
steps and edges, and none recurses: a chain of 100,000 steps is an ordinary plan. Dependencies that
are not in the mapping (steps already in the run) are ignored.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from leadhand.core.plan import references
from leadhand.core.plan.model import dependency_id, dependency_tolerant

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from leadhand.core.plan.model import Doc


USERS = frozenset({"parameters", "undo", "context"})
"""The fields in which a step can use the result of another."""


def dependencies(step: Doc) -> dict[str, bool]:
    """Return the ids a step waits for, each with whether the step may start although it failed.

    Declared dependencies come first, in their order. A dependency implied by the use of a result is
    not tolerant: without success there is no result to use.
    """
    found = {
        entry if type(entry) is str else dependency_id(entry): type(entry) is not str
        and dependency_tolerant(entry)
        for entry in step.get("depends_on", ())
    }
    if not USERS.isdisjoint(step):
        for name in used_results(step):
            found.setdefault(name, False)
    return found


def written_dependencies(step: Doc) -> dict[str, bool]:
    """Return `dependencies` of a step as a person wrote it: none if they are malformed."""
    try:
        return {name: each for name, each in dependencies(step).items() if isinstance(name, str)}
    except (AttributeError, KeyError, TypeError):  # the linter says what is wrong
        return {}


def used_results(step: Doc) -> list[str]:
    """Return the ids of the other steps whose results `step` uses, each once."""
    found: dict[str, None] = {}
    for ref in references.find(step.get("parameters")):
        if ref.kind == "steps":
            found[ref.name] = None
    undo = step.get("undo")
    if isinstance(undo, dict):
        # An undo may use the result of the step it reverts: that is not a dependency.
        own = step.get("id")
        found.update(
            (ref.name, None)
            for ref in references.find(undo)
            if ref.kind == "steps" and ref.name != own
        )
    found.update((name, None) for name in context_of(step))
    return list(found)


def context_of(step: Doc) -> dict[str, bool]:
    """Return the steps named in `context`: each with whether its summary is meant, not its result.

    `fetch` and `{"step": "fetch"}` name the result, `{"step": "fetch", "as": "summary"}` the
    summary. Malformed entries are left out.
    """
    context = step.get("context") or ()
    found: dict[str, bool] = {}
    for entry in [context] if isinstance(context, str | dict) else context:
        if isinstance(entry, str):
            found[entry] = False
        elif isinstance(entry, dict) and isinstance(entry.get("step"), str):
            found[entry["step"]] = entry.get("as") == "summary"
    return found


def edges(steps: Iterable[Doc]) -> dict[str, tuple[str, ...]]:
    """Return the graph of `steps`: id to the ids it waits for."""
    return {step["id"]: tuple(dependencies(step)) for step in steps}


def dependents(graph: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Return the reversed graph: id to the ids that wait for it."""
    found: dict[str, list[str]] = {name: [] for name in graph}
    for name, waits_for in graph.items():
        for other in waits_for:
            if other in found:
                found[other].append(name)
    return found


def sinks(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Return the steps no other step waits for: the outcomes of the plan."""
    waited_for = {other for waits_for in graph.values() for other in waits_for}
    return [name for name in graph if name not in waited_for]


def ancestors(graph: Mapping[str, Collection[str]], name: str) -> set[str]:
    """Return every direct and indirect dependency of step `name`."""
    found: set[str] = set()
    stack = [other for other in graph.get(name, ()) if other in graph]
    while stack:
        other = stack.pop()
        if other not in found:
            found.add(other)
            stack += (each for each in graph[other] if each in graph and each not in found)
    return found


def order(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Return the steps in topological order. Steps on or behind a cycle are left out.

    By hand, since `graphlib` gives the same order in two to three times the time (10,000 steps with
    three dependencies each: 98 against 293 ms on a busy machine), and a long plan is checked often.
    """
    after = dependents(graph)
    waiting = {
        name: sum(other in graph for other in waits_for) for name, waits_for in graph.items()
    }
    ready = deque(name for name, count in waiting.items() if not count)
    found = []
    while ready:
        name = ready.popleft()
        found.append(name)
        for other in after[name]:
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    return found


def tails(graph: Mapping[str, Collection[str]], est: Mapping[str, float]) -> dict[str, float]:
    """Return for each step the longest time from its start to the end of the plan.

    Starting the step with the longest tail first keeps the critical path busy. A step without an
    estimate counts as zero, and so do steps on or behind a cycle.
    """
    after = dependents(graph)
    found: dict[str, float] = {}
    for name in reversed(order(graph)):
        rest = max((found.get(other, 0.0) for other in after[name]), default=0.0)
        found[name] = est.get(name, 0.0) + rest
    return found


def cycles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Return one cycle per strongly connected component, in the order of waiting.

    `[a, b, c]` reads: a waits for b, b for c, c for a. A step that waits for itself is not
    reported: that is a separate finding.
    """
    if len(order(graph)) == len(graph):
        return []
    return [_shortest(graph, knot) for knot in strong_components(graph) if len(knot) > 1]


def _shortest(graph: Mapping[str, Collection[str]], knot: list[str]) -> list[str]:
    """Return the shortest cycle through the first step of a component: the easiest to follow."""
    start, inside = knot[0], set(knot)
    came_from: dict[str, str] = {}
    queue = deque([start])
    while queue:
        name = queue.popleft()
        for other in graph[name]:
            if other == start and name != start:
                path = [name]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if other in inside and other not in came_from and other != start:
                came_from[other] = name
                queue.append(other)
    return knot


def strong_components(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Return the strongly connected components (Tarjan's algorithm with an explicit stack).

    The first step of each component is the first in the document.
    """
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    members: dict[str, None] = {}
    found: list[list[str]] = []
    place = {name: i for i, name in enumerate(graph)}
    for root in graph:
        work = [] if root in number else [(root, iter(graph[root]))]
        while work:
            name, rest = work[-1]
            if name not in number:
                number[name] = low[name] = len(number)
                members[name] = None
            for other in rest:
                if other in graph and other not in number:
                    work.append((other, iter(graph[other])))
                    break
                if other in members:
                    low[name] = min(low[name], number[other])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[name])
                if low[name] == number[name]:
                    knot = _pop_until(members, name)
                    found.append(sorted(knot, key=place.__getitem__))
    return found


def _pop_until(members: dict[str, None], name: str) -> list[str]:
    knot: list[str] = []
    while not knot or knot[-1] != name:
        knot.append(members.popitem()[0])
    return knot


class StepOrder:
    """The known order of steps, within a bounded amount of work.

    Steps are numbered in topological order and cut into lanes: in a lane each step waits for the
    previous one. Within a lane the answer is a comparison; across lanes the graph is searched
    backwards, never past the number of the earlier step. All searches of one check together may
    visit WORK steps for each step of the plan; after that `before` returns None (unknown).
    """

    WORK = 50

    def __init__(self, graph: Mapping[str, Collection[str]]) -> None:
        self.graph = graph
        self.names = order(graph)
        self.number = {name: i for i, name in enumerate(self.names)}
        self.lane: dict[str, int] = {}
        ends: set[str] = set()
        for name in self.names:
            follows = next((other for other in graph[name] if other in ends), None)
            if follows is None:
                self.lane[name] = self.number[name]
            else:
                self.lane[name] = self.lane[follows]
                ends.remove(follows)
            ends.add(name)
        self.work_left = self.WORK * (len(graph) + 1000)

    @property
    def complete(self) -> bool:
        """Whether every step has a number; steps on or behind a cycle have none."""
        return len(self.names) == len(self.graph)

    def before(self, one: str, other: str) -> bool | None:
        """Return whether `other` waits for `one`, directly or not; None past the work limit."""
        first = self.number[one]
        if first >= self.number[other]:
            return False
        if self.lane[one] == self.lane[other] or one in self.graph[other]:
            return True
        seen = {other}
        stack = [other]
        while stack:
            for name in self.graph[stack.pop()]:
                number = self.number.get(name, -1)
                if name == one or (number > first and self.lane[name] == self.lane[one]):
                    return True
                if number > first and name not in seen:
                    seen.add(name)
                    stack.append(name)
            self.work_left -= 1
            if self.work_left < 0:
                return None
        return False

    def together(self, one: str, other: str) -> bool:
        """Return whether two steps can certainly run at once: neither waits for the other."""
        if one == other:
            return False
        return self.before(one, other) is False and self.before(other, one) is False
