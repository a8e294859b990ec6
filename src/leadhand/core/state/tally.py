"""The tally of a run: what lists and totals count, kept while its events are folded.

Laws of this file
1. A tally changes nothing but itself, and only for an event that was applied: `evolve`
   (core/state/evolve.py) calls it last.
2. Each event costs the same for a plan of any size.
3. Sums are integers, so that adding and taking away is exact: time in microseconds. Costs stay as
   they were reported and are rounded once, when the run is told (`core/views/totals.py`).

People. A question, a review and a hold by the policy wait for a person from the moment they are
asked until a person answers; what got its default answer did not need one.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core import events as ev
from leadhand.core.state.recovery_log import RecoveryLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.state.model import State

_MIN, _HOUR, _DAY = 60, 3600, 86_400
ANSWER_EDGES_S = (
    *(10, 30, _MIN, 2 * _MIN, 5 * _MIN, 10 * _MIN, 30 * _MIN),
    *(_HOUR, 2 * _HOUR, 4 * _HOUR, 8 * _HOUR),
    *(_DAY, 2 * _DAY, 7 * _DAY, 30 * _DAY),
)
"""Answers of people are counted by how long they took: up to each of these, in seconds."""
DOCUMENT = "document"
"""The planner of a run that was given its plan: no planner was asked."""
NOBODY = "nobody"
"""The actor of a default answer."""
POLICY = "policy"
"""The actor of holds and refusals by rule."""


class WorkerTally(msgspec.Struct):
    """What one worker did in a run."""

    attempts: int = 0
    """Started attempts."""
    failed: int = 0
    """Attempts that failed or were lost."""
    busy: int = 0
    """Microseconds in which its attempts were under way."""
    cost: float = 0.0
    """What it reported, and its calls of models."""


class RunTally:
    """The counts of one run."""

    __slots__ = (
        "answer_times",
        "answered_by_default",
        "answers",
        "approvals",
        "asked",
        "first_pass",
        "human_wait",
        "planner_calls",
        "questions",
        "recovery",
        "running",
        "tried",
        "waiting",
        "workers",
    )

    def __init__(self) -> None:
        self.planner_calls = 0
        self.tried = self.first_pass = 0  # steps with a verdict on the first attempt; verified then
        self.questions = self.answered_by_default = 0
        self.asked = 0  # times that a person was needed: questions, reviews, holds by the policy
        self.answers = self.human_wait = 0  # by people, and the microseconds until then
        self.answer_times = [0] * (len(ANSWER_EDGES_S) + 1)  # answers by how long they took
        self.approvals = 0
        self.workers: dict[str, WorkerTally] = {}
        self.running: dict[str, int] = {}
        """Steps under way, with the start of the attempt."""
        self.waiting: dict[str, int] = {}
        """What waits for a person, and since when."""
        self.recovery = RecoveryLog()

    @property
    def attempts(self) -> int:
        """Started attempts."""
        return sum(each.attempts for each in self.workers.values())

    def worker(self, name: str) -> WorkerTally:
        """Return the tally of a worker."""
        found = self.workers.get(name)
        if found is None:
            found = self.workers[name] = WorkerTally()
        return found

    def person_acted(self, ident: str, at: int) -> None:
        """Note that a person answered what was asked under `ident`."""
        since = self.waiting.pop(ident, None)
        if since is not None:
            self.answers += 1
            self.human_wait += at - since
            self.answer_times[bisect_left(ANSWER_EDGES_S, (at - since) / 1_000_000)] += 1

    def ask(self, ident: str, at: int) -> None:
        """Note that a person is asked."""
        if ident not in self.waiting:
            self.asked += 1
            self.waiting[ident] = at


def _run_started(state: State, _event: ev.RunStarted, _at: int) -> None:
    state.tally.recovery.catalog = state.catalog


def _attempt_started(state: State, event: ev.AttemptStarted, at: int) -> None:
    tally, worker = state.tally, event.worker
    if worker in tally.workers:
        tally.workers[worker].attempts += 1
    else:
        tally.workers[worker] = WorkerTally(1)
    tally.running[event.step] = at


def _attempt_reported(state: State, event: ev.AttemptReported, at: int) -> None:
    tally, step = state.tally, event.step
    if event.attempt == 1:
        tally.tried += 1
        tally.first_pass += event.met
    worker = tally.workers[state.steps[step].worker]
    worker.busy += at - tally.running.pop(step)
    if not event.met:
        worker.failed += 1
    if event.cost:
        worker.cost += event.cost
    if tally.recovery.answers:
        tally.recovery.verdict(step, won=event.met)


def _attempt_lost(state: State, event: ev.AttemptLost, at: int) -> None:
    tally, step = state.tally, event.step
    tally.tried += event.attempt == 1
    worker = tally.workers[state.steps[step].worker]
    worker.busy += at - tally.running.pop(step)
    worker.failed += 1
    tally.recovery.verdict(step, won=False)


def _model_called(state: State, event: ev.ModelCalled, _at: int) -> None:
    if event.step:
        state.tally.worker(state.steps[event.step].worker).cost += event.cost


def _planner_asked(state: State, _event: ev.PlannerAsked, _at: int) -> None:
    if state.started is not None and state.started.planner != DOCUMENT:
        state.tally.planner_calls += 1


def _question_asked(state: State, event: ev.QuestionAsked, at: int) -> None:
    state.tally.questions += 1
    state.tally.ask(event.id, at)
    state.tally.recovery.add(event)


def _question_answered(state: State, event: ev.QuestionAnswered, at: int) -> None:
    tally = state.tally
    if event.actor == NOBODY:
        tally.waiting.pop(event.id, None)
        tally.answered_by_default += 1
    else:
        tally.person_acted(event.id, at)
    tally.recovery.add(event)


def _review_requested(state: State, event: ev.ReviewRequested, at: int) -> None:
    state.tally.ask(f"review-{event.number}", at)


def _approval_given(state: State, _event: ev.ApprovalGiven, _at: int) -> None:
    state.tally.approvals += 1


def _review_decided(
    state: State, event: ev.RevisionApproved | ev.RevisionRejected | ev.ChangesRequested, at: int
) -> None:
    ident = f"review-{event.number}"
    if event.actor == POLICY:
        state.tally.waiting.pop(ident, None)
    else:
        state.tally.person_acted(ident, at)
    state.tally.recovery.add(event)


def _steps_held(state: State, event: ev.StepsHeld, at: int) -> None:
    if event.actor == POLICY:
        state.tally.ask(event.question, at)


def _release_given(state: State, event: ev.ReleaseGiven, at: int) -> None:
    state.tally.approvals += 1
    state.tally.person_acted(event.question, at)


def _change_approved(state: State, _event: ev.ChangeApproved, _at: int) -> None:
    state.tally.approvals += 1


def _recovery(state: State, event: ev.Event, _at: int) -> None:
    state.tally.recovery.add(event)


TALLIES: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.RunStarted: _run_started,
    ev.AttemptStarted: _attempt_started,
    ev.AttemptReported: _attempt_reported,
    ev.AttemptLost: _attempt_lost,
    ev.ModelCalled: _model_called,
    ev.PlannerAsked: _planner_asked,
    ev.QuestionAsked: _question_asked,
    ev.QuestionAnswered: _question_answered,
    ev.ReviewRequested: _review_requested,
    ev.ApprovalGiven: _approval_given,
    ev.RevisionApproved: _review_decided,
    ev.RevisionRejected: _review_decided,
    ev.ChangesRequested: _review_decided,
    ev.StepsHeld: _steps_held,
    ev.ReleaseGiven: _release_given,
    ev.ChangeApproved: _change_approved,
    ev.RevisionProposed: _recovery,
    ev.RecoveryDecided: _recovery,
    ev.ProbeReported: _recovery,
    ev.StepRefused: _recovery,
    ev.StepSkipped: _recovery,
    ev.StepCancelled: _recovery,
    ev.FinishAccepted: _recovery,
    ev.RunEnded: _recovery,
    ev.RunReopened: _recovery,
}
"""What is counted of each kind of event, after it was applied."""
