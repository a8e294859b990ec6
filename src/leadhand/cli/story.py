"""A run as a story, for `--why`: what went wrong, what was decided, who was asked. Pure.

Shorter than the ledger: a failure and the answer to it are one line, and what goes well is left
to the picture.
"""

from __future__ import annotations

from typing import Final

from leadhand.cli.text import gist
from leadhand.core import events as ev
from leadhand.core.views.ledger import describe

LINE_MAX = 240
NAMED_MAX = 5
STYLES: Final = {
    ev.RecoveryDecided: "yellow",
    ev.RevisionProposed: "cyan",
    ev.QuestionAsked: "magenta",
    ev.QuestionAnswered: "magenta",
}
TROUBLE: Final = (ev.ProposalRefused, ev.PlannerFailed, ev.StopDecided, ev.StepSkipped)


def line_of(event: ev.Event) -> tuple[str, str]:
    """One line and its colour; empty for what is no part of the story."""
    text = _told(event)
    return gist(text, LINE_MAX), STYLES.get(type(event), "red")


def _told(event: ev.Event) -> str:
    match event:
        case ev.RecoveryDecided():
            to = f" with {event.worker}" if event.worker and event.strategy != "retry" else ""
            head = f"✗ {event.step}: {event.failure_class} → {event.strategy}{to}"
            return f"{head}   ({event.reason})"
        case ev.RevisionProposed() if event.add or event.cancel:
            names = [str(doc.get("id", "?")) for doc in event.add]
            more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
            parts = [f"{', '.join(names[:NAMED_MAX])}{more}"] if names else []
            parts += [f"cancel {', '.join(event.cancel)}"] if event.cancel else []
            because = f"   ({event.because})" if event.because else ""
            return f"▸ next: {'; '.join(parts)}{because}"
        case ev.QuestionAsked():
            return f"? {event.text}"
        case ev.QuestionAnswered():
            said = f"   ({event.text})" if event.text else ""
            return f"? {event.actor} answered: {event.choice}{said}"
        case ev.AttemptReported() if event.met and event.surprise:
            return f"! {event.step}: {event.surprise}"
        case _:
            return describe(event) if isinstance(event, TROUBLE) else ""
