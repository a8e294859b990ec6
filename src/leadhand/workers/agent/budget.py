"""What one attempt may spend on models, inside of what the run may."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leadhand.models.failures import ModelFailure

if TYPE_CHECKING:
    from leadhand.models.meter import ModelCall, Payer


ROUNDING = 1e-9


class AgentBudget:
    """Somebody who pays up to a limit, out of another's purse."""

    def __init__(self, purse: Payer, limit: float) -> None:
        self._purse = purse
        self._limit = limit
        self._spent = 0.0
        """What was settled, and what calls in flight have set aside."""

    async def reserve(self, wanted: float, least: float) -> float:
        """Money for a call, from both."""
        if math.isinf(least):
            raise ModelFailure(
                "budget",
                "the agent has a budget, and the price of its model is not known. "
                "Fix: name the model under [models] with price_in and price_out.",
            )
        left = self._limit - self._spent + ROUNDING
        if left < least:
            raise ModelFailure(
                "budget",
                f"{max(0.0, left):.6f} is left of the agent's budget of {self._limit:g} for one "
                f"attempt, and the call may cost {least:.6f}",
            )
        reserved = await self._purse.reserve(min(wanted, left), least)
        self._spent += reserved
        return reserved

    def settle(self, reserved: float, call: ModelCall) -> None:
        """What was set aside is free again, and what the call cost is spent."""
        self._spent += call.cost - reserved
        self._purse.settle(reserved, call)
