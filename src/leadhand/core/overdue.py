"""The most urgent part of `decide`: what was lost with its host, and what is overdue."""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING

from leadhand.core import events as ev
from leadhand.core.answers import overdue_events
from leadhand.core.durations import seconds, text
from leadhand.core.effects import (
    StopAttempt,
)
from leadhand.core.moves import Move, stop_failed
from leadhand.core.report import TOO_LATE
from leadhand.core.state import STARTABLE

if TYPE_CHECKING:
    from leadhand.core.state import Now, State, StepState


def _allowed_s(state: State, step: StepState) -> float:
    """Return how long an attempt of a step may take: its own timeout, its worker's, the run's."""
    own = step.doc.get("timeout")
    offer = state.catalog.offer(step.worker, step.action)
    limit_s = seconds(own) if own is not None else offer.timeout_s if offer else None
    return state.policy.timeout_s if limit_s is None else limit_s


def lost(state: State) -> Move | None:
    reason = "its host ended before it reported"
    while state.orphans:
        ident, epoch = state.orphans[0]
        if not ident and state.planner.epoch == epoch:
            failed = ev.PlannerFailed(state.planner.calls, epoch, reason, lost=True)
            return Move([failed], [])
        step = state.steps.get(ident)
        if step is not None and state.in_flight.get(ident) == epoch:
            if step.status == "probing":
                probe = ev.ProbeReported(ident, step.attempts, epoch, "lost", reason=reason)
                return Move([probe], [])
            return Move([ev.AttemptLost(ident, step.attempts, epoch, "lost", reason)], [])
        state.orphans.popleft()
    return None


def overdue(state: State, now: Now) -> Move | None:
    if not state.awake:
        state.wake()
    calendar = state.calendar
    while calendar and calendar[0][0] <= now.wall:
        step = state.steps[heappop(calendar)[1]]
        if step.status in STARTABLE and not step.ticket:
            state.enqueue(step)
    timers = state.timers
    while timers and timers[0][0] <= now.at:
        state.tidy_timers()
        if not timers or timers[0][0] > now.at:
            return None
        _, kind, ident, epoch = timers[0]
        if kind != "retry":
            return _expire(state, kind, ident, epoch)
        heappop(timers)
        state.enqueue(state.steps[ident])
    return None


def _expire(state: State, kind: str, ident: str, epoch: int) -> Move:
    if kind == "question":
        return Move(overdue_events(state, ident), [])
    if kind == "planner":
        failed = ev.PlannerFailed(state.planner.calls, epoch, TOO_LATE)
        return Move([failed], [StopAttempt("", state.planner.calls, epoch, "timeout")])
    if kind == "run" and ident == "wall":
        return stop_failed("the run took longer than it may", "wall time")
    if kind == "run":
        ident, epoch = next(iter(state.in_flight.items()))
    step = state.steps[ident]
    stop = StopAttempt(ident, step.attempts, epoch, "timeout")
    if step.status == "probing":
        reason = "the probe took too long"
        probe = ev.ProbeReported(ident, step.attempts, epoch, "unknown", reason=reason)
        return Move([probe], [stop])
    if kind == "run":
        reason = "it did not stop in time when the run was cancelled"
        return Move([ev.AttemptLost(ident, step.attempts, epoch, "lost", reason)], [stop])
    reason = f"no report within {text(_allowed_s(state, step))}, its timeout"
    return Move([ev.AttemptLost(ident, step.attempts, epoch, "timeout", reason)], [stop])
