"""The log's record of a call: digests always, contents if the settings say so.

The digest of a request is the same in a log and in a recording of the same run, so they can be
matched. `[telemetry] contents = true` adds the contents to the log: as texts, cut if very long,
without what looks like a secret (the engine removes known secrets by value).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core.hashing import digest
from leadhand.models.answer_json import data_in
from leadhand.models.meter import RefusedDraft, drafts
from leadhand.models.secret_patterns import scrub, scrubbed

if TYPE_CHECKING:
    from leadhand.models.messages import ModelAnswer, ModelRequest


CONTENT_CHARS_MAX = 20_000
"""Of the question, and of the answer."""


class _Switch:
    contents = False


_switch = _Switch()


def record_contents(*, on: bool) -> None:
    """Have contents in the log from now on, or no longer."""
    _switch.contents = on


def answer_digest(answer: ModelAnswer | str) -> str:
    """Return the digest of an answer; empty if there is none."""
    said = _words(answer)
    return digest(scrub(said)) if said else ""


def report_refusal(problem: str, said: str) -> None:
    """Report to the run that a planner refused its model's answer, and why."""
    read = data_in(said)
    draft = RefusedDraft(
        findings=(scrub(problem),),
        draft=bounded_content(said if read is None else read),
        answer=answer_digest(said),
    )
    drafts.get()(draft)


def contents(request: ModelRequest, answer: ModelAnswer | str) -> dict[str, Any] | None:
    """Return the request and the answer as a document, or None if contents are not recorded."""
    if not _switch.contents:
        return None
    asked = {"system": request.system, "turns": msgspec.to_builtins(request.turns)}
    return {"asked": _text(_json(asked)), "answer": _text(_words(answer))}


def bounded_content(value: Any) -> Any:
    """Return `value` if it is short enough for the log, else its beginning."""
    value = scrubbed(value)
    text = _json(value)
    return value if len(text) <= CONTENT_CHARS_MAX else {"cut": _text(text), "chars": len(text)}


def _words(answer: ModelAnswer | str) -> str:
    """Return an answer as one text: its words or its data, and the tool calls."""
    if isinstance(answer, str):
        return answer
    said = answer.text or ("" if answer.data is None else _json(answer.data))
    calls = [[call.tool, call.arguments] for call in answer.calls]
    return said + (_json(calls) if calls else "")


def _text(text: str) -> str:
    text = scrub(text)
    if len(text) <= CONTENT_CHARS_MAX:
        return text
    return f"{text[:CONTENT_CHARS_MAX]} … ({len(text) - CONTENT_CHARS_MAX:,} more characters)"


def _json(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
