"""`evolve`: folds one event into the state.

Laws of this file
1. No policy. A handler never chooses; it writes down what its event says was chosen.
2. An event that does not fit the state raises IllegalEvent before anything is changed: a
   log that folds is a log that makes sense.
3. A handler touches the steps its event names and their direct dependents, nothing more.
   (Two exceptions pay once for the whole plan: letting a revision through, and the end, which
   a person may take back.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev
from leadhand.core.catalog import Catalog
from leadhand.core.evolve_models import MODEL_HANDLERS
from leadhand.core.evolve_people import PEOPLE_HANDLERS
from leadhand.core.evolve_plan import PLAN_HANDLERS
from leadhand.core.evolve_steps import (
    STEP_HANDLERS,
)
from leadhand.core.params import with_secrets
from leadhand.core.records import Cut
from leadhand.core.state import (
    SETTLED,
    IllegalEvent,
    State,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Waits = dict[str, dict[str, bool]]
"""For each new step the ids it waits for, each with whether it minds how that one ends."""


def evolve(state: State, event: ev.Event, at: int) -> None:
    """Fold one event into the state."""
    if state.ended is not None and type(event) is not ev.RunReopened:
        raise IllegalEvent(f"{type(event).__name__} after the run ended")
    handler = HANDLERS.get(type(event))
    if handler is None:
        raise IllegalEvent(f"unknown event {type(event).__name__}")
    if state.started is None and handler is not _run_started:
        raise IllegalEvent(f"{type(event).__name__} before the run started")
    handler(state, event, at)
    state.seq += 1
    state.last_at = at


def evolve_all(state: State, events: Iterable[tuple[int, ev.Event]]) -> None:
    """Fold a whole log, given as (at, event): as `evolve` for each, without the ceremony."""
    handlers, seq, last = HANDLERS, state.seq, state.last_at
    for at, event in events:
        handler = handlers.get(type(event))
        if handler is None or state.ended is not None or state.started is None:
            evolve(state, event, at)
        else:
            handler(state, event, at)
        seq, last = seq + 1, at
    state.seq, state.last_at = seq, last


# The run as a whole.


def _run_started(state: State, event: ev.RunStarted, at: int) -> None:
    if state.started is not None:
        raise IllegalEvent("the run started twice")
    state.run = event.run
    state.started = event
    state.started_at = at
    state.policy = event.policy
    state.consults_reports = event.consult == "every_report"
    state.catalog = Catalog(event.catalog)
    state.permits.untrusted = frozenset(spec.name for spec in event.catalog if not spec.trusted)
    state.params = with_secrets(event.plan, event.params)


def _run_hosted(state: State, event: ev.RunHosted, _at: int) -> None:
    if event.owner <= state.owner:
        raise IllegalEvent(f"host {event.owner} came after host {state.owner}")
    state.owner = event.owner
    state.process = event.process
    state.goal_asked = state.goal_met is not None
    state.orphans.extend(state.in_flight.items())
    if state.planner.epoch:
        state.orphans.append(("", state.planner.epoch))


def _run_paused(state: State, _event: ev.RunPaused, _at: int) -> None:
    state.paused = True


def _run_resumed(state: State, _event: ev.RunResumed, _at: int) -> None:
    state.paused = False


def _cancel_requested(state: State, event: ev.CancelRequested, _at: int) -> None:
    reason = f"cancelled by {event.actor}" + (f": {event.reason}" if event.reason else "")
    state.stopping = ev.StopDecided("cancelled", reason, origin="person")
    state.cancel_deadline = event.deadline
    state.add_timer(event.deadline, "run", "cancel", 0)


def _stop_decided(state: State, event: ev.StopDecided, _at: int) -> None:
    if state.stopping is not None:
        raise IllegalEvent("the run is stopping already")
    state.stopping = event


def _goal_check_started(state: State, _event: ev.GoalCheckStarted, _at: int) -> None:
    state.goal_asked = True


def _goal_checked(state: State, event: ev.GoalChecked, _at: int) -> None:
    if not state.goal_asked:
        raise IllegalEvent("nobody asked for the goal to be checked")
    state.goal_findings = event.findings
    if event.met or state.started is None or not state.started.replans:
        state.goal_met = event.met
        return
    state.goal_asked = False
    state.finish = None
    state.planner.rounds += 1
    state.planner.findings = event.findings
    state.planner.due = "surprise: the goal is not met: " + "; ".join(event.findings)


def _run_ended(state: State, event: ev.RunEnded, at: int) -> None:
    if state.in_flight:
        raise IllegalEvent(f"the run ended with attempts in flight: {sorted(state.in_flight)}")
    state.ended = event
    state.ended_at = at
    state.planner.epoch = 0
    state.goal_asked = False
    state.cut, state.questions = Cut(questions=state.questions), {}
    for step in state.steps.values():
        if step.status not in SETTLED:
            state.cut.steps[step.id] = (step.status, step.reason)
            step.status = "failed" if step.failure else "cancelled"
            step.reason = step.reason or event.reason
            step.ended = at


HANDLERS: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    **STEP_HANDLERS,
    **PLAN_HANDLERS,
    **PEOPLE_HANDLERS,
    **MODEL_HANDLERS,
    ev.RunStarted: _run_started,
    ev.RunHosted: _run_hosted,
    ev.RunPaused: _run_paused,
    ev.RunResumed: _run_resumed,
    ev.CancelRequested: _cancel_requested,
    ev.StopDecided: _stop_decided,
    ev.GoalCheckStarted: _goal_check_started,
    ev.GoalChecked: _goal_checked,
    ev.RunEnded: _run_ended,
}
