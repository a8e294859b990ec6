"""A model's answer as a decision.

One flat object for all kinds: the simplest form that providers can enforce, and that weak models
get right. An answer that does not fit is a `Misread`, with a message that the model can act on.
Only the fields of the published schema are read: a worker declares what a step gives, needs and may
be trusted with (`core/promises.py`), and an answer that does so is refused with the reason.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.core.plan.graph import dependencies
from leadhand.core.promises import WIDENING
from leadhand.core.report import Ask, Finish, GiveUp, Propose, Wait
from leadhand.core.wording import listed
from leadhand.models.answer_json import clean, decode_json
from leadhand.planners.goal.operators import operator_name
from leadhand.planners.goal.steps import StepIds, document, tidy
from leadhand.planners.goal.world import facts_of_step, value_of
from leadhand.planners.proposal_check import not_true

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.report import Decision, PlannerView
    from leadhand.planners.goal.operators import Operator, Operators
    from leadhand.planners.goal.world import Fact, World


KINDS = ("propose", "wait", "look", "ask", "finish", "give_up")
STEPS_MAX = 200
ID_CHARS = re.compile(r"[^A-Za-z0-9_-]+")
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}

SCHEMA: Doc = {
    "type": "object",
    "properties": {
        "kind": {"type": "string", "enum": list(KINDS)},
        "because": _TEXT,
        "steps": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": _TEXT,
                    "worker": _TEXT,
                    "action": _TEXT,
                    "parameters": {"type": "object", "additionalProperties": True},
                    "depends_on": _TEXTS,
                    "success_criteria": _TEXTS,
                    "context": _TEXTS,
                    "tier": _TEXT,
                    "supersedes": _TEXT,
                    "because": _TEXT,
                },
                "required": ["id", "worker"],
            },
        },
        "final": {"type": "boolean"},
        "outlook": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"worker": _TEXT, "because": _TEXT},
                "required": ["worker"],
            },
        },
        "cancel": _TEXTS,
        "drop": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"id": _TEXT, "reason": _TEXT},
                "required": ["id", "reason"],
            },
        },
        "look": _TEXTS,
        "question": _TEXT,
        "choices": _TEXTS,
        "result": {},
        "reason": _TEXT,
        "notes": _TEXT,
    },
    "required": ["kind", "because"],
}
_FIELDS: frozenset[str] = frozenset(SCHEMA["properties"])
_STEP_FIELDS: frozenset[str] = frozenset(SCHEMA["properties"]["steps"]["items"]["properties"])
_PROMISES = frozenset({*WIDENING, "effects", "risk_level", "undo", "cost", "probe"})
"""Fields by which a step would declare its needs, effects or trust."""
NOTHING: tuple[Any, ...] = (None, "", [], {})
"""Values that say nothing: a field that holds one counts as left out."""


COMMENTED: Doc = {
    **SCHEMA,
    "properties": {
        **SCHEMA["properties"],
        "answers": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "comment": _TEXT,
                    "addressed": {"type": "boolean"},
                    "reason": _TEXT,
                },
                "required": ["comment", "addressed", "reason"],
            },
        },
    },
}
"""The schema for a planner that has reviewers' comments to answer."""


def schema_for(view: PlannerView) -> Doc:
    """Return the schema of an answer in this situation."""
    return COMMENTED if view.comments else SCHEMA


class LookRequest(NamedTuple):
    """It wants to see whole results before it decides."""

    steps: list[str]


class MisreadAnswer(ValueError):
    """The answer is no decision."""


def read(data: Any, workers: Collection[str]) -> tuple[Decision | LookRequest, str]:
    """Return the decision that `data` stands for, and the notes that came with it.

    Raise `MisreadAnswer` if it stands for none.
    """
    if not isinstance(data, dict):
        raise MisreadAnswer("the answer is not a JSON object")
    _refuse_unread(data, _FIELDS | {"answers"}, "the answer")
    kind, because = data.get("kind"), _text(data, "because")
    notes = _text(data, "notes")
    match kind:
        case "propose":
            return _proposal(data, because, workers), notes
        case "wait":
            return Wait(because), notes
        case "look":
            names = _texts(data, "look")
            if not names:
                raise MisreadAnswer('"look" names no step')
            return LookRequest(names[:20]), notes
        case "ask":
            question = _text(data, "question")
            if not question.strip():
                raise MisreadAnswer('"ask" comes without a "question"')
            return Ask(question, tuple(_texts(data, "choices"))[:10]), notes
        case "finish":
            return Finish(data.get("result"), because, drop=_drop(data)), notes
        case "give_up":
            return GiveUp(_text(data, "reason") or because or "no reason was given"), notes
        case _:
            raise MisreadAnswer(f'"kind" is {str(kind)[:40]!r}; it is one of {", ".join(KINDS)}')


def _proposal(data: Doc, because: str, workers: Collection[str]) -> Propose:
    steps = data.get("steps") or []
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise MisreadAnswer('"steps" is not a list of objects')
    cancel = tuple(_texts(data, "cancel"))
    drop = _drop(data)
    if len(steps) > STEPS_MAX:
        raise MisreadAnswer(f"{len(steps)} steps at once are too many; propose at most {STEPS_MAX}")
    outlook = data.get("outlook") or []
    expected = [
        {"id": f"later-{i}", "worker": str(each.get("worker", "")), **_because(each)}
        for i, each in enumerate(outlook if isinstance(outlook, list) else [], 1)
        if isinstance(each, dict)
        and isinstance(each.get("worker"), str)
        and each["worker"] in workers
    ]
    return Propose(
        tuple(_step(step) for step in steps),
        final=data.get("final") is True,
        outlook=tuple(expected),
        because=because,
        cancel=cancel,
        drop=drop,
        answers=_answers(data),
    )


