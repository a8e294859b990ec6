"""The goal planner: what to do next, from what is true, what is wanted and what has failed.

    decide    fold the world; if the wanted facts are true, finish; else find a cheap plan from
              where things will stand when everything under way has succeeded, and propose what
              of it can start now. The rest is the outlook, which is shown and never executed.
    draft     the same plan whole, as one final proposal that a person can read and approve. So
              does `decide` for a goal of mode `whole`; asked again after a surprise, it keeps what
              still fits of what has not begun, and writes the rest anew.

It keeps nothing between calls but its notes, which stand in the log: the same view always gets
the same decision. Where a search takes long it lets others have a turn, and its budget is in
nodes, so that the machine's speed decides nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from copy import copy
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import msgspec

from leadhand.core.plan.graph import dependencies
from leadhand.core.report import Ask, Finish, GiveUp, Propose, Wait, decision_doc
from leadhand.core.wording import listed
from leadhand.planners.goal import explain, methods
from leadhand.planners.goal.methods import Split
from leadhand.planners.goal.operator_costs import (
    Past,
    Prices,
    advice,
    past,
    price_text,
    prices,
    with_requested_facts,
)
from leadhand.planners.goal.operators import Operator, OperatorCache, Operators, operator_name
from leadhand.planners.goal.search import (
    CLOSE,
    NODES_MAX,
    Pairs,
    cheapest,
    explore,
    sequence,
    within,
)
from leadhand.planners.goal.steps import StepIds, StepWriter, disturb, outlook_steps, tidy
from leadhand.planners.goal.task import PlanningTask
from leadhand.planners.goal.world import ANSWER, HAVE, SETTLED, World, fold, promised_field
from leadhand.planners.proposal_check import errors

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from leadhand.core.catalog import Method
    from leadhand.core.lint.findings import Finding
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.report import Decision, PlannerView, StepView
    from leadhand.planners.goal.operators import Operator
    from leadhand.planners.goal.world import Under


# The planner's notes from one call to the next, kept in the log. Small, and bounded.


SEEN_MAX = 20

GIVE, RETRY, STOP = "give", "retry", "stop"
"""The answers of a person: the facts, try again, not worth it."""


class AskedQuestion(msgspec.Struct):
    """A question that was put to a person."""

    question: str
    facts: list[str]
    failures: int = 0
    """How many attempts had failed by then."""
    results: int = 0
    """How many steps had succeeded by then."""


class GoalNotes(msgspec.Struct, omit_defaults=True):
    """The planner's memory that is not in the log otherwise."""

    prices: str = ""
    """A digest of what the last plan was made for."""
    way: list[str] = []
    """The operators of the last plan."""
    seen: list[str] = []
    """Digests of where it stood when nothing was under way."""
    asked: list[AskedQuestion] = []
    splits: dict[str, Split] = {}
    heard: int = 0
    """How many recommendations were answered."""

    def parts(self) -> set[str]:
        """Return the steps that methods added to the run."""
        return {ident for split in self.splits.values() for ids in split.steps for ident in ids}

    def to_doc(self) -> Doc:
        """Return the notes as the log keeps them."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


def read_notes(notes: Json) -> GoalNotes:
    """Return the notes of the last call; notes of another planner count as none."""
    try:
        return msgspec.convert(notes or {}, GoalNotes)
    except msgspec.ValidationError:
        return GoalNotes()


class PersonAnswers(msgspec.Struct):
    """The answers of people to the planner's questions."""

    forgiven: int = 0
    """How many of the failed attempts no longer count."""
    stop: str = ""
    """The person who answered that the run should stop."""


def person_answers(view: PlannerView, notes: GoalNotes) -> PersonAnswers:
    """Match the answers to the questions, each to its own where the same was asked again."""
    found = PersonAnswers()
    unanswered = list(notes.asked)
    for answer in view.answers:
        own = (each for each in unanswered if each.question == answer.get("question", ""))
        asked = next(own, None)
        if asked is None:
            continue
        unanswered.remove(asked)
        if answer.get("choice") == STOP:
            found.stop = str(answer.get("actor") or "a person")
        if answer.get("choice") == RETRY:
            found.forgiven = max(found.forgiven, asked.failures)
    return found


def question_is_open(view: PlannerView, facts: Iterable[str]) -> bool:
    """Return whether a question for these facts is still open."""
    return any(set(facts) <= set(each.get("facts") or ()) for each in view.questions)


