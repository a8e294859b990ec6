"""A numbered list as a plan, for models that cannot do better.

Each line that begins with a number and names a worker is a step, after the one before it. What
a worker takes is filled with the facts of that name: given with the goal, or by earlier steps.
Other lines are talk; a numbered line that names nobody is a mistake and is said to be one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leadhand.core.report import Finish, Propose
from leadhand.planners.goal.operators import operator_name
from leadhand.planners.goal.steps import Names, document, tidy
from leadhand.planners.goal.world import given
from leadhand.planners.model.answers import Misread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.plan import Doc
    from leadhand.core.report import PlannerView
    from leadhand.planners.goal.operators import Operator, Operators
    from leadhand.planners.goal.world import Fact, World

LINES_MAX = 500
_LINE = re.compile(r"\s*\(?\d+[.):]\s*(.+)")
_DONE = re.compile(r"\W*(?:\d+[.)]\s*)?done\W*", re.IGNORECASE)


def read(
    text: str, view: PlannerView, operators: Operators, world: World
) -> Propose | Finish | None:
    """The plan that a list stands for; nothing when it is no list."""
    if _DONE.fullmatch(text):
        return Finish(because="the model says that everything is there")
    lines = [found[1] for line in text.splitlines()[:LINES_MAX] if (found := _LINE.match(line))]
    named = [_named(line, view) for line in lines]
    if not named:
        return None
    names, facts = Names(view.steps), dict(world.facts)
    steps: list[Doc] = []
    for worker, action in named:
        operator = operators.by_name.get(operator_name(worker, action))
        step = _step(worker, action, operator, names, facts)
        if steps:
            step["depends_on"] = [*dict.fromkeys([*step.get("depends_on", ()), steps[-1]["id"]])]
        steps.append(step)
        if operator is not None:
            for fact in operator.drops:
                facts.pop(fact, None)
            facts |= given(step["id"], operator.gives)
    return Propose(tuple(steps), because="a numbered list, one step after the other")


def _step(
    worker: str, action: str, operator: Operator | None, names: Names, facts: Mapping[str, Fact]
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
        raise Misread(f"the line {line.strip()[:80]!r} names no worker")
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
