"""How a run stands, or how it ended, in one sentence: the same on every surface. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.durations import text as duration
from leadhand.core.promises import only_claimed
from leadhand.core.wording import escaped

if TYPE_CHECKING:
    from leadhand.core.state.model import State, StepState

MESSAGE_MAX = 200
"""The length of a failure message in the sentence; the rest is in the step."""
WAITED_MIN_S = 1.0
"""Shorter waits are not told apart from work."""
NOT_DONE = frozenset({"cancelled", "skipped"})


def headline(state: State) -> str:
    """Return one sentence about a run: its status, the time, the cause, and what was left undone.

    The sentence of a run that has not ended names no time: it would be old when it is read.
    """
    if state.ended is None:
        return _open(state)
    status, reason = state.ended.status, _line(state.ended.reason)
    if status == "rejected":
        return _sentence(f"Rejected: {reason}" if reason else "Rejected", [_rest(state)])
    took = _took(state)
    if status == "cancelled":
        by = reason.removeprefix("cancelled").strip() or "by a person"
        return _sentence(f"Cancelled after {took} {by}", [_done(state), _rest(state)])
    if status == "succeeded":
        return _sentence(f"Succeeded after {took}: {_done(state)}", _aside(state))
    return _sentence(f"Failed after {took}: {_cause(state, reason)}", [_rest(state)])


def _sentence(first: str, more: list[str]) -> str:
    return "; ".join([first.rstrip("."), *filter(None, more)]) + "."


def _line(text: str) -> str:
    """Return the first line of a text, cut to what fits a sentence."""
    first = escaped(text.strip().partition("\n")[0].strip())
    return first if len(first) <= MESSAGE_MAX else f"{first[: MESSAGE_MAX - 1]}…"


def _took(state: State) -> str:
    """Return how long a run took; and how much of it workers were at work, if it waited."""
    whole, worked = (state.ended_at - state.started_at) / 1e6, state.worked / 1e6
    if whole - worked < WAITED_MIN_S:
        return duration(whole)
    return f"{duration(whole)} ({duration(worked)} working, {duration(whole - worked)} waiting)"


def _cause(state: State, reason: str) -> str:
    """Return why a run failed: the step that kept it from success, or the reason of its end."""
    ended = state.ended
    bad = [step for step in state.steps.values() if state.is_blocking(step) and step.failure]
    by_step = ended is not None and not ended.limit and ended.origin in ("", "execution")
    if not bad or not by_step:
        return reason or "no reason was recorded"
    last = max(bad, key=lambda step: step.ended)
    others = f" ({_count(len(bad) - 1, 'other step')} failed too)" if len(bad) > 1 else ""
    return f"{_failed(last)}{others}"


def _failed(step: StepState) -> str:
    message = _line(str((step.failure or {}).get("message", "")) or step.reason)
    times = f" {step.attempts} times" if step.attempts > 1 else ""
    by = f" ({step.worker})" if step.worker != step.id else ""
    return f"step {step.id}{by} failed{times}{': ' if message else ''}{message}"


def _counted(state: State) -> list[StepState]:
    """Return the steps that count: all but those that others replaced."""
    return [step for step in state.steps.values() if step.status != "superseded"]


def _done(state: State) -> str:
    steps = _counted(state)
    if not steps:
        return "no step was started"
    if state.succeeded == len(steps):
        few = {1: "the step succeeded", 2: "both steps succeeded"}
        return few.get(len(steps), f"all {len(steps):,} steps succeeded")
    return f"{state.succeeded:,} of {_count(len(steps), 'step')} succeeded"


def _aside(state: State) -> list[str]:
    """Return what was otherwise than planned in a run that succeeded."""
    steps = state.steps.values()
    failed = sum(step.status == "failed" for step in steps)
    left = sum(step.status in NOT_DONE for step in steps)
    replaced = [step for step in steps if step.status == "superseded"]
    claimed = sum(only_claimed(state, step) for step in steps)
    moved = sum(step.attempts > 0 and step.worker != step.doc["worker"] for step in steps)
    retried = sum(step.attempts > 1 and step.worker == step.doc["worker"] for step in steps)
    return [
        f"{_were(failed)} tolerated as failed" if failed else "",
        f"{_were(left)} left out" if left else "",
        f"{_were(len(replaced), 'earlier step')} replaced{_after(replaced)}" if replaced else "",
        f"{_were(moved)} done by another worker" if moved else "",
        f"{_were(retried)} retried" if retried else "",
        f"{_were(claimed)} not verified (only the agent says so)" if claimed else "",
    ]


def _after(replaced: list[StepState]) -> str:
    """Return which of the replaced steps had failed."""
    bad = [step.id for step in replaced if step.failure]
    if not bad:
        return ""
    return f" after {f'step {bad[0]}' if len(bad) == 1 else _count(len(bad), 'step')} failed"


def _rest(state: State) -> str:
    """Return how many steps never started."""
    left = sum(step.status in NOT_DONE and not step.attempts for step in state.steps.values())
    pending = len(state.pending.add) if state.pending is not None else 0
    return f"{_were(left + pending, 'step')} not started" if left + pending else ""


def _open(state: State) -> str:
    from leadhand.core.views.run import awaiting, run_status

    status = run_status(state)
    if status == "stopping":
        why = _line(state.stopping.reason) if state.stopping is not None else ""
        return _sentence(f"Stopping: {why}", [_so_far(state)])
    if status == "waiting":
        asked = _asked(state) if state.questions else _handed_out(state)
        return _sentence(f"Waiting for {awaiting(state)}: {asked}", [_so_far(state)])
    return _sentence(f"{status.capitalize()}: {_so_far(state) or 'no steps yet'}", [])


def _asked(state: State) -> str:
    """Return what the oldest question is about, and how many more there are."""
    first = min(state.questions.values(), key=lambda question: question.at)
    more = f" and {_count(len(state.questions) - 1, 'more question')}"
    if first.kind == "review":
        added = len(state.pending.add) if state.pending is not None else 0
        about = f"revision {first.revision} ({_count(added, 'step')})"
    else:
        about = f"step {first.step}" if first.step else "a question of the planner"
    return about + (more if len(state.questions) > 1 else "")


def _handed_out(state: State) -> str:
    """Return which step a caller has, or is to ask for."""
    busy = [step for step in map(state.steps.__getitem__, state.in_flight) if step.with_caller]
    if busy:
        return f"{busy[0].caller} has step {busy[0].id}"
    step = state.next_offered()
    return f"step {step.id}" if step is not None else "its next step"


def _so_far(state: State) -> str:
    steps = _counted(state)
    if not steps:
        return ""
    parts = [_done(state)]
    parts += [f"{len(state.in_flight):,} running"] if state.in_flight else []
    parts += [f"{len(state.backing_off):,} waiting to retry"] if state.backing_off else []
    failed = sum(step.status == "failed" for step in steps)
    return ", ".join([*parts, *([f"{failed:,} failed"] if failed else [])])


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _were(number: int, word: str = "") -> str:
    verb = "was" if number == 1 else "were"
    return f"{_count(number, word)} {verb}" if word else f"{number:,} {verb}"
