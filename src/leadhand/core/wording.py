"""Wording of messages: types, values, lists of names, and guesses for misspelt words.

Every result is short for any input, so that no message can become huge.
"""

from __future__ import annotations

from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.plan.model import Json

_NAMES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
}
TYPE_WORDS = {
    "object": "an object",
    "array": "a list",
    "string": "a string",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "null": "null",
}


def kind_of(value: Json) -> str:
    """Return the JSON type of a value."""
    kind = _NAMES.get(type(value))
    if kind is not None:
        return kind
    if value is None:
        return "null"
    return "string" if isinstance(value, str) else type(value).__name__


def type_with_article(value: Json) -> str:
    """Return the type of a value with its article: "a list"."""
    kind = kind_of(value)
    return "a boolean" if kind == "boolean" else TYPE_WORDS.get(kind, f"a {kind}")


_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(0x7F, 0xA0))}
_CONTROL |= {9: "\\t", 10: "\\n", 13: "\\r", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def escaped(text: str) -> str:
    """Return a text on one line: line breaks and other control characters as escapes."""
    return text if text.isprintable() else text.translate(_CONTROL)


def shown(value: Json) -> str:
    """Return a value for a message: shortened, on one line."""
    if isinstance(value, str):
        return f'"{escaped(value)}"' if len(value) <= 40 else f'"{escaped(value[:40])}…"'
    if isinstance(value, (dict, list)):
        return type_with_article(value)
    return (
        "null"
        if value is None
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)[:40]
    )


def closest(word: object, candidates: Iterable[str]) -> str:
    """Return the candidate a misspelt word was probably meant to be, or ""."""
    if not isinstance(word, str) or len(word) > 100:
        return ""
    some = [name for name in islice(candidates, 1000) if isinstance(name, str)]
    by_lower = {name.lower().replace("-", "_"): name for name in reversed(some)}
    found = get_close_matches(word.lower().replace("-", "_"), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else ""


def did_you_mean(word: object, there: Iterable[str]) -> str:
    """Return a hint for an unknown name: `Did you mean "copy"? There are: look, copy.`"""
    names = list(there)
    close = closest(word, names)
    hint = f"Did you mean {shown(close)}? " if close else ""
    return f"{hint}There are: {listed(names)}." if names else "There are none yet."


def listed(names: Iterable[object], limit: int = 12) -> str:
    """Return a few names, separated by commas."""
    some = [escaped(str(name)[:60]) for name in islice(names, limit + 1)]
    return ", ".join(some[:limit]) + (", …" if len(some) > limit else "")
