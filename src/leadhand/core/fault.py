"""Was the failure in the plan or in the doing? Pure, from a log.

plan      the wrong thing was asked for: a reference without a value, a task too large or
          unclear, a proposal that was refused, steps that all succeeded without the goal
doing     the right thing was asked for, and could not be done: errors, time-outs, results
          that did not meet their criteria
limits    there was not enough time or money for it
person    somebody stopped it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leadhand.core import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterable

OF_PLAN = frozenset({"too_complex", "context_overflow", "ambiguous", "needs_info", "policy"})
"""Failure classes that speak of the task, not of whoever was given it."""
LIMITS = frozenset({"budget", "wall", "wall_time", "steps"})


class Fault(NamedTuple):
    """Where it went wrong, and why we say so."""

    where: str
    """plan, doing, limits, person; empty when nothing went wrong, or it is not over."""
    why: str


class _Failed(NamedTuple):
    step: str
    kind: str
    message: str
    refused: bool = False


def fault(events: Iterable[ev.Event]) -> Fault:
    """Where the failure of a run was."""
    failed: dict[str, _Failed] = {}
    stop: ev.StopDecided | None = None
    ended: ev.RunEnded | None = None
    planner = findings = rejected = person = why = ""
    for event in events:
        match event:
            case ev.AttemptReported() if event.met:
                failed.pop(event.step, None)
            case ev.AttemptReported():
                failure = event.failure or {}
                kind, message = str(failure.get("class", "")), str(failure.get("message", ""))
                failed[event.step] = _Failed(event.step, kind, message)
            case ev.AttemptLost():
                failed[event.step] = _Failed(event.step, event.failure_class, event.reason)
            case ev.StepRefused():
                kind = event.failure_class
                failed[event.step] = _Failed(event.step, kind, event.reason, kind == "permanent")
            case ev.ProbeReported() if event.met:
                failed.pop(event.step, None)
            case ev.PlannerFailed() if not event.lost:
                planner = event.reason
            case ev.PlannerAnswered() if event.decision.get("kind") == "give_up":
                planner = str(event.decision.get("reason", ""))
            case ev.ProposalRefused():
                planner = "; ".join(event.findings)
            case ev.RevisionProposed():
                planner = ""
            case ev.RevisionRejected():
                rejected = f"revision {event.number} was rejected by {event.actor}"
            case ev.CancelRequested():
                person, why = event.actor, event.reason
            case ev.GoalChecked():
                findings = "" if event.met else "; ".join(event.findings)
            case ev.StopDecided():
                stop = event
            case ev.RunEnded():
                ended = event
            case ev.RunReopened():
                ended = stop = None
                planner = findings = ""
            case _:
                pass  # says nothing of it
    if ended is None or ended.status == "succeeded":
        return Fault("", "")
    if person or ended.status == "cancelled":
        return Fault("person", f"{person or 'somebody'} stopped it" + (f": {why}" if why else ""))
    if rejected and ended.status == "rejected":
        return Fault("plan", rejected)
    limit = ended.limit or (stop.limit if stop is not None else "")
    if limit in LIMITS:
        return Fault("limits", ended.reason)
    if failed:
        return _of_steps(list(failed.values()))
    if planner:
        return Fault("plan", f"the planner found no way on: {planner}")
    if findings:
        return Fault("plan", f"every step did what was asked, and the goal is not met: {findings}")
    return Fault("plan", ended.reason or "no step failed, and the goal was not reached")


def _of_steps(failed: list[_Failed]) -> Fault:
    """What failed last decides: whatever failed before was recovered from, or led to it."""
    last = failed[-1]
    what = f"step {last.step}: {last.kind}: {last.message}"
    if last.refused:
        return Fault("plan", f"step {last.step} could not start as it was planned: {last.message}")
    if last.kind in OF_PLAN:
        return Fault("plan", what)
    if last.kind == "budget":
        return Fault("limits", what)
    return Fault("doing", what)