# Operators of the planner's own steps that lint refuses.
#
# The engine would refuse the proposal, and the same one would be made again: whatever cannot be
# written as a sound step is no way to the goal, and another may be.


WHY_CHARS_MAX = 300
_PLACE = re.compile(r"steps\[(\d+)\](?:\.(\w+)(?:\.([^.\[]+)|\[(\d+)\])?)?")

_REFERENCE = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


def sound_part(docs: Sequence[Doc], plan: Sequence[Operator]) -> list[Doc]:
    """Return the steps of a plan that lint can judge: all but those that wait for a method's."""
    out: set[str] = set()
    found: list[Doc] = []
    for doc, operator in zip(docs, plan, strict=True):
        if operator.split or not out.isdisjoint(dependencies(doc)):
            out.add(doc["id"])
        else:
            found.append(tidy(doc))
    return found


def refused_steps(
    steps: Iterable[Doc], view: PlannerView, owners: Mapping[str, str], *, givers: bool = False
) -> dict[str, str]:
    """Return the operators whose steps lint refuses, each with the finding.

    `owners` are the operators of steps that a method wrote. With `givers`, return the operators
    that give the value of a refused parameter, where they are steps of the plan too.
    """
    docs = list(steps)
    names = {
        doc["id"]: owners.get(doc["id"]) or operator_name(doc["worker"], doc.get("action", ""))
        for doc in docs
    }
    found: dict[str, str] = {}
    for each in errors(docs, view) if docs else ():
        for name in _blamed(each, docs, names, givers=givers):
            found.setdefault(name, _told(each))
    return found


def _blamed(each: Finding, docs: list[Doc], names: Mapping[str, str], *, givers: bool) -> list[str]:
    place = _PLACE.match(each.place)
    doc = docs[int(place[1])] if place and int(place[1]) < len(docs) else None
    if place is None or doc is None:
        return list(names.values())
    if place[2] == "alternatives" and place[4]:
        return [operator_name(doc["alternatives"][int(place[4])], doc.get("action", ""))]
    if givers and place[2] == "parameters" and place[3]:
        taken = {"parameters": {"": (doc.get("parameters") or {}).get(place[3])}}
        behind = [names[step] for step in dependencies(taken) if step in names]
        if behind:
            return behind
    return [names[doc["id"]]]


def _told(each: Finding) -> str:
    text = " ".join(_REFERENCE.sub(r"\1", each.message).split())
    text = text if len(text) <= WHY_CHARS_MAX else f"{text[: WHY_CHARS_MAX - 1]}…"
    return f"is refused by lint ({each.code} {each.rule}: {text})"


T = TypeVar("T")

STICKY = 1.05
"""How much dearer than a new plan the last one may be and still be kept."""
WHOLE, NEXT_STEP = "whole", "next_step"
IDLE = ("waiting", "ready")
STUCK = "stuck: nothing has changed since the last decision"
ASKING = "asking"
"""The status of a step that waits for a person; only that person may drop it."""
OTHERWISE = {HAVE: "the goal", ANSWER: "a person"}
"""Where facts come from that no step gave."""
LINTS_MAX = 50
"""How often a plan is made anew since lint refuses one of its steps."""
WAY_MAX = 200
"""Steps of a plan that are shown and remembered."""


class Scene(msgspec.Struct):
    """Everything a decision is made from."""

    view: PlannerView
    notes: GoalNotes
    said: PersonAnswers
    operators: Operators
    world: World
    past: Past
    splits: methods.Splits
    wanted: tuple[str, ...]
    prices: Prices = Prices({}, {})
    reached: frozenset[str] = frozenset()
    task: PlanningTask | None = None
    idle: tuple[StepView, ...] = ()
    """Steps of a whole plan that have not begun: they stand only if they still fit."""
    refused: dict[str, str] = {}
    """Operators whose steps lint refuses, each with the finding."""
    owners: dict[str, str] = {}
    """The operators of proposed steps that methods wrote, by step."""


