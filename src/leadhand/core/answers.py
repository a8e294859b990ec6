"""What follows from an answer to a question, whoever gives it: a person, or time running out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core import events as ev
from leadhand.core.fault import origin_of

if TYPE_CHECKING:
    from leadhand.core.plan import Json
    from leadhand.core.records import Question
    from leadhand.core.state import State

STOPS = ("abort", "rollback")
"""Answers that end the run; the second has what was done taken back."""
NOBODY = "nobody"
"""The actor of an answer that was given by default, because nobody else gave one in time."""


def answer_events(
    state: State,
    question: Question,
    choice: str,
    actor: str,
    text: str,
    data: Json = None,
) -> list[ev.Event]:
    """The answer to a question that is neither a review nor a release, and what it decides."""
    events: list[ev.Event] = [
        ev.QuestionAnswered(id=question.id, choice=choice, actor=actor, text=text, data=data)
    ]
    because = f"{actor} said so" + (f": {text}" if text else "")
    if question.step and choice == "skip":
        events.append(ev.StepSkipped(question.step, because, tolerated=True))
    elif question.kind != "planner" and choice in STOPS and not state.stopping:
        what = f"step {question.step} failed" if question.step else "it was held"
        if question.kind == "planning":
            what = question.text.partition(". Answer ")[0]
        back, step = choice == "rollback", state.steps.get(question.step)
        origin = "person" if step is None else origin_of(step)
        if question.kind == "planning":
            origin = "planning"
        reason = f"{what}; {because}"
        events.append(ev.StopDecided("failed", reason, rollback=back, origin=origin))
    return events


def overdue_events(state: State, ident: str) -> list[ev.Event]:
    """A question that was to be answered by now: its default counts."""
    question, data = state.questions[ident], None
    if question.kind == "task":
        step = state.steps[question.step]
        offer = state.catalog.offer(step.worker, step.action)
        data = offer.silence if offer else None
    text = "no answer came in time"
    return answer_events(state, question, question.default, NOBODY, text, data)
