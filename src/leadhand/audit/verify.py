"""Verification of a run's log, from the database or from a bundle.

Verify first, decode later: the chain covers the bytes, the log checker their meaning. Everything
here is pure, and any content of a log leads to problems, never to an exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from leadhand.audit import chain
from leadhand.audit.chain import ChainProblem
from leadhand.codec.events import decode
from leadhand.core.events import RunEnded
from leadhand.core.logcheck import checker
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import State
from leadhand.core.views.run import run_status, summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadhand.core.events import Event
    from leadhand.ports import Entry, RunHeader

ARTIFACT = "sha256:"


def check_log(run: str, entries: Sequence[Entry]) -> list[ChainProblem]:
    """Check the hash chain of a run, then every rule over its events."""
    return read_log(run, entries)[1]


def read_log(run: str, entries: Sequence[Entry]) -> tuple[list[Event], list[ChainProblem]]:
    """Return the events of a run, decoded once, and what `check_log` finds in them.

    The events are empty if one of them cannot be read; then there is a problem.
    """
    found: list[ChainProblem] = []
    events: list[Event] = []
    try:
        found += chain.verify(entries)
        events = [decode(entry.version, entry.body) for entry in entries]
        timed = [(entry.at, event) for entry, event in zip(entries, events, strict=True)]
        found += [ChainProblem(run, seq, rule, text) for rule, seq, text in checker.check(timed)]
    except Exception as error:  # noqa: BLE001 - what was changed may be anything
        found.append(unreadable(run, error))
    return events, found


def check_header(header: RunHeader, entries: Sequence[Entry]) -> list[ChainProblem]:
    """Check that the header beside a log agrees with the log."""
    run = header.run
    if not entries:
        return [ChainProblem(run, 0, "head", "there is a run of this name, and it has no events")]
    found = chain.verify_head(entries, header)
    if (header.created, header.updated) != (entries[0].at, entries[-1].at):
        message = "its times of beginning and change are not those of its log"
        found.append(ChainProblem(run, header.seq, "head", message))
    return found


def check_summary(
    header: RunHeader, entries: Sequence[Entry], events: Sequence[Event]
) -> list[ChainProblem]:
    """Check that the summary beside a log agrees with the log when it was written.

    `events` are those of `entries`, decoded.
    """
    timed = [(entry.at, event) for entry, event in zip(entries, events, strict=True)]
    try:
        if _was_summary(header.summary, timed):
            return []
    except Exception as error:  # noqa: BLE001 - what was changed may be anything
        return [unreadable(header.run, error)]
    message = "the summary beside its log does not say what the log says"
    return [ChainProblem(header.run, header.seq, "summary", message)]


def _was_summary(stored: bytes, events: Sequence[tuple[int, Event]]) -> bool:
    """Return whether a stored summary matches a status change; later steps may have gone on.

    The summary of a run that has ended is that of its end, and nothing before it.
    """
    known = msgspec.json.decode(stored, type=dict)
    ended = bool(events) and isinstance(events[-1][1], RunEnded)
    state, fits = State(), False
    for at, event in events:
        evolve(state, event, at)
        if ended:
            continue
        if (
            known.get("status") == run_status(state)
            and known.get("succeeded", 0) == state.succeeded
        ):
            fits = msgspec.json.encode(summary(state)) == stored or fits
    return (fits and state.ended is None) or msgspec.json.encode(summary(state)) == stored


def artifacts_of(events: Iterable[Event]) -> dict[str, int]:
    """Return the artifacts that events name, each with the number of the first such event."""
    found: dict[str, int] = {}
    for seq, event in enumerate(events, 1):
        names = [getattr(event, field, "") for field in ("data_ref", "output_ref", "result_ref")]
        for name in (*names, *getattr(event, "artifacts", ())):
            if isinstance(name, str) and name.startswith(ARTIFACT):
                found.setdefault(name, seq)
    return found


def unreadable(run: str, error: Exception) -> ChainProblem:
    """Return the problem for a log that cannot be read at all."""
    return ChainProblem(run, 0, "unreadable", f"{type(error).__name__}: {error}")
