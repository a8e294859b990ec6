"""The replies of a scripted endpoint: the vocabulary of a script.

A reply says what the model does, never how a provider writes that down: the same script serves
Anthropic Messages, OpenAI Chat Completions and OpenAI Responses, streamed or whole.

    well behaved    Say, Use, Uses, Data
    a poor answer   Wrong (another schema), Huge, Refuse, Truncated
    a bad server    Fail (a status), Hang (nothing comes), Garbage (not the protocol)
    around another  Slow (piece by piece), Cut (only the first part of it), Loop (for ever)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast


@dataclass(frozen=True)
class Usage:
    """Tokens to report. A count of None is estimated: about one token for four characters."""

    input: int | None = None
    """All tokens that were read, those from a cache and into one included."""
    output: int | None = None
    cached: int = 0
    """Those that came from a cache."""
    written: int = 0
    """Those that were written into one."""


@dataclass(frozen=True)
class Say:
    """An answer in words."""

    text: str
    usage: Usage = Usage()


@dataclass(frozen=True)
class Use:
    """A call of one tool, after some words."""

    tool: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    """A text is sent as it stands: it need not be JSON."""
    text: str = ""
    usage: Usage = Usage()


@dataclass(frozen=True)
class Uses:
    """Calls of several tools in one answer."""

    calls: tuple[Use, ...]
    text: str = ""
    usage: Usage = Usage()


@dataclass(frozen=True)
class Data:
    """A structured answer: JSON as text, or a call of the output tool when the request has one.

    Which tool that is, `tool` says; otherwise the tool that the request forces, or the only one
    it offers while it forces any, or one named `final_result`.
    """

    value: Any
    tool: str = ""
    usage: Usage = Usage()


@dataclass(frozen=True)
class Wrong(Data):
    """A structured answer in due form that does not keep to the schema."""

    value: Any = field(default_factory=lambda: {"nobody_asked_for": ["this"]})


@dataclass(frozen=True)
class Huge:
    """An answer of very many characters."""

    n_chars: int
    usage: Usage = Usage()


@dataclass(frozen=True)
class Refuse:
    """The model will not answer; it says so in the way its provider has for that."""

    text: str = "I cannot help with that."
    usage: Usage = Usage()


@dataclass(frozen=True)
class Truncated:
    """The answer ended because its tokens ran out, perhaps in the middle of a call's arguments."""

    text: str
    call: Use | None = None
    """The second half of its arguments is missing."""
    usage: Usage = Usage()


@dataclass(frozen=True)
class Fail:
    """An error status, with the body that the provider gives it."""

    status: int
    body: Any = None
    """Instead of the provider's own: JSON, or a text that is sent as it stands."""
    retry_after_s: float | None = None
    message: str = ""
    kind: Literal["", "context_length", "quota"] = ""
    streamed: bool = False
    """A streamed request is first answered with 200; the error is an event in the stream."""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def too_long(cls) -> Fail:
        """Return the error for an exceeded context."""
        return cls(400, kind="context_length")

    @classmethod
    def no_credit(cls) -> Fail:
        """Return the error for an account without credit: retrying soon does not help."""
        return cls(429, kind="quota")


@dataclass(frozen=True)
class Hang:
    """Not a byte for so long, or for ever; then another reply, or the connection is closed."""

    seconds: float | None = None
    then: Reply | None = None


@dataclass(frozen=True)
class Garbage:
    """Bytes that do not follow the protocol, with status 200 and the right content type."""

    content: bytes | str = b"<html>upstream is having a bad day</html>"


@dataclass(frozen=True)
class Slow:
    """A streamed reply with a pause before each event."""

    reply: Reply
    seconds_per_event: float = 0.05


@dataclass(frozen=True)
class Cut:
    """Only the first part of a reply."""

    reply: Reply
    after: float = 0.5
    """The part of its bytes that is sent; `events`, `size` or `at` say it otherwise."""
    events: int | None = None
    """So many whole events of a stream."""
    size: int | None = None
    """So many bytes."""
    at: Literal["", "text", "arguments", "end"] = ""
    """Of a stream: in the middle of its text, in the middle of a call's arguments, or when all
    is said and only what ends the answer is missing."""
    how: Literal["close", "end", "hang"] = "close"
    """The connection is closed; or the body ends as if it were whole; or nothing more comes."""


@dataclass(frozen=True)
class Loop:
    """The same reply for ever; replies after it in a script are never reached."""

    reply: Reply


Wellformed = Say | Use | Uses | Data | Wrong | Huge | Refuse | Truncated
Reply = Wellformed | Fail | Hang | Garbage | Slow | Cut | Loop


# --- scripts as JSON documents -------------------------------------------------------------

KINDS: dict[str, type[Any]] = {
    kind.__name__.lower(): kind
    for kind in (
        Say,
        Use,
        Uses,
        Data,
        Wrong,
        Huge,
        Refuse,
        Truncated,
        Fail,
        Hang,
        Garbage,
        Slow,
        Cut,
        Loop,
    )
}
REPLIES = ("reply", "then", "call")
"""Fields that hold a reply themselves."""


def script_from(document: Any) -> list[Reply]:
    """Return the replies of a JSON document, for an endpoint that runs as its own process.

    A reply is an object; its first key names the kind and holds the first value of it, the other
    keys are the rest:

        [
          {"use": "census", "arguments": {"city": "Ulm"}, "text": "Let me look."},
          {"fail": 429, "retry_after_s": 2},
          {"cut": {"say": "It has about"}, "at": "end"},
          {"loop": {"say": "129942", "usage": {"input": 20, "output": 3}}}
        ]

    Raise `ValueError` with the place and the mistake.
    """
    if not isinstance(document, list):
        raise ValueError("a script is a list of replies")  # noqa: TRY004 - of the document
    return [reply_from(each, f"reply {index}") for index, each in enumerate(document)]


def reply_from(document: Any, where: str = "reply") -> Reply:
    """Return one reply of a document.

    Raise `ValueError`, which names `where`, if it is malformed.
    """
    if not isinstance(document, Mapping) or not document:
        raise ValueError(f"{where} is not an object such as {{'say': 'hello'}}")
    name, *_ = document
    kind = KINDS.get(name)
    if kind is None:
        raise ValueError(f"{where}: {name!r} is none of {', '.join(KINDS)}")
    fields = [each.name for each in dataclasses.fields(kind)]
    given = {fields[0]: document[name], **{k: v for k, v in document.items() if k != name}}
    unknown = sorted(given.keys() - set(fields))
    if unknown:
        raise ValueError(f"{where}: {name} has no {unknown[0]!r}, only {', '.join(fields[1:])}")
    try:
        return cast("Reply", kind(**{k: _value(k, v, where) for k, v in given.items()}))
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from error


def _value(field: str, value: Any, where: str) -> Any:
    if field in REPLIES and value is not None:
        return reply_from(value, where)
    if field == "calls":
        return tuple(reply_from(each, where) for each in value)
    if field == "usage":
        return Usage(**value)
    return value
