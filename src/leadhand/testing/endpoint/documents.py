"""A script as a JSON document, for an endpoint that runs as a process of its own.

A reply is an object; its first key names the kind and holds what comes first in it, the other
keys are the rest:

    [
      {"use": "census", "arguments": {"city": "Ulm"}, "text": "Let me look."},
      {"fail": 429, "retry_after_s": 2},
      {"cut": {"say": "It has about"}, "at": "end"},
      {"loop": {"say": "129942", "usage": {"input": 20, "output": 3}}}
    ]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

from leadhand.testing.endpoint import replies
from leadhand.testing.endpoint.replies import Reply, Usage

KINDS: dict[str, type[Any]] = {
    kind.__name__.lower(): kind
    for kind in (
        replies.Say,
        replies.Use,
        replies.Uses,
        replies.Data,
        replies.Wrong,
        replies.Huge,
        replies.Refuse,
        replies.Truncated,
        replies.Fail,
        replies.Hang,
        replies.Garbage,
        replies.Slow,
        replies.Cut,
        replies.Loop,
    )
}
REPLIES = ("reply", "then", "call")
"""Fields that hold a reply themselves."""


def script_from(document: Any) -> list[Reply]:
    """The replies of a document; ValueError says what is wrong with it."""
    if not isinstance(document, list):
        raise ValueError("a script is a list of replies")  # noqa: TRY004 - of the document
    return [reply_from(each, f"reply {index}") for index, each in enumerate(document)]


def reply_from(document: Any, where: str = "reply") -> Reply:
    """One reply."""
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