class GoalPlanner:
    """Plans by needs and gives: no key, no network, deterministic."""

    name = "goal"
    replans = True
    deaf = True
    """It reads facts, and no words of people: sent back, a plan would come out the same."""
    consult = "every_report"

    def __init__(self, methods: Iterable[Method] = (), *, nodes_max: int = NODES_MAX) -> None:
        """Create the planner; `methods` split complex tasks, `nodes_max` bounds each search."""
        self.methods = tuple(methods)
        self.splits = bool(self.methods)
        """Whether it can split a step: only a method says how."""
        self.nodes_max = nodes_max
        self._operators = OperatorCache()

    def with_methods(self, methods: Iterable[Method]) -> Self:
        """Return the same planner with `methods` added."""
        made = copy(self)
        made.methods = tuple(dict.fromkeys((*self.methods, *methods)))
        made.splits = bool(made.methods)
        return made

    async def decide(self, view: PlannerView) -> Decision:
        """Return the next decision for `view`."""
        first = self._scene(view)
        early = _early(first)
        if early is not None:
            return early
        # The inputs of a refused step may come from another giver: tried if nothing else is left.
        decision, blamed = await self._linted(first, view, givers=False)
        if blamed and not isinstance(decision, Propose):
            other, _ = await self._linted(self._scene(view), view, givers=True)
            return other if isinstance(other, Propose) else decision
        return decision

    async def _linted(
        self, scene: Scene, view: PlannerView, *, givers: bool
    ) -> tuple[Decision, bool]:
        """Return the decision without operators that lint refuses, and whether there were any."""
        refused: dict[str, str] = {}
        for _ in range(LINTS_MAX):
            scene, way = await self._found(scene, view)
            if isinstance(way, NoPlanReason):
                return _no_way(scene, way), bool(refused)
            wrong = _unsound(scene, way, givers=givers)
            decision = _proposal(scene, way)
            if not wrong and isinstance(decision, Propose):
                wrong = refused_steps(
                    decision_doc(decision)["steps"], view, scene.owners, givers=givers
                )
            if refused.keys() >= wrong.keys():
                return decision, bool(refused)
            refused = {**wrong, **refused}
            scene = self._scene(view, refused=refused)
        return decision, True

    async def _found(
        self, scene: Scene, view: PlannerView
    ) -> tuple[Scene, list[Operator] | NoPlanReason]:
        """Return a plan without the refused operators, or why there is none."""
        way = await self._way(scene)
        locked = self._locked(scene) if isinstance(way, NoPlanReason) else ()
        if locked and not scene.world.under_way:
            # Where there is no way but by splitting, nothing has to be too complex first.
            wider = self._scene(view, locked, scene.refused)
            found = await self._way(wider)
            if not isinstance(found, NoPlanReason):
                return wider, found
        return scene, way

    async def draft(self, view: PlannerView) -> Decision:
        """Return the whole plan for the goal of `view` as one final proposal."""
        return await self.decide(replace(view, goal=replace(view.goal, mode=WHOLE)))

    def _locked(self, scene: Scene) -> list[str]:
        """Return the facts whose methods wait until a giver finds them too complex."""
        givers, price = scene.operators.givers, scene.prices.of
        facts = {each.fact for each in self.methods} - scene.past.split
        return sorted(
            fact
            for fact in facts
            if all(price.get(n) != inf or n in scene.refused for n in givers.get(fact, ()))
        )

    def _scene(
        self,
        view: PlannerView,
        split: Iterable[str] = (),
        refused: dict[str, str] | None = None,
    ) -> Scene:
        """Collect the inputs of a decision; `split`: facts whose methods may be used now.

        `refused` are operators that must not be used, each with the reason.
        """
        operators = self._operators.of(view.catalog)
        # The steps are looked at more than once, and each look is a copy.
        steps = tuple(view.timeline)
        kept = read_notes(view.notes)
        idle: tuple[StepView, ...] = ()
        if view.goal.mode == WHOLE:
            parts = kept.parts()
            idle = tuple(s for s in steps if s.status in IDLE and s.id not in parts)
        waiting = {step.id for step in idle}
        view = replace(view, timeline=tuple(step for step in steps if step.id not in waiting))
        said = person_answers(view, kept)
        world = fold(view)
        before = past(view, world, operators, said.forgiven)
        before.split.update(split)
        splits = methods.method_operators(self.methods, before, view, world, operators, kept.splits)
        changed = {**with_requested_facts(operators, before.asked_for), **splits.operators}
        wanted = tuple(dict.fromkeys(view.goal.want))
        operators = operators.replaced(changed)
        made = Scene(view, kept, said, operators, world, before, splits, wanted, idle=idle)
        made.refused = refused or {}
        return made

    async def _way(self, scene: Scene) -> list[Operator] | NoPlanReason:
        """Return the plan, or why there is none."""
        _look(scene)
        task = scene.task
        if task is None:
            return _unreached(scene)
        kept = _kept(scene, task)
        if (lean := task.distinct(kept or ())) is not task:
            task, kept = lean, _kept(scene, lean)
        mark = _market(scene)
        same, scene.notes.prices = mark == scene.notes.prices, mark
        if task.drops_something:
            # As long as all goes as foreseen, what was found is as good as it was.
            if kept is not None and same and _affordable(kept, task, scene):
                return [task.operators[each] for each in kept]
            if (easy := await _in_turns(sequence(task))) is not None:
                return await self._chosen(scene, task, easy, kept)
            pairs = Pairs(task)
            if (clash := pairs.clash()) is not None:
                return NoPlanReason(explain.impossible(clash))
            task = task.only(pairs.used)
            kept = _kept(scene, task)
        way = await _in_turns(cheapest(task, self.nodes_max))
        if way.plan is None and way.proved:
            return NoPlanReason(explain.exhausted_message(scene.wanted, way.nodes))
        if way.plan is None:
            told = f"no plan was found among {way.nodes} states, and there are more"
            return NoPlanReason(told, proved=False)
        return await self._chosen(scene, task, way.plan, kept)

    async def _chosen(
        self, scene: Scene, task: PlanningTask, plan: list[int], kept: list[int] | None
    ) -> list[Operator] | NoPlanReason:
        """Return the plan, the last one if it is about as good, or one within the budget."""
        if (
            kept is not None
            and task.price(kept) <= STICKY * task.price(plan)
            and _affordable(kept, task, scene)
        ):
            plan = kept
        plan = task.directly(plan)
        if not _affordable(plan, task, scene):
            return await self._within_budget(scene, task, plan)
        return [task.operators[each] for each in plan]

    async def _within_budget(
        self, scene: Scene, task: PlanningTask, plan: list[int]
    ) -> list[Operator] | NoPlanReason:
        """Return a plan within the budget, if the cheap one that was found costs too much."""
        left, cost = scene.view.budget_left or 0.0, _cost(plan, task)
        answer = await _in_turns(within(task, left, self.nodes_max))
        if answer.plan is not None:
            return [task.operators[each] for each in answer.plan]
        if answer.proved:
            return NoPlanReason(explain.unaffordable(cost, left))
        return NoPlanReason(explain.maybe_unaffordable(cost, left, answer.nodes), proved=False)


