"""The check of a proposal against the present state: lint, then a rehearsal.

The needs of a worker must be true when its step starts: given with the goal, by a step that has
succeeded, by a person, or promised by a dependency. Only the worker's declaration counts as a
promise (`core/promises.py`). Nothing is run to find that out.

Data that a planner writes itself makes nothing true. A need that some worker gives, or that is
already given, is a *fact*: the parameter that takes it refers to it, or repeats its value
unchanged. A need without any giver is an ordinary parameter, which a planner fills in freely.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from leadhand.core import promises
from leadhand.core.lint.proposal import proposal
from leadhand.core.plan import references
from leadhand.core.plan.graph import ancestors, dependencies
from leadhand.core.plan.graph import order as in_order
from leadhand.core.state.model import DROPPABLE, MOVABLE, REPLACEABLE
from leadhand.core.wording import listed
from leadhand.planners.goal.operators import takes_of
from leadhand.planners.goal.world import Fact, facts_of_step, resolve_parameter, successor, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from leadhand.core.lint.findings import Finding
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.report import PlannerView
    from leadhand.planners.goal.world import Under, World


_PLACE = re.compile(r"steps\[(\d+)\]")
ROUNDING = 1e-9
FOR_GOOD = frozenset({"permanent", "policy", "denied"})
"""Classes of failures that the same attempt would meet again."""


def lint_refusal(steps: list[Doc], view: PlannerView) -> list[str]:
    """Return why lint refuses to add steps to the run."""
    return [str(each) for each in errors(steps, view)]


def first_wrong(steps: list[Doc], view: PlannerView, world: World) -> str:
    """Return the first step that cannot be carried out, and why, as text."""
    wrong = errors(steps, view)
    if not wrong:
        return unmet(steps, view, world)
    places = [_PLACE.match(each.place) for each in wrong]
    numbers = [int(place[1]) if place else 0 for place in places]
    first = min(range(len(wrong)), key=numbers.__getitem__)
    # A parameter that is missing is mostly a need that is not met yet: that is said instead.
    end = numbers[first] + (wrong[first].rule == "parameter-missing")
    sound = all("id" in step and "worker" in step for step in steps[:end])
    earlier = unmet(steps[:end], view, world) if sound else ""
    return earlier or str(wrong[first])


def undroppable(drop: Mapping[str, str], view: PlannerView) -> str:
    """Return the first step that must not be given up by name, as text."""
    for name, reason in drop.items():
        status = view.steps[name].status if name in view.steps else "not in the plan"
        if status not in DROPPABLE:
            return f"it drops {name}, which is {status}"
        if not reason.strip():
            return f"it drops {name} without a reason"
    return ""


def forbidden_change(steps: Sequence[Doc], cancel: Sequence[str], view: PlannerView) -> str:
    """Return the first step that a proposal must not cancel or replace, as text."""
    for name in cancel:
        status = view.steps[name].status if name in view.steps else "not in the plan"
        if status not in MOVABLE:
            return f"it cancels {name}, which is {status}"
    for step in steps:
        old = step.get("supersedes")
        status = view.steps[old].status if isinstance(old, str) and old in view.steps else ""
        if status and status not in REPLACEABLE:
            return f"{step['id']} supersedes {old}, which is {status}"
    return ""


def too_dear(steps: Sequence[Doc], view: PlannerView) -> str:
    """Return how far the declared costs of steps exceed the rest of the budget, as text."""
    if view.budget_left is None:
        return ""
    offers = [view.catalog.offer(step["worker"], step.get("action", "")) for step in steps]
    cost = sum(offer.cost for offer in offers if offer is not None)
    if cost <= view.budget_left + ROUNDING:
        return ""
    return (
        f"its steps are declared to cost {cost:g}, and {view.budget_left:g} is left of the budget"
    )


def errors(steps: list[Doc], view: PlannerView) -> list[Finding]:
    """Return lint's errors about steps that would be added to the run."""
    found = proposal(steps, _known(view), view.catalog, view.params)
    return [each for each in found if each.level == "error"]


