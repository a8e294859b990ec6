"""The model calls of a run for people: figures always, contents where the log holds them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from leadhand.core import events as ev
from leadhand.core.calendar import iso
from leadhand.core.views.ledger import WHY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.plan.model import Doc

ROLES = {"told": "user", "said": "assistant", "result": "tool result"}
"""The role of each kind of turn in a recorded request."""


class ModelCallRow(Struct, kw_only=True):
    """One call of a model."""

    seq: int
    """The number of its entry in the event log."""
    at: str
    """When it ended, in ISO 8601."""
    step: str | None
    """The step whose worker called; null for a call by the planner."""
    attempt: int
    """The attempt of the step, or the number of the planner's call."""
    purpose: str
    """What the call was for."""
    model: str
    """The model that was called."""
    tier: str
    """The tier of the model, if it was chosen by tier."""
    seconds: float
    """The duration of the call, in seconds."""
    input: int
    """Input tokens."""
    cached: int
    """Input tokens read from the provider's cache."""
    output: int
    """Output tokens."""
    cost: float
    """The cost of the call, in US dollars."""
    failure: str
    """The class of its failure, or empty."""
    request: str
    """A digest of the whole request; its key in a recording."""
    recorded: bool
    """Whether the log holds the prompt and the answer."""


class ModelMessage(Struct, kw_only=True):
    """One message of a prompt."""

    role: str
    """`system`, `user`, `assistant` or `tool result`; `request` if the record was cut."""
    text: str
    """The text of the message."""


class ModelCallDocument(ModelCallRow, kw_only=True):
    """One call of a model, with its prompt and its answer."""

    messages: list[ModelMessage]
    """The prompt; empty if it is not recorded."""
    answer: str | None
    """The answer; null if it is not recorded."""


class ModelCallPage(Struct, kw_only=True):
    """Model calls of a run, oldest first."""

    items: list[ModelCallRow]
    """The calls of this page."""
    next: str | None
    """The cursor of the next page; null on the last page."""


def model_call_rows(log: Iterable[tuple[int, int, ev.Event]]) -> list[ModelCallRow]:
    """Return every model call of a log, given as pairs of number, time and event."""
    asked: dict[int, str] = {}
    rows = []
    for seq, at, event in log:
        if isinstance(event, ev.PlannerAsked):
            asked[event.call] = WHY.get(event.why, event.why)
        elif isinstance(event, ev.ModelCalled):
            rows.append(_row(seq, at, event, asked.get(event.attempt, "")))
    return rows


def _row(seq: int, at: int, event: ev.ModelCalled, why: str) -> ModelCallRow:
    purpose = f"planner call {event.attempt}{f': {why}' if why else ''}"
    return ModelCallRow(
        seq=seq,
        at=iso(at),
        step=event.step or None,
        attempt=event.attempt,
        purpose=f"attempt {event.attempt}" if event.step else purpose,
        model=event.model,
        tier=event.tier,
        seconds=round(event.seconds, 3),
        input=event.input,
        cached=event.cached,
        output=event.output,
        cost=event.cost,
        failure=event.failure,
        request=event.asked,
        recorded=event.contents is not None,
    )


def model_call_document(row: ModelCallRow, event: ev.ModelCalled) -> ModelCallDocument:
    """Return a model call with its prompt and its answer, as far as the log holds them."""
    contents = event.contents
    return ModelCallDocument(
        **asdict(row),
        messages=[] if contents is None else _messages(str(contents.get("asked", ""))),
        answer=None if contents is None else str(contents.get("answer", "")),
    )


def _messages(asked: str) -> list[ModelMessage]:
    """Return a recorded request as messages; as one text if it was cut and cannot be read."""
    try:
        doc = msgspec.json.decode(asked)
        turns = [_message(turn) for turn in doc["turns"]]
        system = str(doc["system"])
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return [ModelMessage(role="request", text=asked)]
    return [ModelMessage(role="system", text=system), *turns] if system else turns


def _message(turn: Doc) -> ModelMessage:
    calls: list[Any] = turn.get("calls") or []
    made = [f"{each['tool']}({msgspec.json.encode(each['arguments']).decode()})" for each in calls]
    text = "\n".join([*([turn["text"]] if turn.get("text") else []), *made])
    kind = str(turn["type"])
    return ModelMessage(role=ROLES.get(kind, kind), text=text)
