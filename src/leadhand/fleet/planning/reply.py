"""The reply of an epic planner: one flat object for all kinds, parsed strictly.

    {"kind": "wave", "because": "the contract first", "tasks": [
        {"id": "api", "goal": "...", "writes": ["src/api.py"], "acceptance": [["make", "test"]]}]}
    {"kind": "wave", "tasks": [{..., "replaces": "big"}, {..., "replaces": "big"}]}    a split
    {"kind": "wave", "answers": [{"task": "api", "text": "JSON, as in docs/api.md"}]}
    {"kind": "look", "read": ["src/api.py", "src/big.py:10-80"], "search": ["load_config"]}
    {"kind": "done", "summary": "...", "changelog": "..."}
    {"kind": "ask", "question": "..."}       {"kind": "give_up", "reason": "..."}

What does not fit is a `Misread`, in words that the planner can act on.
"""

from __future__ import annotations

from typing import Any

import msgspec

from leadhand.core.wording import type_with_article
from leadhand.errors import LeadhandError
from leadhand.fleet.epics import EpicTask
from leadhand.fleet.status.ladder import MAIN_REPOSITORY

KINDS = ("wave", "look", "done", "ask", "give_up")
TEXT_CHARS = 4000
BRIEF_CHARS = 8000
LIST_MAX = 200


class MisreadReply(LeadhandError):
    """An answer that is none."""


class Planned(EpicTask, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task of a wave."""

    replaces: str = ""
    """The task that it does, or does a part of, in another way."""
    why: str = ""
    """Why it is one task: neither more nor less."""


class AnsweredQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The planner's answer to an agent's question."""

    task: str
    text: str


class AnsweredComment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The planner's answer to a reviewer's comment on its last wave."""

    comment: str
    addressed: bool
    reason: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer of a planner."""

    kind: str
    because: str = ""
    tasks: tuple[Planned, ...] = ()
    answers: tuple[AnsweredQuestion, ...] = ()
    comments: tuple[AnsweredComment, ...] = ()
    drop: tuple[str, ...] = ()
    """Tasks that are not wanted any more."""
    outlook: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    """Files that it wants to read before it answers; `path:10-80` for lines of one."""
    search: tuple[str, ...] = ()
    """Texts that it wants to have searched at main."""
    question: str = ""
    choices: tuple[str, ...] = ()
    summary: str = ""
    changelog: str = ""
    reason: str = ""
    notes: str = ""


def read(raw: Any) -> Reply:
    """Return the reply. Raise `MisreadReply` if it is malformed."""
    if not isinstance(raw, dict):
        raise MisreadReply(f"an answer is one JSON object, not {type_with_article(raw)}")
    try:
        found = msgspec.convert(_said(raw), Reply)
    except msgspec.ValidationError as error:
        raise MisreadReply(f"the answer does not fit: {error}") from None
    if found.kind not in KINDS:
        raise MisreadReply(f"kind is one of {', '.join(KINDS)}, not {found.kind!r}")
    lists = (found.tasks, found.answers, found.comments, found.drop, found.outlook, found.read)
    if max(map(len, lists)) > LIST_MAX:
        raise MisreadReply(f"a list in it has more than {LIST_MAX} entries")
    for text, most in _texts(found):
        if len(text) > most:
            raise MisreadReply(f"a text in it has {len(text):,} characters; {most:,} is the most")
    return found


def _said(raw: Any) -> Any:
    """Without fields that say nothing: models that must fill a form write null."""
    match raw:
        case dict():
            return {key: _said(value) for key, value in raw.items() if value is not None}
        case list() | tuple():
            return [_said(each) for each in raw]
        case _:
            return raw


def _texts(reply: Reply) -> list[tuple[str, int]]:
    own = (reply.because, reply.question, reply.summary, reply.changelog, reply.reason, reply.notes)
    found = [(text, TEXT_CHARS) for text in (*own, *reply.outlook, *reply.choices)]
    for task in reply.tasks:
        found += [(task.goal, TEXT_CHARS), (task.brief, BRIEF_CHARS), (task.why, TEXT_CHARS)]
    found += [(each.reason, TEXT_CHARS) for each in reply.comments]
    return found + [(each.text, BRIEF_CHARS) for each in reply.answers]


_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": list(KINDS)},
        "because": _TEXT,
        "tasks": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": _TEXT,
                    "goal": _TEXT,
                    "acceptance": {"type": "array", "items": _TEXTS},
                    "writes": _TEXTS,
                    "reads": _TEXTS,
                    "depends_on": _TEXTS,
                    "tier": _TEXT,
                    "budget": {"type": "number"},
                    "brief": _TEXT,
                    "replaces": _TEXT,
                    "why": _TEXT,
                },
                "required": ["id", "goal", "acceptance", "writes", "why"],
                "additionalProperties": False,
            },
        },
        "answers": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"task": _TEXT, "text": _TEXT},
                "required": ["task", "text"],
                "additionalProperties": False,
            },
        },
        "drop": _TEXTS,
        "outlook": _TEXTS,
        "read": _TEXTS,
        "search": _TEXTS,
        "question": _TEXT,
        "choices": _TEXTS,
        "summary": _TEXT,
        "changelog": _TEXT,
        "reason": _TEXT,
        "notes": _TEXT,
    },
    "required": ["kind", "because"],
    "additionalProperties": False,
}


def schema_for(told: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a reply.

    Comments are answered where there are some; tasks name a repository where there are several.
    """
    properties = dict(SCHEMA["properties"])
    if told.get("comments"):
        answer = {
            "type": "object",
            "properties": {"comment": _TEXT, "addressed": {"type": "boolean"}, "reason": _TEXT},
            "required": ["comment", "addressed", "reason"],
            "additionalProperties": False,
        }
        properties["comments"] = {"type": "array", "items": answer}
    if told.get("repositories"):
        task = properties["tasks"]["items"]
        named = {"repository": {"enum": [MAIN_REPOSITORY, *told["repositories"]]}}
        items = {**task, "properties": {**task["properties"], **named}}
        properties["tasks"] = {**properties["tasks"], "items": items}
    return {**SCHEMA, "properties": properties}
