"""A run in lines for people: a header, and one row for each step. Pure.

The live and the plain view consist of these. The cost of a picture is bounded: of a long plan only
steps that move, wait for a person or failed are examined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from leadhand.cli.rendering.text import clean, count, moment
from leadhand.core.calendar import window_open
from leadhand.core.catalog import CALLER
from leadhand.core.durations import seconds, text
from leadhand.core.plan import graph
from leadhand.core.promises import only_claimed
from leadhand.core.state.model import IN_FLIGHT, SETTLED, STARTABLE, State, StepState
from leadhand.core.views.run import APPROVALS, goal_of, money_of, run_status, shown_status, worked_s

Progress = Mapping[str, tuple[str, float | None]]
"""The progress reported by workers: step to message and fraction."""

SCAN_MAX = 2000
"""Larger plans are not scanned for a picture."""

ICONS = {
    "succeeded": "✓",
    "failed": "✗",
    "running": "▶",
    "probing": "?",
    "retrying": "↻",
    "scheduled": "◷",
    "held": "‖",
    "waiting_for_person": "!",
    "skipped": "-",
    "cancelled": "-",
    "superseded": "-",
}
WORDS = {"waiting_for_person": "waiting for input", "superseded": "replaced"}
CUT_OFF = "in flight when the host ended"
PART = " · "
"""The separator of the parts of a header."""


class Row(NamedTuple):
    """One step as shown to people."""

    id: str
    status: str
    icon: str
    word: str
    worker: str
    detail: str
    overdue: bool


def header(
    state: State, now: int, *, stopped: str = "", hosted: bool = True, named: bool = False
) -> str:
    """Return `3/10 done · 2 running · 1 waiting for input · est 15m, 40s so far`.

    `named`: the run's state is already shown before it.
    """
    total = len(state.steps)
    parts = [f"{state.succeeded}/{total} done"]
    if not total and state.pending is not None:
        parts[0] = f"{count(len(state.pending.add), 'step')} proposed"
    elif not state.final and state.ended is None:
        parts[0] += " so far"
    if own := len(state.in_flight) - state.handed_out:
        parts.append(f"{own} {'running' if hosted else CUT_OFF}")
    if state.handed_out:
        parts.append(f"{state.handed_out} handed out")
    if state.planner.epoch:
        parts.append("planning")
    if state.blocking:
        parts.append(f"{state.blocking} failed or skipped")
    others = total - state.unsettled - state.succeeded - state.blocking
    if others > 0:
        parts.append(f"{others} replaced, skipped or cancelled")
    if state.questions:
        parts += _waiting(state)
    status = run_status(state)
    if status in ("paused", "stopping") and not named:
        parts.append(status)
    if stopped and state.ended is None:
        parts.append(f"emergency stop by {clean(stopped, 40)}")
    if state.spent or state.policy.budget is not None:
        limit = "" if state.policy.budget is None else f"/{state.policy.budget:g}"
        money = money_of(state)
        parts.append(f"cost {state.spent:g}{limit}" + (f" (${money:g} in money)" if money else ""))
    parts.append(_time(state, now))
    return PART.join(parts)


def _waiting(state: State) -> list[str]:
    """Return how many questions wait for approval, and how many for input."""
    kinds = [question.kind in APPROVALS for question in state.questions.values()]
    waiting = {"approval": sum(kinds), "input": len(kinds) - sum(kinds)}
    return [f"{number} waiting for {what}" for what, number in waiting.items() if number]


WAITED_MIN_S = 1.0
"""Shorter waits are not shown."""


def _time(state: State, now: int) -> str:
    spent = max(0, (state.ended_at or now) - state.started_at) / 1e6
    planned = planned_s(state)
    took = f"{text(spent)} so far" if state.ended is None else f"took {text(spent)}"
    # Waiting for people or for 2AM is no work, and not part of a plan's estimate.
    worked = min(spent, worked_s(state, now))
    if spent - worked >= WAITED_MIN_S:
        took += f" ({text(worked)} running, {text(spent - worked)} waiting)"
    if planned is None:
        return took
    left = planned - worked
    if state.ended is None and not state.in_flight and _stands_still(state, now):
        return f"est {text(planned)}, {took}"  # a person or the clock decides the rest
    late = "" if left >= 0 else f", {text(-left)} over"
    rest = f", about {text(left)} left" if left > 0 and state.ended is None else ""
    return f"est {text(planned)}, {took}{rest}{late}"


def _stands_still(state: State, now: int) -> bool:
    """Return whether a run waits for a person, or for the time of a step."""
    if run_status(state) in ("waiting", "paused"):
        return True
    steps = state.steps.values() if len(state.steps) <= SCAN_MAX else ()
    return any(step.status == "ready" and now < step.not_before for step in steps)


def planned_s(state: State) -> float | None:
    """Return the estimated duration of the plan."""
    written = state.started.plan.get("estimated_duration") if state.started else None
    try:
        return None if written is None else seconds(written)
    except ValueError:
        return None


def rows(
    state: State, now: int, progress: Progress, room: int, *, hosted: bool = True
) -> tuple[list[Row], str]:
    """Return at most `room` rows, and a line about the steps without one."""
    whole = len(state.steps) <= room
    chosen = list(state.steps.values() if whole else _interesting(state))
    chosen = chosen if whole else chosen[: max(1, room - 1)]
    found = [row(state, step, now, progress, hosted=hosted) for step in chosen]
    return found, "" if whole else _rest(state, chosen)


def _interesting(state: State) -> Iterable[StepState]:
    """Return steps that need a person, failed, move or will retry; then the next ones."""
    steps = state.steps
    asked = [steps[q.step] for q in state.questions.values() if q.step in steps]
    flying = [steps[ident] for ident in state.in_flight]
    if len(steps) > SCAN_MAX:
        recent = dict.fromkeys(ident for ident, *_ in state.failed_attempts[-20:])
        failed = [steps[ident] for ident in recent if steps[ident].status == "failed"]
        return _once([*asked, *failed[-5:], *flying])
    failed = [step for step in steps.values() if step.status == "failed"]
    retrying = [step for step in steps.values() if step.status == "backing_off"]
    ready = [step for step in steps.values() if step.status == "ready"]
    done = [step for step in steps.values() if step.status in SETTLED]
    done.sort(key=lambda step: step.ended, reverse=True)
    return _once([*asked, *failed, *flying, *retrying, *ready, *done])


def _once(steps: Iterable[StepState]) -> Iterable[StepState]:
    return {step.id: step for step in steps}.values()


def _rest(state: State, shown: list[StepState]) -> str:
    settled = sum(step.status in SETTLED for step in shown)
    done = len(state.steps) - state.unsettled - settled
    to_come = len(state.steps) - len(shown) - done
    return (
        f"… and {count(len(state.steps) - len(shown), 'step')}: {done} settled, {to_come} to come"
    )


def row(state: State, step: StepState, now: int, progress: Progress, *, hosted: bool = True) -> Row:
    """Return the row of one step; `hosted`: whether a process drives the run."""
    status = status_of(step, now)
    worker = clean(f"{step.worker} {step.action}".strip(), 40)
    if step.status in IN_FLIGHT and not hosted and not step.with_caller:
        return Row(clean(step.id, 40), "cut off", "?", "unknown", worker, CUT_OFF, overdue=False)
    detail, overdue = _detail(state, step, now, progress)
    word = WORDS.get(status, status)
    if step.question in state.questions and state.questions[step.question].kind in APPROVALS:
        word = "waiting for approval"
    return Row(clean(step.id, 40), status, ICONS.get(status, "·"), word, worker, detail, overdue)


def status_of(step: StepState, now: int) -> str:
    """Return the word for a step's state; a step that only waits for its time is scheduled."""
    if step.held and step.status in STARTABLE:
        return "held"
    if step.status != "ready":
        return shown_status(step)
    return "scheduled" if _put_off(step, now) else "ready"


