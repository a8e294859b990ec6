"""Time and money: whether a plan can keep to its limits by its own figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core import graph
from leadhand.core.check_form import join
from leadhand.core.durations import text as short
from leadhand.core.whole import seconds
from leadhand.core.wording import shown

if TYPE_CHECKING:
    from leadhand.core.findings import Findings
    from leadhand.core.plan import Json
    from leadhand.core.whole import Whole

FINE_S = 0.05
"""A step that takes less than this is mostly the cost of starting it."""

DOMINANT = 0.6
STEPS_MIN = 3


def check_estimates(whole: Whole, out: Findings, *, advice: bool) -> None:
    """Budget and deadline; as advice, estimates that are missing or tell that a step is amiss."""
    for field, place in (("", "budget"), ("goal", "goal.budget")):
        budget = _amount((whole.goal if field else whole.plan).get("budget"))
        if budget is not None:
            _check_budget(whole, budget, join(whole.prefix, place), out)
    for field, place in (("", "deadline"), ("goal", "goal.deadline")):
        deadline = seconds((whole.goal if field else whole.plan).get("deadline"))
        if deadline is not None:
            _check_deadline(whole, deadline, join(whole.prefix, place), out)
    if advice:
        _advise(whole, out)


def _amount(budget: Json) -> float | None:
    found = budget.get("cost") if isinstance(budget, dict) else budget
    return float(found) if isinstance(found, (int, float)) else None


def _check_budget(whole: Whole, budget: float, place: str, out: Findings) -> None:
    offers = (whole.offer(step) for step in whole.steps.values())
    cost = sum(offer.cost for offer in offers if offer is not None)
    if cost > budget * (1 + 1e-9):
        message = f"the steps cost {cost:g} by what their workers say, and the budget is {budget:g}"
        out.add("budget-short", place, message, "Raise the budget, or take cheaper workers.")


def _check_deadline(whole: Whole, deadline: float, place: str, out: Findings) -> None:
    est = {ident: whole.est(step) or 0.0 for ident, step in whole.steps.items()}
    takes = max(graph.tails(whole.edges, est).values(), default=0.0)
    at_once = whole.plan.get("limits", {}).get("concurrency")
    if at_once:
        takes = max(takes, sum(est.values()) / at_once)
    takes = max(takes, seconds(whole.plan.get("estimated_duration")) or 0.0)
    if takes > deadline:
        own = f"by its own estimates the plan takes {short(takes)} at least"
        message = f"{own}, and it has {short(deadline)}"
        out.add("budget-short", place, message, "Give it more time, or do more at once.")


def _advise(whole: Whole, out: Findings) -> None:
    known = {ident: whole.est(step) for ident, step in whole.steps.items()}
    total = sum(est for est in known.values() if est is not None)
    complete = None not in known.values() and len(known) >= STEPS_MIN
    some = any("est" in step for step in whole.steps.values())
    for ident, step in whole.steps.items():
        est, timeout = known[ident], whole.timeout(step)
        if est is None:
            if some:
                message = f"step {shown(ident)} has no estimate, and counts as instant"
                out.add("estimate-missing", whole.place(ident), message, 'Add "est".')
            continue
        place = whole.place(ident, "est" if "est" in step else "")
        if timeout is not None and est > timeout:
            should = f"step {shown(ident)} should take {short(est)}"
            message = f"{should}, and is stopped after {short(timeout)}"
            out.add("estimate-over-timeout", place, message, 'Raise "timeout".')
        if est < FINE_S:
            message = f"step {shown(ident)} takes about {est:g} s, which is less than starting it"
            out.add("step-fine", place, message, "Let a neighbour do it too.")
        if complete and est > DOMINANT * total:
            message = f"step {shown(ident)} is {est / total:.0%} of all the work"
            out.add("step-dominant", place, message, "Split it, if it can be split.")
