"""Facts: named results that workers give and other workers need. True only once verified.

A name with a colon (`approved:table`) is a flag and carries no data. Any other name is an artefact,
the giver's data: all of it if the giver gives one artefact, a field of it if it gives several. A
fact is true once the step that gives it has succeeded, until a later step drops it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.plan.graph import dependencies
from leadhand.core.promises import combined_field, facts_beside, facts_given
from leadhand.core.wording import closest, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from leadhand.core.catalog import Offer
    from leadhand.core.plan.model import Doc, Goal, Json
    from leadhand.core.state.model import State, StepState

HAVE = "have"
"""The giver of the facts a run was started with."""
ANSWER = "answer"
"""The giver of the facts a person gave as an answer."""


def is_flag(fact: str) -> bool:
    """Return whether a fact is a flag and carries no data."""
    return ":" in fact


def broken_promises(promised: Sequence[str], data: Json) -> list[str]:
    """Return a sentence for each promised fact that a result does not hold."""
    artefacts = [fact for fact in promised if not is_flag(fact)]
    fields = data if isinstance(data, dict) else {}
    values = {artefacts[0]: data} if len(artefacts) == 1 else fields
    found = [f"it promised {fact}, and gave none" for fact in artefacts if values.get(fact) is None]
    denied = [fact for fact in promised if is_flag(fact) and fields.get(fact, True) is False]
    if data is False and not artefacts:
        denied = list(promised)
    return [*found, *(f"it says that {fact} is not so" for fact in denied)]


def unfit_answer(facts: Sequence[str], value: Json) -> str:
    """Explain why a person's data does not fit the facts asked for; empty if it fits."""
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
            return ""  # its fields belong to the fact itself
        if strange:
            return f"{shown(strange[0])} is not what is asked for"
        return "" if value else "nothing is given"
    return "a single value cannot be all of them" if len(artefacts) > 1 else ""


def true_facts(state: State, goal: Goal) -> dict[str, str]:
    """Return every true fact, with the step that gave it."""
    true = dict.fromkeys(initial_facts({**state.params, **goal.have}), HAVE)
    done = [
        step for step in state.steps.values() if step.status == "succeeded" or broke_promise(step)
    ]
    answers = [answer for answer in state.answers if answer["facts"]]
    for step in sorted(done, key=lambda each: (each.ended, each.order)):
        while answers and answers[0]["at"] < step.ended:
            true.update(dict.fromkeys(facts_in_answer(answers.pop(0)), ANSWER))
        offer = state.catalog.offer(step.worker, step.action)
        for fact in _taken_away(step, facts_given(step.doc, offer, widened=step.widened)):
            true.pop(fact, None)
        if step.status != "succeeded":
            continue
        for fact in combined_field(step.doc, offer, "drops", widened=step.widened):
            true.pop(fact, None)
        true.update(dict.fromkeys(facts_given(step.doc, offer, widened=step.widened), step.id))
    for answer in answers:
        true.update(dict.fromkeys(facts_in_answer(answer), ANSWER))
    return true


BROKEN = frozenset({"invalid_output", "criteria_unmet"})
"""Failure classes after which a promised fact is not true."""


def initial_facts(have: Mapping[str, Json]) -> list[str]:
    """Return the facts given at the start; a flag given as false does not count."""
    return [name for name, value in have.items() if value or not is_flag(name)]


def broke_promise(step: StepState) -> bool:
    """Return whether an attempt of a settled step broke its promise."""
    return step.settled and any(each.get("class") in BROKEN for each in step.failures)


def _taken_away(step: StepState, promised: Sequence[str]) -> list[str]:
    """Return the facts a broken promise makes untrue: flags, and data if the step had an effect."""
    kinds = [each for each in step.failures if each.get("class") in BROKEN]
    touched = any(each.get("effect", "none") != "none" for each in kinds)
    return [fact for fact in promised if touched or is_flag(fact)] if kinds else []


def facts_in_answer(answer: Doc) -> dict[str, Json]:
    """Return the facts a person gave with an answer, each with its data (True for a flag)."""
    facts: list[str] = answer["facts"]
    data, text = answer["data"], answer["text"]
    named = isinstance(data, dict) and not set(facts).isdisjoint(data)
    alone = sum(not is_flag(fact) for fact in facts) == 1
    found: dict[str, Json] = {}
    for fact in facts:
        value = data.get(fact) if named else data
        if is_flag(fact):
            if value is True:  # Only true sets a flag.
                found[fact] = True
        elif named and value is not None:
            found[fact] = value
        elif not named and alone and (data is not None or text):
            found[fact] = data if data is not None else text
    return found


def wanted_values(state: State, goal: Goal, value: Callable[[StepState], Json]) -> dict[str, Json]:
    """Return the wanted facts that are true, each with its value; `value` returns a step's data.

    The value of a flag is True. A fact of a step that gives several artefacts is the field of that
    name.
    """
    true = true_facts(state, goal)
    found: dict[str, Json] = {}
    for fact in dict.fromkeys(goal.want):
        giver = state.steps.get(true.get(fact, ""))
        if giver is not None:
            offer = state.catalog.offer(giver.worker, giver.action)
            gives = facts_beside(giver.doc, offer, fact)
            found[fact] = _of_step(fact, gives, value(giver), giver.data_ref)
        elif true.get(fact) == ANSWER:
            found[fact] = _answered(state, fact)
        elif fact in true:
            have = goal.have.get(fact, state.params.get(fact))
            found[fact] = True if is_flag(fact) else have
    return found


def value_of_fact(state: State, step: StepState, fact: str, data: Json) -> Json:
    """Return the value of a fact that a step gave; `data` is the complete data of the step."""
    offer = state.catalog.offer(step.worker, step.action)
    return _of_step(fact, facts_beside(step.doc, offer, fact), data, "")


def _of_step(fact: str, gives: Sequence[str], data: Json, ref: str) -> Json:
    if is_flag(fact):
        return True
    artefacts = [each for each in gives if not is_flag(each)]
    if len(artefacts) == 1:
        return data
    if ref and data == {"$artifact": ref}:  # The artifact is named, not loaded.
        return {**data, "path": [fact]}
    return data.get(fact) if isinstance(data, dict) else None


def _answered(state: State, fact: str) -> Json:
    """Return the latest value a person gave for a fact."""
    said = [facts_in_answer(answer) for answer in state.answers if fact in answer["facts"]]
    return next((each[fact] for each in reversed(said) if fact in each), None)


def unmet_flags(state: State, add: Sequence[Doc], goal: Goal) -> list[str]:
    """Return a finding for each new step that needs a flag which is neither true nor coming.

    A flag (`approved:table`) is a gate, and a planner may not propose a step behind a closed gate.
    Facts with data are checked with the step's parameters.
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
    """Return the flags that must be true when a step starts."""
    return [fact for fact in combined_field(step, offer, "needs", widened=widened) if is_flag(fact)]


def _coming(state: State, ident: str, new: dict[str, Doc]) -> set[str]:
    """Return the facts given by the direct and indirect dependencies of a step."""
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
            found.update(facts_given(doc, offer, widened=old is not None and old.widened))
    return found


def missing_facts(state: State, goal: Goal) -> list[str]:
    """Return a sentence for each wanted fact that is not true. A planner's claim does not count."""
    if not goal.want:
        return []
    true = true_facts(state, goal)
    return [f"{fact} is wanted, and nothing has given it" for fact in _absent(goal.want, true)]


def _absent(wanted: Iterable[str], true: dict[str, str]) -> list[str]:
    return [fact for fact in wanted if fact not in true]
