"""The approvals a revision requires: none, one person, two, or refusal.

A pure function of the reach of the revision, the earlier permissions, and the policy recorded when
the run started. In this order:

1. A rule that refuses, refuses.
2. Inside the envelope set by a person, a revision is approved, unless the first rule that matches
   is about untrusted data and asks for people.
3. Outside the envelope that a person set for a document, a revision by its planner needs one person
   at least.
4. The first rule that matches decides.
5. If all revisions are to be reviewed, a reviewer reported a finding, or the risk exceeds the
   automatic limit: one person.
6. Else it is approved.

In any case: once untrusted data was read, a revision outside the envelope needs a person.

The *envelope* is a lattice, so that "inside" is a matter of inclusion and not of judgement: workers
and effects as sets, risk as a rank, written paths as prefixes, cost as a sum over the run. An
undeclared effect of a worker is that worker's own unknown: it is inside only if the same worker was
allowed with it. The envelope expires with the approval that set it, and a changed worker is
outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leadhand.core.catalog import (
    NOT_DECLARED,
    able_workers,
    declared_risk,
    effective_risk,
    highest,
)
from leadhand.core.plan.model import RISKS, worst
from leadhand.core.visible import visible_name
from leadhand.core.wording import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from leadhand.core.catalog import Catalog
    from leadhand.core.plan.model import Doc, Risk
    from leadhand.core.policy import Rule
    from leadhand.core.state.model import State
    from leadhand.core.state.records import Permits


PEOPLE = {"allow": 0, "one": 1, "two": 2}
REACHING = ("risk_level", "alternatives", "effects", "writes")
"""The fields of a step, besides worker and action, that determine its reach."""


class PlanReach(NamedTuple):
    """The most that steps may do."""

    workers: frozenset[str]
    effects: frozenset[str]
    risk: Risk
    scope: frozenset[str]
    cost: float
    declared: str = ""
    """The declared risk, or `NOT_DECLARED`: for people, never for a rule."""

    def to_doc(self) -> Doc:
        """Return the reach as it is logged."""
        return {
            "workers": sorted(self.workers),
            "effects": sorted(self.effects),
            "risk": self.risk,
            "scope": sorted(self.scope),
        }


class Ruling(NamedTuple):
    """The number of people who must allow a revision, and why; or that it is refused."""

    people: int
    reason: str
    refused: bool = False
    inside: bool = False
    """Whether it is inside the envelope set by a person."""


def reach(
    steps: Iterable[Doc],
    catalog: Catalog,
    plan_risk: str | None = None,
) -> PlanReach:
    """Return the most that steps could do with any of their workers."""
    workers: set[str] = set()
    effects: set[str] = set()
    scope: set[str] = set()
    risk, cost = worst(plan_risk), 0.0
    declared_risks: set[str] = set()
    for step, count in _alike(steps):
        names = able_workers(step, catalog.workers)
        offers = [catalog.offer(name, step.get("action", "")) for name in names]
        workers.update(names)
        scope.update(step.get("writes") or ())
        risk = worst(risk, effective_risk(plan_risk, step, catalog))
        declared_risks.add(declared_risk(plan_risk, step, catalog))
        cost += count * max((offer.cost for offer in offers if offer), default=0.0)
        for name, offer in zip(names, offers, strict=True):
            # A plan cannot remove effects of a worker, nor say of a silent one that it has none.
            own, theirs = step.get("effects"), offer.effects if offer else None
            known = own or theirs is not None
            effects.update((*(own or ()), *(theirs or ())) if known else (f"undeclared:{name}",))
            scope.update(offer.writes if offer else ())
    shown = highest(declared_risks)
    return PlanReach(frozenset(workers), frozenset(effects), risk, frozenset(scope), cost, shown)


def _alike(steps: Iterable[Doc]) -> list[tuple[Doc, int]]:
    """Group steps of equal reach; return one of each with their number."""
    found: dict[object, tuple[Doc, int]] = {}
    for step in steps:
        more = [(name, str(step[name])) for name in REACHING if name in step]
        kind = (step["worker"], step.get("action"), *more)
        first, count = found.get(kind, (step, 0))
        found[kind] = (first, count + 1)
    return list(found.values())


def outside_envelope(envelope: Doc, wanted: PlanReach, spent: float) -> list[str]:
    """Return the ways in which a reach exceeds an envelope; empty if it is inside."""
    found = []
    for word, have, want in (
        ("worker", envelope.get("workers", ()), wanted.workers),
        ("effect", envelope.get("effects", ()), wanted.effects),
    ):
        new = sorted(want - frozenset(have))
        if new:
            found.append(f"{word}{'s' if len(new) > 1 else ''} {', '.join(new)}")
    if RISKS.index(wanted.risk) > RISKS.index(worst(envelope.get("risk"))):
        found.append(f"risk {wanted.risk}")
    allowed = envelope.get("scope", ())
    new_scope = [
        each for each in sorted(wanted.scope) if not any(_within(each, a) for a in allowed)
    ]
    if new_scope:
        found.append(f"writes {', '.join(new_scope)}")
    limit = envelope.get("cost")
    if limit is not None and spent + wanted.cost > float(limit) + 1e-9:
        found.append(f"cost {spent + wanted.cost:g} of {float(limit):g}")
    return found


def _within(path: str, allowed: str) -> bool:
    """Return whether a path is under another; a path with `..` is under none."""
    parts, above = path.split("/"), allowed.rstrip("/").split("/")
    return ".." not in parts and parts[: len(above)] == above


def current_envelope(permits: Permits, wall: int) -> Doc | None:
    """Return the current envelope: None if none was set, empty if it has expired."""
    found = permits.envelope
    return {} if found is not None and 0 < found.get("expires", 0) <= wall else found


def envelope_without(envelope: Doc | None, workers: Collection[str]) -> Doc | None:
    """Return an envelope without these workers: they changed since they were allowed."""
    if not envelope:
        return envelope
    return {**envelope, "workers": [name for name in envelope["workers"] if name not in workers]}


def widened_envelope(
    before: Doc | None, now: PlanReach, asked: Doc | None, expires: int = 0
) -> Doc:
    """Return the envelope after an approval: the earlier one, this reach, and the plan's request.

    It expires with the first of the approvals that set it.
    """
    asked = asked or {}
    old = before or {}
    found: Doc = {
        key: sorted({*old.get(key, ()), *own, *asked.get(key, ())})
        for key, own in (("workers", now.workers), ("effects", now.effects), ("scope", now.scope))
    }
    found["risk"] = worst(old.get("risk"), now.risk, asked.get("risk"))
    cost = asked.get("cost", old.get("cost"))
    if cost is not None:
        found["cost"] = cost
    if ends := [each for each in (old.get("expires"), expires) if each]:
        found["expires"] = min(ends)
    return found


def reach_of(state: State, add: Iterable[Doc], catalog: Catalog | None = None) -> PlanReach:
    """Return the reach of steps in this run; `catalog` replaces its workers."""
    risk = state.started.plan.get("risk_level") if state.started else None
    return reach(add, catalog or state.catalog, risk)


def ruling(
    state: State,
    wanted: PlanReach,
    envelope: Doc | None,
    findings: Sequence[str] = (),
    *,
    planned: bool = False,
) -> Ruling:
    """Return the approvals required for a reach; `envelope` is the current envelope.

    `planned`: whether the planner of the run proposes it, rather than a person.
    """
    permits = state.permits
    fitting = [
        rule
        for rule in state.policy.rules
        if _fits(rule, wanted, findings, tainted=permits.tainted)
    ]
    refusing = next((rule for rule in fitting if rule.then == "refuse"), None)
    if refusing is not None:
        return Ruling(0, f"the policy refuses it ({_named(refusing)})", refused=True)
    beyond = outside_envelope(envelope, wanted, state.spent) if envelope is not None else None
    # An envelope knows workers and effects, not arguments: data can order a permitted thing.
    steered = bool(fitting) and fitting[0].untrusted and PEOPLE.get(fitting[0].then, 1) > 0
    if beyond == [] and not findings and not steered:
        return Ruling(0, f"within the approval by {permits.approved_by}", inside=True)
    found = _ruled(state, wanted, fitting, findings)
    if not found.people and beyond and planned and is_reviewed_document(state):
        why = f"it exceeds the approval by {permits.approved_by}"
        return Ruling(1, f"{why}: {', '.join(beyond)}")
    if not found.people and permits.tainted and beyond:
        why = "untrusted data was read, and it exceeds the approval"
        return Ruling(1, f"{why}: {', '.join(beyond)}")
    if beyond and found.people:
        ended = f"the approval by {permits.approved_by} has expired"
        other = f"the approval by {permits.approved_by} is for something else"
        over = ended if planned else other
        why = f"new: {', '.join(beyond)}" if envelope else over
        return found._replace(reason=f"{found.reason}; {why}")
    return found


def rule_asks(state: State, wanted: PlanReach) -> bool:
    """Return whether a rule of the policy asks for people, or may: findings are not known here."""
    tainted = state.permits.tainted
    fitting = (r for r in state.policy.rules if _fits(r, wanted, ("unknown",), tainted=tainted))
    return any(rule.then != "allow" for rule in fitting)


def is_reviewed_document(state: State) -> bool:
    """Return whether the run is of a document that names its planner and that a person allowed."""
    named = state.started is not None and state.started.plan.get("planner")
    return bool(named) and state.permits.envelope is not None


def _ruled(state: State, wanted: PlanReach, fitting: list[Rule], findings: Sequence[str]) -> Ruling:
    policy = state.policy
    if fitting:
        return Ruling(
            PEOPLE.get(fitting[0].then, 1), f"required by the policy ({_named(fitting[0])})"
        )
    if policy.review:
        return Ruling(1, _requested(state))
    if findings:
        return Ruling(1, f"a reviewer found: {'; '.join(findings)[:500]}")
    undeclared = wanted.declared == NOT_DECLARED
    told = f"its risk is not declared, which the policy counts as {wanted.risk}"
    if RISKS.index(wanted.risk) > RISKS.index(worst(policy.auto_risk)):
        return Ruling(1, told if undeclared else f"its risk is {wanted.risk}")
    passes = "runs without approval"
    return Ruling(0, f"{told}, and {passes}" if undeclared else f"risk {wanted.risk} {passes}")


def _requested(state: State) -> str:
    """Return by whom a review was requested that neither a rule nor the risk asks for."""
    proposer = state.started.plan.get("proposed_by") if state.started is not None else None
    if proposer:
        return f"{visible_name(str(proposer))} proposed it for review"
    return "requested with --review or policy.review"


def _fits(rule: Rule, wanted: PlanReach, findings: Sequence[str], *, tainted: bool) -> bool:
    return (
        (not rule.risk or RISKS.index(wanted.risk) >= RISKS.index(worst(rule.risk)))
        and (not rule.workers or not wanted.workers.isdisjoint(rule.workers))
        and (not rule.effects or not wanted.effects.isdisjoint(rule.effects))
        and (rule.cost_over is None or wanted.cost > rule.cost_over)
        and (not rule.untrusted or tainted)
        and (not rule.findings or bool(findings))
    )


def _named(rule: Rule) -> str:
    if rule.name:
        return rule.name
    parts = [f"risk {rule.risk} or higher"] if rule.risk else []
    parts += [f"worker {listed(rule.workers)}"] if rule.workers else []
    parts += [f"effect {listed(rule.effects)}"] if rule.effects else []
    parts += [f"cost over {rule.cost_over:g}"] if rule.cost_over is not None else []
    parts += ["data from outside"] if rule.untrusted else []
    parts += ["a reviewer's findings"] if rule.findings else []
    return f"rule for {', '.join(parts) or 'everything'}"
