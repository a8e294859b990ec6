"""What a person should know of steps before approving them: a summary and the findings. Pure.

Findings are those of the linter that matter for an approval, and what the reach of the steps shows:
workers without declared effects, steps without a way back, no budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from leadhand.core.catalog import able_workers, effective_risk
from leadhand.core.durations import seconds, text
from leadhand.core.lint.plan import lint
from leadhand.core.review.subject import UNDECLARED
from leadhand.core.visible import visible_name
from leadhand.core.wording import listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.catalog import Catalog
    from leadhand.core.plan.model import Doc
    from leadhand.core.review.ruling import PlanReach


LINTED_MAX = 500
"""Larger plans are not linted for a review: `leadhand lint` does that."""
NOTES = frozenset({"timeout-missing", "goal-unchecked", "boundary-undeclared"})
"""The notes of the linter that are findings of a review; warnings always are."""
OF_NO_PLANNER = frozenset({"field-later", "replan-absent"})
"""The rules about what has no effect without a planner."""
NAMED_MAX = 8


class ReviewFinding(Struct, kw_only=True):
    """Something to consider before an approval."""

    rule: str
    """The name of the check."""
    level: str
    """`warning` or `note`."""
    step: str | None
    """The step that it is about; null: the plan."""
    message: str
    """What to consider."""


class Assessment(Struct, kw_only=True):
    """Steps in short, and what to consider about them."""

    summary: str
    """One line: steps, risk, side effects, whether they can be rolled back, cost, estimate."""
    findings: list[ReviewFinding]
    """What to consider before an approval."""
    descriptions: dict[str, str]
    """By step: what its worker does, in the worker's own words; "" where it does not say."""
    reversible: bool
    """Whether every step can be rolled back, or has no effects; false where it does not say."""
    irreversible: list[str]
    """The steps with effects for which no undo is declared."""
    estimate_s: float | None
    """How long the plan says that it takes, in seconds."""


def assess(
    steps: list[Doc],
    plan: Doc,
    whole: Doc,
    catalog: Catalog,
    wanted: PlanReach,
    budget: object,
    *,
    planned: bool = False,
) -> Assessment:
    """Return what to know of `steps`, which are all of `whole`, or those that are added to it.

    `plan` is the document without its steps; `budget` is None if there is no limit.
    `planned`: whether a planner that the document does not name plans on.
    """
    lasting, unknown = ([], []) if plan.get("rollback_plan") else _irreversible(steps, catalog)
    estimate = _estimate(plan)
    return Assessment(
        summary=_summary(len(steps), wanted, lasting, unknown, estimate),
        findings=[
            *_undeclared(wanted),
            *_no_way_back(lasting),
            *_risky_undos(steps, catalog),
            *_no_budget(wanted, budget),
            *_linted(steps, whole, catalog, planned=planned),
        ],
        descriptions={str(step["id"]): _description(step, catalog) for step in steps},
        reversible=not lasting and not unknown,
        irreversible=lasting,
        estimate_s=estimate,
    )


def _summary(
    count: int,
    wanted: PlanReach,
    lasting: list[str],
    unknown: list[str],
    estimate: float | None,
) -> str:
    size = f"{count} step{'s' if count != 1 else ''}"
    risk = wanted.declared or wanted.risk
    parts = [size, f"risk {risk}", _side_effects(wanted)]
    if lasting:
        parts.append(f"cannot be rolled back: {listed(map(visible_name, lasting), NAMED_MAX)}")
    elif unknown:
        parts.append("rollback not declared")
    elif wanted.effects:
        parts.append("can be rolled back")
    parts.append(f"cost {wanted.cost:g}")
    parts.append(f"estimate {text(estimate)}" if estimate is not None else "no estimate")
    return " · ".join(parts)


def _side_effects(wanted: PlanReach) -> str:
    """Return `side effects: cluster, payments (quick declares none)`."""
    silent = _silent(wanted)
    known = [each for each in sorted(wanted.effects) if not each.startswith(UNDECLARED)]
    text = f"side effects: {listed(known, NAMED_MAX) or ('not declared' if silent else 'none')}"
    if not silent:
        return text
    verb = "declares" if len(silent) == 1 else "declare"
    return f"{text} ({listed(silent, NAMED_MAX)} {verb} none)"


