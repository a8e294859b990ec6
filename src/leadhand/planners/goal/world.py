"""The world as the log tells it: true facts, promised facts, and their sources.

Facts are folded from the steps in the order in which they settled. A step that succeeded removes
the facts it drops and makes true those it gives; the step is the fact's version. A broken promise
removes the fact, if the attempt had an effect or the fact is a flag. Facts given with the goal, and
by people, are true until a step drops them.

Nothing is remembered between calls but the notes, so that a resumed run gets the same answer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.core import promises
from leadhand.core.facts import facts_in_answer
from leadhand.core.plan import references
from leadhand.core.plan.graph import dependencies
from leadhand.core.plan.graph import order as in_order
from leadhand.planners.goal.operators import is_flag

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from leadhand.core.catalog import Catalog
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.report import FailedAttempt, PlannerView, StepView

SETTLED = frozenset({"succeeded", "failed", "skipped", "cancelled", "superseded"})
DEAD = frozenset({"failed", "skipped", "cancelled"})
"""Ends after which a step gives nothing any more, unless another one takes its place."""
BROKEN = frozenset({"invalid_output", "criteria_unmet"})
HAVE = "(have)"
ANSWER = "(answer)"
"""Versions of what no step gave; a step's id begins with no bracket."""
PLAIN = re.compile(r"[A-Za-z0-9_-]+")


class Fact(NamedTuple):
    """A true fact: its source, and the expression for its data in a step's parameters."""

    version: str
    """The step that gave it, HAVE or ANSWER."""
    value: Json = True
    """A reference, or the data itself; of a flag, True."""


class Under(NamedTuple):
    """A step under way: the facts it may still use, give and drop, and the places it touches."""

    id: str
    needs: tuple[str, ...]
    gives: tuple[str, ...]
    drops: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


class LostStep(NamedTuple):
    """A step that depends on a failed one: it cannot start unless the failed one is replaced."""

    step: Under
    roots: frozenset[str]
    """The steps without which it cannot start."""


class World(msgspec.Struct):
    """The facts that are true now, and those that will be when every step under way succeeded."""

    facts: dict[str, Fact]
    coming: dict[str, Fact]
    under_way: list[Under]
    failures: dict[str, list[FailedAttempt]]
    """Failed attempts by step."""
    lost: dict[str, LostStep] = {}
    """Steps that wait for failed ones, directly or through others."""

    def revived(self, replaced: Collection[str]) -> list[Under]:
        """Return the lost steps that can start once `replaced` have successors."""
        return [each.step for each in self.lost.values() if each.roots <= set(replaced)]


def fold(view: PlannerView) -> World:
    """Return the world of a run: facts given with the goal, by people and by steps, in order."""
    catalog = view.catalog
    # A document may give facts without declaring a parameter for them.
    facts = {
        name: have(name, value)
        if name in view.params or is_flag(name)
        else Fact(HAVE, literal(value))
        for name, value in view.goal.have.items()
        if value or not is_flag(name)
    }
    answers = [answer for answer in view.answers if answer.get("facts")]
    failures: dict[str, list[FailedAttempt]] = {}
    for failed in view.failed_attempts:
        failures.setdefault(failed.step, []).append(failed)
    open_steps: list[StepView] = []
    steps = tuple(view.timeline)
    for step in steps:
        while answers and answers[0]["at"] < step.ended:
            facts |= facts_from_person(answers.pop(0))
        if step.status == "succeeded":
            for fact in promised_field(step, catalog, "drops"):
                facts.pop(fact, None)
            facts |= _given(step, catalog)
            continue
        for fact in _broken(step, failures.get(step.id, ()), catalog):
            facts.pop(fact, None)
        if step.status not in SETTLED:
            open_steps.append(step)
    for answer in answers:
        facts |= facts_from_person(answer)
    roots = lost_roots(steps, open_steps)
    under_way = [_under(step, catalog) for step in open_steps if step.id not in roots]
    lost = {
        step.id: LostStep(_under(step, catalog), roots[step.id])
        for step in open_steps
        if step.id in roots
    }
    coming = dict(facts)
    for each in under_way:
        for fact in each.drops:
            coming.pop(fact, None)
        coming = facts_of_step(each.id, each.gives) | coming
    return World(facts, coming, under_way, failures, lost)


def lost_roots(
    steps: Iterable[StepView], open_steps: Iterable[StepView]
) -> dict[str, frozenset[str]]:
    """Return the open steps that depend on a dead one, each with those dead ones.

    A dependency on a superseded step is one on its successor; a dependency that tolerates a failure
    does not count.
    """
    status, heirs = {}, {}
    for step in steps:
        status[step.id] = step.status
        if "supersedes" in step.planned:
            heirs[str(step.planned["supersedes"])] = step.id
    if DEAD.isdisjoint(status.values()):
        return {}
    waits: dict[str, list[str]] = {}
    for step in open_steps:
        if step.status == "waiting":
            strict = [name for name, mild in dependencies(step.planned).items() if not mild]
            waits[step.id] = [_heir(name, heirs) for name in strict]
    found: dict[str, frozenset[str]] = {}
    for ident in in_order(waits):
        names = waits.get(ident, ())
        dead = {name for name in names if status.get(name) in DEAD}
        dead = dead.union(*(found[name] for name in names if name in found))
        if dead:
            found[ident] = frozenset(dead)
    return found


