"""Questions of a tool during its call (elicitation): only a person answers them.

A server of protocol 2026-07-28 may return a question in place of a result. The worker answers
nothing by itself: without an answer of a person the attempt fails as `needs_info`, the step's
question goes to the inbox, and the answer comes back with the next attempt. That attempt calls the
tool again; to the same question the answer is sent, with the state that the server gave along.

An answer belongs to a question by its text, which names server, tool, message and fields: the
answer to one question is never sent for another. It is checked against the form before it is sent.
Elicitation is declared only where a question comes as the result of a call: in older versions of
the protocol it cannot be told which of several calls asks.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from leadhand.core.jsonschema import problems
from leadhand.core.wording import escaped
from leadhand.errors import NeedsInfo, Unavailable
from leadhand.workers.reports import bounded_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

ROUNDS_MAX = 10
"""How often one call may ask or put off before it is given up."""
FIELDS_MAX = 30
MESSAGE_CHARS, FORM_CHARS = 600, 900
"""The lengths of a question's parts: the whole is never cut by the limit of a failure's text."""
URL_CHARS_MAX = 1_000
CAPABILITY: dict[str, Any] = {"form": {}, "url": {}}
_YES, _NO = ("true", "yes", "y"), ("false", "no", "n")


def declare_elicitation(message: Any) -> None:
    """Add elicitation to the capabilities in an outgoing request of protocol 2026-07-28."""
    from mcp_types import CLIENT_CAPABILITIES_META_KEY

    parameters = getattr(getattr(message, "message", None), "params", None)
    meta = parameters.get("_meta") if isinstance(parameters, dict) else None
    if isinstance(meta, dict) and isinstance(meta.get(CLIENT_CAPABILITIES_META_KEY), dict):
        declared = {**meta[CLIENT_CAPABILITIES_META_KEY], "elicitation": CAPABILITY}
        meta[CLIENT_CAPABILITIES_META_KEY] = declared


class PersonAnswers:
    """The answers of people about one step, for the questions of one tool.

    `answers` are those of `Context.answers`; `hide` removes secrets from a text, as is done before
    a question is logged.
    """

    def __init__(
        self,
        server: str,
        tool: str,
        answers: Iterable[Mapping[str, Any]],
        hide: Callable[[str], str] = str,
    ) -> None:
        self._who = f"{server}: the tool {escaped(tool)[:100]}"
        self._answers = [each for each in answers if each.get("choice") == "retry"]
        self._hide = hide

    def responses(self, requests: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer to each request, as the protocol wants it.

        Raise `NeedsInfo` with the first question that no person has answered, or whose answer does
        not fit its form; `Unavailable` for requests other than elicitation.
        """
        return {key: self._response(each) for key, each in requests.items()}

    def _response(self, request: Any) -> Any:
        from mcp_types import ElicitRequest, ElicitResult

        if not isinstance(request, ElicitRequest):
            raise Unavailable(
                f"{self._who} asks for {escaped(str(request.method))[:60]}, which is not offered"
            )
        asked = self._hide(self._question(request.params))
        said = next((each for each in reversed(self._answers) if _is_about(each, asked)), None)
        if said is None:
            raise NeedsInfo(asked)
        if request.params.mode == "url":
            return ElicitResult(action="accept")
        schema = request.params.requested_schema
        content = _content(said, schema)
        wrong = problems(content, schema) if content is not None else ()
        if content is None or wrong:
            why = wrong[0].message if wrong else "it is not JSON with these fields"
            raise NeedsInfo(f"{asked} The last answer does not fit: {bounded_text(str(why), 200)}.")
        return ElicitResult(action="accept", content=content)

    def _question(self, params: Any) -> str:
        """Return the question for a person; the same request always makes the same text."""
        message = bounded_text(escaped(params.message), MESSAGE_CHARS).rstrip(". ")
        message += "" if message.endswith(("?", "!")) else "."
        if params.mode == "url":
            if len(params.url) > URL_CHARS_MAX or not params.url.startswith("https://"):
                raise Unavailable(f"{self._who} wants an address opened that is not usable")
            return f"{self._who} wants: {message} Open {escaped(params.url)} and finish there."
        fields = params.requested_schema.get("properties") or {}
        if len(fields) > FIELDS_MAX:
            raise Unavailable(f"{self._who} asks for more than {FIELDS_MAX} fields")
        required = params.requested_schema.get("required") or ()
        listed = "; ".join(
            _field(name, each, needed=name in required) for name, each in fields.items()
        )
        listed = bounded_text(listed, FORM_CHARS)
        form = "" if len(fields) == 1 else "JSON with "
        return f"{self._who} wants: {message} Give {form}{listed or 'an empty object'}."


def _is_about(answer: Mapping[str, Any], asked: str) -> bool:
    return f" asks: {asked} " in f"{answer.get('question', '')} "


def _field(name: str, schema: Any, *, needed: bool) -> str:
    about = schema if isinstance(schema, dict) else {}
    kind = str(about.get("type", "any"))
    choices = about.get("enum") or [
        each.get("const") for each in about.get("oneOf") or () if isinstance(each, dict)
    ]
    if choices:
        kind = "one of " + ", ".join(str(each) for each in choices[:20])
    said = str(about.get("description") or about.get("title") or "")
    need = "" if needed else ", optional"
    return bounded_text(
        f"{escaped(name)} ({escaped(kind)}{need}" + (f": {escaped(said)}" if said else "") + ")",
        200,
    )


def _content(answer: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fields that an answer gives; None if it cannot be read.

    An object names the fields. To a form of one field, the value alone is an answer too.
    """
    data, text = answer.get("data"), str(answer.get("text") or "").strip()
    if data is None and text:
        with contextlib.suppress(ValueError, RecursionError):
            data = json.loads(text)
    if isinstance(data, dict):
        return data
    fields: Mapping[str, Any] = schema.get("properties") or {}
    if len(fields) != 1:
        return None
    (name, about), *_ = fields.items()
    kind = about.get("type") if isinstance(about, dict) else None
    if kind == "string" and text:
        return {name: text}
    if kind == "boolean" and text.lower() in (*_YES, *_NO):
        return {name: text.lower() in _YES}
    return None if data is None else {name: data}
