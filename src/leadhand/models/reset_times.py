"""The time at which a usage limit ends, read from the words of a provider or a command line tool.

Providers tell it in many forms: an epoch after a bar, a field of a JSON document, a header, a
duration ("in 2 days 3 hours", "6m0s"), a time of day with or without a zone ("resets 3pm
(Asia/Tokyo)"), a date ("try again at Sep 27th, 2026 4:59 AM"), a weekday. One rule holds for all:
the time is read to the minute, or it is not read at all. A guess would be worse than none: one that
is too early meets a limit that still holds, one that is too late leaves a fleet idle for days.

    reset_time("You've hit your limit · resets 3pm (UTC)", now=time.time())

What is refused: days without a time of day ("resets Monday"), unknown or ambiguous zones, dates
whose day and month could be exchanged, and instants that no limit explains (see `PAST_S` and
`AHEAD_S`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone, tzinfo
from email.utils import parsedate_to_datetime
from itertools import chain
from zoneinfo import ZoneInfo

PAST_S = 600.0
"""A time of day that passed less than this ago is today's; earlier, it is tomorrow's."""

STALE_S = 86_400.0
"""An instant with a date that lies further back is not the end of this limit."""

AHEAD_S = 40 * 86_400.0
"""Monthly limits are the longest there are: an instant further ahead is not the end of one."""

TEXT_CHARS = 20_000
"""Longer texts are read up to here."""


def reset_time(message: str, now: float, zone: tzinfo | None = None) -> float | None:
    """Return when the limit that a message tells of ends, in seconds since the epoch.

    - `message`: what a provider or a tool said: prose, headers or JSON.
    - `now`: the time at which it said so.
    - `zone`: where times without a zone are meant; by default where this process runs.

    Return None if the message does not tell it to the minute. The time may lie a little in the
    past: then the limit has just ended.
    """
    text = message[:TEXT_CHARS].replace("\\n", " ").replace('\\"', '"')
    text = re.sub(r"[\s│]+", " ", text.replace("\u2019", "'"))
    for at in chain(_epochs(text), _fields(text, now), _phrases(text, now, zone)):
        if at is not None and now - STALE_S <= at <= now + AHEAD_S:
            return at
    return None


def wait_s(message: str, now: float, zone: tzinfo | None = None) -> float | None:
    """Return the seconds from `now` until the limit ends, at least 0; None as `reset_time`."""
    at = reset_time(message, now, zone)
    return None if at is None else max(0.0, at - now)


# --- structured: an epoch after a bar, fields of documents, headers


_EPOCH = re.compile(r"\blimit reached\|(\d{10}|\d{13})\b")


def _epochs(text: str) -> Iterator[float]:
    for found in _EPOCH.finditer(text):
        yield _epoch(found[1])


def _epoch(digits: str) -> float:
    return int(digits) / (1000 if len(digits) == 13 else 1)


_FIELD = re.compile(
    r"(?P<key>[\w-]*(?:reset|retry[_-]?(?:after|delay)|retryDelay)[\w-]*)[\"']?\s*[:=]\s*"
    r"(?:[\"'](?P<quoted>[^\"']{1,60})[\"']|(?P<bare>[\w.:+-]+(?:, \d[^,;\"']{5,40}GMT)?))",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def _fields(text: str, now: float) -> Iterator[float | None]:
    for found in _FIELD.finditer(text):
        yield _field(found["key"], (found["quoted"] or found["bare"]).strip(), now)


def _field(key: str, value: str, now: float) -> float | None:
    """Return the instant that one field or header tells, or None."""
    if _NUMBER.fullmatch(value):
        if re.fullmatch(r"\d{10}|\d{13}", value):
            return _epoch(value)
        seconds = float(value) / (1000 if re.search(r"(?:_|-)ms$|Ms$|millis", key) else 1)
        return now + seconds if seconds <= AHEAD_S else None
    if (told := duration_s(value)) is not None:
        return now + told
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        try:
            at = parsedate_to_datetime(value)
        except (TypeError, ValueError):
            return None
    # A date and time without a zone in a document could be meant anywhere.
    return None if at.tzinfo is None else at.timestamp()


# --- prose


_LEAD = re.compile(
    r"\b(?:resets?|try(?:ing)? again|retry(?:ing)?|regain access|resume[^.]{0,40}?"
    r"|available(?: again)?|continuing automatically|wait)\b[:,]?\s+"
    r"(?:(?P<how>in|after|at|on|until|by|for)\s+)?(?:(?:about|approximately|another)\s+)?",
    re.IGNORECASE,
)


def _phrases(text: str, now: float, here: tzinfo | None) -> Iterator[float | None]:
    for found in _LEAD.finditer(text):
        rest = text[found.end() : found.end() + 80]
        how = (found["how"] or "").lower()
        if how not in ("at", "on", "by") and (seconds := _leading_duration(rest)) is not None:
            yield now + seconds
        elif how not in ("in", "after", "for"):
            yield _clock(rest, now, here)


_UNITS = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 7 * 86_400.0,
}
_UNIT = (
    r"(?:milliseconds?|millis|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d"
    r"|weeks?|wks?|w)"
)
_PART = re.compile(rf"(\d+(?:\.\d+)?)\s*({_UNIT})(?![a-z])(?=[\s\d,.;)\]·|!]|$)", re.IGNORECASE)
_BETWEEN = re.compile(r"\s*(?:,\s*)?(?:and\s+)?", re.IGNORECASE)
_WORDS = (
    (re.compile(r"(?:less than )?a(?:bout a)? minute\b", re.IGNORECASE), 60.0),
    (re.compile(r"an hour\b", re.IGNORECASE), 3600.0),
)


def duration_s(text: str) -> float | None:
    """Return the seconds of a duration such as ``2 days 3 hours``, ``6m0s`` or ``1.5s``.

    Return None if the text is anything else, or says a unit twice or in the wrong order.
    """
    read = _duration(text.strip())
    return read[0] if read is not None and read[1] == len(text.strip()) else None


def _leading_duration(text: str) -> float | None:
    for pattern, seconds in _WORDS:
        if pattern.match(text):
            return seconds
    read = _duration(text)
    return None if read is None else read[0]


def _duration(text: str) -> tuple[float, int] | None:
    """Return the seconds of the duration that a text begins with, and where it ends."""
    at, total, last = 0, 0.0, float("inf")
    while found := _PART.match(text, at):
        unit = found[2].lower()
        scale = _UNITS["ms" if unit.startswith(("ms", "mil")) else unit[0]]
        if scale >= last:
            return None
        total, last, at = total + float(found[1]) * scale, scale, found.end()
        between = _BETWEEN.match(text, at)
        if between is None or not _PART.match(text, between.end()):
            break
        at = between.end()
    return (total, at) if at else None


# --- times of day, dates, weekdays


_TIME = (
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?(?::\d{2})?\s?"
    r"(?:(?P<half>[ap])\.?m\b\.?)?"
)
_ZONE = (
    r"(?:\s*\(\s*(?P<zone>[A-Za-z][\w+\-/: ]*)\)"
    r"|\s+(?P<offset>(?:UTC|GMT)\s?[+-]\d{1,2}(?::?\d{2})?)"
    r"|\s?(?P<short>[A-Z]{2,5}|Z)\b)?"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})[a-z]*\.?"
_DAY = rf"(?P<weekday>{'|'.join(_DAYS)})[a-z]*\.?,?\s+(?:at\s+)?"
_OF_MONTH = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,?\s+(?P<year>20\d{2}))?"
_AT = r"(?:\s*,)?(?:\s+at)?\s+"
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"(?P<year>20\d\d)-(?P<month>\d\d)-(?P<day>\d\d)(?:T|,?\s+(?:at\s+)?)" + _TIME + _ZONE,
        _MONTH + r"\s+" + _OF_MONTH + _YEAR + _AT + _TIME + _ZONE,
        _OF_MONTH + r"\s+" + _MONTH + _YEAR + _AT + _TIME + _ZONE,
        _TIME + _ZONE + r"\s+on\s+" + _OF_MONTH + r"\s+" + _MONTH + _YEAR,
        _TIME + _ZONE + r"\s+on\s+" + _MONTH + r"\s+" + _OF_MONTH + _YEAR,
        r"(?:on\s+)?" + _DAY + _TIME + _ZONE,
        r"(?:(?P<tomorrow>tomorrow)\s+(?:at\s+)?)?" + _TIME + _ZONE,
    )
)
# Abbreviations that mean one offset. Others mean several (CST, IST, BST) or change with the season.
_SHORT = {
    "Z": 0,
    "UTC": 0,
    "GMT": 0,
    "EST": -5,
    "EDT": -4,
    "PST": -8,
    "PDT": -7,
    "MDT": -6,
    "CDT": -5,
    "CET": 1,
    "CEST": 2,
    "JST": 9,
    "KST": 9,
}
_PLAIN_WORDS = frozenset({"OR", "TO", "AND", "IF", "ON", "IN", "THE", "BY"})


def _clock(text: str, now: float, here: tzinfo | None) -> float | None:
    """Return the instant of the time or date that a text begins with, or None.

    A zone of None is that of this process, with its summer time.
    """
    for form in _FORMS:
        if found := form.match(text):
            return _instant({"tomorrow": None, **found.groupdict()}, now, here)
    return None


def _instant(said: dict[str, str | None], now: float, here: tzinfo | None) -> float | None:
    time_of_day = _time_of_day(said)
    if time_of_day is None:
        return None
    hour, minute = time_of_day
    try:
        zone = _zone(said, here)
        today = datetime.fromtimestamp(now, zone)
        if month := said.get("month"):
            return _on_date(said, _month(month), hour, minute, today)
        at = _wall(today.year, today.month, today.day, hour, minute, zone)
    except (LookupError, ValueError, OSError):
        return None
    if weekday := said.get("weekday"):
        ahead = (_DAYS.index(weekday[:3].lower()) - today.weekday()) % 7
        at = _later(at, ahead)
        return (at if at.timestamp() > now - PAST_S else _later(at, 7)).timestamp()
    if said["tomorrow"] or at.timestamp() <= now - PAST_S:
        at = _later(at, 1)
    return at.timestamp()


def _on_date(
    said: dict[str, str | None], month: int, hour: int, minute: int, today: datetime
) -> float:
    """Return the instant of a date; without a year, of the next such date, or yesterday's."""
    zone, day = today.tzinfo, int(said["day"] or 0)
    if said.get("year"):
        return _wall(int(said["year"] or 0), month, day, hour, minute, zone).timestamp()
    at = _wall(today.year, month, day, hour, minute, zone)
    if at.timestamp() < today.timestamp() - STALE_S:
        at = _wall(today.year + 1, month, day, hour, minute, zone)
    return at.timestamp()


