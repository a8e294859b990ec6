"""Recovery decisions of a run, each with whether it worked. Pure; fed event by event.

    retry, reroute, park, probe     the next verdict on that step decides
    simplify, replan, ask           the step, or its replacement, succeeded in the end
    continue, abort, abandon        nothing was tried, so nothing is won

A step is replaced by a step that supersedes it, by one that gives the facts it promised, or, if the
planner did neither, by the planner's next proposal: then a run that reached its goal by one of
those steps has won. A goal reached without a replacement of the failed step wins nothing. An
undecided recovery is open, and counts neither way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from leadhand.core import events as ev
from leadhand.core.catalog import Catalog
from leadhand.core.promises import facts_given

if TYPE_CHECKING:
    from collections.abc import Iterable


NEXT = frozenset({"retry", "reroute", "park", "probe"})
"""Strategies judged by the next verdict on the step."""
IN_THE_END = frozenset({"simplify", "replan", "ask"})
"""Strategies judged by the final outcome of the step or its replacement."""


class RecoveryOutcome(msgspec.Struct, kw_only=True):
    """One recovery decision."""

    step: str
    """The id of the step."""
    attempt: int
    """The number of the failed attempt."""
    failure_class: str = msgspec.field(name="class")
    """The failure class."""
    strategy: str
    """The recovery strategy."""
    worker: str | None = None
    """The worker that it was handed to, where the strategy names one."""
    reason: str = ""
    """Why this strategy was chosen."""
    won: bool | None = None
    """None while undecided."""


class RecoveryLog:
    """The memory of the fold over a log: what costs nothing until a step fails stays empty."""

    def __init__(self) -> None:
        self.answers: list[RecoveryOutcome] = []
        self.since: list[int] = []
        """For each decision, how many steps had succeeded when it was made."""
        self.pending: dict[str, RecoveryOutcome] = {}
        """By step: the decision that its next verdict judges."""
        self.catalog = Catalog()
        self.proposed: ev.RevisionProposed | None = None
        self.gives: dict[str, frozenset[str]] = {}
        self.heirs: dict[str, str] = {}
        self.next: dict[str, set[str]] = {}
        """By failed step: the steps that the planner proposed next, instead of it."""
        self.forsaken: list[str] = []
        """Steps that the planner has not dealt with yet."""
        self.succeeded: list[str] = []
        self.given_up: set[str] = set()
        self.asked: dict[str, str] = {}
        self.ended = ""

    def add(self, event: ev.Event) -> None:
        """Add the next event of the run."""
        match event:
            case ev.RunStarted():
                self.catalog = Catalog(event.catalog)
            case ev.RevisionProposed():
                self.proposed = event
            case ev.RevisionApproved() if self.proposed is not None:
                self._planned(self.proposed, event.widens)
            case ev.RecoveryDecided():
                self._decided(event)
            case ev.AttemptReported():
                self.verdict(event.step, won=event.met)
            case ev.ProbeReported():
                self.verdict(event.step, won=event.outcome == "done" and event.met)
            case ev.AttemptLost() | ev.StepRefused():
                self.verdict(event.step, won=False)
            case ev.StepSkipped() | ev.StepCancelled():
                self.verdict(event.step, won=False)
                self.given_up.add(event.step)
            case ev.QuestionAsked() if event.step and event.kind != "task":
                self.asked[event.id] = event.step
            case ev.QuestionAnswered() if event.choice == "done" and event.id in self.asked:
                self.succeeded.append(self.asked[event.id])
            case ev.FinishAccepted():
                self._dropped(event.drop)
            case ev.RunEnded():
                self.ended = event.status
            case ev.RunReopened():
                self.ended = ""
            case _:
                pass  # irrelevant here

    def _planned(self, revision: ev.RevisionProposed, widens: list[str]) -> None:
        if revision.add:
            for ident in self.forsaken:
                self.next[ident] = {str(doc["id"]) for doc in revision.add}
            self.forsaken = []
        for doc in revision.add:
            ident = str(doc["id"])
            offer = self.catalog.offer(str(doc.get("worker", "")), str(doc.get("action", "")))
            if given := frozenset(facts_given(doc, offer, widened=ident in widens)):
                self.gives[ident] = given
            if doc.get("supersedes"):
                self.heirs[str(doc["supersedes"])] = ident
                self.verdict(str(doc["supersedes"]), won=False)
        for ident in revision.cancel:
            self.verdict(ident, won=False)
        self._dropped(revision.drop)

    def _dropped(self, drop: Iterable[str]) -> None:
        for ident in drop:
            self.verdict(ident, won=False)
            if ident not in self.next:  # Else the steps proposed instead decide.
                self.given_up.add(ident)

    def _decided(self, event: ev.RecoveryDecided) -> None:
        answer = RecoveryOutcome(
            step=event.step,
            attempt=event.attempt,
            failure_class=event.failure_class,
            strategy=event.strategy,
            worker=event.worker or None,
            reason=event.reason,
        )
        self.verdict(event.step, won=False)
        self.answers.append(answer)
        self.since.append(len(self.succeeded))
        if event.strategy in NEXT:
            self.pending[event.step] = answer
        elif event.strategy not in IN_THE_END:
            answer.won = False
        elif event.strategy != "ask":
            self.forsaken.append(event.step)

    def verdict(self, step: str, *, won: bool) -> None:
        """Note that a step, or an attempt at it, succeeded or did not."""
        if not self.answers:
            return
        answer = self.pending.pop(step, None)
        if answer is not None:
            answer.won = won
        if won:
            self.succeeded.append(step)

    def closed(self) -> list[RecoveryOutcome]:
        """Return all decisions, including those judged by the end. Changes nothing."""
        found = []
        for answer, since in zip(self.answers, self.since, strict=True):
            won = answer.won
            if won is None and answer.strategy in IN_THE_END:
                won = self._in_the_end(answer.step, set(self.succeeded[since:]))
            elif won is None and self.ended:
                won = False
            found.append(msgspec.structs.replace(answer, won=won))
        return found

    def _in_the_end(self, step: str, succeeded: set[str]) -> bool | None:
        line = [step]
        while (heir := self.heirs.get(line[-1])) is not None and heir not in line:
            line.append(heir)
        promised = self.gives.get(step, frozenset())
        if not succeeded.isdisjoint(line):
            return True
        if promised and any(promised <= self.gives.get(each, frozenset()) for each in succeeded):
            return True
        if not self.given_up.isdisjoint(line):
            return False
        if not self.ended:
            return None
        return self.ended == "succeeded" and not succeeded.isdisjoint(self.next.get(step, ()))
