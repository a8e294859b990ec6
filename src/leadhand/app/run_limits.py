"""The policy of a run: the host's limits, and those of the plan, which can only be tighter.

A run that a model plans, and a goal that agents may work on, has a budget and a number of planner
calls even by default: `model_policy` fills them in, `limits_doc` and `limits_text` show them before
the run starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core.calendar import next_instant
from leadhand.core.durations import seconds
from leadhand.core.policy import MODEL_BUDGET, Policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.core.plan.model import Doc
    from leadhand.ports import Planner


def plan_policy(policy: Policy, head: Doc, goal: Any, wall: int) -> Policy:
    """Return the run's policy: the host's, tightened by the limits of the plan."""
    limits = head.get("limits") or {}
    of_goal = goal if isinstance(goal, dict) else {}
    wanted: Doc = {
        "resources": _least_of(policy.resources, head.get("resources") or {}),
        "worker_concurrency": _least_of(policy.worker_concurrency, limits.get("workers") or {}),
    }
    if limits.get("concurrency"):
        wanted["max_concurrency"] = min(policy.max_concurrency, int(limits["concurrency"]))
    budgets = [policy.budget, _cost(head.get("budget")), _cost(of_goal.get("budget"))]
    if any(budget is not None for budget in budgets):
        wanted["budget"] = min(budget for budget in budgets if budget is not None)
    walls = [policy.wall_s, _left(head.get("deadline"), wall), _left(of_goal.get("deadline"), wall)]
    if any(left is not None for left in walls):
        wanted["wall_s"] = min(left for left in walls if left is not None)
    return msgspec.structs.replace(policy, **wanted)


def reviewed_policy(policy: Policy) -> Policy:
    """Return `policy` without what lets a plan start before a person has approved it."""
    rules = tuple(rule for rule in policy.rules if rule.then != "allow")
    return msgspec.structs.replace(policy, review=True, rules=rules)


def model_policy(policy: Policy, planner: Planner, agents: Sequence[Any]) -> Policy:
    """Return `policy` with the default limits of models where none are set.

    `agents` are the workers that call models and may be used. The budget stays open if the price of
    a model is unknown: with a budget, that model could not be called at all.
    """
    calls: int | None = getattr(planner, "calls", None)
    wanted: Doc = {}
    if calls is not None and policy.planner_calls_max == Policy().planner_calls_max:
        wanted["planner_calls_max"] = calls
    budget: float | None = getattr(planner, "budget", None) if calls is not None else MODEL_BUDGET
    asks = calls is not None or bool(agents)
    if policy.budget is None and asks and all(each.is_priced for each in agents):
        wanted["budget"] = budget
    return msgspec.structs.replace(policy, **wanted)


class SpendingLimits(msgspec.Struct, kw_only=True):
    """What a run may spend, and how often its planner is asked."""

    budget: float | None
    """The highest cost of the run; null: no limit."""
    planner_calls: int
    """The number of calls of the planner."""


def limits_doc(policy: Policy) -> SpendingLimits:
    """Return a run's budget and maximum of planner calls as a document."""
    return SpendingLimits(budget=policy.budget, planner_calls=policy.planner_calls_max)


def limits_text(policy: Policy) -> str:
    """Return a run's budget and maximum of planner calls as a sentence."""
    money = (
        "spends without a limit (the price of a model is not known)"
        if policy.budget is None
        else f"stops before it has spent more than {policy.budget:g}"
    )
    return (
        f"This run {money}, and asks its planner at most {policy.planner_calls_max} times "
        "(--budget, [policy] budget and planner_calls)."
    )


def _least_of(ours: dict[str, int], theirs: dict[str, int]) -> dict[str, int]:
    # A whole number may be written 2.0; in the log it is an integer.
    both = {name: int(min(amount, ours.get(name, amount))) for name, amount in theirs.items()}
    return {**ours, **both}


def _cost(budget: Any) -> float | None:
    amount = budget.get("cost") if isinstance(budget, dict) else budget
    return None if amount is None else float(amount)


def _left(deadline: Any, wall: int) -> float | None:
    """Return how long a run has: a duration, or the time until an instant or time of day."""
    if deadline is None:
        return None
    try:
        return seconds(deadline)
    except ValueError:
        return max(0.0, (next_instant(str(deadline), wall) - wall) / 1e6)