def unmet(steps: Sequence[Doc], view: PlannerView, world: World) -> str:
    """Return the first step with a need that is not true, as text."""
    coming = _coming(steps, world)
    graph = {step["id"]: tuple(dependencies(step)) for step in steps}
    graph |= {each.id: tuple(dependencies(view.steps[each.id].planned)) for each in coming}
    changes = {each.id: (each.gives, each.drops) for each in coming}
    changes |= {s["id"]: (_of(s, "gives", view), _of(s, "drops", view)) for s in steps}
    places = {name: i for i, name in enumerate(in_order(graph))}
    before = {step["id"]: ancestors(graph, step["id"]) for step in steps}
    all_, sources = _facts(view, world), _sources(changes, world)
    for number, step in enumerate(steps, len(view.timeline) + 1):
        ident, true = step["id"], set(world.facts)
        for name in sorted(before[ident], key=places.__getitem__):
            gives, drops = changes[name]
            true = true.difference(drops).union(gives)
        for name, (_, drops) in changes.items():
            later = ident in before.get(name, ())
            if name != ident and name not in before[ident] and not later:
                true.difference_update(drops)
        what = " ".join(filter(None, (step["worker"], step.get("action", ""))))
        bound = step.get("parameters") or {}
        unmet = [
            n for n in _of(step, "needs", view) if n not in true and (n in all_ or n not in bound)
        ]
        if unmet:
            invented = " (data that you write yourself does not make it true)"
            more = invented if any(need in bound for need in unmet) else ""
            return f"step {number} {what} needs {not_true(unmet, 'which')}{more}"
        wrong = _invented(step, true, sources, view)
        if wrong:
            return f"step {number} {what} {wrong}"
    return ""


def _facts(view: PlannerView, world: World) -> set[str]:
    """Return every possible fact: those that are true, and those that a worker gives."""
    offers = (offer for spec in view.catalog.workers.values() for offer in spec.offers.values())
    return {*world.facts, *(fact for offer in offers for fact in offer.gives)}


Sources = Mapping[str, Sequence[Fact]]
"""The facts by name, each as every step that gives it, or the goal, stands for it."""


def _sources(changes: Mapping[str, tuple[Sequence[str], Sequence[str]]], world: World) -> Sources:
    found: dict[str, list[Fact]] = {name: [fact] for name, fact in world.facts.items()}
    for step, (gives, _) in changes.items():
        for name, fact in facts_of_step(step, tuple(gives)).items():
            found.setdefault(name, []).append(fact)
    return found


def _invented(step: Doc, true: Container[str], sources: Sources, view: PlannerView) -> str:
    """Return the first parameter that should hold a fact and holds another value, as text."""
    offer = view.catalog.offer(step["worker"], step.get("action", ""))
    bound = step.get("parameters") or {}
    for name, fact in takes_of(offer).items() if offer else ():
        several = sources.get(fact, ())
        if name not in bound or fact not in true or not several:
            continue
        if not _stands_for(bound[name], several, view):
            right = next(
                (each.value for each in several if isinstance(each.value, str)), "its value"
            )
            return (
                f"takes {fact} as {name}, and gets something else: data that you write yourself "
                f"does not count. Refer to it: {right}"
            )
    return ""


def _stands_for(value: Json, several: Sequence[Fact], view: PlannerView) -> bool:
    """Return whether a parameter is a fact: a reference, its value, or a list of such."""
    if isinstance(value, str):
        pieces = references.pieces(value)
        if len(pieces) == 1 and isinstance(pieces[0], references.Ref):
            return any(_refers(pieces[0], each, view) for each in several)
    if (
        isinstance(value, list)
        and value
        and all(_stands_for(each, several, view) for each in value)
    ):
        return True
    return any(_equals(value, each, view) for each in several)


def _refers(ref: references.Ref, fact: Fact, view: PlannerView) -> bool:
    own = references.pieces(fact.value) if isinstance(fact.value, str) else ()
    if len(own) != 1 or not isinstance(own[0], references.Ref):
        return False
    there, name = own[0], ref.name
    same = name == there.name or successor(name, view) == there.name
    return ref.kind == there.kind and same and ref.path[: len(there.path)] == there.path


def _equals(value: Json, fact: Fact, view: PlannerView) -> bool:
    try:
        return bool(resolve_parameter(value, view) == value_of(fact.value, view))
    except LookupError:
        return False  # it is not there yet


