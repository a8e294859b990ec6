"""Two runs side by side: outcome, inputs, plan, time and cost, and every step.

Steps are matched by their name in the plan: a step that replaced another stands for it, and its
attempts, time and cost count together with those of the step it replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from leadhand.core.calendar import iso
from leadhand.core.carried import carried_results
from leadhand.core.plan.diff import ChangeRow
from leadhand.core.plan.model import Json
from leadhand.core.plan.references import Secret
from leadhand.core.views.headline import headline
from leadhand.core.views.run import (
    duration_s,
    goal_of,
    money_of,
    run_status,
    shown_status,
    step_money,
    worked_s,
)

if TYPE_CHECKING:
    from leadhand.core.state.model import State, StepState

STEPS_SHOWN = 500
"""How many steps a comparison lists; steps that differ come first."""
TAKEN_OVER = "taken_over"
"""The status of a step whose result a re-run took over."""


class ComparedStep(Struct, kw_only=True):
    """A step in one of two runs."""

    status: str
    """The status, or `taken_over`: the result comes from another run."""
    worker: str
    """The worker of the last attempt."""
    attempts: int
    """The number of attempts, with those of the steps it replaced."""
    duration: float | None
    """From the first start to the end, in seconds; null if it did not run or has not ended."""
    cost: float
    """Its cost: US dollars and cost units together."""
    money: float
    """The part of the cost that is money, in US dollars."""
    error: str
    """Why it failed, if it did."""
    replaced_by: str
    """The step that stands for it, if it was replaced."""


class ComparedSteps(Struct, kw_only=True):
    """A step of two runs; null where a run has no such step."""

    id: str
    """The id of the step."""
    a: ComparedStep | None
    """The step in the first run."""
    b: ComparedStep | None
    """The step in the second run."""
    differs: bool
    """Whether status, worker, attempts or error differ."""


class ComparedInput(Struct, kw_only=True):
    """An input that differs; null where a run has none of that name."""

    name: str
    """The name of the parameter, or of the fact that a goal starts from."""
    a: Json
    """The value in the first run."""
    b: Json
    """The value in the second run."""


class ComparedRun(Struct, kw_only=True):
    """One of two runs as a whole."""

    run: str
    """The id of the run."""
    status: str
    """The status of the run."""
    headline: str
    """How it ended or stands, in a sentence."""
    goal: str
    """The goal in a sentence."""
    plan: str
    """The `plan_id` of the plan."""
    revision: int
    """The number of the current revision."""
    actor: str
    """The person who started it."""
    rerun_of: str
    """The run that it repeats, if it does."""
    started: str
    """When it started, in ISO 8601."""
    duration: float
    """The duration so far, in seconds."""
    worked: float
    """Seconds in which workers were at work."""
    waited: float
    """The rest of `duration`."""
    cost: float
    """What counts against the budget: money, and the cost units of workers."""
    money: float
    """What of it is money, in US dollars."""
    steps: int
    """The number of steps, without those that were replaced."""
    succeeded: int
    """The number of steps that succeeded."""
    failed: int
    """The number of steps that failed."""
    attempts: int
    """The number of attempts of all steps."""
    approvals: int
    """The number of steps that a person approved."""
    result: Json = None
    """The result, if it succeeded; a large one as the beginning of its JSON text."""


class RunComparison(Struct, kw_only=True):
    """Two runs compared, as `leadhand compare --json`."""

    a: ComparedRun
    """The first run."""
    b: ComparedRun
    """The second run."""
    same_result: bool | None
    """Whether both succeeded with equal results; null unless both succeeded."""
    inputs: list[ComparedInput]
    """Inputs that differ."""
    changes: list[ChangeRow]
    """The differences of the plans by meaning, from the first to the second."""
    difference: list[str]
    """The same differences as lines of text."""
    steps: list[ComparedSteps]
    """The steps of both: those that differ first, then the others, in the order of the plan."""
    steps_total: int
    """The number of steps; more than are listed if the plans are long."""
    steps_different: int
    """The number of steps that differ."""


def compared_run(state: State) -> ComparedRun:
    """Return a run as one side of a comparison."""
    started, duration, worked = state.started, duration_s(state), worked_s(state)
    steps = [step for step in state.steps.values() if not step.superseded_by]
    plan = started.plan if started else {}
    return ComparedRun(
        run=state.run,
        status=run_status(state),
        headline=headline(state),
        goal=goal_of(state).text,
        plan=str(plan.get("plan_id", "")),
        revision=state.revision,
        actor=started.actor if started else "",
        rerun_of=str(plan.get("rerun_of", "")),
        started=iso(state.started_at),
        duration=duration,
        worked=worked,
        waited=round(max(0.0, duration - worked), 3),
        cost=round(state.spent, 6),
        money=money_of(state),
        steps=len(steps),
        succeeded=sum(step.status == "succeeded" for step in steps),
        failed=sum(step.status == "failed" for step in steps),
        attempts=sum(step.attempts for step in state.steps.values()),
        approvals=sum(step.approved for step in steps),
    )


def compared_inputs(a: State, b: State) -> list[ComparedInput]:
    """Return the inputs of two runs that differ; a secret is shown by its source."""
    one, other = _inputs(a), _inputs(b)
    return [
        ComparedInput(name=name, a=one.get(name), b=other.get(name))
        for name in dict.fromkeys((*one, *other))
        if one.get(name) != other.get(name) or (name in one) != (name in other)
    ]


def _inputs(state: State) -> dict[str, Json]:
    given = {**state.params, **goal_of(state).have}
    return {name: _shown(value) for name, value in given.items()}


def _shown(value: Json) -> Json:
    return f"[secret:{value.name}]" if isinstance(value, Secret) else value


def compared_steps(a: State, b: State) -> list[ComparedSteps]:
    """Return the steps of two runs, matched by name; those that differ first."""
    one, other = _lines(a), _lines(b)
    found = [
        ComparedSteps(
            id=name,
            a=one.get(name),
            b=other.get(name),
            differs=_key(one.get(name)) != _key(other.get(name)),
        )
        for name in dict.fromkeys((*one, *other))
    ]
    return sorted(found, key=lambda each: not each.differs)


def _key(step: ComparedStep | None) -> tuple[object, ...] | None:
    if step is None or step.status == TAKEN_OVER:
        return None if step is None else (TAKEN_OVER,)
    return (step.status, step.worker, step.attempts, step.error)


def _lines(state: State) -> dict[str, ComparedStep]:
    """Return a run's steps by the name of the first of their line, with what was taken over."""
    heirs = {step.superseded_by for step in state.steps.values() if step.superseded_by}
    found: dict[str, ComparedStep] = {}
    for step in state.steps.values():
        if step.id not in heirs:
            found[step.id] = _line(state, step)
    carried = carried_results(state.started.plan) if state.started else {}
    for name in carried:
        found.setdefault(name, _taken_over())
    return found


def _taken_over() -> ComparedStep:
    return ComparedStep(
        status=TAKEN_OVER,
        worker="",
        attempts=0,
        duration=None,
        cost=0.0,
        money=0.0,
        error="",
        replaced_by="",
    )


def _line(state: State, first: StepState) -> ComparedStep:
    """Return a step together with the steps that replaced it, one after the other."""
    line = [first]
    while (heir := state.steps.get(line[-1].superseded_by)) is not None and heir not in line:
        line.append(heir)
    last = line[-1]
    begun = min((each.started for each in line if each.started), default=0)
    failure = last.failure or (last.failures[-1] if last.failures else None)
    failed = last.status not in ("succeeded", "superseded") and failure is not None
    return ComparedStep(
        status=shown_status(last),
        worker=last.worker,
        attempts=sum(each.attempts for each in line),
        duration=round((last.ended - begun) / 1e6, 3) if begun and last.ended else None,
        cost=round(sum(each.cost for each in line), 6),
        money=round(sum(step_money(state, each) for each in line), 6),
        error=str(failure.get("message", ""))[:300] if failed and failure else "",
        replaced_by=last.id if last is not first else "",
    )
