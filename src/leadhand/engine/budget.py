"""The money of one run, as calls of models take it.

What the log says is spent is spent; what calls in flight may cost at most is set aside here, and
attempts that declare a price hold theirs (see `State.reserved`). A call that does not fit waits
for those in flight, which mostly come to less than was set aside for them; when none is left to
wait for, it is refused. Everything happens on one event loop, so no two calls see the same money.

Each call that ended is written into the log, whoever made it and however it went.
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
    from leadhand.engine.run import Run
    from leadhand.models.meter import ModelCall


ROUNDING = 1e-9


class RunBudget:
    """What a run may still spend on models."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._aside = 0.0
        self._settled = asyncio.Event()

    def left(self, held: float = 0.0) -> float:
        """What nobody has laid a hand on; `held` is what the asking attempt holds itself."""
        state = self._run.state
        if state.policy.budget is None:
            return math.inf
        return state.policy.budget - state.spent - state.reserved + held - self._aside

    async def reserve(self, wanted: float, least: float, held: float = 0.0) -> float:
        """Set money aside for a call, or say that there is not enough."""
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
        """A call ended: what was set aside is free again, and what it cost is spent."""
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
        # Spent from now on, though the log hears of it only in the next turn of the loop.
        self._aside += call.cost - reserved

        unheard = [call.cost]

        def called(state: State, _now: Now) -> Move:
            if unheard:  # It may be handed in again, after a commit that failed.
                self._aside -= unheard.pop()
            return Move([] if state.ended is not None else [event], [])

        self._run.say(called)
        self._settled.set()


class PlannerPays:
    """A call of the planner, as somebody who pays."""

    def __init__(self, run: Run, call: int) -> None:
        self._run, self._call = run, call

    async def reserve(self, wanted: float, least: float) -> float:
        """From what the run has left."""
        return await self._run.purse.reserve(wanted, least)

    def settle(self, reserved: float, call: ModelCall) -> None:
        """Into the log, for the planner."""
        self._run.purse.settle(reserved, call, "", self._call)
