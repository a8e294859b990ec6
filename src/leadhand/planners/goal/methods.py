"""Methods: several smaller steps for a fact that one worker found too complex.

While it is planned with, a method is an operator like any other ("@clean_in_parts"), whose price
is what its stages cost. When its turn has come it is carried out stage by stage: a stage is
proposed when the one before it is done, for only then is it known how many items there are. The
steps of a stage give no facts of their own, whatever their workers say: a part is not the whole.
Only the last one gives the fact.

The notes remember which steps belong to which stage. Steps the run does not know (a proposal
that was refused) do not count.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.planners.goal.operator_costs import SPLITTING
from leadhand.planners.goal.operators import Operator, is_flag
from leadhand.planners.goal.steps import disturb
from leadhand.planners.goal.world import facts_of_step, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.core.catalog import Method
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.report import PlannerView
    from leadhand.planners.goal.operator_costs import Past
    from leadhand.planners.goal.operators import Operators
    from leadhand.planners.goal.steps import StepIds
    from leadhand.planners.goal.world import World

ITEMS_MAX = 1000
STAR = "*"
LOST = "lost"
"""The status here of a step that waits for one that failed."""


class Split(msgspec.Struct, omit_defaults=True):
    """How far one method has come on one input."""

    stages: list[str]
    steps: list[list[str]] = []


class Unusable(ValueError):
    """A method that cannot be carried out, with the reason."""


class MethodStage(NamedTuple):
    """One worker of a method."""

    operator: Operator
    star: bool
    feeds: str
    """The parameter that gets the result of the stage before; empty if it takes none."""


class MethodChoice(NamedTuple):
    """A method that can be carried out: its stages, and the facts that they may use."""

    whole: Operator
    """The method as one operator."""
    stages: list[MethodStage]
    key: str
    """The name it goes by in the notes."""
    known: dict[str, Json]
    """What its parameters are filled from beside the true facts: those of the step it splits."""
    gives: tuple[str, ...]
    """What its last step gives: nothing when it splits a part, which is not the whole."""
    splits: str = ""
    """The step in whose place it goes, where that is part of another method."""
    part: Json = None
    """What that step was fed with."""


class Splits(msgspec.Struct):
    """The methods that are unlocked now."""

    operators: dict[str, Operator]
    ways: dict[str, MethodChoice]
    """By the name of the operator."""
    inner: dict[str, MethodChoice]
    """By the step of another method that was too complex in its turn."""
    unusable: dict[str, str]

    @property
    def every_stage(self) -> list[Operator]:
        """Return the workers of all methods."""
        every = (*self.ways.values(), *self.inner.values())
        return [stage.operator for way in every for stage in way.stages]


INNER = "\n>"
"""What leads from the key of a method to those that split its parts."""
AGAIN = "\n#"
"""What leads to the next time a method is carried out on the same input."""


def method_operators(
    methods: Iterable[Method],
    past: Past,
    view: PlannerView,
    world: World,
    operators: Operators,
    noted: Mapping[str, Split],
) -> Splits:
    """Return as operators the methods of facts whose givers found them too complex."""
    found = Splits({}, {}, {}, {})
    in_order = sorted(methods, key=lambda each: (each.fact, each.name))
    facts = {fact: each.value for fact, each in world.facts.items()}
    for method in in_order:
        if method.fact not in past.split:
            continue
        # A true fact that is never dropped need not be given again.
        if method.fact in world.facts and method.fact not in operators.dropped:
            continue
        name = f"@{method.name}"
        missing = [fact for fact in method.takes if fact not in world.facts]
        if missing:
            found.unusable[name] = f"needs {', '.join(missing)}"
            continue
        versions = [world.facts[fact].version for fact in method.takes]
        key = _unfinished("\n".join([name, *versions]), noted, view)
        try:
            names = noted[key].stages if key in noted else _named(method, view, facts)
            stages = _stages(names, method, operators, facts)
        except Unusable as problem:
            found.unusable[name] = str(problem)
            continue
        whole = _operator(name, method, stages)
        found.ways[name] = MethodChoice(whole, stages, key, {}, stages[-1].operator.gives)
        found.operators[name] = whole
    _unlock_parts(found, in_order, view, facts, operators, noted)
    return found


def _unfinished(key: str, noted: Mapping[str, Split], view: PlannerView) -> str:
    """Return the first key under which a method was not carried out to its end on an input.

    A finished method whose result was dropped since begins anew.
    """
    number, fresh = 1, key
    while fresh in noted and _finished(noted[fresh], view):
        number += 1
        fresh = f"{key}{AGAIN}{number}"
    return fresh


def _finished(split: Split, view: PlannerView) -> bool:
    if len(split.steps) < len(split.stages):
        return False
    return all(
        ident in view.steps and view.steps[ident].status == "succeeded" for ident in split.steps[-1]
    )


def _unlock_parts(
    found: Splits,
    methods: list[Method],
    view: PlannerView,
    facts: dict[str, Json],
    operators: Operators,
    noted: Mapping[str, Split],
) -> None:
    """Add the methods for parts that were too complex in their turn, down to the allowed depth."""
    queue = [(way, 1) for way in found.ways.values()]
    for way, depth in queue:
        split = noted.get(way.key)
        for stage, ids in zip(way.stages, split.steps if split else (), strict=False):
            for ident in ids:
                key = f"{way.key}{INNER}{ident}"
                if key not in noted and (depth >= view.splits_max or not _too_much(ident, view)):
                    continue
                inner = _inner(methods, stage, ident, key, view, facts, operators, noted)
                if inner is not None:
                    found.inner[ident] = inner
                    queue.append((inner, depth + 1))


def _too_much(ident: str, view: PlannerView) -> bool:
    """Return whether a step failed because it was too large or unclear."""
    step = view.steps.get(ident)
    if step is None or step.status != "failed" or step.error is None:
        return False
    return step.error.failure_class in SPLITTING


def _inner(
    methods: list[Method],
    stage: MethodStage,
    ident: str,
    key: str,
    view: PlannerView,
    facts: dict[str, Json],
    operators: Operators,
    noted: Mapping[str, Split],
) -> MethodChoice | None:
    """Return the method that splits a part, from the parameters that the part was given."""
    parameters = view.steps[ident].planned.get("parameters") or {}
    fed = [stage.feeds] if stage.feeds in parameters else list(parameters)
    part = parameters[fed[0]] if len(fed) == 1 else None
    # The part itself goes to the first worker, under any parameter name, and to no later one.
    known = {**facts, **{name: each for name, each in parameters.items() if [name] != fed}}
    for method in methods:
        takes = {**known, **parameters}
        if method.fact not in stage.operator.gives or not set(method.takes) <= set(takes):
            continue
        try:
            names = noted[key].stages if key in noted else _named(method, view, takes)
            stages = _stages(names, method, operators, known, fed[0] if len(fed) == 1 else "")
        except Unusable:
            continue
        name = f"@{method.name}"
        return MethodChoice(_operator(name, method, stages), stages, key, known, (), ident, part)
    return None


def _named(method: Method, view: PlannerView, known: Mapping[str, Json]) -> list[str]:
    values = {fact: value_of(known[fact], view) for fact in method.takes}
    try:
        names = method.stages(**values)
    except Exception as error:
        raise Unusable(f"raised {type(error).__name__}: {error}") from error
    found = [] if isinstance(names, str) else list(names or ())
    if not found or not all(isinstance(each, str) and each for each in found):
        raise Unusable("must return a list with the names of workers")
    return found


def _stages(
    names: Iterable[str],
    method: Method,
    operators: Operators,
    known: Mapping[str, Json],
    fed: str = "",
) -> list[MethodStage]:
    """Return the workers of a method; `fed` is the input of the first one, if it splits a part."""
    found: list[MethodStage] = []
    inner: set[str] = set()
    for text in names:
        operator = operators.by_name.get(text.rstrip(STAR))
        if operator is None:
            raise Unusable(f"names {text.rstrip(STAR)}, and no worker of that name gives anything")
        star = text.endswith(STAR)
        if star and not found:
            raise Unusable(f"begins with {text}, and there is no list before it")
        feeds = ""
        if found or fed:
            before = [p for p in operator.takes if found and p in found[-1].operator.gives]
            loose = [
                name
                for name, fact in operator.takes.items()
                if fact not in known and fact not in inner
            ]
            if len(loose) > 1 or (star and not (before or loose)):
                lacks = ", ".join(loose) or "a parameter"
                raise Unusable(f"{operator.name} cannot be fed: nothing fills {lacks}")
            feeds = next(iter([*loose, *before]), "")
        found.append(MethodStage(operator, star, feeds))
        inner.update(operator.gives)
    if not found or found[-1].star or method.fact not in found[-1].operator.gives:
        raise Unusable(f"must end with one worker that gives {method.fact}")
    return found


def _operator(name: str, method: Method, stages: list[MethodStage]) -> Operator:
    """Return the whole method as one operator."""
    needs = set(method.takes)
    inner: set[str] = set()
    for stage in stages:
        fed = {stage.operator.takes[stage.feeds]} if stage.feeds else set()
        needs |= set(stage.operator.needs) - inner - fed
        inner |= set(stage.operator.gives)
    each = [stage.operator for stage in stages]
    drops = {fact for one in each for fact in one.drops} - {method.fact}
    return Operator(
        name=name,
        worker=each[-1].worker,
        action=each[-1].action,
        needs=tuple(sorted(needs - {method.fact})),
        gives=(method.fact,),
        drops=tuple(sorted(drops)),
        cost=sum(one.cost for one in each),
        est_s=sum(one.est_s for one in each),
        reads=tuple(sorted({place for one in each for place in one.reads})),
        writes=tuple(sorted({place for one in each for place in one.writes})),
        split=method.name,
    )


class Carried(NamedTuple):
    """The next steps of a method, or why there are none."""

    steps: list[Doc]
    notes: dict[str, Split]
    """How far it, and what splits its parts, has come: by key."""
    problem: str = ""
    last: str = ""
    """Its last step, once that has succeeded."""


class Bearer(msgspec.Struct):
    """Everything that carrying methods out needs to know about the run."""

    splits: Splits
    noted: Mapping[str, Split]
    view: PlannerView
    world: World
    names: StepIds

    def carry(self, way: MethodChoice) -> Carried:
        """Return the next steps of a method, or why it cannot go on."""
        old = self.noted.get(way.key)
        texts = [f"{s.operator.name}{STAR if s.star else ''}" for s in way.stages]
        split = Split(texts, [list(ids) for ids in old.steps] if old else [])
        notes = {way.key: split}
        before: list[str] | None = None
        for number, stage in enumerate(way.stages):
            ids = split.steps[number] if number < len(split.steps) else None
            if ids is not None and any(ident not in self.view.steps for ident in ids):
                ids, split.steps = None, split.steps[:number]
            if ids is None:
                try:
                    docs = self._written(way, split, before)
                except Unusable as problem:
                    return Carried([], notes, str(problem))
                split.steps = [*split.steps, [doc["id"] for doc in docs]]
                if docs:
                    return Carried(docs, notes)
                ids = []
            done = self._stage(stage, ids, split.steps[number], notes)
            if isinstance(done, Carried):
                return done
            before = done
        return Carried([], notes, last=before[-1] if before else "")

    def _stage(
        self, stage: MethodStage, ids: list[str], slots: list[str], notes: dict[str, Split]
    ) -> Carried | list[str]:
        """Return the missing parts of a stage, or the ids of the steps with its results."""
        status = {ident: self.view.steps[ident].status for ident in ids}
        # What waits for a part that failed is not coming either.
        status |= dict.fromkeys(set(self.world.lost).intersection(ids), LOST)
        if any(status[ident] in _OPEN for ident in ids):
            return Carried([], notes)
        steps: list[Doc] = []
        results: list[str] = []
        waits = False
        for place, ident in enumerate(ids):
            if status[ident] == "succeeded":
                results.append(ident)
            elif ident in self.splits.inner:
                inner = self.carry(self.splits.inner[ident])
                notes |= inner.notes
                if inner.problem:
                    return Carried([], notes, inner.problem)
                steps += inner.steps
                waits = waits or not inner.last
                results.append(inner.last)
            else:
                again = _again(ident, stage, status[ident], self.view, self.names)
                slots[place] = again["id"]
                steps.append(again)
        return Carried(steps, notes) if steps or waits else results

    def _written(self, way: MethodChoice, split: Split, before: list[str] | None) -> list[Doc]:
        number = len(split.steps)
        stage, whole = way.stages[number], way.whole
        known: dict[str, Json] = {fact: each.value for fact, each in self.world.facts.items()}
        known |= way.known
        for earlier, ids in zip(way.stages[:number], split.steps, strict=False):
            if not earlier.star and ids:
                inner = facts_of_step(self._result(ids[0]), earlier.operator.gives)
                known |= {fact: each.value for fact, each in inner.items()}
        if before is not None:
            fed = _fed(way.stages[number - 1], before, stage, self.view)
        else:
            fed = [way.part]
        gives = way.gives if stage is way.stages[-1] else ()
        docs: list[Doc] = []
        method = f"the method {whole.split.removeprefix('@')}"
        serial = stage.star and disturb(stage.operator, stage.operator)
        for value in fed:
            doc = _document(stage, self.names.take(stage.operator), known, value, gives)
            doc["because"] = f"{method} splits what was too complex, to give {whole.gives[0]}"
            after = before or []
            if serial and docs:
                after = [*after, docs[-1]["id"]]
            doc["depends_on"] = after if not stage.feeds or serial else []
            if way.splits and stage is way.stages[-1]:
                doc["supersedes"] = way.splits
            docs.append({key: each for key, each in doc.items() if each or key == "gives"})
        return docs

    def _result(self, ident: str) -> str:
        """Return the step that holds the result of a part, which may itself have been split."""
        if ident not in self.splits.inner:
            return ident
        return self.carry(self.splits.inner[ident]).last or ident

    def price(
        self, way: MethodChoice, prices: Mapping[str, float], past: Past
    ) -> tuple[float, str]:
        """Return the remaining cost of a method; infinite if one of its steps failed for good."""
        old = self.noted.get(way.key)
        total = 0.0
        for number, stage in enumerate(way.stages):
            ids = old.steps[number] if old and number < len(old.steps) else []
            steps = [self.view.steps[ident] for ident in ids if ident in self.view.steps]
            if ids and all(step.status == "succeeded" for step in steps):
                continue
            left = 0 if ids else 1
            for step in steps:
                if step.id in self.splits.inner:
                    inner, why = self.price(self.splits.inner[step.id], prices, past)
                    if why:
                        return inf, why
                    total += inner
                elif step.id in past.hopeless:
                    said = step.error.message if step.error else step.reason
                    return inf, f"cannot go on: {step.worker} failed ({said})"
                elif step.status != "succeeded":
                    left += 1
            total += prices[stage.operator.name] * left if left else 0.0
        return total, ""


_OPEN = ("waiting", "ready", "running", "probing", "backing_off", "undecided", "asking")


def _again(ident: str, stage: MethodStage, status: str, view: PlannerView, names: StepIds) -> Doc:
    doc = {**view.steps[ident].planned, "id": names.take(stage.operator)}
    doc.pop("supersedes", None)
    if status in ("failed", "cancelled", LOST):
        doc["supersedes"] = ident
    return doc


def _fed(
    earlier: MethodStage, before: list[str], stage: MethodStage, view: PlannerView
) -> list[Json]:
    """Return the inputs of a stage's steps: one item for each, or everything for a single step."""
    if earlier.star or len(before) != 1:
        results = [f"${{{{ steps.{ident}.data }}}}" for ident in before]
        return results if stage.star else [results]
    (ident,) = before
    gives = facts_of_step(ident, earlier.operator.gives)
    root = gives[stage.feeds].value if stage.feeds in gives else f"${{{{ steps.{ident}.data }}}}"
    if not stage.star:
        return [root]
    data: Any = view.results[ident]
    if stage.feeds in earlier.operator.artefacts and len(earlier.operator.artefacts) > 1:
        data = data.get(stage.feeds) if isinstance(data, dict) else None
    if not isinstance(data, list):
        raise Unusable(f"{earlier.operator.name} gave no list for {stage.operator.name}")
    if len(data) > ITEMS_MAX:
        raise Unusable(f"{earlier.operator.name} gave {len(data)} items, more than {ITEMS_MAX}")
    inner = root.removesuffix(" }}")
    return [f"{inner}[{i}] }}}}" for i in range(len(data))]


def _document(
    stage: MethodStage, ident: str, known: Mapping[str, Json], value: Json, gives: tuple[str, ...]
) -> Doc:
    operator = stage.operator
    parameters = {name: known[fact] for name, fact in operator.takes.items() if name != stage.feeds}
    parameters |= {name: known[name] for name in operator.may_take if name in known}
    if stage.feeds:
        parameters[stage.feeds] = value
    return {
        "id": ident,
        "worker": operator.worker,
        "action": operator.action,
        "parameters": parameters,
        "needs": [fact for fact in operator.needs if is_flag(fact)],
        "gives": list(gives),
        "drops": list(operator.drops),
    }