def _heir(name: str, heirs: Mapping[str, str]) -> str:
    while name in heirs:
        name = heirs[name]
    return name


def facts_from_person(answer: Doc) -> dict[str, Fact]:
    """Return the facts that a person gave."""
    return {name: Fact(ANSWER, literal(value)) for name, value in facts_in_answer(answer).items()}


def have(name: str, value: Json) -> Fact:
    """Return a fact that was given with the goal: a parameter of the run."""
    if is_flag(name):
        return Fact(HAVE)
    text = f"${{{{ params.{name} }}}}"
    (piece,) = references.pieces(text)
    is_name = isinstance(piece, references.Ref) and not piece.problem and not piece.path
    return Fact(HAVE, text if is_name else literal(value))


def facts_of_step(step: str, gives: tuple[str, ...]) -> dict[str, Fact]:
    """Return the facts that a step gives when it succeeds."""
    artefacts = [fact for fact in gives if not is_flag(fact)]
    root = f"steps.{step}.data"
    found = {fact: Fact(step) for fact in gives}
    for fact in artefacts:
        plain = PLAIN.fullmatch(fact)
        path = "" if len(artefacts) == 1 else f".{fact}" if plain else f'["{fact}"]'
        found[fact] = Fact(step, f"${{{{ {root}{path} }}}}")
    return found


def _given(step: StepView, catalog: Catalog) -> dict[str, Fact]:
    """Return the facts that a step of the run gives, each with its place in the data."""
    offer = catalog.offer(step.worker, step.action)
    several = promised_field(step, catalog, "gives")
    return {
        fact: facts_of_step(step.id, promises.facts_beside(step.planned, offer, fact))[fact]
        for fact in several
    }


def literal(value: Json) -> Json:
    """Return data as it must be written in parameters, with apparent references escaped."""
    if isinstance(value, str):
        return value.replace(references.MARK, f"${references.MARK}")
    if isinstance(value, dict):
        return {key: literal(item) for key, item in value.items()}
    return [literal(item) for item in value] if isinstance(value, list) else value


def value_of(value: Json, view: PlannerView) -> Json:
    """Return the data that a parameter's expression for a fact stands for."""

    def look(ref: references.Ref) -> Json:
        if ref.kind == "params":
            return view.params[ref.name]
        return view.results[successor(ref.name, view)]

    return references.resolve(value, look)


def resolve_parameter(value: Json, view: PlannerView) -> Json:
    """Return a parameter as its worker gets it, with references replaced by their values.

    A reference without a value stays as it is. Data that is stored apart is named by its digest and
    not loaded.
    """

    def look(ref: references.Ref) -> Json:
        if ref.kind == "params":
            return view.params[ref.name]
        name = successor(ref.name, view)
        if not ref.path and name in view.steps:
            data = view.steps[name].data
            if isinstance(data, dict) and set(data) == {"$artifact"}:
                return data
        return view.results[name]

    if isinstance(value, dict):
        return {key: resolve_parameter(item, view) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve_parameter(item, view) for item in value]
    try:
        return references.resolve(value, look)
    except LookupError:
        return value


def successor(name: str, view: PlannerView) -> str:
    """Return the step whose data a reference to step `name` means now."""
    while name in view.steps and view.steps[name].status == "superseded":
        heirs = [each.id for each in view.timeline if each.planned.get("supersedes") == name]
        if not heirs:
            break
        name = heirs[-1]
    return name


def promised_field(step: StepView, catalog: Catalog, what: str) -> tuple[str, ...]:
    """Return what a step needs, gives, drops, reads or writes: see `core/promises.py`."""
    offer = catalog.offer(step.worker, step.action)
    if what == "gives":
        return promises.facts_given(step.planned, offer, widened=step.widened)
    return promises.combined_field(step.planned, offer, what, widened=step.widened)


def _broken(step: StepView, failed: Any, catalog: Catalog) -> list[str]:
    """Return the facts that failed attempts of a step dropped."""
    kinds = [each.failure for each in failed if each.failure.failure_class in BROKEN]
    if not kinds:
        return []
    touched = any(failure.effect != "none" for failure in kinds)
    return [fact for fact in promised_field(step, catalog, "gives") if touched or is_flag(fact)]


def _under(step: StepView, catalog: Catalog) -> Under:
    return Under(
        step.id,
        promised_field(step, catalog, "needs"),
        promised_field(step, catalog, "gives"),
        promised_field(step, catalog, "drops"),
        promised_field(step, catalog, "reads"),
        promised_field(step, catalog, "writes"),
    )
