"""The outcome of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leadhand.core.report import StepView
from leadhand.core.views.inbox import inbox_row
from leadhand.core.views.run import dropped_rows, duration_s, money_of, run_status
from leadhand.engine.fold import gc_paused
from leadhand.engine.results import result_of, step_views

if TYPE_CHECKING:
    from leadhand.core.plan.model import Json
    from leadhand.core.views.inbox import InboxRow
    from leadhand.core.views.run import DroppedStep
    from leadhand.ports import RunHandle


class Steps(tuple[StepView, ...]):
    """The steps of a run, in the order of the plan; `steps["build"]` finds one by its id."""

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
    """The state of a run when `Lead.run` returns: ended, or waiting for a person.

    `status` is succeeded, failed, cancelled, rejected, waiting or paused; `result` is the result of
    a run that succeeded, `steps` its steps with their data, and `reason` says why it ended
    otherwise.
    """

    run: str
    """The id of the run."""
    status: str
    result: Json = None
    steps: Steps = field(default_factory=Steps)
    reason: str = ""
    origin: str = ""
    """The origin of an end without success: planning, execution, limits, person."""
    cost: float = 0.0
    """The cost counted against the budget: money, and the cost units of workers."""
    money: float = 0.0
    """The cost of models, and of workers that report money, in dollars."""
    duration_s: float = 0.0
    """The time from the start of the run, in seconds."""
    waiting_for: tuple[InboxRow, ...] = ()
    """The open questions to people; `since` is ISO 8601 in UTC, as in `--json` and the API."""
    dropped: tuple[DroppedStep, ...] = ()
    """Steps that were dropped, by name or along with another: step, status, reason."""
    rollback: Outcome | None = None
    """The outcome of the rollback, if the plan asked for one."""

    @property
    def ok(self) -> bool:
        """Whether the run succeeded."""
        return self.status == "succeeded"


def outcome_of(run: RunHandle) -> Outcome:
    """Return the current outcome of a run."""
    state, store = run.state, run.host.store
    with gc_paused():
        return Outcome(
            run=state.run,
            status=run_status(state).replace("stopping", "running"),
            result=result_of(store, state),
            steps=Steps(step_views(store, state)),
            reason=state.ended.reason if state.ended else "",
            origin=state.ended.origin if state.ended else "",
            cost=round(state.spent, 6),
            money=money_of(state),
            duration_s=duration_s(state),
            waiting_for=tuple(inbox_row(state, ident) for ident in state.questions),
            dropped=tuple(dropped_rows(state)),
        )
