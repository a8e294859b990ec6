"""PDDL problems as grounded actions: a small reader for STRIPS with types, and a plain judge.

    domain = parse_domain(text)
    problem = parse_problem(text)
    actions = ground(domain, problem)       # what could ever matter, by name
    facts = run(problem.init, actions, ["pick-up.a", "stack.a.b"])

A fact is a text such as "on:a:b"; every fact has a colon ("handempty:"), so that it is a flag
in Leadhand's sense. An action's name is its PDDL name and its arguments, joined by dots, as in
"stack.a.b"; the first part is the worker, the rest the worker's action.

Nothing here is shared with the planner: `apply` and `run` judge what the planner proposes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tests.external import data
from tests.support.need import need

Tree = Any
"""Nested lists of words."""
Atom = tuple[str, ...]


class Schema(NamedTuple):
    """An action with variables."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    """(variable, type)."""
    needs: tuple[Atom, ...]
    gives: tuple[Atom, ...]
    drops: tuple[Atom, ...]


class Domain(NamedTuple):
    """What can be done at all."""

    schemas: tuple[Schema, ...]
    parents: Mapping[str, str]
    """The type above each type."""


class Problem(NamedTuple):
    """What is there, and what is wanted."""

    objects: tuple[tuple[str, str], ...]
    init: frozenset[str]
    goal: frozenset[str]


class Action(NamedTuple):
    """One thing that can be done with certain objects."""

    name: str
    needs: frozenset[str]
    gives: frozenset[str]
    drops: frozenset[str]

    @property
    def worker(self) -> str:
        """The PDDL action."""
        return self.name.partition(".")[0]

    @property
    def action(self) -> str:
        """Its arguments, joined by dots."""
        return self.name.partition(".")[2]


class Wrong(ValueError):
    """A plan that cannot be carried out, with the first step that cannot."""


def instances(domain: str) -> tuple[Domain, dict[str, Problem]]:
    """A domain of PlanBench with all its problems, by name; skips when the data is not there."""
    folder = data.folder("planbench") / "pddl" / domain
    files = sorted(folder.glob("instances.json*"))
    need(files, f"PlanBench's {domain} (set LEADHAND_TEST_DATA)")
    made = {name: parse_problem(text) for name, text in sorted(data.load(files[0]).items())}
    return parse_domain((folder / "domain.pddl").read_text()), made


def fact(atom: Iterable[str]) -> str:
    """An atom as the name of a flag."""
    name, *objects = atom
    return ":".join([name, *objects]) if objects else f"{name}:"


def parse_domain(text: str) -> Domain:
    """Read a domain."""
    schemas: list[Schema] = []
    parents: dict[str, str] = {}
    for part in _tree(text)[1:]:
        if part[0] == ":types":
            parents = dict(_typed(part[1:]))
        elif part[0] == ":action":
            schemas.append(_schema(part))
    return Domain(tuple(schemas), parents)


def parse_problem(text: str) -> Problem:
    """Read a problem."""
    parts = {part[0]: part[1:] for part in _tree(text)[1:]}
    goal = _atoms(parts[":goal"][0])
    return Problem(
        tuple(_typed(parts[":objects"])),
        frozenset(fact(atom) for atom in map(tuple, parts[":init"])),
        frozenset(fact(atom) for atom, _ in goal),
    )


def ground(domain: Domain, problem: Problem) -> dict[str, Action]:
    """Every action whose needs could ever hold, without the facts that never change."""
    changed = {atom[0] for schema in domain.schemas for atom in (*schema.gives, *schema.drops)}
    found: dict[str, Action] = {}
    for schema in domain.schemas:
        for action in _grounded(schema, domain, problem, changed):
            found[action.name] = action
    return _reachable(problem.init, found)


def apply(facts: frozenset[str], action: Action) -> frozenset[str]:
    """The facts after an action; Wrong when it cannot be done."""
    missing = action.needs - facts
    if missing:
        raise Wrong(f"{action.name} needs {', '.join(sorted(missing))}")
    return (facts - action.drops) | action.gives


def run(
    facts: frozenset[str], actions: Mapping[str, Action], plan: Iterable[str]
) -> frozenset[str]:
    """The facts after a plan, given by the names of its actions."""
    for name in plan:
        if name not in actions:
            raise Wrong(f"{name} is no action that could be done")
        facts = apply(facts, actions[name])
    return facts


def name_of(text: str) -> str:
    """The name of an action written as PDDL: "(stack a b)" is "stack.a.b"."""
    return ".".join(text.strip().strip("()").lower().split())


def _tree(text: str) -> list[Tree]:
    text = re.sub(r";[^\n]*", "", text).lower()
    stack: list[list[Tree]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    (whole,) = stack[0]
    return whole


def _typed(words: Iterable[str]) -> list[tuple[str, str]]:
    """`a b - t c`: (a, t), (b, t), (c, object)."""
    found: list[tuple[str, str]] = []
    names: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "-":
            kind = next(rest)
            found += [(name, kind) for name in names]
            names = []
        else:
            names.append(word)
    return found + [(name, "object") for name in names]


def _atoms(tree: Tree) -> list[tuple[Atom, bool]]:
    """A conjunction as (atom, whether it holds)."""
    if tree and tree[0] == "and":
        return [each for part in tree[1:] for each in _atoms(part)]
    if tree and tree[0] == "not":
        return [(tuple(tree[1]), False)]
    return [(tuple(tree), True)] if tree else []


def _schema(part: Tree) -> Schema:
    fields = dict(zip(part[2::2], part[3::2], strict=True))
    needs = _atoms(fields.get(":precondition", []))
    effects = _atoms(fields[":effect"])
    return Schema(
        part[1],
        tuple(_typed(fields[":parameters"])),
        tuple(atom for atom, holds in needs if holds),
        tuple(atom for atom, holds in effects if holds),
        tuple(atom for atom, holds in effects if not holds),
    )


def _grounded(
    schema: Schema, domain: Domain, problem: Problem, changed: set[str]
) -> Iterable[Action]:
    fixed = [atom for atom in schema.needs if atom[0] not in changed]
    choices = {name: _of_type(kind, domain, problem) for name, kind in schema.parameters}
    for atom in fixed:
        if len(atom) == 2 and atom[1] in choices:
            own = choices[atom[1]]
            choices[atom[1]] = [name for name in own if fact([atom[0], name]) in problem.init]
    for objects in itertools.product(*choices.values()):
        values = dict(zip(choices, objects, strict=True))
        if _made(fixed, values) <= problem.init:
            needs = _made([atom for atom in schema.needs if atom[0] in changed], values)
            gives = _made(schema.gives, values)
            drops = _made(schema.drops, values) - gives
            yield Action(".".join([schema.name, *objects]), needs, gives, drops)


def _made(atoms: Iterable[Atom], values: Mapping[str, str]) -> frozenset[str]:
    return frozenset(
        fact([atom[0], *(values.get(word, word) for word in atom[1:])]) for atom in atoms
    )


def _of_type(kind: str, domain: Domain, problem: Problem) -> list[str]:
    found = []
    for name, own in problem.objects:
        above: str | None = own
        while above is not None and above != kind:
            above = domain.parents.get(above)
        if kind in (above, "object"):
            found.append(name)
    return found


def _reachable(init: frozenset[str], actions: dict[str, Action]) -> dict[str, Action]:
    facts, found, rest = set(init), {}, dict(actions)
    while ready := [name for name, action in rest.items() if action.needs <= facts]:
        for name in ready:
            found[name] = rest.pop(name)
            facts |= found[name].gives
    return dict(sorted(found.items()))