class NoPlanReason(NamedTuple):
    """Why there is no plan, and whether that is certain."""

    text: str
    proved: bool = True
    missing: tuple[str, ...] | None = None
    """Facts that a person might give; None: the wanted ones."""
    spent: bool = False
    """Whether only money is missing."""


def _cost(plan: Iterable[int], task: PlanningTask) -> float:
    return sum(task.operators[each].cost for each in plan)


def _affordable(plan: Iterable[int], task: PlanningTask, scene: Scene) -> bool:
    """Return whether the budget allows a plan."""
    left = scene.view.budget_left
    return left is None or _cost(plan, task) <= left + CLOSE


async def _in_turns(search: Generator[None, None, T]) -> T:
    """Carry a search to its end, letting others have a turn now and then."""
    while True:
        try:
            next(search)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        await asyncio.sleep(0)


def _early(scene: Scene) -> Decision | None:
    """Return a decision that needs no planning, or None."""
    world = scene.world
    if not scene.wanted:
        return GiveUp("the goal names no fact to reach: say what is wanted, as in want=['summary']")
    if scene.said.stop:
        return GiveUp(f"{scene.said.stop} said to stop")
    if all(fact in world.facts and fact in world.coming for fact in scene.wanted):
        return _finish(scene)
    return None


def _finish(scene: Scene) -> Decision:
    """Finish the run, and give up by name the steps that were tried and are not needed.

    Running steps end first. So do steps that wait for a person: their effect may have happened, and
    the person has to say so.
    """
    because, running = f"{', '.join(scene.wanted)}: true", scene.view.in_flight
    asking = [step.id for step in scene.view.timeline if step.status == ASKING]
    if running or asking:
        told = [f"waiting for {listed(running)}"] if running else []
        told += [f"waiting for an answer to {listed(asking)}"] if asking else []
        return Wait("; ".join([because, *told]), scene.notes.to_doc())
    # The run's result is read from the steps that gave the facts; it is not told twice.
    return Finish(None, because, scene.notes.to_doc(), _given_up(scene, None))


