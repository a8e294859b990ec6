"""What lint refuses of the planner's own steps, told by the operators that stand for them.

The engine would refuse the proposal, and the same one would be made again: whatever cannot be
written as a sound step is no way to the goal, and another may be.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leadhand.core.plan.graph import dependencies
from leadhand.planners.goal.operators import operator_name
from leadhand.planners.goal.steps import tidy
from leadhand.planners.sound import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leadhand.core.lint.findings import Finding
    from leadhand.core.plan.model import Doc
    from leadhand.core.report import PlannerView
    from leadhand.planners.goal.operators import Operator

WHY_CHARS_MAX = 300
_PLACE = re.compile(r"steps\[(\d+)\](?:\.(\w+)(?:\.([^.\[]+)|\[(\d+)\])?)?")

_REFERENCE = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


def sound_part(docs: Sequence[Doc], plan: Sequence[Operator]) -> list[Doc]:
    """The steps of a plan that can be judged: all but those that wait for a method's."""
    out: set[str] = set()
    found: list[Doc] = []
    for doc, operator in zip(docs, plan, strict=True):
        if operator.split or not out.isdisjoint(dependencies(doc)):
            out.add(doc["id"])
        else:
            found.append(tidy(doc))
    return found


def refused(
    steps: Iterable[Doc], view: PlannerView, owners: Mapping[str, str], *, givers: bool = False
) -> dict[str, str]:
    """The operators whose steps lint refuses, each with the finding.

    `owners` are the operators of steps that a method wrote. With `givers`, those are meant that
    give what a refused parameter takes, where they are steps of the plan too.
    """
    docs = list(steps)
    names = {
        doc["id"]: owners.get(doc["id"]) or operator_name(doc["worker"], doc.get("action", ""))
        for doc in docs
    }
    found: dict[str, str] = {}
    for each in errors(docs, view) if docs else ():
        for name in _blamed(each, docs, names, givers=givers):
            found.setdefault(name, _told(each))
    return found


def _blamed(each: Finding, docs: list[Doc], names: Mapping[str, str], *, givers: bool) -> list[str]:
    place = _PLACE.match(each.place)
    doc = docs[int(place[1])] if place and int(place[1]) < len(docs) else None
    if place is None or doc is None:
        return list(names.values())
    if place[2] == "alternatives" and place[4]:
        return [operator_name(doc["alternatives"][int(place[4])], doc.get("action", ""))]
    if givers and place[2] == "parameters" and place[3]:
        taken = {"parameters": {"": (doc.get("parameters") or {}).get(place[3])}}
        behind = [names[step] for step in dependencies(taken) if step in names]
        if behind:
            return behind
    return [names[doc["id"]]]


def _told(each: Finding) -> str:
    text = " ".join(_REFERENCE.sub(r"\1", each.message).split())
    text = text if len(text) <= WHY_CHARS_MAX else f"{text[: WHY_CHARS_MAX - 1]}…"
    return f"is refused by lint ({each.code} {each.rule}: {text})"
