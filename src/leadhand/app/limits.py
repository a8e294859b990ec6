"""A run's constants: what the host allows, and what the plan asks for. It may only ask for less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core.calendar import next_instant
from leadhand.core.durations import seconds

if TYPE_CHECKING:
    from leadhand.core.plan import Doc
    from leadhand.core.policy import Policy


def plan_policy(policy: Policy, head: Doc, goal: Any, wall: int) -> Policy:
    """The run's constants: the host's, with what the plan asks for; it may only ask for less."""
    limits = head.get("limits") or {}
    of_goal = goal if isinstance(goal, dict) else {}
    wanted: Doc = {
        "resources": _least_of(policy.resources, head.get("resources") or {}),
        "worker_concurrency": _least_of(policy.worker_concurrency, limits.get("workers") or {}),
    }
    if limits.get("concurrency"):
        wanted["max_concurrency"] = min(policy.max_concurrency, limits["concurrency"])
    budgets = [policy.budget, _cost(head.get("budget")), _cost(of_goal.get("budget"))]
    if any(budget is not None for budget in budgets):
        wanted["budget"] = min(budget for budget in budgets if budget is not None)
    walls = [policy.wall_s, _left(head.get("deadline"), wall), _left(of_goal.get("deadline"), wall)]
    if any(left is not None for left in walls):
        wanted["wall_s"] = min(left for left in walls if left is not None)
    return msgspec.structs.replace(policy, **wanted)


def _least_of(ours: dict[str, int], theirs: dict[str, int]) -> dict[str, int]:
    both = {name: min(amount, ours.get(name, amount)) for name, amount in theirs.items()}
    return {**ours, **both}


def _cost(budget: Any) -> float | None:
    amount = budget.get("cost") if isinstance(budget, dict) else budget
    return None if amount is None else float(amount)


def _left(deadline: Any, wall: int) -> float | None:
    """How long a run has: a duration, or until a moment or the next time of day."""
    if deadline is None:
        return None
    try:
        return seconds(deadline)
    except ValueError:
        return max(0.0, (next_instant(str(deadline), wall) - wall) / 1e6)
