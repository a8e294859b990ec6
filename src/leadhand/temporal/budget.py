"""The budget of a run on many machines: a quota for each attempt, so that none is spent twice.

An attempt gets a fair share when it starts: the unreserved budget, divided by the number of those
that may want some at the same time. If that is not enough it asks for more, and returns its unused
part meanwhile; so it waits for others in flight, which mostly use less than they were given. When
none is left to wait for, it is refused: only then is the budget spent. (`engine/budget.py` does the
same for calls on one machine.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from temporalio import workflow

if TYPE_CHECKING:
    from leadhand.temporal.workflow import RunFlow


with workflow.unsafe.imports_passed_through():
    from leadhand.core import commands
    from leadhand.core.state.model import State
    from leadhand.engine.budget import ROUNDING
    from leadhand.temporal.messages import More

SPENDER = "agent"
"""The kind of workers that certainly call models. Others have a price, and may ask for more."""


class _Held:
    """The quota of one attempt: `own` of it is its declared price, which the state reserves."""

    __slots__ = ("own", "quota", "waits")

    def __init__(self, quota: float, own: float) -> None:
        self.quota, self.own = quota, own
        self.waits = False


class WorkflowBudget:
    """The quotas of a run's budget. The planner is the step without a name."""

    def __init__(self, flow: RunFlow) -> None:
        self._flow = flow
        self._held: dict[tuple[str, int], _Held] = {}

    def give(self, step: str, epoch: int) -> float | None:
        """Return the quota of an attempt or planner call that starts; None without a budget."""
        state = self._flow.state
        if state.policy.budget is None:
            return None
        own, spends = 0.0, True
        if step:
            doer = state.catalog.workers.get(state.steps[step].worker)
            own = state.price(state.steps[step])
            spends = doer is not None and doer.kind == SPENDER
        held = self._held[step, epoch] = _Held(0.0, own)
        free = self._free()
        part = max(0.0, free - own) / self._takers() if spends else 0.0
        held.quota = max(0.0, min(free, own + part))
        return held.quota

    def back(self, step: str, epoch: int) -> None:
        """Release the quota of an attempt that is over; the log has what it spent."""
        self._held.pop((step, epoch), None)

    async def more(self, want: More) -> float:
        """Return the new quota of an attempt that needs more: at least `used`, which it keeps."""
        held = self._held.get((want.step, want.epoch))
        if held is None or not self._counts(want):
            return want.used
        held.quota, held.waits = min(held.quota, max(0.0, want.used)), True
        least, wanted = max(0.0, want.least), max(0.0, want.wanted)
        while self._free() + ROUNDING < least and self._hoped(want):  # another may be quicker
            await workflow.wait_condition(
                lambda: self._free() + ROUNDING >= least or not self._hoped(want)
            )
        held.waits = False
        free = max(0.0, self._free())
        if free + ROUNDING >= least:
            held.quota += min(free, max(wanted, free / self._takers()))
        return held.quota

    def _hoped(self, want: More) -> bool:
        """Return whether another attempt may still return budget, and this one is still wanted."""
        if not self._counts(want):
            return False
        return any(not each.waits and each.quota > ROUNDING for each in self._held.values())

    def _counts(self, want: More) -> bool:
        """Return whether its result still counts: only then does it get budget."""
        state = self._flow.state
        if state.ended is not None or (want.step, want.epoch) not in self._held:
            return False
        if not want.step:
            return state.planner.epoch == want.epoch
        return commands.is_current(state, want.step, want.epoch)

    def _takers(self) -> int:
        """Return how many attempts, waiting or about to start, may want a share of the rest."""
        state, ways = self._flow.state, self._flow.ways
        most = min(state.policy.max_concurrency, ways.in_flight_max, max(1, state.unsettled))
        return max(1, most - sum(1 for each in self._held.values() if each.quota > each.own))

    def _free(self) -> float:
        """Return the unreserved budget."""
        state = self._flow.state
        assert state.policy.budget is not None
        left = state.policy.budget - state.spent - state.reserved
        for (step, epoch), held in self._held.items():
            left -= held.quota - (held.own if _reserves(state, step, epoch) else 0.0)
        return left


def _reserves(state: State, step: str, epoch: int) -> bool:
    """Return whether the state reserves the price of an attempt: a lost one may still spend."""
    return bool(step) and commands.is_current(state, step, epoch)
