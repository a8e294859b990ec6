"""What a log may say of causes: where an end came from, and what models were asked.

Its own small book beside the others: which causes there were so far, and what came last. It takes
no part in folding a run, and shares nothing with what decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core import events as ev

if TYPE_CHECKING:
    from leadhand.core.invariants_book import Book

ORIGINS = frozenset({"planning", "execution", "limits", "person"})
DIGEST_CHARS = 64
GAVE_UP = "a planner that gave up"
BY_PLANNER = frozenset({"replans", "planner calls"})
"""Limits on the planner: they are reached by planning, not by lack of time or money."""
QUESTIONS = frozenset({"planner", "planning"})
"""Kinds of questions that planners have."""


class Causes:
    """The causes that a log has named so far."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.last = ""
        """What has just been decided: that the planner gives up, or the step that aborts."""
        self.unready: set[str] = set()
        """Steps that could not start as they were planned."""
        self.begun: set[str] = set()
        self.unpaid: set[str] = set()
        """Steps whose last failure was that the money was spent."""
        self.stop: ev.StopDecided | None = None

    def look(self, book: Book, event: ev.Event) -> None:
        """One event, before the other checks change the book."""
        if isinstance(event, ev.ModelCalled):  # comes whenever it comes
            _check_digests(book, event)
            return
        last, self.last = self.last, ""
        match event:
            case ev.StopDecided():
                self._stopped(book, event, last)
            case ev.RunEnded():
                self._ended(book, event)
            case ev.RunReopened():
                self.stop = None
            case _:
                self._cause(event)

    def _cause(self, event: ev.Event) -> None:
        match event:
            case ev.PlannerAnswered() if event.decision.get("kind") == "give_up":
                self.last = GAVE_UP
                self.seen.add("planning")
            case ev.PlannerFailed() if not event.lost:
                self.seen.add("planning")
            case ev.ProposalRefused() | ev.DraftRefused() | ev.RevisionRejected():
                self.seen.add("planning")
            case ev.GoalChecked() if not event.met:
                self.seen.add("planning")
            case ev.QuestionAsked() if event.kind in QUESTIONS:
                self.seen.add("planning")
            case ev.AttemptStarted():
                self.begun.add(event.step)
                self.unready.discard(event.step)
                self.unpaid.discard(event.step)
            case ev.StepRefused():
                self.seen.add("execution")
                if event.failure_class == "permanent" and event.step not in self.begun:
                    self.unready.add(event.step)
                    self.seen.add("planning")
            case ev.AttemptReported() if not event.met:
                self.seen.add("execution")
                if (event.failure or {}).get("class") == "budget":
                    self.unpaid.add(event.step)
            case ev.AttemptLost() | ev.StepSkipped() | ev.ProbeReported():
                self.seen.add("execution")
            case ev.RecoveryDecided() if event.strategy == "abort":
                self.last = f"step {event.step}"
            case ev.QuestionAnswered():
                self.seen |= {"person", "execution"} if event.choice == "cannot" else {"person"}
            case ev.CancelRequested():
                self.seen.add("person")
            case _:
                pass  # causes no end

    def _stopped(self, book: Book, event: ev.StopDecided, last: str) -> None:
        self.stop = event
        if not last:
            return
        step = last.removeprefix("step ")
        right = "limits" if step in self.unpaid else "execution"
        right = "planning" if last == GAVE_UP or step in self.unready else right
        if event.limit and event.limit not in BY_PLANNER:
            right = "limits"  # Its time was up before the other cause was acted on.
        if event.origin != right:
            book.wrong("I50", f"{last} ended the run, and {event.origin or 'nothing'} is blamed")

    def _ended(self, book: Book, event: ev.RunEnded) -> None:
        origin = event.origin
        if event.status == "succeeded":
            if origin:
                book.wrong("I50", f"it succeeded, and {origin} is blamed for something")
            return
        if origin not in ORIGINS:
            book.wrong("I50", f"it ended as {event.status}, and nothing is named as the origin")
            return
        if self.stop is not None and self.stop.origin != origin and event.status != "cancelled":
            book.wrong("I50", f"it was stopped for {self.stop.origin} and ended for {origin}")
        if origin == "limits" and not event.limit and not self.unpaid:
            book.wrong("I50", "limits are blamed, and none was reached")
        waiting = any(not step.settled for step in book.steps.values())
        stuck = book.idle > book.policy.replans_idle_max
        planned = event.limit in BY_PLANNER or waiting or stuck
        if origin == "planning" and "planning" not in self.seen and not planned:
            book.wrong("I50", "planning is blamed, and no planner failed")
        if origin in ("execution", "person") and origin not in self.seen:
            what = "no step failed" if origin == "execution" else "no person said anything"
            book.wrong("I50", f"{origin} is blamed, and {what}")


def _check_digests(book: Book, event: ev.ModelCalled) -> None:
    """A model that answered is known by digests of what it was asked and what it said."""
    missing = len(event.asked) != DIGEST_CHARS
    if missing or (not event.failure and len(event.answer) != DIGEST_CHARS):
        which = "what it was asked" if missing else "its answer"
        book.wrong("I51", f"{event.model} was asked, and no digest of {which} is kept")
