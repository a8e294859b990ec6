"""The part of `evolve` for what people do to steps: hold, release, redo. Laws in `evolve.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev
from leadhand.core.catalog import Catalog
from leadhand.core.evolve_steps import known, make_ready
from leadhand.core.graph import dependencies
from leadhand.core.state import SETTLED, IllegalEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.state import State, StepState

FAILED = frozenset({"failed"})


def _steps_held(state: State, event: ev.StepsHeld, _at: int) -> None:
    steps = [state.steps.get(ident) for ident in event.steps]
    if any(step is None or step.status in SETTLED for step in steps):
        raise IllegalEvent(f"a step that is held is not there, or is settled: {event.steps}")
    for step in steps:
        if step is not None:
            step.held = event.question
            step.ticket = 0
            state.held.add(step.id)


def _steps_released(state: State, event: ev.StepsReleased, _at: int) -> None:
    if any(ident not in state.held for ident in event.steps):
        raise IllegalEvent(f"a step that is released is not held: {event.steps}")
    for ident in event.steps:
        step = state.steps[ident]
        step.held = ""
        step.expires = event.expires
        state.held.discard(ident)
        if step.status == "ready":
            state.offer(step)
        elif step.status == "backing_off":
            state.add_timer(step.until, "retry", ident, 0)


def _workers_changed(state: State, event: ev.WorkersChanged, _at: int) -> None:
    specs = {**state.catalog.workers, **{spec.name: spec for spec in event.specs}}
    state.catalog = Catalog(specs.values())
    state.limits.clear()


def _redo_requested(state: State, event: ev.RedoRequested, _at: int) -> None:
    step = known(state, event.step, FAILED)
    state.unsettled += 1
    state.bad -= state.is_bad(step)
    step.tolerated = False
    step.tries = None
    step.forgiven = len(step.failures)
    step.ended = 0
    if event.step in state.forsaken:
        state.forsaken.remove(event.step)
    _revive(state, step)
    make_ready(state, step)


def _revive(state: State, redone: StepState) -> None:
    """Steps that were skipped because of it wait for it again."""
    causes = {redone.id}
    for step in state.steps.values():
        if step.status == "skipped" and step.doomed in causes:
            causes.add(step.id)
            state.unsettled += 1
            state.bad -= state.is_bad(step)
            step.status, step.doomed, step.reason, step.ended = "waiting", "", "", 0
            step.tolerated = False
    redone.status = "waiting"
    for ident in causes - {redone.id}:
        _wait_again(state, state.steps[ident])


def _wait_again(state: State, step: StepState) -> None:
    step.blockers = 0
    for name, tolerant in dependencies(step.doc).items():
        other = state.follow(name)
        if other is None or other.status in SETTLED:
            continue
        step.blockers += 1
        pair = (step.id, tolerant)
        if pair not in other.dependents:
            other.dependents = [*other.dependents, pair]


PEOPLE_HANDLERS: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.StepsHeld: _steps_held,
    ev.StepsReleased: _steps_released,
    ev.WorkersChanged: _workers_changed,
    ev.RedoRequested: _redo_requested,
}
