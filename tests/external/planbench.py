"""PlanBench's recorded plans as plan documents, with the benchmark's own verdict on each.

Each action of a plan becomes a worker of its own that needs, gives and drops what the domain
says; the plan becomes a chain of steps. An action that the domain does not have, or with another
number of objects, has no worker. Types play no part: these domains have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from leadhand.core.catalog import Catalog, Offer, WorkerSpec
from tests.external import data

Doc = dict[str, Any]
TOKEN = re.compile(r"[()]|[^\s()]+")


class Recorded(NamedTuple):
    """One plan that a model wrote."""

    domain: str
    plan: Doc
    catalog: Catalog
    correct: bool


def recorded() -> Iterator[Recorded]:
    """All plans that have a verdict and whose problem is there."""
    folder = data.folder("planbench")
    domains: dict[str, tuple[Doc, Doc]] = {}
    for path in sorted((folder / "pddl").glob("*/domain.pddl")):
        problems = sorted(path.parent.glob("instances.json*"))
        domains[path.parent.name] = (_actions(path), data.load(problems[0]))
    for path in sorted(folder.glob("recorded_llm_plans.jsonl*")):
        for row in data.rows(path):
            actions, problems = domains.get(row["domain"], ({}, {}))
            problem = problems.get(f"instance-{row['instance']}.pddl")
            if problem is not None and row.get("label_correct") is not None and row["plan"]:
                yield _converted(row, actions, _fields(problem))


def _converted(row: Doc, actions: Doc, problem: Doc) -> Recorded:
    calls = [call.strip("() ").lower().split() for call in row["plan"]]
    workers = {" ".join(call): _worker(call, actions) for call in calls}
    steps = [
        {"id": f"s{i}", "worker": " ".join(call), "depends_on": [f"s{i - 1}"] if i else []}
        for i, call in enumerate(calls)
    ]
    goal = {
        "want": [_fact(atom) for atom, _ in _atoms(problem[":goal"][0])],
        "have": {_fact(atom): True for atom in problem[":init"]},
    }
    catalog = Catalog(worker for worker in workers.values() if worker is not None)
    return Recorded(row["domain"], {"goal": goal, "steps": steps}, catalog, row["label_correct"])


def _worker(call: list[str], actions: Doc) -> WorkerSpec | None:
    name, *objects = call or [""]
    variables, needs, effects = actions.get(name, ((), (), ()))
    if name not in actions or len(variables) != len(objects):
        return None
    values = dict(zip(variables, objects, strict=True))

    def facts(atoms: Any, *, holds: bool) -> tuple[str, ...]:
        bound = ([values.get(word, word) for word in atom] for atom, is_ in atoms if is_ is holds)
        return tuple(_fact(atom) for atom in bound)

    offer = Offer(
        needs=facts(needs, holds=True),
        gives=facts(effects, holds=True),
        drops=facts(effects, holds=False),
    )
    return WorkerSpec(name=" ".join(call), offers={"": offer})


def _actions(path: Path) -> Doc:
    found = {}
    for part in _tree(path.read_text())[1:]:
        if part[0] == ":action":
            fields = dict(zip(part[2::2], part[3::2], strict=True))
            variables = [word for word in fields[":parameters"] if word.startswith("?")]
            needs = _atoms(fields.get(":precondition", []))
            found[part[1]] = (variables, needs, _atoms(fields[":effect"]))
    return found


def _fields(text: str) -> Doc:
    return {part[0]: part[1:] for part in _tree(text)[1:]}


def _atoms(tree: Any) -> list[tuple[list[str], bool]]:
    """A conjunction as atoms, each with whether it shall hold."""
    if tree and tree[0] == "and":
        return [each for part in tree[1:] for each in _atoms(part)]
    if tree and tree[0] == "not":
        return [(tree[1], False)]
    return [(tree, True)] if tree else []


def _fact(atom: list[str]) -> str:
    return " ".join(atom)


def _tree(text: str) -> Any:
    stack: list[Any] = [[]]
    for token in TOKEN.findall(re.sub(r";[^\n]*", "", text).lower()):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    return stack[0][0]
