"""The timeline of a run, from its log: attempts, probes, and waits. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from leadhand.core import events as ev
from leadhand.core.views.ledger import AMENDED

if TYPE_CHECKING:
    from collections.abc import Iterable


class SpanRow(msgspec.Struct, kw_only=True):
    """Something that took time, in seconds since the run began."""

    step: str | None
    """The id of the step."""
    kind: str
    """What took the time."""
    worker: str | None
    """The worker of the attempt."""
    attempt: int | None
    """The number of the attempt, from 1."""
    start: float = msgspec.field(name="from")
    """The beginning, in seconds since the run began."""
    end: float | None = msgspec.field(name="to")
    """Null while it goes on."""
    outcome: str | None
    """How it ended."""


class Span(msgspec.Struct, kw_only=True):
    """An interval of time."""

    step: str
    kind: str
    """attempt, probe or question; of `waits`: approval, retry, held or scheduled."""
    start: int
    end: int = 0
    """0 while it lasts."""
    worker: str = ""
    attempt: int = 0
    outcome: str = ""
    """verified, the failure class, the result of the probe, or the answer."""
    ok: bool = False


def spans(log: Iterable[tuple[int, ev.Event]]) -> list[Span]:
    """Return attempts, probes and questions of a log of (at, event), in order of their start."""
    found: list[Span] = []
    going: dict[str, Span] = {}

    def begin(key: str, span: Span) -> None:
        found.append(span)
        going[key] = span

    def end(key: str, at: int, outcome: str, *, ok: bool = False) -> None:
        span = going.pop(key, None)
        if span is not None:
            span.end, span.outcome, span.ok = at, outcome, ok

    for at, event in log:
        match event:
            case ev.AttemptStarted(step=step, attempt=number, worker=who):
                begin(step, Span(step=step, kind="attempt", start=at, worker=who, attempt=number))
            case ev.AttemptReported():
                kind = "verified" if event.met else str((event.failure or {}).get("class", ""))
                end(event.step, at, kind, ok=event.met)
            case ev.AttemptLost():
                end(event.step, at, event.failure_class)
            case ev.ProbeStarted(step=step, attempt=number):
                begin(step, Span(step=step, kind="probe", start=at, attempt=number))
            case ev.ProbeReported():
                end(event.step, at, event.outcome, ok=event.met)
            case ev.QuestionAsked():
                begin(f"?{event.id}", Span(step=event.step, kind="question", start=at))
            case ev.QuestionAnswered():
                end(f"?{event.id}", at, f"{event.choice} ({event.actor})", ok=True)
            case _:
                pass  # takes no time
    return found


def waits(log: Iterable[tuple[int, ev.Event]]) -> list[Span]:
    """Return how long plans waited for approval, and steps for a retry, a release or their time."""
    found: list[Span] = []
    going: dict[str, Span] = {}

    def begin(key: str, step: str, kind: str, at: int) -> None:
        end(key, at)
        found.append(Span(step=step, kind=kind, start=at))
        going[key] = found[-1]

    def end(key: str, at: int, outcome: str = "") -> None:
        if (span := going.pop(key, None)) is not None:
            span.end, span.outcome, span.ok = at, outcome, True

    for at, event in log:
        match event:
            case ev.ReviewRequested():
                begin(f"review {event.number}", "", "approval", at)
            case ev.RevisionRejected() if event.reason == AMENDED:
                end(f"review {event.number}", at, f"amended ({event.actor})")
            case ev.ChangesRequested() | ev.RevisionRejected():
                end(f"review {event.number}", at, f"not approved ({event.actor})")
            case ev.RevisionApproved():
                end(f"review {event.number}", at, f"approved ({event.actor})")
                for step in event.instants:
                    begin(f"time {step}", step, "scheduled", at)
            case ev.StepsHeld():
                for step in event.steps:
                    begin(f"hold {step}", step, "held", at)
            case ev.StepsReleased():
                for step in event.steps:
                    end(f"hold {step}", at, f"released ({event.actor})")
            case ev.RecoveryDecided() if event.until > at:
                begin(f"retry {event.step}", event.step, "retry", at)
            case ev.AttemptStarted() | ev.StepSkipped() | ev.StepCancelled() | ev.StepRefused():
                for kind in ("retry", "time", "hold"):
                    end(f"{kind} {event.step}", at)
            case ev.RunEnded():
                for key in list(going):
                    end(key, at, "the run ended")
            case _:
                pass  # irrelevant here
    return [span for span in found if not span.end or span.end > span.start]


def timeline(log: Iterable[tuple[int, ev.Event]]) -> list[Span]:
    """Return all intervals of a run, waits too, in order of their start."""
    logged = list(log)
    return sorted([*spans(logged), *waits(logged)], key=lambda span: span.start)


def span_row(span: Span, start: int) -> SpanRow:
    """Return a span as a document shows it; the run began at `start`."""
    return SpanRow(
        step=span.step or None,
        kind=span.kind,
        worker=span.worker or None,
        attempt=span.attempt or None,
        start=round((span.start - start) / 1e6, 3),
        end=None if not span.end else round((span.end - start) / 1e6, 3),
        outcome=span.outcome or None,
    )
