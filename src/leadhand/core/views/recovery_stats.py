"""Success of recoveries: for each recovery decision, whether it worked. Pure, from a log.

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


class WinRate(msgspec.Struct, frozen=True, kw_only=True):
    """How often a strategy followed a class of failure, and how often it won."""

    failure_class: str = msgspec.field(name="class")
    """The failure class."""
    strategy: str
    """The recovery strategy."""
    times: int
    """How often it was chosen."""
    won: int
    """How often it succeeded."""
    lost: int
    """How often it failed."""
    open: int
    """How often the outcome is not decided yet."""
    rate: float | None
    """The share that succeeded, of the decided ones, from 0 to 1."""


def recoveries(events: Iterable[ev.Event]) -> list[RecoveryOutcome]:
    """Return every recovery decision in a run's log, in order."""
    log = _Log()
    for event in events:
        log.add(event)
    return log.closed()


def win_rates(answers: Iterable[RecoveryOutcome]) -> list[WinRate]:
    """Return the table by class and strategy, in that order; runs may be combined."""
    rows: dict[tuple[str, str], list[bool | None]] = {}
    for each in answers:
        rows.setdefault((each.failure_class, each.strategy), []).append(each.won)
    return [_win_rate(*key, found) for key, found in sorted(rows.items())]


def _win_rate(kind: str, strategy: str, found: list[bool | None]) -> WinRate:
    won, lost = found.count(True), found.count(False)
    return WinRate(
        failure_class=kind,
        strategy=strategy,
        times=len(found),
        won=won,
        lost=lost,
        open=len(found) - won - lost,
        rate=round(won / (won + lost), 4) if won + lost else None,
    )


class _Log:
    """The memory of the fold over a log."""

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
                self._verdict(event.step, won=event.met)
            case ev.ProbeReported():
                self._verdict(event.step, won=event.outcome == "done" and event.met)
            case ev.AttemptLost() | ev.StepRefused():
                self._verdict(event.step, won=False)
            case ev.StepSkipped() | ev.StepCancelled():
                self._verdict(event.step, won=False)
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
            self.gives[ident] = frozenset(facts_given(doc, offer, widened=ident in widens))
            if doc.get("supersedes"):
                self.heirs[str(doc["supersedes"])] = ident
                self._verdict(str(doc["supersedes"]), won=False)
        for ident in revision.cancel:
            self._verdict(ident, won=False)
        self._dropped(revision.drop)

    def _dropped(self, drop: Iterable[str]) -> None:
        for ident in drop:
            self._verdict(ident, won=False)
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
        self._verdict(event.step, won=False)
        self.answers.append(answer)
        self.since.append(len(self.succeeded))
        if event.strategy in NEXT:
            self.pending[event.step] = answer
        elif event.strategy not in IN_THE_END:
            answer.won = False
        elif event.strategy != "ask":
            self.forsaken.append(event.step)

    def _verdict(self, step: str, *, won: bool) -> None:
        answer = self.pending.pop(step, None)
        if answer is not None:
            answer.won = won
        if won:
            self.succeeded.append(step)

    def closed(self) -> list[RecoveryOutcome]:
        """Return all decisions, including those judged by the end."""
        for answer, since in zip(self.answers, self.since, strict=True):
            if answer.won is None and answer.strategy in IN_THE_END:
                answer.won = self._in_the_end(answer.step, set(self.succeeded[since:]))
            elif answer.won is None and self.ended:
                answer.won = False
        return self.answers

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