def _given_up(scene: Scene, steps: Iterable[Doc] | None) -> dict[str, str]:
    """Return the steps that failed, were skipped or are no longer needed, each with the reason.

    `steps` are the proposed ones: a step that one of them replaces is not given up, and steps under
    way go on. None at the end of the run, where steps that have not started are not needed.
    """
    replaced, found = {doc.get("supersedes") for doc in steps or ()}, {}
    for step in scene.view.timeline:
        over = step.status in ("failed", "skipped")
        if step.id in replaced or not (over or (steps is None and step.status not in SETTLED)):
            continue
        gives = promised_field(step, scene.view.catalog, "gives")
        others = [fact for fact in gives if fact in scene.world.facts]
        if others:
            versions = sorted({scene.world.facts[fact].version for fact in others})
            names = [OTHERWISE.get(version, version) for version in versions]
            found[step.id] = f"{listed(others)} came from {listed(names)}"
        elif gives:
            found[step.id] = f"{listed(gives)} is not needed for {listed(scene.wanted)}"
        else:
            found[step.id] = f"it gives nothing that is needed for {listed(scene.wanted)}"
    return found


def _look(scene: Scene) -> None:
    """Drop irrelevant operators, price the others, and compute which facts can be reached."""
    world, operators = scene.world, scene.operators
    relevant = operators.relevant(scene.wanted, world.coming)
    every = {each.name: each for each in (*relevant, *scene.splits.every_stage)}
    found = prices(every.values(), scene.view, world, scene.past, operators.unit)
    bearer = _bearer(scene, StepIds(scene.view.steps))
    for name, way in scene.splits.ways.items():
        price, why = bearer.price(way, found.of, scene.past)
        if price < inf and all(fact in world.facts for fact in operators.by_name[name].needs):
            why = bearer.carry(way).problem
            price = inf if why else price
        found.of[name] = price
        if why:
            found.why[name] = why
    for name in found.of.keys() & scene.refused.keys():
        found.of[name], found.why[name] = inf, scene.refused[name]
    scene.prices = found
    rough = PlanningTask(relevant, found.of, world.coming, scene.wanted)
    reach = explore(rough, rough.start, rough.prices, whole=True)
    scene.reached = frozenset(
        {fact for fact, code in rough.facts.items() if reach.cost[code] < inf} | set(world.coming)
    )
    if all(reach.cost[code] < inf for code in rough.goal):
        usable = [rough.operators[number] for number in sorted(reach.order)]
        scene.task = PlanningTask(usable, found.of, world.coming, scene.wanted)


def _bearer(scene: Scene, names: StepIds) -> methods.Bearer:
    return methods.Bearer(scene.splits, scene.notes.splits, scene.view, scene.world, names)


def _kept(scene: Scene, task: PlanningTask) -> list[int] | None:
    """Return the last outlook as a plan, if it still leads to the goal."""
    numbers = {each.name: number for number, each in enumerate(task.operators)}
    names = [
        operator_name(str(doc.get("worker", "")), str(doc.get("action", "")))
        for doc in scene.view.outlook
        if isinstance(doc, dict)
    ]
    if not names or any(name not in numbers for name in names):
        return None
    plan = [numbers[name] for name in names]
    return plan if task.works(plan) else None


def _market(scene: Scene) -> str:
    """Return a digest of everything that makes prices differ from the declared ones."""
    view, of = scene.view, scene.prices.of
    dear = sorted((name, price_text(of[name])) for name in scene.prices.why)
    return _digest([dear, len(view.recommendations), len(view.answers)])


def _unreached(scene: Scene) -> NoPlanReason:
    """Explain why no plan reaches the goal, and which facts a person might give."""
    found = explain.why_not(scene.wanted, scene.reached, scene.operators, scene.prices)
    unusable = [f"the method {name[1:]} {why}" for name, why in scene.splits.unusable.items()]
    return NoPlanReason(
        "; ".join([found.text, *unusable]), missing=found.missing, spent=found.spent
    )


def _no_way(scene: Scene, why: NoPlanReason) -> Decision:
    """Wait for steps under way, ask a person, or give up."""
    if why.spent:
        return GiveUp(why.text, scene.notes.to_doc())
    missing = scene.wanted if why.missing is None else why.missing
    return _escalate(scene, why.text, missing, proved=why.proved)


