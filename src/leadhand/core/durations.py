"""Durations as people write them: "15 minutes", "1h30m", "PT15M", or a number of seconds.

A number in quotes without a unit ("5") is refused: half of the readers would take it for
minutes. Months and years are refused because they have no fixed length.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

SECONDS_MAX = 10 * 366 * 86_400.0
"""Ten years: longer is a mistake."""

LIMIT_MIN_S = 0.001
"""A shorter limit gives no chance at all, so it is a mistake too."""

_TEXT_LENGTH_MAX = 100

_UNITS = {
    "ms": 0.001,
    "msec": 0.001,
    "millisecond": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hr": 3600.0,
    "hour": 3600.0,
    "d": 86_400.0,
    "day": 86_400.0,
    "w": 604_800.0,
    "week": 604_800.0,
}
_PLURALS = {
    "msecs",
    "milliseconds",
    "secs",
    "seconds",
    "mins",
    "minutes",
    "hrs",
    "hours",
    "days",
    "weeks",
}
_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)(?:\s*,)?(?:\s+and\s+|\s*)", re.ASCII)
_ISO = re.compile(
    r"P(?:(\d+(?:\.\d+)?)W)?(?:(\d+(?:\.\d+)?)D)?"
    r"(?:T(?=\d)(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)
_ISO_UNITS = (604_800.0, 86_400.0, 3600.0, 60.0, 1.0)
_EXAMPLES = 'write "90s", "15 minutes", "1h30m" or a number of seconds'


def seconds(value: object) -> float:
    """Return a duration in seconds.

    Raise `ValueError`, which says how to write it, if malformed.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        wrong = f"a duration is a text or a number of seconds, not {_kind(value)}; {_EXAMPLES}"
        raise ValueError(wrong)  # noqa: TRY004 - to the author of a plan it is one mistake
    if isinstance(value, str):
        return _bounded(_read(value), value)
    return _bounded(value, value)


def too_short(limit: float) -> str:
    """Explain why a limit is too short; empty if it is not."""
    if limit == 0:
        return "it must be more than 0"
    return "it must be a millisecond at least" if limit < LIMIT_MIN_S else ""


def text(value: float) -> str:
    """Return a duration for people, in its two largest units: "1h 30m", "45s", "120ms"."""
    if value < 0:
        return "-" + text(-value)
    if not math.isfinite(value):
        return "for ever"
    if value < 0.9995:
        return f"{round(value * 1000)}ms" if value else "0s"
    if value < 9.95:
        return f"{value:.1f}".removesuffix(".0") + "s"
    left = round(value)
    if left >= 86_400:
        left = round(value / 3600) * 3600
    elif left >= 3600:
        left = round(value / 60) * 60
    parts = []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts)


def written(value: float) -> str:
    """Return a duration exactly, as it is written in settings: "1 day", "1 hour 30 minutes"."""
    if value != int(value):
        return f"{value:g} seconds"
    left, parts = int(value), []
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number} {unit}{'' if number == 1 else 's'}")
    return " ".join(parts) or "0 seconds"


def _bounded(value: float, written: object) -> float:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a duration must be a finite number")
    if value < 0:
        raise ValueError(f"a duration cannot be negative: {written}")
    if value > SECONDS_MAX:
        raise ValueError("a duration cannot be longer than ten years")
    return float(value)


@lru_cache(maxsize=1024)
def _read(written: str) -> float:
    trimmed = written.strip()
    shown = repr(trimmed[:40])
    if len(trimmed) > _TEXT_LENGTH_MAX:
        raise ValueError(f"{shown} is too long for a duration; {_EXAMPLES}")
    if re.fullmatch(r"\d+(\.\d+)?", trimmed, re.ASCII):
        raise ValueError(
            f'{shown} has no unit: write "{trimmed} seconds", "{trimmed} minutes" or a number'
        )
    if trimmed.startswith(("-", "\N{MINUS SIGN}")):
        raise ValueError(f"a duration cannot be negative: {trimmed[:40]}")
    if trimmed[:1] == "P":
        return _read_iso(trimmed)
    total, position, seen = 0.0, 0, set()
    lowered = trimmed.lower()
    while position < len(lowered):
        piece = _PIECE.match(lowered, position)
        if piece is None:
            raise ValueError(f"{shown} is not a duration; {_EXAMPLES}")
        word = piece.group(2)
        size = _UNITS.get(word[:-1] if word in _PLURALS else word)
        if size is None:
            hint = (
                "a month or a year has no fixed length, use days"
                if word[:2] in ("mo", "ye", "y")
                else _EXAMPLES
            )
            raise ValueError(f"{shown} has no unit {word!r}; {hint}")
        if size in seen:
            raise ValueError(f"{shown} names the same unit twice")
        seen.add(size)
        total += float(piece.group(1)) * size
        position = piece.end()
    if not seen or lowered.endswith((",", "and")):
        raise ValueError(f"{shown} is not a duration; {_EXAMPLES}")
    return total


def _read_iso(written: str) -> float:
    parts = _ISO.fullmatch(written)
    if parts is None or not any(parts.groups()):
        raise ValueError(
            f'{written[:40]!r} is not an ISO 8601 duration; write it like "PT15M" or "P1DT2H"'
        )
    return sum(
        float(count) * size for count, size in zip(parts.groups(), _ISO_UNITS, strict=True) if count
    )


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a {type(value).__name__}"