def _put_off(step: StepState, now: int) -> str:
    """Return why a ready step may not start yet: its time, or its window."""
    if now < step.not_before:
        return f"not before {moment(step.not_before, zone=True)}"
    if "window" not in step.doc:
        return ""
    is_open, opens = window_open(step.doc["window"], now)
    return "" if is_open else f"outside its window until {moment(opens, zone=True)}"


def _detail(state: State, step: StepState, now: int, progress: Progress) -> tuple[str, bool]:
    parts: list[str] = []
    overdue = False
    if step.attempts > 1:
        parts.append(f"attempt {step.attempts}")
    if step.status in IN_FLIGHT:
        timing, overdue = _timing(state, step, now)
        parts.append(timing)
        if step.with_caller:
            parts.append(f"with {clean(step.caller, 40)} until {moment(step.deadline)}")
        parts += _said(progress.get(step.id))
    elif step.status == "succeeded":
        if step.started and step.ended:
            parts.append(text(max(0, step.ended - step.started) / 1e6))
        if only_claimed(state, step):
            parts.append(f"not verified: only {clean(step.caller, 40)} says so")
    elif step.status == "backing_off":
        parts.append(f"again in {text(max(0, step.until - now) / 1e6)}: {_failure(step)}")
    elif step.status == "asking" and step.failure is None:
        parts.append(_asked(state, step, now))
    elif step.status in ("failed", "asking", "undecided"):
        parts.append(_failure(step))
    elif step.status in ("skipped", "cancelled"):
        parts.append(clean(step.reason, 80))
    elif step.status == "ready":
        parts.append("until released" if step.held else _put_off(step, now) or _ready(state, step))
    elif step.status == "waiting":
        parts += [_waits(state, step), "then held" if step.held else ""]
    return ", ".join(part for part in parts if part), overdue


