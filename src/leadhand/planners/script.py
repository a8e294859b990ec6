"""A planner that is a Python function from the state to a decision.

    def next_step(view):
        if "raw" not in view.results:
            return Propose([{"id": "raw", "worker": "fetch"}])
        return Finish(view.results["raw"])

It is asked after every report unless told otherwise, and may be a plain or an async function.
A plain one runs in a thread, so that a slow planner never holds up the workers.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

from leadhand.core.plan.model import Plan
from leadhand.core.report import Ask, Finish, GiveUp, Propose, Wait
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.report import Decision, PlannerView


OURS = frozenset({"document", "direct", "goal", "hybrid", "model"})
"""Names of our own planners: in the log they determine a run's planner and its rights."""


class ScriptPlanner:
    """A planner that is a function of the view; it returns a decision.

    `function` may be async; a sync function is called in a thread. `consult` is "every_report" or
    "on_surprise", `replans` says whether it can plan around a failure.
    """

    splits = False

    def __init__(
        self,
        function: Callable[..., object],
        *,
        consult: str = "every_report",
        replans: bool = True,
    ) -> None:
        if consult not in ("every_report", "on_surprise"):
            raise UsageError(f"consult is every_report or on_surprise, not {consult!r}")
        self.source = ""
        """Where it can be loaded from again, if that is known."""
        name = getattr(function, "__name__", type(function).__name__)
        self.name = f"{name} (function)" if name in OURS else name
        self.consult = consult
        self.replans = replans
        self._function = function

    @property
    def label(self) -> str:
        """Return the name by which a plan document names it: where it was loaded or written."""
        written = getattr(self._function, "__qualname__", type(self._function).__qualname__)
        module = getattr(self._function, "__module__", type(self._function).__module__)
        return self.source or f"{module}:{written}"

    @property
    def is_async(self) -> bool:
        """Return whether the function is awaited; a sync one is called in a thread."""
        return inspect.iscoroutinefunction(self._function) or inspect.iscoroutinefunction(
            getattr(self._function, "__call__", None)  # noqa: B004 - an object with async __call__
        )

    async def decide(self, view: PlannerView) -> Decision:
        """Call the function with `view`. Raise `TypeError` unless it returns a decision."""
        if self.is_async:
            answer: object = await self._function(view)  # type: ignore[misc]
        else:
            answer = await asyncio.to_thread(self._function, view)
        if isinstance(answer, Plan):
            return Propose.plan(answer)
        if isinstance(answer, (Propose, Ask, Finish, GiveUp, Wait)):
            return answer
        kind = type(answer).__name__
        raise TypeError(
            f"planner {self.name} returned {kind}; return Propose, Wait, Ask, Finish or GiveUp"
        )
