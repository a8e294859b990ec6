"""The origin of a failure: planning, or the execution of the plan. Pure, from a log.

    planning    no way on was found: the planner gave up, was stuck, failed, or was refused
                repeatedly; a step could not start as planned; all steps did their work
                without reaching the goal; a plan was rejected
    execution   a worker failed at a step, and the run ended for that
    limits      time or budget did not suffice
    person      a person stopped it

`RunEnded.origin` records the origin; the reason is computed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from leadhand.core import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import StepState


# Refused proposals of a run, with the reasons. Pure, from a log.


class RefusedProposal(Struct):
    """One proposal that was refused."""

    call: int
    """The number of the planner's call that returned it."""
    by: str
    """planner: its own check, before the run saw it; run: the checks of every proposal."""
    findings: list[str]
    """Why it was refused."""
    proposal: Any
    """The proposal; None if it was withdrawn or not made by the planner."""


def refusals(events: Iterable[ev.Event]) -> list[RefusedProposal]:
    """Return every refused proposal, in the order of the log."""
    found: list[RefusedProposal] = []
    answers: dict[int, Doc] = {}
    revisions: dict[int, Doc] = {}
    for event in events:
        match event:
            case ev.PlannerAnswered():
                answers = {event.call: event.decision}  # only the last one can be refused
            case ev.RevisionProposed():
                revisions = {event.number: {"kind": "propose", "steps": event.add}}
            case ev.DraftRefused():
                found.append(RefusedProposal(event.call, "planner", event.findings, event.draft))
            case ev.ProposalRefused():
                answer = answers.get(event.call)
                if answer is not None and "revision" in answer:
                    answer = revisions.get(answer["revision"])
                found.append(RefusedProposal(event.call, "run", event.findings, answer))
            case _:
                pass  # refuses nothing
    return found


LIMITS = frozenset({"budget", "wall time", "steps"})


class FailureOrigin(Struct, frozen=True):
    """Where it went wrong, and why we say so."""

    where: str
    """planning, execution, limits, person; empty without a failure, or before the end."""
    why: str
    """The reason for this origin."""


class _Failed(NamedTuple):
    step: str
    kind: str
    message: str
    refused: bool = False


def origin_of(step: StepState) -> str:
    """Return the origin when the failure of a step ends a run."""
    failure = step.failure or {}
    kind = failure.get("class")
    if kind == "budget":
        return "limits"
    # A step that never started could not be done as planned, unless a person refused it.
    unready = kind == "permanent" and not step.attempts and "by" not in failure
    return "planning" if unready else "execution"


def origin_of_run(events: Iterable[ev.Event]) -> FailureOrigin:
    """Return the origin of the failure of a run."""
    log = _Log()
    for event in events:
        log.add(event)
    return log.fault()


class _Log:
    """The memory of the fold over a log."""

    def __init__(self) -> None:
        self.failed: dict[str, _Failed] = {}
        self.tried: set[str] = set()
        self.ended: ev.RunEnded | None = None
        self.planner = self.findings = self.rejected = self.person = self.why = ""

    def add(self, event: ev.Event) -> None:
        match event:
            case ev.AttemptStarted():
                self.tried.add(event.step)
            case ev.AttemptReported() | ev.ProbeReported() if event.met:
                self.failed.pop(event.step, None)
            case ev.AttemptReported():
                failure = event.failure or {}
                kind, message = str(failure.get("class", "")), str(failure.get("message", ""))
                self._fail(event.step, kind, message)
            case ev.AttemptLost():
                self._fail(event.step, event.failure_class, event.reason)
            case ev.StepRefused():
                self._fail(event.step, event.failure_class, event.reason)
            case ev.RevisionRejected():
                self.rejected = f"revision {event.number} was rejected by {event.actor}"
            case ev.CancelRequested():
                self.person, self.why = event.actor, event.reason
            case ev.GoalChecked():
                self.findings = "" if event.met else "; ".join(event.findings)
            case ev.RunEnded():
                self.ended = event
            case ev.RunReopened():
                self.ended = None
                self.planner = self.findings = ""
            case _:
                self._of_planner(event)

    def _of_planner(self, event: ev.Event) -> None:
        match event:
            case ev.PlannerFailed() if not event.lost:
                self.planner = event.reason
            case ev.PlannerAnswered() if event.decision.get("kind") == "give_up":
                self.planner = str(event.decision.get("reason", ""))
            case ev.ProposalRefused():
                self.planner = "; ".join(event.findings)
            case ev.RevisionProposed():
                self.planner = ""
            case _:
                pass  # irrelevant here

    def _fail(self, step: str, kind: str, message: str) -> None:
        self.failed.pop(step, None)  # keeps the latest failure last
        refused = kind == "permanent" and step not in self.tried
        self.failed[step] = _Failed(step, kind, message, refused)

    def fault(self) -> FailureOrigin:
        ended = self.ended
        if ended is None or ended.status == "succeeded":
            return FailureOrigin("", "")
        if self.person or ended.status == "cancelled":
            why = f": {self.why}" if self.why else ""
            return FailureOrigin("person", f"stopped by {self.person or 'a person'}{why}")
        if self.rejected and ended.status == "rejected":
            return FailureOrigin("planning", self.rejected)
        match ended.origin:
            case "planning":
                return FailureOrigin("planning", self._planned(ended.reason))
            case "execution" if self.failed:
                return FailureOrigin("execution", self._last())
            case "":
                return self._unsaid(ended)
            case where:
                return FailureOrigin(where, ended.reason)

    def _unsaid(self, ended: ev.RunEnded) -> FailureOrigin:
        """Return the origin for a log whose end does not record it."""
        if ended.limit in LIMITS:
            return FailureOrigin("limits", ended.reason)
        if self.planner:
            return FailureOrigin(
                "planning", f"the planner found no way to continue: {self.planner}"
            )
        last = next(reversed(self.failed.values()), None)
        if last is None or last.refused:
            return FailureOrigin("planning", self._planned(ended.reason))
        return FailureOrigin("limits" if last.kind == "budget" else "execution", self._last())

    def _planned(self, reason: str) -> str:
        last = next(reversed(self.failed.values()), None)
        if self.findings and not self.failed:
            return f"every step succeeded, but the goal is not met: {self.findings}"
        if last is not None and last.refused:
            return f"step {last.step} could not start as it was planned: {last.message}"
        text = reason or "no step failed, and the goal was not reached"
        return f"{text} (before that, {self._last()})" if last is not None else text

    def _last(self) -> str:
        """Describe the last failure: earlier ones were recovered from, or led to it."""
        last = next(reversed(self.failed.values()))
        return f"step {last.step}: {last.kind}: {last.message}"
