"""What a model answered, as one of our decisions.

One flat object for all kinds: the simplest form that providers can be held to, and that weak
models get right. What does not fit is a `Misread`, with words that the model can act on. Only the
fields of the published schema are read: what a step gives, needs or may be trusted with is its
worker's to declare (`core/promises.py`), and an answer that says it is refused with the reason.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.core.promises import WIDENING
from leadhand.core.report import Ask, Finish, GiveUp, Propose, Wait
from leadhand.core.wording import listed
from leadhand.models.answer_json import clean, decoded

if TYPE_CHECKING:
    from collections.abc import Collection

    from leadhand.core.plan.model import Doc
    from leadhand.core.report import Decision


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
"""Fields that say what a step does, needs or can be trusted with."""
NOTHING: tuple[Any, ...] = (None, "", [], {})
"""Values that say nothing: a field that holds one counts as left out."""


class LookRequest(NamedTuple):
    """It wants to see whole results before it decides."""

    steps: list[str]


class MisreadAnswer(ValueError):
    """The answer is no decision."""


def read(data: Any, workers: Collection[str]) -> tuple[Decision | LookRequest, str]:
    """The decision that some data stands for, and the notes that came with it."""
    if not isinstance(data, dict):
        raise MisreadAnswer("the answer is not a JSON object")
    _refuse_unread(data, _FIELDS, "the answer")
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
    )


def _drop(data: Doc) -> dict[str, str]:
    """Steps that are given up, each with the reason."""
    listed_ = data.get("drop") or []
    if not isinstance(listed_, list) or not all(isinstance(each, dict) for each in listed_):
        raise MisreadAnswer('"drop" is not a list of objects with "id" and "reason"')
    return {_text(each, "id"): _text(each, "reason") for each in listed_}


def _step(raw: Doc) -> Doc:
    """A step without what means nothing; parameters that were written as a text are read."""
    _refuse_unread(raw, _STEP_FIELDS, f"step {raw.get('id')!r}")
    step = {k: v for k, v in raw.items() if k in _STEP_FIELDS and v not in NOTHING}
    parameters = raw.get("parameters")
    if isinstance(parameters, str) and parameters.strip():
        try:
            step["parameters"] = decoded(clean(parameters))
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
    """The fields there are, in the order of the schema."""
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
