"""Facts: named results that workers give and others need. True only once they were verified.

A name with a colon in it (`approved:table`) is a flag and carries no data. Any other names an
artefact, the giver's data: all of it when the giver gives one, a field of it when it gives several.
A fact is true when the step that gives it has succeeded, until a later one drops it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.plan.graph import dependencies
from leadhand.core.promises import beside, given, joined
from leadhand.core.wording import closest, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from leadhand.core.catalog import Offer
    from leadhand.core.plan.model import Doc, Goal, Json
    from leadhand.core.state.model import State, StepState

HAVE = "have"
"""The giver of the facts a run was started with."""
ANSWER = "answer"
"""The giver of the facts that a person gave, as asked."""


def is_flag(fact: str) -> bool:
    """Whether a fact carries no data."""
    return ":" in fact


def broken_promises(promised: Sequence[str], data: Json) -> list[str]:
    """Which of the promised facts a result does not hold, in words."""
    artefacts = [fact for fact in promised if not is_flag(fact)]
    fields = data if isinstance(data, dict) else {}
    values = {artefacts[0]: data} if len(artefacts) == 1 else fields
    found = [f"it promised {fact}, and gave none" for fact in artefacts if values.get(fact) is None]
    denied = [fact for fact in promised if is_flag(fact) and fields.get(fact, True) is False]
    if data is False and not artefacts:
        denied = list(promised)
    return [*found, *(f"it says that {fact} is not so" for fact in denied)]


def misgiven(facts: Sequence[str], value: Json) -> str:
    """Why what a person gives is not what was asked for, in words; empty when it can be."""
    artefacts = [fact for fact in facts if not is_flag(fact)]
    flags = [fact for fact in facts if is_flag(fact)]
    said = [value.get(fact, True) for fact in flags] if isinstance(value, dict) else [value]
    answers_flags = isinstance(value, dict) or not artefacts
    if flags and answers_flags and not all(each is True for each in said):
        return f"{flags[0]} is so or not: only `true` gives it"
    if isinstance(value, dict):
        strange = [key for key in value if key not in facts]
        whole = len(artefacts) == 1 and len(strange) == len(value)
        if whole and not any(closest(key, facts) for key in strange):
            return ""  # its fields are the fact's own
        if strange:
            return f"{shown(strange[0])} is not what is asked for"
        return "" if value else "nothing is given"
    return "a single value cannot be all of them" if len(artefacts) > 1 else ""


def true_facts(state: State, goal: Goal) -> dict[str, str]:
    """Every fact that is true, with the step that gave it."""
    true = dict.fromkeys(there({**state.params, **goal.have}), HAVE)
    done = [step for step in state.steps.values() if step.status == "succeeded" or broke(step)]
    answers = [answer for answer in state.answers if answer["facts"]]
    for step in sorted(done, key=lambda each: (each.ended, each.order)):
        while answers and answers[0]["at"] < step.ended:
            true.update(dict.fromkeys(given_by(answers.pop(0)), ANSWER))
        offer = state.catalog.offer(step.worker, step.action)
        for fact in _taken_away(step, given(step.doc, offer, widened=step.widened)):
            true.pop(fact, None)
        if step.status != "succeeded":
            continue
        for fact in joined(step.doc, offer, "drops", widened=step.widened):
            true.pop(fact, None)
        true.update(dict.fromkeys(given(step.doc, offer, widened=step.widened), step.id))
    for answer in answers:
        true.update(dict.fromkeys(given_by(answer), ANSWER))
    return true


BROKEN = frozenset({"invalid_output", "criteria_unmet"})
"""Classes of failures after which what was promised is not so."""


def there(have: Mapping[str, Json]) -> list[str]:
    """The facts that are given beforehand; a flag that is said not to be so is not."""
    return [name for name, value in have.items() if value or not is_flag(name)]


def broke(step: StepState) -> bool:
    """Whether an attempt of a step that has ended broke its promise."""
    return step.settled and any(each.get("class") in BROKEN for each in step.failures)


def _taken_away(step: StepState, promised: Sequence[str]) -> list[str]:
    """What a broken promise makes untrue: flags, and data where something was touched."""
    kinds = [each for each in step.failures if each.get("class") in BROKEN]
    touched = any(each.get("effect", "none") != "none" for each in kinds)
    return [fact for fact in promised if touched or is_flag(fact)] if kinds else []


def given_by(answer: Doc) -> dict[str, Json]:
    """The facts that a person gave with an answer, each with its data; of a flag, True."""
    facts: list[str] = answer["facts"]
    data, text = answer["data"], answer["text"]
    named = isinstance(data, dict) and not set(facts).isdisjoint(data)
    alone = sum(not is_flag(fact) for fact in facts) == 1
    found: dict[str, Json] = {}
    for fact in facts:
        value = data.get(fact) if named else data
        if is_flag(fact):
            if value is True:  # "no" and 0 give nothing.
                found[fact] = True
        elif named and value is not None:
            found[fact] = value
        elif not named and alone and (data is not None or text):
            found[fact] = data if data is not None else text
    return found


def wanted_values(state: State, goal: Goal, value: Callable[[StepState], Json]) -> dict[str, Json]:
    """The wanted facts that are true, each with its value; `value` gives a step's data.

    Of a flag the value is True. A fact of a step that gives several artefacts is the field of
    that name.
    """
    true = true_facts(state, goal)
    found: dict[str, Json] = {}
    for fact in dict.fromkeys(goal.want):
        giver = state.steps.get(true.get(fact, ""))
        if giver is not None:
            offer = state.catalog.offer(giver.worker, giver.action)
            gives = beside(giver.doc, offer, fact)
            found[fact] = _of_step(fact, gives, value(giver), giver.data_ref)
        elif true.get(fact) == ANSWER:
            found[fact] = _answered(state, fact)
        elif fact in true:
            have = goal.have.get(fact, state.params.get(fact))
            found[fact] = True if is_flag(fact) else have
    return found


def _of_step(fact: str, gives: Sequence[str], data: Json, ref: str) -> Json:
    if is_flag(fact):
        return True
    artefacts = [each for each in gives if not is_flag(each)]
    if len(artefacts) == 1:
        return data
    if ref and data == {"$artifact": ref}:  # It is named, not loaded.
        return {**data, "path": [fact]}
    return data.get(fact) if isinstance(data, dict) else None


def _answered(state: State, fact: str) -> Json:
    """What a person gave last for a fact."""
    said = [given_by(answer) for answer in state.answers if fact in answer["facts"]]
    return next((each[fact] for each in reversed(said) if fact in each), None)


def unmet_flags(state: State, add: Sequence[Doc], goal: Goal) -> list[str]:
    """Return a finding for each new step that needs a flag which is neither true nor coming.

    A flag (`approved:table`) is a gate, and no planner may propose a step that passes it closed.
    Facts with data are checked where the step's parameters are.
    """
    needs = {
        doc["id"]: gates(doc, state.catalog.offer(doc["worker"], doc.get("action", "")))
        for doc in add
    }
    if not any(needs.values()):
        return []
    true, by_id = true_facts(state, goal), {doc["id"]: doc for doc in add}
    found = []
    for ident, flags in needs.items():
        coming = _coming(state, ident, by_id) if flags else set()
        absent = [flag for flag in flags if flag not in true and flag not in coming]
        if absent:
            found.append(f"{ident} needs {', '.join(absent)}, and nothing it waits for gives it")
    return found


def gates(step: Doc, offer: Offer | None, *, widened: bool = False) -> list[str]:
    """Return the flags that a step needs to be true when it starts."""
    return [fact for fact in joined(step, offer, "needs", widened=widened) if is_flag(fact)]


def _coming(state: State, ident: str, new: dict[str, Doc]) -> set[str]:
    """The facts that the steps which one waits for will have given, directly or not."""
    found: set[str] = set()
    seen, stack = {ident}, [ident]
    while stack:
        name = stack.pop()
        old = None if name in new else state.follow(name)
        doc = new.get(name) or (old.doc if old is not None else {})
        for other, tolerant in dependencies(doc).items():
            if other not in seen and not tolerant:
                seen.add(other)
                stack.append(other)
        if name == ident or not doc:
            continue
        if old is None or not old.settled:
            offer = state.catalog.offer(doc["worker"], doc.get("action", ""))
            found.update(given(doc, offer, widened=old is not None and old.widened))
    return found


def missing(state: State, goal: Goal) -> list[str]:
    """Which wanted facts are not true, in words; a planner's word for it does not count."""
    if not goal.want:
        return []
    true = true_facts(state, goal)
    return [f"{fact} is wanted, and nothing has given it" for fact in _absent(goal.want, true)]


def _absent(wanted: Iterable[str], true: dict[str, str]) -> list[str]:
    return [fact for fact in wanted if fact not in true]