def _coming(steps: Sequence[Doc], world: World) -> list[Under]:
    """Return the steps under way, and those that start once the proposal replaces failed ones."""
    return [*world.under_way, *world.revived([s["supersedes"] for s in steps if "supersedes" in s])]


def ends_short(steps: Sequence[Doc], view: PlannerView, world: World) -> str:
    """Return the wanted facts that will not be true when everything has been done, as text."""
    true = set(world.facts)
    for each in _coming(steps, world):
        true = true.difference(each.drops).union(each.gives)
    graph = {step["id"]: tuple(dependencies(step)) for step in steps}
    by_id = {step["id"]: step for step in steps}
    for name in in_order(graph):
        if name in by_id:
            true.difference_update(_of(by_id[name], "drops", view))
            true.update(_of(by_id[name], "gives", view))
    missing = [fact for fact in view.goal.want if fact not in true]
    return f"when all of it is done, {not_true(missing)}" if missing else ""


def repeats(steps: Sequence[Doc], view: PlannerView) -> str:
    """Return the first step that repeats a step which failed for good, as text."""
    failed: dict[tuple[str, str], list[Doc]] = {}
    for each in view.failed_attempts:
        if each.failure.failure_class in FOR_GOOD and each.step in view.steps:
            planned = view.steps[each.step].planned
            key = each.worker, planned.get("action", "")
            failed.setdefault(key, []).append(
                resolve_parameter(planned.get("parameters") or {}, view)
            )
    for step in steps:
        key = step["worker"], step.get("action", "")
        if key in failed and resolve_parameter(step.get("parameters") or {}, view) in failed[key]:
            return f"step {step['id']} repeats what {step['worker']} has failed at for good"
    return ""


def repeats_effect(steps: Sequence[Doc], view: PlannerView) -> str:
    """Return the first step that would have an effect again that a step has had, as text.

    A step with effects that is not idempotent, and whose worker, action and parameters are those
    of a step that has succeeded, brings nothing new, unless another step touches the same effects
    after that one: what was deployed may be deployed again once something else was deployed.
    """
    done = sorted((e for e in view.timeline if e.status == "succeeded"), key=lambda e: e.ended)
    for step in steps:
        offer = view.catalog.offer(step["worker"], step.get("action", ""))
        if offer is None or offer.idempotent or not offer.effects:
            continue
        effects, key = set(offer.effects), (step["worker"], step.get("action", ""))
        others = [each for each in steps if each is not step]
        parameters = resolve_parameter(step.get("parameters") or {}, view)
        for number, each in enumerate(done):
            same = (each.worker, each.planned.get("action", "")) == key
            later = [*others, *(other.planned for other in done[number + 1 :])]
            if not same or any(_touches(other, effects, view) for other in later):
                continue
            if resolve_parameter(each.planned.get("parameters") or {}, view) == parameters:
                return (
                    f"step {step['id']} would do again what {each.id} has done "
                    f"({', '.join(sorted(effects))}). Refer to its result, "
                    f"${{{{ steps.{each.id}.data }}}}, or finish"
                )
    return ""


def _touches(step: Doc, effects: set[str], view: PlannerView) -> bool:
    """Return whether a step may change one of these effects; undeclared effects may be any."""
    offer = view.catalog.offer(step["worker"], step.get("action", ""))
    return offer is None or offer.effects is None or bool(effects & set(offer.effects))


def _of(step: Doc, what: str, view: PlannerView) -> tuple[str, ...]:
    """Return the facts a proposed step needs, gives or drops; a planner cannot widen a promise."""
    offer = view.catalog.offer(step["worker"], step.get("action", ""))
    if what == "gives":
        return promises.facts_given(step, offer)
    return promises.combined_field(step, offer, what)


def not_true(facts: Sequence[str], link: str = "") -> str:
    """Return `raw is not true`, or with a link: `raw, which is not true`."""
    verb = "is not true" if len(facts) == 1 else "are not true"
    return f"{listed(facts, 5)}{f', {link}' if link else ''} {verb}"


def _known(view: PlannerView) -> Callable[[str], Doc | None]:
    """Return a function from a step's id to its document, for the checks."""
    steps: Mapping[str, object] = view.steps

    def look(ident: str) -> Doc | None:
        if ident not in steps:
            return None
        step = view.steps[ident]
        return {"status": step.status, "doc": step.planned}

    return look
