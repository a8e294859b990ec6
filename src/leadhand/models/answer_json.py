"""JSON that a model wrote, read without trust: it may be half of one, or nested beyond all sense.

What is nested too deeply for others to walk through (schemas, the guard, the log) counts as no
JSON at all, before anybody tries.
"""

from __future__ import annotations

from typing import Any

import msgspec

from leadhand.codec.documents import DEPTH_MAX


def clean(text: str) -> str:
    """A text that can be written down: half of a pair of surrogates cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def arguments(args: Any) -> Any:
    """What a model wrote for a tool: JSON where it is that, else its words."""
    if not isinstance(args, str):
        return {} if args is None else "(nested too deeply)" if _too_deep(args) else args
    args = clean(args)
    if not args.strip():
        return {}
    try:
        return decoded(args)
    except msgspec.DecodeError:
        return args


def data_in(text: str) -> Any:
    """The JSON of an answer; a fence around it, or a sentence before it, does no harm."""
    for candidate in (text, text.partition("```json")[2].partition("```")[0], _outer(text)):
        try:
            return decoded(candidate)
        except msgspec.DecodeError:
            continue
    return None


def decoded(text: str) -> Any:
    """The value of a text; DecodeError also where it is too deep."""
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    if _too_deep(value):
        raise msgspec.DecodeError("it is nested too deeply")
    return value


def _too_deep(value: Any) -> bool:
    """Whether it is nested more than a document may be, found without recursion."""
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def _outer(text: str) -> str:
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else ""
