"""A numbered list as a plan, for models that cannot do better.

Each line that begins with a number and names a worker is a step, after the one before it; a line
of several calls in brackets, `1. (fetch a) (clean a)`, is a step for each. What a worker takes is
filled with the facts of that name: given with the goal, or by earlier steps. Other lines are talk.
A numbered line that names no worker is a `Misread`, and so is the first step whose needs are not
true when its turn comes: a list in the wrong order is answered with the need that is not met.

`DONE` finishes the run; its result is the data of the wanted facts, else of the last steps.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leadhand.core.plan.graph import dependencies
from leadhand.core.report import Finish, Propose
from leadhand.planners.goal.operators import operator_name
from leadhand.planners.goal.steps import StepIds, document, tidy
from leadhand.planners.goal.world import given, value_of
from leadhand.planners.model.answers import MisreadAnswer
from leadhand.planners.proposal_check import not_true

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.report import PlannerView
    from leadhand.planners.goal.operators import Operator, Operators
    from leadhand.planners.goal.world import Fact, World


LINES_MAX = 500
_LINE = re.compile(r"\s*\(?\d+[.):]\s*(.+)")
_CALLS = re.compile(r"\(([^()]+)\)[\s,;.]*")
_DONE = re.compile(r"\W*(?:\d+[.)]\s*)?done\W*", re.IGNORECASE)


def read(
    text: str, view: PlannerView, operators: Operators, world: World
) -> Propose | Finish | None:
    """Return the plan that a list stands for, `Finish` for DONE, None when it is no list.

    Raise `Misread` for a line that names no worker and for the first step whose needs are not true.
    """
    if _DONE.fullmatch(text):
        return Finish(_result(view, world), because="the model says that everything is there")
    lines = [found[1] for line in text.splitlines()[:LINES_MAX] if (found := _LINE.match(line))]
    calls = [call for line in lines for call in _calls(line)][:LINES_MAX]
    named = [_named(call, view) for call in calls]
    if not named:
        return None
    names, facts = StepIds(view.steps), dict(world.facts)
    steps: list[Doc] = []
    for number, (worker, action) in enumerate(named, len(view.timeline) + 1):
        operator = operators.by_name.get(operator_name(worker, action))
        if operator is not None:
            unmet = [need for need in operator.needs if need not in facts]
            if unmet:
                what = f"{worker} {action}".strip()
                raise MisreadAnswer(f"step {number} {what} needs {not_true(unmet, 'which')}")
        step = _step(worker, action, operator, names, facts)
        if steps:
            step["depends_on"] = [*dict.fromkeys([*step.get("depends_on", ()), steps[-1]["id"]])]
        steps.append(step)
        if operator is not None:
            for fact in operator.drops:
                facts.pop(fact, None)
            facts |= given(step["id"], operator.gives)
    return Propose(tuple(steps), because="a numbered list, one step after the other")


def _result(view: PlannerView, world: World) -> Json:
    """Return the data of the wanted facts; of the steps that no other used, where none is wanted.

    The data of a single one stands for itself, that of several by name.
    """
    want = tuple(dict.fromkeys(view.goal.want))
    if want:
        values = {
            fact: value_of(world.facts[fact].value, view) for fact in want if fact in world.facts
        }
    else:
        done = list(view.results)
        used = {name for each in done for name in dependencies(view.steps[each].planned)}
        values = {name: view.results[name] for name in done if name not in used}
    alone = len(values) == 1 and len(want) <= 1
    return next(iter(values.values())) if alone else values or None


def _calls(line: str) -> list[str]:
    """Return the calls of a line: each pair of brackets, where it consists of several of them."""
    found: list[str] = _CALLS.findall(line)
    alone = len(found) > 1 and not _CALLS.sub("", line).strip()
    return found if alone else [line]


def _step(
    worker: str, action: str, operator: Operator | None, names: StepIds, facts: Mapping[str, Fact]
) -> Doc:
    if operator is None:
        ident = names.fresh(f"{worker}-{action}" if action else worker)
        return {"id": ident, "worker": worker, **({"action": action} if action else {})}
    return tidy(document(operator, names.take(operator), facts))


def _named(line: str, view: PlannerView) -> tuple[str, str]:
    """The worker that a line names first, and its action if it has several.

    `pick-up a` and `(pick-up a)` are a worker of that name, or worker `pick-up`, action `a`.
    """
    plain = line.strip().strip("`*()").lower()
    found: tuple[int, int, str] | None = None
    for name in view.catalog.workers:
        at = _find(name.lower(), plain)
        if at is not None and (found is None or (at, -len(name)) < found[:2]):
            found = (at, -len(name), name)
    if found is None:
        raise MisreadAnswer(f"the line {line.strip()[:80]!r} names no worker")
    name = found[2]
    rest = plain[found[0] + len(name) :].strip(" :()`*.,")
    offers = view.catalog.workers[name].offers
    for action in sorted(offers, key=len, reverse=True):
        words = {action.lower(), action.lower().replace(".", " ")}
        if action and any(rest == word or rest.startswith(f"{word} ") for word in words):
            return name, action
    if "" in offers or len(offers) == 1:
        return name, "" if "" in offers else next(iter(offers))
    return name, rest.replace(" ", ".")


def _find(name: str, line: str) -> int | None:
    """Where a name stands as a word of its own; `fetch data` is `fetch_data`."""
    pattern = re.escape(name).replace("_", "[_ -]").replace(r"\-", "[_ -]")
    found = re.search(rf"(?<![\w-]){pattern}(?![\w-])", line)
    return found.start() if found else None
