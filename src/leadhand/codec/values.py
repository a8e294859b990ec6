"""From a worker's result to JSON-like data.

msgspec would write a NaN as null and a set as a list, each silently; the plan would continue with
data that no worker returned. So everything that enters the log passes here first. Values with one
obvious JSON form are converted (dataclasses, enums, dates, paths, tuples); all others are refused,
with their place and a fix.

The result is always a copy: a worker's thread that still changes its list changes nothing.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import math
import types
import uuid
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import msgspec

from leadhand.codec.documents import DEPTH_MAX, INTEGER_MAX, INTEGER_MIN, NODES_MAX
from leadhand.core.plan.model import Json
from leadhand.core.plan.references import join

PARTS_SHOWN = 12
NOTE_CHARS_MAX = 500


class _Refused(Exception):
    """A value that JSON cannot hold; its place grows while unwinding."""

    def __init__(self, message: str, deepest: object = None) -> None:
        super().__init__(message)
        self.message = message
        self.deepest = deepest
        self.path: list[object] = []


class _Walk:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = NODES_MAX


def plain(value: object, place: str = "data") -> Json:
    """Return a value as JSON-like data.

    Raise `ValueError`, which names the place, if it cannot be.
    """
    try:
        return _plain(value, _Walk(), 1)
    except _Refused as error:
        where = place
        for part in error.path[: -PARTS_SHOWN - 1 : -1]:
            where = f"{where}[{part}]" if isinstance(part, int) else join(where, part)
        if len(error.path) > PARTS_SHOWN:
            where += "…"
        raise ValueError(f"{where} {error.message}") from None


def progress_note(message: object, fraction: object) -> tuple[str, float | None]:
    """Return a worker's progress in a form that views can show; a worker may pass anything."""
    try:
        text = "" if message is None else str(message)
    except Exception:  # noqa: BLE001 - no view fails because an object of a worker does
        text = f"({type(message).__name__})"
    text = text[:NOTE_CHARS_MAX].encode("utf-8", "backslashreplace").decode()
    is_share = isinstance(fraction, int | float) and 0 <= fraction <= 1
    return text, float(fraction) if is_share else None  # type: ignore[arg-type]


def _plain(value: Any, walk: _Walk, depth: int) -> Json:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return value if value.isascii() else _text(value)
    if kind is int:
        if INTEGER_MIN <= value <= INTEGER_MAX:
            return value
        raise _Refused("is a whole number beyond 64 bits: return it as a string")
    if kind is float:
        if math.isfinite(value):
            return value
        raise _Refused(f"is {value}, which JSON does not have: return None or leave it out")
    if kind is dict:
        return _object(value, value, walk, depth)
    if kind is list or kind is tuple:
        return _list(value, walk, depth)
    return _other(value, walk, depth)


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Refused(
            "holds half a character (a lone surrogate): decode it with errors='replace'"
        ) from None
    return value


def _object(value: Mapping[Any, Any], origin: object, walk: _Walk, depth: int) -> Json:
    _spend(value, origin, walk, depth)
    found: dict[str, Json] = {}
    key: Any = None
    try:
        for key, item in value.items():
            name = key if type(key) is str else _key(key)
            if not name.isascii():
                _text(name)
            found[name] = _plain(item, walk, depth + 1)
    except _Refused as error:
        raise _outward(error, key, origin) from None
    return found


def _list(value: Any, walk: _Walk, depth: int) -> Json:
    _spend(value, value, walk, depth)
    found: list[Json] = []
    try:
        for item in value:
            found.append(_plain(item, walk, depth + 1))  # noqa: PERF401 - its length is the place
    except _Refused as error:
        raise _outward(error, len(found), value) from None
    return found


def _outward(error: _Refused, key: object, container: object) -> _Refused:
    if error.deepest is container:
        # The depth limit was exceeded by a cycle, which starts here or further out.
        error.path.clear()
        error.message = "holds itself: return a copy without the circle"
    else:
        error.path.append(key)
    return error


def _key(key: object) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return str.__str__(key)
    raise _Refused(f"has the key {str(key)[:40]!r}, which is a {_name(key)}; JSON keys are strings")


def _spend(value: Any, origin: object, walk: _Walk, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise _Refused(f"is nested more than {DEPTH_MAX} deep", origin)
    walk.left -= 1 + len(value)
    if walk.left < 0:
        raise _Refused(f"holds more than {NODES_MAX:,} values: write it to a file instead")


def _other(value: Any, walk: _Walk, depth: int) -> Json:
    """Convert a value that is not itself JSON."""
    if isinstance(value, enum.Enum):
        return _plain(value.value, walk, depth + 1)
    if isinstance(value, str):
        return _text(str.__str__(value))
    if isinstance(value, int):
        return _plain(int(value), walk, depth)
    if isinstance(value, float):
        return _plain(float(value), walk, depth)
    if isinstance(value, Mapping):
        return _object(value, value, walk, depth)
    if isinstance(value, (list, tuple)):
        return _list(value, walk, depth)
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (uuid.UUID, PurePath)):
        return _text(str(value))
    if isinstance(value, type):
        raise _Refused(f"is the type {value.__name__}, not a value of it")
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return _object({out: getattr(value, name) for out, name in names}, value, walk, depth)
    if dataclasses.is_dataclass(value):
        shallow = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return _object(shallow, value, walk, depth)
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return _plain(dump(), walk, depth + 1)
    raise _Refused(f"is {_article(_name(value))}; {_advice(value)}")


def _name(value: object) -> str:
    kind = type(value)
    module = kind.__module__
    known = kind.__name__ if module in ("builtins", "__main__") else f"{module}.{kind.__name__}"
    return known[:80]


def _article(name: str) -> str:
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"


def _advice(value: object) -> str:
    match value:
        case set() | frozenset():
            return "JSON holds lists: return sorted(...)"
        case bytes() | bytearray() | memoryview():
            return "JSON holds texts: decode it, or write it to a file"
        case complex():
            return "JSON has no such number: return its parts"
        case decimal.Decimal():
            return "return float(...) or str(...)"
        case dt.timedelta():
            return "return its total_seconds()"
        case types.GeneratorType():
            return "return list(...)"
        case _ if hasattr(value, "tolist"):
            return "return its tolist()"
        case _ if callable(value):
            return "return what it gives, not the function"
        case _:
            return "return dicts, lists, texts, numbers, booleans or None"