def _answers(data: Doc) -> tuple[Doc, ...]:
    """Return the answers to reviewers' comments; one that cannot be read is left out."""
    given = data.get("answers")
    return tuple(
        {
            "comment": each["comment"],
            "addressed": each.get("addressed") is True,
            "reason": _text(each, "reason"),
        }
        for each in (given if isinstance(given, list) else ())
        if isinstance(each, dict) and isinstance(each.get("comment"), str)
    )


def _drop(data: Doc) -> dict[str, str]:
    """Steps that are given up, each with the reason."""
    listed_ = data.get("drop") or []
    if not isinstance(listed_, list) or not all(isinstance(each, dict) for each in listed_):
        raise MisreadAnswer('"drop" is not a list of objects with "id" and "reason"')
    return {_text(each, "id"): _text(each, "reason") for each in listed_}


def _step(raw: Doc) -> Doc:
    """Return a step without empty fields; parameters that were written as a text are parsed."""
    _refuse_unread(raw, _STEP_FIELDS, f"step {raw.get('id')!r}")
    step = {k: v for k, v in raw.items() if k in _STEP_FIELDS and v not in NOTHING}
    parameters = raw.get("parameters")
    if isinstance(parameters, str) and parameters.strip():
        try:
            step["parameters"] = decode_json(clean(parameters))
        except msgspec.DecodeError:
            raise MisreadAnswer(f'"parameters" of {raw.get("id")!r} is no JSON object') from None
    if isinstance(step.get("id"), str):
        step["id"] = ID_CHARS.sub("-", step["id"]).strip("-")[:90]
    return step


def _refuse_unread(raw: Doc, fields: Collection[str], what: str) -> None:
    """Raise Misread when an object has fields that are not for a model to say, with the reason."""
    unread = sorted(key for key, value in raw.items() if key not in fields and value not in NOTHING)
    if not unread:
        return
    why = "is not read"
    if promised := [name for name in unread if name in _PROMISES]:
        unread, why = promised, "is for its worker to declare, not for a plan"
    raise MisreadAnswer(
        f"{what} has {listed(unread)}, which {why}. Leave it out; there is {_some(fields)}"
    )


def _some(fields: Collection[str]) -> str:
    """Return the fields that are there, in the order of the schema."""
    steps = SCHEMA["properties"]["steps"]["items"]["properties"]
    return ", ".join(name for name in {**SCHEMA["properties"], **steps} if name in fields)


def _because(raw: Doc) -> Doc:
    return {"because": str(raw["because"])[:500]} if raw.get("because") else {}


def _text(data: Doc, name: str) -> str:
    value = data.get(name)
    return value[:4000] if isinstance(value, str) else ""


def _texts(data: Doc, name: str) -> list[str]:
    value = data.get(name) or []
    return [str(each)[:2000] for each in value] if isinstance(value, list) else []


# A numbered list as a plan, for models that cannot do better.
#
# Each line that begins with a number and names a worker is a step, after the one before it; a line
# of several calls in brackets, `1. (fetch a) (clean a)`, is a step for each. What a worker takes is
# filled with the facts of that name: given with the goal, or by earlier steps. Other lines are
# talk. A numbered line that names no worker is a `Misread`, and so is the first step whose needs
# are not true when its turn comes: a list in the wrong order is answered with the need that is not
# met.
#
# `DONE` finishes the run; its result is the data of the wanted facts, else of the last steps.


LINES_MAX = 500
_LINE = re.compile(r"\s*\(?\d+[.):]\s*(.+)")
_CALLS = re.compile(r"\(([^()]+)\)[\s,;.]*")
_DONE = re.compile(r"\W*(?:\d+[.)]\s*)?done\W*", re.IGNORECASE)


def read_numbered_list(
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
        step = _listed_step(worker, action, operator, names, facts)
        if steps:
            step["depends_on"] = [*dict.fromkeys([*step.get("depends_on", ()), steps[-1]["id"]])]
        steps.append(step)
        if operator is not None:
            for fact in operator.drops:
                facts.pop(fact, None)
            facts |= facts_of_step(step["id"], operator.gives)
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


def _listed_step(
    worker: str, action: str, operator: Operator | None, names: StepIds, facts: Mapping[str, Fact]
) -> Doc:
    if operator is None:
        ident = names.fresh(f"{worker}-{action}" if action else worker)
        return {"id": ident, "worker": worker, **({"action": action} if action else {})}
    return tidy(document(operator, names.take(operator), facts))


def _named(line: str, view: PlannerView) -> tuple[str, str]:
    """Return the worker that a line names first, and its action if it has several.

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
    """Return where a name stands as a whole word; `fetch data` counts as `fetch_data`."""
    pattern = re.escape(name).replace("_", "[_ -]").replace(r"\-", "[_ -]")
    found = re.search(rf"(?<![\w-]){pattern}(?![\w-])", line)
    return found.start() if found else None