def _month(said: str) -> int:
    return int(said) if said.isdigit() else _MONTHS.index(said[:3].lower()) + 1


def _time_of_day(said: dict[str, str | None]) -> tuple[int, int] | None:
    """Return hour and minute; None for a bare number or an hour that does not exist."""
    hour, minute, half = int(said["hour"] or 0), said["minute"], said["half"]
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half.lower() == "p" else 0)
    elif minute is None or hour > 23:
        return None
    return (hour, int(minute or 0)) if int(minute or 0) < 60 else None


def _zone(said: dict[str, str | None], here: tzinfo | None) -> tzinfo | None:
    """Return the zone that was said, `here` if none was. Raise `LookupError` if it is unknown."""
    if name := said["zone"]:
        name = name.strip()
        if (offset := _offset(name)) or name.upper() in _SHORT:
            return offset or timezone(timedelta(hours=_SHORT[name.upper()]))
        return ZoneInfo(name.replace(" ", "_"))
    if said["offset"]:
        offset = _offset(said["offset"])
        if offset is None:
            raise LookupError(said["offset"])
        return offset
    short = said["short"]
    if short is None or not short.isupper() or short in _PLAIN_WORDS:
        return here
    return timezone(timedelta(hours=_SHORT[short]))


def _offset(said: str) -> tzinfo | None:
    found = re.fullmatch(r"(?:UTC|GMT)\s?([+-])(\d{1,2})(?::?(\d{2}))?", said, re.IGNORECASE)
    if not found or int(found[2]) > 14:
        return None
    ahead = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
    return timezone(-ahead if found[1] == "-" else ahead)


def _wall(year: int, month: int, day: int, hour: int, minute: int, zone: tzinfo | None) -> datetime:
    """Return an instant of a zone; of two with the same name (clocks set back), the later."""
    return datetime(year, month, day, hour, minute, tzinfo=zone, fold=1)


def _later(at: datetime, days: int) -> datetime:
    """Return the same time of day some days later."""
    moved = at.replace(tzinfo=None) + timedelta(days=days)
    return _wall(moved.year, moved.month, moved.day, moved.hour, moved.minute, at.tzinfo)