def _escalate(scene: Scene, why: str, missing: tuple[str, ...], *, proved: bool = True) -> Decision:
    """Wait for steps under way; else ask a person, once; else give up.

    A person can give a fact that no worker gives, and can say that a failed step is to be tried
    again. If neither would help and it is proved that there is no plan, there is nothing to ask.
    """
    kept = scene.notes
    if scene.world.under_way:
        names = ", ".join(each.id for each in scene.world.under_way[:5])
        return Wait(f"waiting for {names}; {why}", kept.to_doc())
    dear = {name for name, price in scene.prices.of.items() if price == inf}
    failed, refused = bool(dear - scene.refused.keys()), bool(dear & scene.refused.keys())
    unknown = any(fact not in scene.operators.givers for fact in missing)
    question = f"There is no way to {', '.join(scene.wanted)}: {why}."
    if missing:
        question += f" Can you give {listed(missing)}?"
    if proved and not (failed or unknown or refused):
        return GiveUp(why, kept.to_doc())
    if missing and question_is_open(scene.view, missing):
        return Wait(f"waiting for an answer; {why}", kept.to_doc())
    # A question is repeated only after a change.
    asked = AskedQuestion(
        question, list(missing), len(scene.view.failed_attempts), len(scene.view.results)
    )
    if asked in kept.asked:
        return GiveUp(why, kept.to_doc())
    kept.asked.append(asked)
    choices = (GIVE, *([RETRY] if failed else []), STOP)
    return Ask(question, choices, kept.to_doc(), facts=tuple(missing))


def _writer(scene: Scene) -> StepWriter:
    failed = {
        "\0".join(sorted(gives)): step.id
        for step in scene.view.timeline
        if step.status == "failed" and (gives := promised_field(step, scene.view.catalog, "gives"))
    }
    names = StepIds({step.id for step in (*scene.view.timeline, *scene.idle)})
    return StepWriter(scene.operators, scene.prices, names, failed, scene.wanted)


def _unsound(scene: Scene, way: list[Operator], *, givers: bool) -> dict[str, str]:
    """Return the operators of a new plan whose steps lint refuses, later steps included.

    A plan that goes on as foreseen was checked when it was made.
    """
    if {each.name for each in way} <= set(scene.notes.way):
        return {}
    docs, _ = _writer(scene).documents(way, scene.world.coming)
    return refused_steps(sound_part(docs, way), scene.view, {}, givers=givers)


def _proposal(scene: Scene, way: list[Operator]) -> Decision:
    """Propose the steps that can start now, with the rest as outlook; or the whole plan."""
    world, view = scene.world, scene.view
    if view.goal.mode == WHOLE and not any(operator.split for operator in way):
        return _whole(scene, way)
    writer = _writer(scene)
    docs, order = writer.documents(way, world.coming)
    now: list[Doc] = []
    later: list[Doc] = []
    splits: dict[str, None] = {}
    running = False
    starts = _starting(scene, way, order)
    for i, (operator, doc) in enumerate(zip(way, docs, strict=True)):
        if i not in starts:
            later.append(doc)
        elif operator.split:
            carried = _bearer(scene, writer.names).carry(scene.splits.ways[operator.name])
            scene.notes.splits |= carried.notes
            scene.owners |= {step["id"]: operator.name for step in carried.steps}
            now += carried.steps
            splits |= dict.fromkeys(step["because"] for step in carried.steps if "because" in step)
            running = running or not carried.steps
        else:
            now.append(writer.finished(doc, operator))
    if not now and not world.under_way and not running:
        return Wait("stuck: no step of the plan can start", scene.notes.to_doc())
    stuck = _progress(scene)
    if stuck:
        return Wait(stuck, scene.notes.to_doc())
    because = "; ".join([*splits, _because(scene, way)])
    outlook = outlook_steps(map(tidy, later[:WAY_MAX]))
    # A plan of one last step needs no second look of the planner.
    final = view.call == 1 and len(way) == len(now) == 1 and view.goal.mode != NEXT_STEP
    if final:
        because = "one worker can do it: no plan is needed"
    cancel = (*(step.id for step in scene.idle), *_gone(scene, now))
    notes = scene.notes.to_doc()
    return Propose(tuple(now), final, outlook, because, cancel, notes)


