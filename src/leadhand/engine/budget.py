"""The budget of one run for model calls.

Cost in the log is spent; the maximum cost of calls in flight is reserved here, and attempts that
declare a price reserve it (see `State.reserved`). A call that does not fit waits for the calls in
flight, which mostly cost less than was reserved; when none is left to wait for, it is refused.
Everything happens on one event loop, so no two calls can reserve the same money.

Every call that ended is logged, by any caller and with any outcome.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from leadhand.core import events as ev
from leadhand.core.decide.effects import Move
from leadhand.models.failures import ModelFailure

if TYPE_CHECKING:
    from leadhand.core.state.model import Now, State
    from leadhand.engine.perform import AttemptRun
    from leadhand.models.meter import ModelCall


ROUNDING = 1e-9


class RunBudget:
    """The remaining budget of a run for model calls."""

    def __init__(self, run: AttemptRun) -> None:
        self._run = run
        self._aside = 0.0
        self._settled = asyncio.Event()

    def left(self, held: float = 0.0) -> float:
        """Return the unreserved budget; `held` is the reservation of the asking attempt itself."""
        state = self._run.state
        if state.policy.budget is None:
            return math.inf
        return state.policy.budget - state.spent - state.reserved + held - self._aside

    async def reserve(self, wanted: float, least: float, held: float = 0.0) -> float:
        """Reserve money for a call.

        `wanted` is the most it may cost, `least` the smallest useful amount, `held` the reservation
        of the asking attempt. Return the reserved amount. Raise `ModelFailure` if there is not
        enough.
        """
        if self._run.state.policy.budget is None:
            return wanted
        if math.isinf(least):
            raise ModelFailure(
                "budget",
                "there is a budget, and the price of this model is not known. "
                "Fix: name it under [models] with price_in and price_out, or drop the budget.",
            )
        while (left := self.left(held) + ROUNDING) < least:
            if self._aside <= ROUNDING:
                budget = self._run.state.policy.budget
                raise ModelFailure(
                    "budget",
                    f"{max(0.0, left):.6f} is left of the budget of {budget:g}, and the call may "
                    f"cost {least:.6f}",
                )
            self._settled.clear()
            await self._settled.wait()
        reserved = min(wanted, left)
        self._aside += reserved
        return reserved

    def settle(self, reserved: float, call: ModelCall, step: str, attempt: int) -> None:
        """Release a reservation and record the cost of a call that ended."""
        if self._run.state.policy.budget is None:
            reserved = 0.0
        event = ev.ModelCalled(
            model=call.model,
            step=step,
            attempt=attempt,
            tier=call.tier,
            input=call.usage.input,
            output=call.usage.output,
            cached=call.usage.cache_read,
            written=call.usage.cache_write,
            cost=call.cost,
            seconds=round(call.seconds, 3),
            failure=call.failure,
            prompt=call.prompt,
            asked=call.asked,
            answer=call.answer,
            contents=call.contents,
        )
        # Counts as spent from now on, though the log records it only in the next turn of the loop.
        self._aside += call.cost - reserved

        unheard = [call.cost]

        def called(state: State, _now: Now) -> Move:
            if unheard:  # It may be submitted again, after a failed commit.
                self._aside -= unheard.pop()
            return Move([] if state.ended is not None else [event], [])

        self._run.submit(called)
        self._settled.set()


class PlannerPayer:
    """The payer of a model call by the planner."""

    def __init__(self, run: AttemptRun, call: int) -> None:
        self._run, self._call = run, call

    async def reserve(self, wanted: float, least: float) -> float:
        """Reserve from the remaining budget of the run."""
        return await self._run.budget.reserve(wanted, least)

    def settle(self, reserved: float, call: ModelCall) -> None:
        """Record the call under the planner."""
        self._run.budget.settle(reserved, call, "", self._call)
