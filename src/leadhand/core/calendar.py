"""Calendar time: `not_before` and `window`, from text to UTC microseconds.

Accepted forms:

    2026-11-20T02:00:00Z                an instant (an offset such as +01:00 is as good)
    2026-11-20 02:00 Europe/Berlin      a local time on a day
    02:00 America/New_York              the next time a clock there shows it
    2AM EST                             the same; EST is always -05:00, in summer too (lint says so)
    22:00-02:00 Europe/Berlin           a window, every day; also {"from", "to", "zone"}

A time skipped by a clock change (02:30 on a night that jumps from 02:00 to 03:00) means the first
instant after the gap. A time that occurs twice means the first. So every local time names exactly
one instant a day, and an approved time can be shown as one UTC instant.

Nothing here reads a clock: `now_us` is a parameter. The rules of time zones are data (tzdata).
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from leadhand.core.plan.model import Json


# Moments in microseconds, as machines and people read them.


def iso(at: int) -> str:
    """Return an instant (UTC microseconds) as ISO 8601 with microseconds."""
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="microseconds")


def from_iso(text: str) -> int:
    """Return the instant (UTC microseconds) that `iso` wrote."""
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND


def utc(at: int) -> str:
    """Return an instant for people in different places: `2026-11-20 02:00:00 UTC`."""
    return f"{datetime.fromtimestamp(at / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY = timedelta(days=1)
_TEXT_LENGTH_MAX = 100

_ABBREVIATIONS = {
    "AST": -4.0, "EST": -5.0, "EDT": -4.0, "CST": -6.0, "CDT": -5.0, "MST": -7.0, "MDT": -6.0,
    "PST": -8.0, "PDT": -7.0, "AKST": -9.0, "AKDT": -8.0, "HST": -10.0, "WET": 0.0, "WEST": 1.0,
    "BST": 1.0, "CET": 1.0, "CEST": 2.0, "MEZ": 1.0, "MESZ": 2.0, "EET": 2.0, "EEST": 3.0,
    "MSK": 3.0, "JST": 9.0, "KST": 9.0, "AEST": 10.0, "AEDT": 11.0, "NZST": 12.0, "NZDT": 13.0,
}  # fmt: skip
"""Hours from UTC. They take precedence over the IANA names of the same spelling, some of which
change with the season (CET) and some not (EST): the letters name a fixed offset."""

_BETTER = {
    "EST": "America/New_York", "EDT": "America/New_York", "CST": "America/Chicago",
    "CDT": "America/Chicago", "MST": "America/Denver", "MDT": "America/Denver",
    "PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "CET": "Europe/Berlin",
    "CEST": "Europe/Berlin", "BST": "Europe/London",
}  # fmt: skip

_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)? ?(Z|[+-]\d\d:?\d\d)", re.ASCII)
_LOCAL = re.compile(
    r"(?:(\d{4}-\d\d-\d\d)[T ])?([0-9:.]+ ?(?:[AaPp]\.?[Mm]\.?)?)(?: ([^ ]+))?", re.ASCII
)
_CLOCK = re.compile(r"(\d{1,2})(?::(\d\d)(?::(\d\d))?)? ?([AaPp])?(?:\.?[Mm]\.?)?", re.ASCII)
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d\d))?", re.ASCII)
_ZONE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}", re.ASCII)
_WINDOW = re.compile(
    r"(.+?) ?(?:-|–|to) ?(\d[0-9:]* ?(?:[AaPp]\.?[Mm]\.?)?)((?: [^ ]+)?)", re.ASCII
)

_EXAMPLES = '"2026-11-20T02:00:00Z", "2026-11-20 02:00 Europe/Berlin" or "02:00 America/New_York"'


class When(NamedTuple):
    """A time as written: an instant, a local time on a given day, or a local time on every day."""

    instant: int | None
    day: date | None
    clock: time
    zone: tzinfo
    abbreviation: str = ""
    """The letters of the zone if they stand for a fixed offset."""


class Window(NamedTuple):
    """A daily window; it closes on the next day when `closes` is not later than `opens`."""

    opens: time
    closes: time
    zone: tzinfo
    abbreviation: str = ""


def next_instant(text: str, now_us: int) -> int:
    """Return the UTC microseconds of a time: its instant, or its next occurrence at or after now.

    A given day is taken literally: it may lie in the past, and then there is nothing to wait for.
    Raise `ValueError` if `text` is malformed.
    """
    when = parse(text)
    if when.instant is not None:
        return when.instant
    if when.day is not None:
        return _instant(when.day, when.clock, when.zone)
    today = _local(now_us, when.zone).date()
    for days in (-1, 0, 1, 2):
        instant = _instant(today + days * _DAY, when.clock, when.zone)
        if instant >= now_us:
            return instant
    raise ValueError(f"{text[:60]!r} does not occur in the next two days")


def window_open(window: Json, now_us: int) -> tuple[bool, int]:
    """Return whether a window is open now, and when it opens next (now if it is open)."""
    opens, closes, zone, _ = parse_window(window)
    today = _local(now_us, zone).date()
    for days in range(-1, 4):
        day = today + days * _DAY
        start = _instant(day, opens, zone)
        end = _instant(day if closes > opens else day + _DAY, closes, zone)
        # A window entirely inside the gap of a clock change does not open that day.
        if start < end and now_us < end:
            return start <= now_us, max(start, now_us)
    raise ValueError("the window does not open in the next days")


def fixed_offset(parsed: When | Window) -> str:
    """Explain why a zone abbreviation may be a mistake; empty if the zone is clear."""
    letters = parsed.abbreviation
    if not letters:
        return ""
    better = f'"{_BETTER[letters]}"' if letters in _BETTER else 'a place such as "Europe/Berlin"'
    hours = _ABBREVIATIONS[letters]
    always = f"{letters} is always UTC{hours:+03.0f}:00, whatever the season"
    return f"{always}; write {better} to follow its clocks"


def parse(text: str) -> When:
    """Parse a time. Raise `ValueError`, which says how to write it, if it is malformed."""
    if not isinstance(text, str):
        raise ValueError(f"a moment is a text such as {_EXAMPLES}")  # noqa: TRY004 - one error for bad words
    return _parse(_tidy(text))


def parse_window(window: Json) -> Window:
    """Parse a window from a text or an object. Raise `ValueError` if it is malformed."""
    if isinstance(window, str):
        parts = _WINDOW.fullmatch(_tidy(window))
        if parts is None:
            raise ValueError(
                f'{window[:60]!r} is not a window; write it like "22:00-02:00 Europe/Berlin"'
            )
        return _window(parts.group(1), parts.group(2), parts.group(3).strip())
    if (
        not isinstance(window, dict)
        or not {"from", "to"} <= set(window)
        or not set(window) <= {"from", "to", "zone"}
    ):
        raise ValueError(
            'a window is a text like "22:00-02:00 Europe/Berlin", '
            "or an object with from, to and zone"
        )
    if not all(isinstance(value, str) for value in window.values()):
        raise ValueError("the from, to and zone of a window are texts")
    return _window(_tidy(window["from"]), _tidy(window["to"]), _tidy(window.get("zone", "")))


def _tidy(text: str) -> str:
    if len(text) > _TEXT_LENGTH_MAX:
        raise ValueError(f"{text[:40]!r}… is too long for a time")
    return " ".join(text.split())


@lru_cache(maxsize=1024)
def _parse(text: str) -> When:
    if _ISO.fullmatch(text):
        return _parse_iso(text)
    parts = _LOCAL.fullmatch(text)
    if parts is None:
        raise ValueError(f"{text[:60]!r} is not a time; write {_EXAMPLES}")
    day, clock, zone_name = parts.groups()
    if not zone_name:
        raise ValueError(
            f"{text[:60]!r} names no zone; "
            f'write it like "{text[:20]} Europe/Berlin" or "{text[:20]} UTC"'
        )
    zone, letters = _zone(zone_name)
    try:
        on = date.fromisoformat(day) if day else None
    except ValueError:
        raise ValueError(f"{day!r} is not a day of the calendar") from None
    return When(None, on, _clock(clock), zone, letters)


def _parse_iso(text: str) -> When:
    try:
        moment = datetime.fromisoformat(
            text.replace(" Z", "Z").replace(" +", "+").replace(" -", "-")
        )
        instant = (moment - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a moment of the calendar") from None
    return When(instant, None, time(), UTC)


@lru_cache(maxsize=1024)
def _window(opens: str, closes: str, zone_name: str) -> Window:
    if not zone_name:  # The zone may stand beside one of the two times.
        both = [text.rpartition(" ") for text in (opens, closes)]
        named = [
            (clock, name)
            for clock, _, name in both
            if clock and _ZONE_NAME.fullmatch(name) and not _is_half(name)
        ]
        if not named:
            raise ValueError('a window needs a zone: add "zone", such as "Europe/Berlin" or "UTC"')
        zone_name = named[0][1]
        opens, closes = (text.removesuffix(" " + zone_name) for text in (opens, closes))
    zone, letters = _zone(zone_name)
    window = Window(_clock(opens), _clock(closes), zone, letters)
    if window.opens == window.closes:
        raise ValueError("a window cannot open and close at the same time")
    return window


def _is_half(word: str) -> bool:
    return word.replace(".", "").upper() in ("AM", "PM")


def _clock(text: str) -> time:
    parts = _CLOCK.fullmatch(text)
    if parts is None or (not parts.group(2) and not parts.group(4)):
        raise ValueError(f'{text[:40]!r} is not a time of day; write "02:00", "22:30" or "2AM"')
    hour, half = int(parts.group(1)), (parts.group(4) or "").upper()
    if half:
        if not 1 <= hour <= 12:
            raise ValueError(f"{text!r} is not a time of day: with AM or PM the hour is 1 to 12")
        hour = hour % 12 + (12 if half == "P" else 0)
    try:
        return time(hour, int(parts.group(2) or 0), int(parts.group(3) or 0))
    except ValueError:
        raise ValueError(f"{text!r} is not a time of day") from None


_HERE = ("localtime", "posixrules")
"""Names that mean different zones on different machines."""


@lru_cache(maxsize=256)
def _zone(name: str) -> tuple[tzinfo, str]:
    """Return the zone of a name, and its letters if it is an abbreviation for a fixed offset."""
    upper = name.upper()
    if upper in ("UTC", "Z", "GMT"):
        return UTC, ""
    if upper in _ABBREVIATIONS:
        return timezone(timedelta(hours=_ABBREVIATIONS[upper])), upper
    offset = _OFFSET.fullmatch(name)
    if offset:
        sign, hours, minutes = offset.groups()
        if int(hours) > 15 or int(minutes or 0) > 59:
            raise ValueError(f"{name!r} is not an offset from UTC")
        size = timedelta(hours=int(hours), minutes=int(minutes or 0))
        return timezone(-size if sign == "-" else size), ""
    if _ZONE_NAME.fullmatch(name) and name not in _HERE:
        try:
            return ZoneInfo(name), ""
        except (LookupError, ValueError, OSError):
            pass
    raise ValueError(
        f'{name[:40]!r} is not a time zone; write a name such as "Europe/Berlin" or "UTC"'
    )


def _local(now_us: int, zone: tzinfo) -> datetime:
    try:
        return (_EPOCH + now_us * _MICROSECOND).astimezone(zone)
    except OverflowError:
        raise ValueError("the time is outside the calendar") from None


def _instant(day: date, clock: time, zone: tzinfo) -> int:
    """Return the UTC microseconds at which a clock in `zone` shows `clock` on `day`."""
    try:
        first = datetime.combine(day, clock, zone)
        before, after = first.utcoffset(), first.replace(fold=1).utcoffset()
        if before is None or after is None or before >= after:
            return (first - _EPOCH) // _MICROSECOND
        naive = datetime.combine(day, clock, UTC)
        return _end_of_gap(
            (naive - after - _EPOCH) // _MICROSECOND,
            (naive - before - _EPOCH) // _MICROSECOND,
            zone,
        )
    except OverflowError:
        raise ValueError("the time is outside the calendar") from None


def _end_of_gap(low: int, high: int, zone: tzinfo) -> int:
    """Return the instant in (low, high] at which the clocks jump forward, to the second."""
    old = _local(low, zone).utcoffset()
    low, high = low // 1_000_000, -(-high // 1_000_000)
    while high - low > 1:
        middle = (low + high) // 2
        if _local(middle * 1_000_000, zone).utcoffset() == old:
            low = middle
        else:
            high = middle
    return high * 1_000_000