def _starting(scene: Scene, way: list[Operator], order: list[list[int]]) -> set[int]:
    """Return the operators of a plan that can start now.

    Operators that drop facts which may still be needed come last: if another fails first, more
    plans are left.
    """
    world = scene.world
    ready = [
        i
        for i, operator in enumerate(way)
        if not order[i]
        and all(fact in world.facts for fact in operator.needs)
        and not any(disturb(operator, each) for each in world.under_way)
    ]
    kind = [i for i in ready if not _takes_away(way[i], scene)]
    flying = set(scene.view.in_flight)
    wait = bool(kind) or any(each.id in flying and not each.drops for each in world.under_way)
    return set(kind if wait else ready)


def _takes_away(operator: Operator, scene: Scene) -> bool:
    facts = scene.task.facts if scene.task else ()
    return any(fact in facts and fact in scene.world.facts for fact in operator.drops)


def _gone(scene: Scene, steps: Iterable[Doc]) -> list[str]:
    """Return the steps that wait for failed ones and that no new step replaces."""
    replaced = {doc.get("supersedes") for doc in steps}
    return [ident for ident in scene.world.lost if ident not in replaced]


def _whole(scene: Scene, way: list[Operator]) -> Decision:
    """Propose the whole plan: steps that have not begun all stay, or are all written anew."""
    writer, world = _writer(scene), scene.world
    docs, _ = writer.documents(way, world.coming)
    idle = {operator_name(step.worker, step.action): step.id for step in scene.idle}
    new = [(doc, each) for doc, each in zip(docs, way, strict=True) if each.name not in idle]
    stands = len(new) + len(idle) == len(way) and not (scene.task and scene.task.drops_something)
    for _, each in new:
        # References follow a failed step to the one that takes its place.
        heir = "\0".join(sorted(each.gives)) in writer.replaces
        stands = stands and heir and all(fact in world.coming for fact in each.needs)
    if not stands:
        new = list(zip(docs, way, strict=True))
    for doc, each in new:
        _after(doc, each, world.under_way)
    steps = tuple(writer.finished(doc, each) for doc, each in new)
    if scene.idle and (stuck := _progress(scene)):
        return Wait(stuck, scene.notes.to_doc())
    cancel = () if stands else tuple(step.id for step in scene.idle)
    because = _because(scene, way)
    drop = _given_up(scene, steps)
    return Propose(
        steps, final=True, because=because, cancel=cancel, notes=scene.notes.to_doc(), drop=drop
    )


def _after(doc: Doc, operator: Operator, under_way: Iterable[Under]) -> None:
    """Make a step of a whole plan wait for the steps under way that it would disturb.

    Their outcome does not matter: a step that pauses between two attempts is under way too, and a
    fact it needs must not be dropped meanwhile.
    """
    named = doc.get("depends_on", [])
    found = [each.id for each in under_way if each.id not in named and disturb(operator, each)]
    doc["depends_on"] = [*named, *({"step": ident, "if": "finished"} for ident in found)]


def _because(scene: Scene, way: list[Operator]) -> str:
    """Return what differs from the last plan, and which recommendations were followed."""
    view, kept, names = scene.view, scene.notes, [each.name for each in way]
    text = explain.plan_difference(names, kept.way, scene.prices)
    kept.way = names[:WAY_MAX]
    advised = advice(view.recommendations[kept.heard :])
    kept.heard = len(view.recommendations)
    return "; ".join([text, *explain.heard(advised, names, scene.prices, scene.operators)])


def _progress(scene: Scene) -> str:
    """Return why this is a loop, if nothing changed since the same situation was last seen."""
    if scene.world.under_way:
        return ""
    view = scene.view
    facts = sorted((fact, each.version) for fact, each in scene.world.facts.items())
    stages = msgspec.to_builtins(scene.notes.splits)
    mark = _digest([facts, len(view.failed_attempts), len(view.answers), len(view.results), stages])
    if mark in scene.notes.seen:
        # A refused wait quotes this text: quote it once, not inside itself.
        inner = [each for each in view.findings if STUCK in each]
        if inner:
            return STUCK + inner[0].partition(STUCK)[2].removesuffix(")")
        refused = f"; the last proposal was refused: {'; '.join(view.findings)}"
        return f"{STUCK}{refused if view.findings else ''}"
    scene.notes.seen = [*scene.notes.seen[1 - SEEN_MAX :], mark]
    return ""


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:12]
