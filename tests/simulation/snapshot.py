"""A run's state as one canonical value, to be compared: live against folded, fold against fold.

What `decide` tidies on the way (tickets, the ready queue, timers that no longer count, the
places in a queue of steps that have moved on) is left out: two states that differ only there
behave the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core.hashing import canonical
from leadhand.core.views.run import summary
from leadhand.core.views.totals import run_totals

if TYPE_CHECKING:
    from leadhand.core.state.model import State, StepState

_TIDIED = ("ticket", "blockers", "dependents")


def snapshot(state: State) -> dict[str, Any]:
    """Return everything known of a run's `state` as JSON-like data."""
    return {
        "run": state.run,
        "seq": state.seq,
        "times": [state.started_at, state.last_at, state.ended_at],
        "owner": state.owner,
        "epoch": state.epoch,
        "revision": [state.revision, state.head, state.final, state.revisions_idle],
        "pending": _plain(state.pending),
        "outlook": state.outlook,
        "planner": _plain(state.planner),
        "steps": {ident: _step(step) for ident, step in state.steps.items()},
        "in_flight": state.in_flight,
        "busy": [_nonzero(state.busy_workers), _nonzero(state.busy_resources)],
        "undecided": list(state.undecided),
        "doomed": [i for i in state.to_skip if state.steps[i].status == "waiting"],
        "orphans": [pair for pair in state.lost_in_flight if _in_flight(state, *pair)],
        "questions": {ident: _plain(each) for ident, each in state.questions.items()},
        "answers": state.answers,
        "asked": state.asked,
        "failed_attempts": state.failed_attempts,
        "recommendations": state.recommendations,
        "counts": [state.unsettled, state.blocking, state.succeeded],
        "forsaken": [state.awaiting_planner, state.unanswered],
        "tried": sorted(state.tried),
        "backing_off": list(state.backing_off),
        "cost": [state.spent, state.reserved],
        **({"models": msgspec.to_builtins(state.models)} if state.models.by_model else {}),
        "paused": state.paused,
        "stopping": _plain(state.stopping),
        "finish": state.finish,
        "goal": [state.goal_asked, state.goal_met, state.goal_findings],
        "ended": _plain(state.ended),
        "totals": run_totals(state, summary(state)),
    }


def digest_of(state: State) -> bytes:
    """The snapshot as bytes: equal states, equal bytes."""
    return canonical(snapshot(state))


def difference(one: State, other: State) -> str:
    """Describe the first difference between state `one` and state `other`; empty if equal."""
    if digest_of(one) == digest_of(other):
        return ""
    first, second = snapshot(one), snapshot(other)
    for key, value in first.items():
        if canonical(value) != canonical(second[key]):
            if key == "steps":
                return _step_difference(value, second[key])
            return f"{key}: {value!r:.300} against {second[key]!r:.300}"
    return "they differ"


def _step_difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    for ident, step in one.items():
        for key, value in step.items():
            if canonical(value) != canonical(other.get(ident, {}).get(key)):
                theirs = other.get(ident, {}).get(key)
                return f"step {ident}, {key}: {value!r:.200} against {theirs!r:.200}"
    return f"steps: {list(one)} against {list(other)}"


def _step(step: StepState) -> dict[str, Any]:
    doc: dict[str, Any] = msgspec.structs.asdict(step)
    for key in _TIDIED:
        del doc[key]
    if step.status == "waiting":
        doc["blockers"] = step.blockers
    return doc


def _in_flight(state: State, ident: str, epoch: int) -> bool:
    return state.in_flight.get(ident) == epoch or (not ident and state.planner.epoch == epoch)


def _nonzero(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)
