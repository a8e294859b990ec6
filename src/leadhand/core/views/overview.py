"""Rows of the overview: runs that are under way, and runs that failed with the reason. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from leadhand.core.calendar import iso
from leadhand.core.views.run import StepError, goal_of, run_status, summary

if TYPE_CHECKING:
    from leadhand.core.state.model import State, StepState

STEPS_SHOWN = 3
"""How many running steps of a run are named."""
REASON_CHARS = 2000


class CurrentStep(Struct, kw_only=True):
    """A step that is running now."""

    id: str
    """The id of the step."""
    worker: str
    """The worker of the step."""
    attempt: int
    """The number of the attempt."""


class CurrentRun(Struct, kw_only=True):
    """A run that has not ended and does not only wait for a person."""

    run: str
    """The id of the run."""
    goal: str
    """The goal in a sentence."""
    plan: str
    """The `plan_id` of the plan."""
    status: str
    """The status of the run."""
    started_by: str
    """The person who started it."""
    started: str
    """When it started, in ISO 8601."""
    steps: int
    """The number of steps, without those that were replaced."""
    succeeded: int
    """The number of steps that succeeded."""
    failed: int
    """The number of steps that failed."""
    waiting: int
    """The number of open questions to people."""
    cost: float
    """What counts against the budget: money, and the cost units of workers."""
    money: float
    """What models and coding agents cost, in dollars."""
    current: list[CurrentStep]
    """The steps that are running now, at most three."""
    current_total: int
    """How many steps are running now."""


class FailedRun(Struct, kw_only=True):
    """A run that failed, and why."""

    run: str
    """The id of the run."""
    goal: str
    """The goal in a sentence."""
    plan: str
    """The `plan_id` of the plan."""
    started_by: str
    """The person who started it."""
    ended: str
    """When it ended, in ISO 8601."""
    reason: str
    """Why the run failed."""
    origin: str
    """Where the cause lies: planning, execution, limits or person."""
    step: str | None
    """The last step that failed."""
    error: StepError | None
    """Why that step failed."""


def current_run(state: State) -> CurrentRun:
    """Return a run that has not ended, with the steps that are running."""
    told = summary(state)
    running = sorted((state.steps[name] for name in state.in_flight), key=lambda step: step.order)
    return CurrentRun(
        run=state.run,
        goal=told.goal,
        plan=told.plan,
        status=told.status,
        started_by=state.started.actor if state.started else "",
        started=iso(state.started_at),
        steps=told.steps - told.replaced,
        succeeded=told.succeeded,
        failed=told.failed,
        waiting=told.waiting,
        cost=told.cost,
        money=told.money,
        current=[
            CurrentStep(id=step.id, worker=step.worker, attempt=step.attempts)
            for step in running[:STEPS_SHOWN]
        ],
        current_total=len(running),
    )


def failed_run(state: State) -> FailedRun:
    """Return a run that failed, with the last step that failed. Raise `ValueError` for another."""
    ended = state.ended
    if ended is None or run_status(state) != "failed":
        raise ValueError(f"run {state.run} did not fail")
    step = _last_failed(state)
    failure = (step.failure if step is not None else None) or {}
    error = StepError(failure_class=failure.get("class"), message=failure.get("message"))
    return FailedRun(
        run=state.run,
        goal=goal_of(state).text[:500],
        plan=str(state.started.plan.get("plan_id", "")) if state.started else "",
        started_by=state.started.actor if state.started else "",
        ended=iso(state.last_at),
        reason=ended.reason[:REASON_CHARS],
        origin=ended.origin,
        step=step.id if step is not None else None,
        error=error if failure else None,
    )


def _last_failed(state: State) -> StepState | None:
    failed = [step for step in state.steps.values() if step.status == "failed"]
    return max(failed, key=lambda step: (step.ended, step.order), default=None)
