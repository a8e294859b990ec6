"""Methods: a fact that one worker found too much, given in several smaller steps.

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

from leadhand.planners.goal.operators import Operator, is_flag
from leadhand.planners.goal.order import disturb
from leadhand.planners.goal.world import given, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.core.catalog import Method
    from leadhand.core.plan import Doc, Json
    from leadhand.core.report import PlannerView
    from leadhand.planners.goal.memory import Past
    from leadhand.planners.goal.operators import Operators
    from leadhand.planners.goal.steps import Names
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


class Stage(NamedTuple):
    """One worker of a method."""

    operator: Operator
    star: bool
    feeds: str
    """The parameter that gets what the stage before gave; empty when it takes nothing of it."""


class Splits(msgspec.Struct):
    """The methods that are unlocked now."""

    operators: dict[str, Operator]
    stages: dict[str, list[Stage]]
    keys: dict[str, str]
    """The name each goes by in the notes."""
    unusable: dict[str, str]


def unlocked(
    methods: Iterable[Method],
    past: Past,
    view: PlannerView,
    world: World,
    operators: Operators,
    noted: Mapping[str, Split],
) -> Splits:
    """The methods of facts whose givers found them too complex, as operators."""
    found = Splits({}, {}, {}, {})
    for method in sorted(methods, key=lambda each: (each.fact, each.name)):
        if method.fact not in past.split or method.fact in world.facts:
            continue
        name = f"@{method.name}"
        missing = [fact for fact in method.takes if fact not in world.facts]
        if missing:
            found.unusable[name] = f"needs {', '.join(missing)}"
            continue
        try:
            versions = [world.facts[fact].version for fact in method.takes]
            key = "\n".join([name, *versions])
            names = noted[key].stages if key in noted else _named(method, view, world)
            stages = _stages(names, method, operators, world)
        except Unusable as problem:
            found.unusable[name] = str(problem)
            continue
        found.stages[name] = stages
        found.keys[name] = key
        found.operators[name] = _operator(name, method, stages)
    return found


def _named(method: Method, view: PlannerView, world: World) -> list[str]:
    values = {fact: value_of(world.facts[fact], view) for fact in method.takes}
    try:
        names = method.stages(**values)
    except Exception as error:
        raise Unusable(f"raised {type(error).__name__}: {error}") from error
    found = [] if isinstance(names, str) else list(names or ())
    if not found or not all(isinstance(each, str) and each for each in found):
        raise Unusable("must return a list with the names of workers")
    return found


def _stages(
    names: Iterable[str], method: Method, operators: Operators, world: World
) -> list[Stage]:
    found: list[Stage] = []
    inner: set[str] = set()
    for text in names:
        operator = operators.by_name.get(text.rstrip(STAR))
        if operator is None:
            raise Unusable(f"names {text.rstrip(STAR)}, and no worker of that name gives anything")
        star = text.endswith(STAR)
        if star and not found:
            raise Unusable(f"begins with {text}, and there is no list before it")
        feeds = ""
        if found:
            before = [p for p in operator.takes if p in found[-1].operator.gives]
            loose = [
                name
                for name, fact in operator.takes.items()
                if fact not in world.facts and fact not in inner
            ]
            if len(loose) > 1 or (star and not (before or loose)):
                lacks = ", ".join(loose) or "a parameter"
                raise Unusable(f"{operator.name} cannot be fed: nothing fills {lacks}")
            feeds = next(iter([*loose, *before]), "")
        found.append(Stage(operator, star, feeds))
        inner.update(operator.gives)
    if not found or found[-1].star or method.fact not in found[-1].operator.gives:
        raise Unusable(f"must end with one worker that gives {method.fact}")
    return found


def _operator(name: str, method: Method, stages: list[Stage]) -> Operator:
    """The whole method as one operator."""
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
    """What a method does next."""

    steps: list[Doc]
    split: Split
    problem: str = ""


def carry(
    name: str,
    splits: Splits,
    noted: Mapping[str, Split],
    view: PlannerView,
    world: World,
    names: Names,
) -> Carried:
    """The next steps of a method, or why it cannot go on."""
    stages = splits.stages[name]
    old = noted.get(splits.keys[name])
    texts = [f"{s.operator.name}{STAR if s.star else ''}" for s in stages]
    split = Split(texts, [list(ids) for ids in old.steps] if old else [])
    before: list[str] | None = None
    for number, stage in enumerate(stages):
        ids = split.steps[number] if number < len(split.steps) else None
        if ids is not None and any(ident not in view.steps for ident in ids):
            ids, split.steps = None, split.steps[:number]
        if ids is None:
            try:
                docs = _written(splits.operators[name], stages, split, before, view, world, names)
            except Unusable as problem:
                return Carried([], split, str(problem))
            split.steps = [*split.steps, [doc["id"] for doc in docs]]
            if docs:
                return Carried(docs, split)
            ids = []
        status = {ident: view.steps[ident].status for ident in ids}
        # What waits for a part that failed is not coming either.
        status |= dict.fromkeys(set(world.lost).intersection(ids), LOST)
        failed = [ident for ident in ids if status[ident] not in ("succeeded", *_OPEN)]
        if any(status[ident] in _OPEN for ident in ids):
            return Carried([], split)
        if failed:
            again = [_again(ident, stage, status[ident], view, names) for ident in failed]
            renamed = dict(zip(failed, (doc["id"] for doc in again), strict=True))
            split.steps[number] = [renamed.get(ident, ident) for ident in ids]
            return Carried(again, split)
        before = ids
    return Carried([], split)


_OPEN = ("waiting", "ready", "running", "probing", "backing_off", "undecided", "asking")


def _again(ident: str, stage: Stage, status: str, view: PlannerView, names: Names) -> Doc:
    doc = {**view.steps[ident].planned, "id": names.take(stage.operator)}
    doc.pop("supersedes", None)
    if status in ("failed", "cancelled", LOST):
        doc["supersedes"] = ident
    return doc


def _written(
    whole: Operator,
    stages: list[Stage],
    split: Split,
    before: list[str] | None,
    view: PlannerView,
    world: World,
    names: Names,
) -> list[Doc]:
    number = len(split.steps)
    stage = stages[number]
    known: dict[str, Json] = {fact: each.value for fact, each in world.facts.items()}
    for earlier, ids in zip(stages[:number], split.steps, strict=False):
        if not earlier.star and ids:
            inner = given(ids[0], earlier.operator.gives)
            known |= {fact: each.value for fact, each in inner.items()}
    fed = [None] if before is None else _fed(stages[number - 1], before, stage, view)
    own = stage.operator.gives
    gives = own if stage is stages[-1] else ()
    docs: list[Doc] = []
    serial = stage.star and disturb(stage.operator, stage.operator)
    for value in fed:
        doc = _document(stage, names.take(stage.operator), known, value, gives)
        doc["because"] = f"{whole.split} splits what was too complex, to give {whole.gives[0]}"
        after = before or []
        if serial and docs:
            after = [*after, docs[-1]["id"]]
        doc["depends_on"] = after if not stage.feeds or serial else []
        docs.append({key: each for key, each in doc.items() if each or key == "gives"})
    return docs


def _fed(earlier: Stage, before: list[str], stage: Stage, view: PlannerView) -> list[Json]:
    """What the steps of a stage get: each one item, or the one step everything."""
    if earlier.star or len(before) != 1:
        results = [f"${{{{ steps.{ident}.data }}}}" for ident in before]
        return results if stage.star else [results]
    (ident,) = before
    gives = given(ident, earlier.operator.gives)
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
    stage: Stage, ident: str, known: Mapping[str, Json], value: Json, gives: tuple[str, ...]
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


def stage_price(
    name: str,
    splits: Splits,
    prices: Mapping[str, float],
    noted: Mapping[str, Split],
    view: PlannerView,
    past: Past,
) -> tuple[float, str]:
    """What a method still costs; infinite when a step of it failed for good."""
    old = noted.get(splits.keys[name])
    total = 0.0
    for number, stage in enumerate(splits.stages[name]):
        ids = old.steps[number] if old and number < len(old.steps) else []
        steps = [view.steps[ident] for ident in ids if ident in view.steps]
        if ids and all(step.status == "succeeded" for step in steps):
            continue
        for step in steps:
            if step.id in past.hopeless:
                said = step.error.message if step.error else step.reason
                return inf, f"cannot go on: {step.worker} failed ({said})"
        total += prices[stage.operator.name] * max(1, len(ids))
    return total, ""
