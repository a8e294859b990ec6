"""Events to stored bytes and back, permanently.

An event is stored as JSON, keys in the order of its author, so that a log can be read with any text
viewer and shows each step as written. The hash chain covers these bytes and never a re-encoding of
them.

Old logs always load. If a change of an event would break that, raise EVENT_VERSION in
`core/events.py` and add an upcaster here: a function from the document of version n to that of n +
1. Upcasters work on documents because the classes of version n are gone. Verify first, then upcast:
the chain covers the stored bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from leadhand.core.events import (
    DECIDE_VERSION,
    EVENT_VERSION,
    RUN_EVENTS,
    Event,
    RevisionProposed,
    RunStarted,
)
from leadhand.core.host_events import HOST_EVENTS
from leadhand.core.library import LIBRARY_EVENTS
from leadhand.core.plan.model import Doc
from leadhand.core.report import decision_problem
from leadhand.errors import StoreCorrupt, StoreError, UsageError

EVENTS: tuple[type[Event], ...] = RUN_EVENTS + HOST_EVENTS + LIBRARY_EVENTS

UPCASTERS: dict[int, Callable[[Doc], Doc]] = {}
"""From a version to the next one."""

_ENCODER = msgspec.json.Encoder()
_UNION: Any = reduce(or_, EVENTS)
_DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(_UNION)
_NAMES = frozenset(event.__name__ for event in EVENTS)


def encode(event: Event) -> bytes:
    """Return the bytes of an event: equal events give equal bytes.

    Texts come from everywhere, messages of exceptions among them; half a character in one must not
    keep an event from being written, so it is written escaped.
    """
    try:
        return _ENCODER.encode(event)
    except UnicodeEncodeError:
        return _ENCODER.encode(escape_surrogates(msgspec.to_builtins(event)))


def refuse_unreadable(events: Iterable[Event]) -> None:
    """Raise `UsageError` for an event that would make the log unreadable.

    Decodes the bytes to be stored with the schema of readers. Called with input from outside
    (plans, answers, commands), before it is evolved or appended.
    """
    for event in events:
        if wrong := unreadable(event):
            raise UsageError(f"this cannot be recorded: {wrong}")


def refuse_start(started: RunStarted, proposal: Doc | None) -> None:
    """Raise `UsageError` if a run and its initial plan would make the log unreadable."""
    refuse_unreadable([started])
    if proposal is not None and (wrong := decision_problem(proposal)):
        raise UsageError(f"this plan cannot be recorded: {wrong}")


def unreadable(event: Event) -> str:
    """Return why an event would be unreadable, with the place; empty if it is readable.

    The steps of a revision were converted to plain objects on entry; only that is checked, so that
    a long plan is not read twice.
    """
    if type(event) is RevisionProposed and all(type(step) is dict for step in event.add):
        event = msgspec.structs.replace(event, add=[])
    try:
        _DECODER.decode(encode(event))
    except (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError, OverflowError) as error:
        return f"{type(event).__name__}: {error}"
    return ""


def escape_surrogates(value: Any) -> Any:
    """Return a value with lone surrogates escaped."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {escape_surrogates(key): escape_surrogates(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [escape_surrogates(item) for item in value]
    return value


def decode(version: int, body: bytes) -> Event:
    """Return the event in bytes written at a version. Raise `StoreError` if it cannot be read."""
    if version == EVENT_VERSION:
        try:
            return _decided(_DECODER.decode(body))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _explained(body, error) from None
    if version > EVENT_VERSION:
        raise StoreError(
            f"this log was written by a newer Leadhand (event version {version}, "
            f"this one knows {EVENT_VERSION}); upgrade to read it"
        )
    return _upcast(version, body)


def _decided(event: Event) -> Event:
    """Return an event. Raise `StoreError` for the start of a run with newer decisions than ours."""
    if type(event) is RunStarted and event.decide_version > DECIDE_VERSION:
        raise StoreError(
            f"this run was started by a newer Leadhand (decisions {event.decide_version}, "
            f"this one knows {DECIDE_VERSION}); upgrade to read it"
        )
    return event


def decode_all(stored: Iterable[tuple[int, bytes]]) -> list[Event]:
    """Return the events of a whole log, given as (version, body): a fast `decode` for all."""
    one = _DECODER.decode
    try:
        found = [one(body) if v == EVENT_VERSION else decode(v, body) for v, body in stored]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return [decode(version, body) for version, body in stored]
    if found:
        _decided(found[0])  # a run starts with its first event
    return found


def _upcast(version: int, body: bytes) -> Event:
    try:
        doc = msgspec.json.decode(body)
        for number in range(version, EVENT_VERSION):
            doc = UPCASTERS[number](doc)
        event: Event = _decided(msgspec.convert(doc, _UNION))
    except KeyError:
        raise StoreError(f"there is no way to read events of version {version}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _explained(body, error) from None
    return event


def _explained(body: bytes, error: Exception) -> StoreError:
    """Return the error for bytes that are no known event: of a newer program, or damaged."""
    try:
        kind = msgspec.json.decode(body)["type"]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        return StoreCorrupt(f"an event cannot be read: {error}")
    if isinstance(kind, str) and kind not in _NAMES:
        return StoreError(
            f'the event "{kind[:60]}" is not known here: '
            "this log was written by a newer Leadhand; upgrade to read it"
        )
    return StoreCorrupt(f"an event of type {str(kind)[:60]} cannot be read: {error}")
