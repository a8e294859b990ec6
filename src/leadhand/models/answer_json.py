"""JSON that a model wrote, parsed without trust: it may be incomplete or nested too deeply.

JSON that is nested too deeply for later code (schemas, the guard, the log) is refused here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from leadhand.codec.documents import DEPTH_MAX


def clean(text: str) -> str:
    """Return `text` without lone surrogates, which cannot be encoded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def arguments(args: Any) -> Any:
    """Return the arguments that a model wrote for a tool: JSON if they are, else the text."""
    if not isinstance(args, str):
        return {} if args is None else "(nested too deeply)" if _too_deep(args) else args
    args = clean(args)
    if not args.strip():
        return {}
    try:
        return decode_json(args)
    except msgspec.DecodeError:
        return args


def data_in(text: str) -> Any:
    """Return the JSON value in an answer; a fence around it or a sentence before it is ignored."""
    for candidate in (text, text.partition("```json")[2].partition("```")[0], _outer(text)):
        try:
            return decode_json(candidate)
        except msgspec.DecodeError:
            continue
    return None


def decode_json(text: str) -> Any:
    """Return the JSON value of `text`.

    Raise `DecodeError` if it is malformed or nested too deeply.
    """
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    if _too_deep(value):
        raise msgspec.DecodeError("it is nested too deeply")
    return value


def _too_deep(value: Any) -> bool:
    """Return whether `value` is nested more deeply than documents may be, without recursion."""
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
