"""When each step was worked on, from a log: attempts, probes, and waits for a person. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from leadhand.core import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.plan import Doc


class Span(msgspec.Struct, kw_only=True):
    """Something that took time."""

    step: str
    kind: str
    """attempt, probe or question."""
    start: int
    end: int = 0
    """0 while it goes on."""
    worker: str = ""
    attempt: int = 0
    outcome: str = ""
    """verified, the class of the failure, the probe's word, or the answer."""
    ok: bool = False


def spans(log: Iterable[tuple[int, ev.Event]]) -> list[Span]:
    """Everything that took time in a run, given as (at, event), in the order it began."""
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


def span_row(span: Span, start: int) -> Doc:
    """A span as a document, in seconds since the run began."""
    end = None if not span.end else round((span.end - start) / 1e6, 3)
    return {
        "step": span.step or None,
        "kind": span.kind,
        "worker": span.worker or None,
        "attempt": span.attempt or None,
        "from": round((span.start - start) / 1e6, 3),
        "to": end,
        "outcome": span.outcome or None,
    }
