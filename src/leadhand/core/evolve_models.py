"""Folding what models were asked: sums by model, by step, for the planner and for the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev
from leadhand.core.records import Tally
from leadhand.core.state import IllegalEvent, State

if TYPE_CHECKING:
    from collections.abc import Callable


def _model_called(state: State, event: ev.ModelCalled, _at: int) -> None:
    step = state.steps.get(event.step)
    if event.step and step is None:
        raise IllegalEvent(f"a model was called for step {event.step}, which is not in the plan")
    state.spent += event.cost
    if step is not None:
        step.cost += event.cost
    calls = state.models
    calls.by_model.setdefault(f"{event.tier} {event.model}", Tally()).add(event)
    calls.by_step.setdefault(event.step, Tally()).add(event)


def _draft_refused(state: State, event: ev.DraftRefused, _at: int) -> None:
    """Told for people: what the planner refused of its own changes nothing of the run."""
    if event.call > state.planner.calls:
        raise IllegalEvent(f"a draft of planner call {event.call}, which was not made")


MODEL_HANDLERS: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.ModelCalled: _model_called,
    ev.DraftRefused: _draft_refused,
}
