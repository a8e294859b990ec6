"""Rules about commands of people to steps: hold, release, retry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev
from leadhand.core.logcheck import permissions as permits
from leadhand.core.plan import graph
from leadhand.core.review.ruling import envelope_without

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.logcheck.book import Book, StepRecord


def _steps_held(book: Book, event: ev.StepsHeld) -> None:
    for ident in event.steps:
        if book.step(ident, "a hold") is not None:
            book.barred[ident] = event.actor
    permits.hold(book, event)


def _steps_released(book: Book, event: ev.StepsReleased) -> None:
    permits.release(book, event)
    for ident in event.steps:
        if book.barred.pop(ident, None) is None:
            book.wrong("I6", f"step {ident} was released, and it was not held")


def pass_hold(book: Book, old: str, new: str, *, allowed: bool) -> None:
    """Carry a hold over to the successor of a step, unless people allowed what the policy held."""
    held_by = book.barred.get(old)
    if held_by is not None and not (held_by == "policy" and allowed):
        book.barred[new] = held_by
        book.permits.held_under[new] = book.permits.held_under.get(old, "")


def _workers_changed(book: Book, event: ev.WorkersChanged) -> None:
    permits.change(book, event)
    book.catalog.update({spec.name: spec for spec in event.specs})
    book.envelope = envelope_without(book.envelope, {spec.name for spec in event.specs})


def _redo_requested(book: Book, event: ev.RedoRequested) -> None:
    step = book.step(event.step, "a wish to do it again")
    if step is None:
        return
    waits = step.status in ("asked", "again") and step.failure  # for an answer, or for a retry
    if not (step.status == "failed" or waits) or not event.actor or not event.reason:
        book.wrong("I10", f"{event.step} is to be retried: its status is {step.status}")
    if step.status == "failed":
        book.barred.pop(step.id, None)
    for name in [name for name, asked in book.questions.items() if asked.step == step.id]:
        del book.questions[name]
    book.ended_before.add(step.id)  # tolerant dependents may start
    step.status, step.tries, step.until, step.tolerated = "again", {}, 0, False
    step.restarts = 0
    step.unseen = step.happened = False
    book.awaiting_planner = [each for each in book.awaiting_planner if each.id != step.id]
    book.unanswered = [each for each in book.unanswered if each.id != step.id]
    book.finish, book.goal_met, book.goal_asked = False, None, False
    causes = {step.id}
    while found := [other for other in book.steps.values() if _lives_again(book, other, causes)]:
        for other in found:
            causes.add(other.id)
            book.ended_before.add(other.id)
            other.status = "planned"


def _lives_again(book: Book, step: StepRecord, causes: set[str]) -> bool:
    """Return whether a step was skipped only because of `causes`."""
    if step.status != "skipped" or step.tolerated:
        return False
    names = [name for name, tolerant in graph.dependencies(step.doc).items() if not tolerant]
    minded = [other for name in names if (other := book.follow(name)) is not None]
    if not any(other.id in causes for other in minded):
        return False
    return all(other.status == "succeeded" or not other.settled for other in minded)


PEOPLE_CHECKS: dict[type[ev.Event], Callable[[Book, Any], None]] = {
    ev.StepsHeld: _steps_held,
    ev.ReleaseGiven: permits.give_release,
    ev.StepsReleased: _steps_released,
    ev.ApprovalVoided: permits.distrust,
    ev.WorkersChanged: _workers_changed,
    ev.RedoRequested: _redo_requested,
}
