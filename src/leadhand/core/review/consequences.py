"""What happens when steps are approved: what starts, changes, asks, costs, and can be undone. Pure.

The same lines stand on the page, in `leadhand review` and in its document, so that a person can
answer "what will happen if I approve?" from any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from leadhand.core.calendar import utc
from leadhand.core.catalog import able_workers
from leadhand.core.plan.graph import written_dependencies
from leadhand.core.plan.model import failure_action_of
from leadhand.core.visible import visible_name
from leadhand.core.wording import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from leadhand.core.catalog import Catalog
    from leadhand.core.plan.model import Doc

NAMED_MAX = 8


class Consequence(Struct, kw_only=True):
    """One thing that an approval leads to."""

    topic: str
    """`start`, `changes`, `asks`, `cost` or `undo`."""
    text: str
    """What happens, in words, without the names of the steps."""
    steps: list[str]
    """The steps that it is about; empty: the plan."""


class StepFacts(Struct, kw_only=True):
    """What a reviewer should know of one step beyond its document."""

    effects: list[str]
    """What it changes, as the step and its workers declare it."""
    silent: list[str]
    """Its workers that declare no effects."""
    person: bool
    """Whether a person carries it out."""
    undo: str
    """How it is undone, in words; "" if it cannot be, or is not declared."""
    first: bool
    """Whether it waits for no other step."""


class Approved(NamedTuple):
    """What is known of steps that would run."""

    steps: list[Doc]
    plan: Doc
    """The plan without its steps."""
    catalog: Catalog
    instants: Mapping[str, int]
    """By step: when it starts at the earliest."""
    cost: float
    budget: float | None
    now: int = 0
    """The present; 0 for a plan that does not run yet."""
    settled: Collection[str] = ()
    """The steps of earlier revisions that nothing needs to wait for any more."""
    cancel: Collection[str] = ()
    spent: float = 0.0
    planner: str = ""
    """The planner that may revise the plan, or continue it."""
    final: bool = True


def step_facts(known: Approved) -> dict[str, StepFacts]:
    """Return the facts of each step."""
    return {str(step["id"]): _facts(step, known) for step in known.steps}


def _facts(step: Doc, known: Approved) -> StepFacts:
    names = able_workers(step, known.catalog.workers)
    effects, silent = set[str](step.get("effects") or ()), list[str]()
    for name in names:
        offer = known.catalog.offer(name, step.get("action", ""))
        if offer is not None and offer.effects is not None:
            effects.update(offer.effects)
        elif not step.get("effects"):
            silent.append(name)
    specs = [known.catalog.workers.get(name) for name in names]
    return StepFacts(
        effects=sorted(effects),
        silent=silent,
        person=bool(specs) and specs[0] is not None and specs[0].kind == "human",
        undo=_undo(step, known.plan),
        first=not [each for each in written_dependencies(step) if each not in known.settled],
    )


def _undo(step: Doc, plan: Doc) -> str:
    undo = step.get("undo")
    if isinstance(undo, dict):
        return f"undo by {undo.get('worker', '')} {undo.get('action', '')}".strip()
    named = plan.get("rollback_plan")
    if isinstance(named, str):
        return f"by the rollback plan {visible_name(named)}, if the library has it"
    return "by the rollback plan" if named else ""


def consequences(known: Approved, facts: Mapping[str, StepFacts]) -> list[Consequence]:
    """Return what an approval leads to, the most important first."""
    return [
        *_start(known, facts),
        *_changes(known, facts),
        *_asks(known, facts),
        *_cost(known),
        *_way_back(facts),
    ]


def consequence_line(each: Consequence) -> str:
    """Return a consequence with the names of its steps."""
    named = listed(map(visible_name, each.steps), NAMED_MAX)
    return f"{each.text}: {named}" if named else each.text


def _start(known: Approved, facts: Mapping[str, StepFacts]) -> Iterator[Consequence]:
    timed = {step: at for step, at in known.instants.items() if at > known.now}
    first = [step for step, each in facts.items() if each.first]
    if at_once := [step for step in first if step not in timed]:
        yield Consequence(topic="start", text="starts at once", steps=at_once)
    for step, at in sorted(timed.items(), key=lambda item: (item[1], item[0])):
        after = "" if step in first else ", after the steps before it"
        yield Consequence(topic="start", text=f"starts at {utc(at)} or later{after}", steps=[step])
    rest = [step for step, each in facts.items() if not each.first and step not in timed]
    if rest:
        yield Consequence(topic="start", text="starts after the steps before it", steps=rest)
    if known.cancel:
        yield Consequence(topic="start", text="removed, never starts", steps=[*known.cancel])


def _changes(known: Approved, facts: Mapping[str, StepFacts]) -> Iterator[Consequence]:
    effects: dict[str, list[str]] = {}
    silent: dict[str, list[str]] = {}
    for step, each in facts.items():
        for effect in each.effects:
            effects.setdefault(effect, []).append(step)
        for name in each.silent:
            silent.setdefault(name, []).append(step)
    for effect in sorted(effects):
        yield Consequence(topic="changes", text=f"changes {effect}", steps=effects[effect])
    for name in sorted(silent):
        yield Consequence(
            topic="changes",
            text=f"unknown: worker {visible_name(name)} declares no effects",
            steps=silent[name],
        )
    if not effects and not silent and known.steps:
        told = "nothing: the workers declare that they have no side effects"
        yield Consequence(topic="changes", text=told, steps=[])


def _asks(known: Approved, facts: Mapping[str, StepFacts]) -> Iterator[Consequence]:
    people = [step for step, each in facts.items() if each.person]
    alone = [step for step, each in facts.items() if not each.person]
    if alone:
        yield Consequence(topic="asks", text="runs without asking again", steps=alone)
    if people:
        yield Consequence(topic="asks", text="asks a person to carry it out", steps=people)
    asking = [str(step["id"]) for step in known.steps if _asks_when_failed(step, known)]
    if asking:
        told = "asks a person if it fails and no recovery is left"
        yield Consequence(topic="asks", text=told, steps=asking)
    if known.planner:
        more = "" if known.final else "continues after these steps, and "
        told = (
            f"planner {visible_name(known.planner)} {more}may revise the plan: within this "
            "approval without asking, beyond it only with a new approval"
        )
        yield Consequence(topic="asks", text=told, steps=[])


def _asks_when_failed(step: Doc, known: Approved) -> bool:
    action = failure_action_of(step.get("failure_action"))
    return action == "escalate" or (action in (None, "replan") and not known.planner)


def _cost(known: Approved) -> Iterator[Consequence]:
    if known.budget is not None:
        spent = f", {known.spent:g} of it spent" if known.spent else ""
        told = f"at most {known.budget:g}, the budget of the run{spent}"
    else:
        told = "no limit: the run has no budget"
    about = f"the steps declare {known.cost:g}" if known.cost else "the steps declare no cost"
    yield Consequence(topic="cost", text=f"{told}; {about}", steps=[])


def _way_back(facts: Mapping[str, StepFacts]) -> Iterator[Consequence]:
    changing = {step: each for step, each in facts.items() if each.effects or each.silent}
    ways: dict[str, list[str]] = {}
    for step, each in changing.items():
        if each.undo:
            ways.setdefault(each.undo, []).append(step)
    for way, steps in ways.items():
        yield Consequence(topic="undo", text=f"can be rolled back, {way}", steps=steps)
    if lasting := [s for s, each in changing.items() if not each.undo and each.effects]:
        yield Consequence(topic="undo", text="cannot be rolled back", steps=lasting)
    if unknown := [s for s, each in changing.items() if not each.undo and not each.effects]:
        told = "not known: neither side effects nor an undo are declared"
        yield Consequence(topic="undo", text=told, steps=unknown)
    if not changing and facts:
        told = "nothing to undo: the steps declare no side effects"
        yield Consequence(topic="undo", text=told, steps=[])