def _silent(wanted: PlanReach) -> list[str]:
    """Return the workers that declare no effects."""
    return sorted(
        each.removeprefix(UNDECLARED) for each in wanted.effects if each.startswith(UNDECLARED)
    )


def _estimate(plan: Doc) -> float | None:
    try:
        written = plan.get("estimated_duration")
        return None if written is None else seconds(written)
    except (TypeError, ValueError):
        return None


def _irreversible(steps: Iterable[Doc], catalog: Catalog) -> tuple[list[str], list[str]]:
    """Return the steps without undo: those that have effects, and those that do not say."""
    found: list[str] = []
    unknown: list[str] = []
    for step in steps:
        offers = [
            catalog.offer(name, step.get("action", ""))
            for name in able_workers(step, catalog.workers)
        ]
        if step.get("undo"):
            continue
        if step.get("effects") or any(offer and offer.effects for offer in offers):
            found.append(str(step["id"]))
        elif any(offer is None or offer.effects is None for offer in offers):
            unknown.append(str(step["id"]))
    return found, unknown


def _description(step: Doc, catalog: Catalog) -> str:
    """Return what the worker of a step does; "" for a worker with several actions."""
    spec = catalog.workers.get(str(step.get("worker", "")))
    return spec.description if spec is not None and len(spec.offers) <= 1 else ""


def _undeclared(wanted: PlanReach) -> list[ReviewFinding]:
    return [
        ReviewFinding(
            rule="effects-undeclared",
            level="warning",
            step=None,
            message=f"worker {visible_name(name)} declares no effects, so it may change anything",
        )
        for name in _silent(wanted)
    ]


def _no_way_back(lasting: list[str]) -> list[ReviewFinding]:
    return [
        ReviewFinding(
            rule="undo-missing",
            level="note",
            step=ident,
            message=f"step {visible_name(ident)} has effects and no undo, and the plan has no "
            "rollback plan",
        )
        for ident in lasting
    ]


def _risky_undos(steps: Iterable[Doc], catalog: Catalog) -> list[ReviewFinding]:
    """Return the undos that a policy rarely lets run: a rollback is a run with its own review."""
    return [
        ReviewFinding(
            rule="undo-risky",
            level="note",
            step=str(step["id"]),
            message=f"the undo of step {visible_name(step['id'])} has {risk} risk: a rollback may "
            "wait for an approval of its own, and until then the effect stays",
        )
        for step in steps
        if isinstance(undo := step.get("undo"), dict)
        and (risk := effective_risk(None, undo, catalog)) in ("high", "critical")
    ]


def _no_budget(wanted: PlanReach, budget: object) -> list[ReviewFinding]:
    if budget is not None or not wanted.cost:
        return []
    told = f"no budget: steps declare a cost of {wanted.cost:g}, and nothing limits it"
    return [ReviewFinding(rule="budget-missing", level="note", step=None, message=told)]


def _linted(
    steps: list[Doc], whole: Doc, catalog: Catalog, *, planned: bool
) -> list[ReviewFinding]:
    """Return the findings of the linter about these steps, and about the plan as a whole."""
    if len(whole.get("steps", ())) > LINTED_MAX:
        told = f"more than {LINTED_MAX} steps: see `leadhand lint` for what the linter finds"
        return [ReviewFinding(rule="findings-cut", level="note", step=None, message=told)]
    ours = {str(step["id"]) for step in steps}
    untrue = OF_NO_PLANNER if planned else frozenset[str]()
    return [
        ReviewFinding(
            rule=each.code,
            level=each.level,
            step=each.step or None,
            message=f"{each.message}. {each.fix}" if each.fix else each.message,
        )
        for each in lint(whole, catalog)
        if (each.level == "warning" or each.rule in NOTES) and (not each.step or each.step in ours)
        if each.rule not in untrue
    ]