def _ready(state: State, step: StepState) -> str:
    spec = state.catalog.workers.get(step.worker)
    return "waits for its caller" if spec is not None and spec.kind == CALLER else "ready"


def estimate_s(state: State, step: StepState) -> float | None:
    """Return the estimated duration of a step, by the plan or its worker."""
    written = step.doc.get("est")
    if written is not None:
        try:
            return seconds(written)
        except ValueError:
            return None
    offer = state.catalog.offer(step.worker, step.action)
    return offer.est_s if offer else None


def _timing(state: State, step: StepState, now: int) -> tuple[str, bool]:
    spent = max(0, now - step.started) / 1e6
    est = estimate_s(state, step)
    if not est:
        return _steady(spent), False
    if spent > est:
        return f"{_steady(spent)} of {text(est)}, OVERDUE by {_steady(spent - est)}", True
    return f"{_steady(spent)} of {text(est)}, {_steady(est - spent)} left", False


def _steady(spent: float) -> str:
    """Return a duration for repeated display: the unit does not jump."""
    return f"{spent:.1f}s" if spent < 10 else text(round(spent))


def _said(note: tuple[str, float | None] | None) -> list[str]:
    if note is None:
        return []
    message, fraction = note
    share = [] if fraction is None else [f"{fraction:.0%}"]
    return [*share, clean(message, 60)]


def _failure(step: StepState) -> str:
    failure = step.failure or {}
    return clean(f"{failure.get('class', 'failed')}: {failure.get('message', step.reason)}", 100)


def _asked(state: State, step: StepState, now: int) -> str:
    """Return how long a person has for a step of theirs."""
    question = state.questions.get(step.question)
    if question is None or not question.until:
        return ""
    left = text(max(0, question.until - now) // 1e6)
    return f"default in {left}"


def _waits(state: State, step: StepState) -> str:
    open_ones = []
    for name in graph.dependencies(step.doc):
        other = state.follow(name)
        if other is not None and other.status not in SETTLED:
            open_ones.append(clean(name, 40))
    more = f" and {len(open_ones) - 3} more" if len(open_ones) > 3 else ""
    return f"waits for {', '.join(open_ones[:3])}{more}" if open_ones else ""


def title(state: State) -> str:
    """Return the run and its goal in one line."""
    goal = goal_of(state).text
    plan = str(state.started.plan.get("plan_id", "")) if state.started else ""
    what = ": ".join(part for part in (plan, goal) if part)
    return clean(f"run {state.run}  {what}".rstrip(), 120)
