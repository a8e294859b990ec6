"""How a run stands, for whoever asked for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leadhand.core.report import StepView
from leadhand.core.views import outcome_doc
from leadhand.engine.results import result_of, step_views

if TYPE_CHECKING:
    from leadhand.core.plan import Doc, Json
    from leadhand.engine.run import Run


class Steps(tuple[StepView, ...]):
    """The steps of a run, in the order they were planned; `steps["build"]` finds one by its id."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        for step in self:
            if step.id == key:
                return step
        raise KeyError(key)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run stands when `run` returns: ended, or waiting for a person."""

    run: str
    status: str
    result: Json = None
    steps: Steps = field(default_factory=Steps)
    reason: str = ""
    cost: float = 0.0
    duration_s: float = 0.0
    waiting_for: tuple[Doc, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the run succeeded."""
        return self.status == "succeeded"


def outcome_of(run: Run) -> Outcome:
    """The outcome of a run as it stands."""
    doc = outcome_doc(run.state)
    return Outcome(
        run=doc["run"],
        status=doc["status"],
        result=result_of(run.host.store, run.state),
        steps=Steps(step_views(run.host.store, run.state)),
        reason=doc["reason"],
        cost=doc["cost"],
        duration_s=doc["duration"],
        waiting_for=tuple(doc.get("waiting_for", ())),
    )
