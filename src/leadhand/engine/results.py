"""Results for callers: separately stored data is loaded, and nothing is shared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from leadhand.core.views.run import deep_copy, run_result, step_view

if TYPE_CHECKING:
    from leadhand.core.plan.model import Json
    from leadhand.core.report import StepView
    from leadhand.core.state.model import State, StepState
    from leadhand.ports import Artifacts


def load_artifact(store: Artifacts, ref: str) -> Json:
    """Return the decoded content of an artifact."""
    return msgspec.json.decode(store.get_artifact(ref))


def data_of(store: Artifacts, step: StepState) -> Json:
    """Return the complete data of a step."""
    if step.data_ref:
        return load_artifact(store, step.data_ref)
    return deep_copy(step.data)


def result_of(store: Artifacts, state: State) -> Json:
    """Return the complete result of a run."""
    return deep_copy(run_result(state, lambda step: data_of(store, step)))


def step_views(store: Artifacts, state: State) -> list[StepView]:
    """Return all steps with their complete data."""
    views = []
    for step in state.steps.values():
        view = step_view(step)
        if step.data_ref and step.status == "succeeded":
            view = msgspec.structs.replace(view, data=data_of(store, step))
        views.append(view)
    return views
