"""Prices of operators: the declared cost, changed by earlier failures and advice.

    price = cost x 2^k

where k counts the failures in a row of this worker and action on this very input. The input is
the value of its parameters, however they were written: a text and a reference that resolves to it
are the same. Where the worker declares that it reads places outside, or what it gets comes from a
step that changes something outside, the same value may stand for something new (a path), so that
there the version counts as well. Some
classes of failure say that the same again cannot help: there the price is infinite at once; for
the others it is infinite after a number of failures in a row. A success forgets.

All of it is computed from the log's failed attempts at each decision. The one thing that a
person may change is from where to count: an answer "retry" forgives what was before.
"""

from __future__ import annotations

import hashlib
import re
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from leadhand.core.plan import references
from leadhand.planners.goal.operators import is_flag, operator_name
from leadhand.planners.goal.world import facts_of_step, have, promised_field, resolve_parameter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.report import FailedAttempt, Failure, PlannerView, StepView
    from leadhand.planners.goal.operators import Operator, Operators
    from leadhand.planners.goal.world import Fact, World


FAILURES_MAX = {
    "transient": 6,
    "rate_limited": 6,
    "timeout": 6,
    "lost": 6,
    "unavailable": 2,
    "invalid_output": 2,
    "criteria_unmet": 2,
}
"""How many failures in a row on one input end it; of any other class, one does."""
SPLITTING = frozenset({"too_complex", "context_overflow", "ambiguous"})
BARRED = 8
"""How much dearer a worker is that is left alone for now: another way is taken if there is one, and
without one its step waits."""
LOSS = 1e-4
"""The share of a unit that each fact counts for that an operator takes away: it decides between
equals."""
WISHED = 1e-3
"""The price factor of a person's request: cheaper than any other remaining way."""
ADVISED = 0.5
"""The price factor of a recommended worker."""
_ADVICE = re.compile(
    r"\s*(?:please\s+)?(?:use|try|prefer|switch to|reroute to)\s+(.+)", re.IGNORECASE | re.DOTALL
)


class OperatorRecord(NamedTuple):
    """The failures of one operator on one input since its last success there."""

    failures: int
    last: Failure
    step: str
    happened: bool
    """Whether any of the attempts may have had an effect."""
    kinds: dict[str, int]
    """How many of the failures were of which class."""


class Past(msgspec.Struct):
    """The failures that count, by operator and input."""

    records: dict[tuple[str, str], OperatorRecord]
    skipped: dict[tuple[str, str], str]
    """Steps that a person removed, with the reason."""
    asked_for: dict[str, tuple[str, ...]]
    """Facts that a worker said it needs to know beyond its parameters."""
    split: set[str]
    """Facts whose giver found its task too large or unclear."""
    hopeless: set[str]
    """Steps that failed, and would fail again."""
    changing: frozenset[str] = frozenset()
    """Steps with effects outside: their results may be new though they look the same."""


class Prices(NamedTuple):
    """The current costs of operators, with the reason where they differ from the declared ones."""

    of: dict[str, float]
    why: dict[str, str]


def bound(operator: Operator, facts: Mapping[str, Fact]) -> Doc:
    """Return the parameters of an operator, filled from facts that are there."""
    found: Doc = {name: facts[fact].value for name, fact in operator.takes.items()}
    for name in operator.may_take:
        if name in facts and not is_flag(name):
            found[name] = facts[name].value
    return found


def input_of(
    operator: Operator, world: World, view: PlannerView, changing: frozenset[str]
) -> str | None:
    """Return a digest that names an operator's input; None if part of it is missing."""
    facts = world.facts
    if any(fact not in facts for fact in operator.needs if not is_flag(fact)):
        return None
    parameters = bound(operator, facts)
    others = {fact: facts[fact].value for fact in operator.unbound if not is_flag(fact)}
    return _digest(operator, parameters, others, view, changing)


def _changing(view: PlannerView, operators: Operators) -> frozenset[str]:
    """Return the steps that write places or have effects outside."""
    found = set()
    for step in view.timeline:
        operator = operators.by_name.get(operator_name(step.worker, step.action))
        if operator is not None and (operator.writes or operator.changes):
            found.add(step.id)
    return frozenset(found)


def _digest(
    operator: Operator | None,
    parameters: Doc,
    others: Doc,
    view: PlannerView,
    changing: frozenset[str],
) -> str:
    """Return a digest that is equal for equal inputs: values, and versions where they count."""
    used = [ref.name for ref in references.find([parameters, others]) if ref.kind == "steps"]
    reads = operator is not None and bool(operator.reads)
    versions = sorted({name for name in used if reads or name in changing})
    values = resolve_parameter([parameters, others], view)
    return hashlib.sha256(msgspec.json.encode([values, versions], order="sorted")).hexdigest()


def past(view: PlannerView, world: World, operators: Operators, forgiven: int) -> Past:
    """Return the failures that the log tells of; the first `forgiven` attempts do not count."""
    found = Past({}, {}, {}, set(), set())
    counted = {(each.step, each.attempt) for each in view.failed_attempts[forgiven:]}
    if not view.failed_attempts and all(step.status != "skipped" for step in view.timeline):
        return found
    changing = found.changing = _changing(view, operators)
    failing: set[str] = set()
    true = {name: have(name, value).value for name, value in view.goal.have.items()}
    for step in view.timeline:
        own = operators.by_name.get(operator_name(step.worker, step.action))
        text = ""
        name = operator_name(step.worker, step.action)
        if step.id in world.failures or step.status == "skipped" or name in failing:
            text = _input_of_step(step, own, true, view, changing)
        failed = [each for each in world.failures.get(step.id, ()) if _counts(each, counted)]
        for each in failed:
            doer = operator_name(each.worker, step.action)
            _add(
                found, doer, text, each, operators, happened=_may_have_happened(each, step, failed)
            )
            failing.add(doer)
        if step.status == "succeeded":
            found.records.pop((name, text), None)
            gives = facts_of_step(step.id, promised_field(step, view.catalog, "gives"))
            true |= {fact: each.value for fact, each in gives.items()}
        elif step.status == "skipped":
            found.skipped[name, text] = step.reason or "it was skipped"
            found.hopeless.add(step.id)
    for (name, _), record in found.records.items():
        operator = operators.by_name.get(name)
        if operator is None or _ended(record, operator):
            found.hopeless.add(record.step)
    return found


def _ended(record: OperatorRecord, operator: Operator) -> bool:
    """Return whether the same operator on the same input cannot help or must not be tried again."""
    if record.happened and not operator.idempotent:
        return True
    # One host that died and one result that was not usable are not two such results.
    kind = record.last.failure_class
    many = record.failures >= max(FAILURES_MAX.values())
    return many or record.kinds[kind] >= FAILURES_MAX.get(kind, 1)


def _counts(each: FailedAttempt, counted: set[tuple[str, int]]) -> bool:
    return (each.step, each.attempt) in counted


def _input_of_step(
    step: StepView,
    operator: Operator | None,
    true: Mapping[str, Json],
    view: PlannerView,
    changing: frozenset[str],
) -> str:
    """Return the digest of the input that a step was planned with, from the facts true then."""
    unbound = [fact for fact in operator.unbound if not is_flag(fact)] if operator else []
    others = {fact: true[fact] for fact in unbound if fact in true}
    return _digest(operator, step.planned.get("parameters") or {}, others, view, changing)


def _may_have_happened(
    each: FailedAttempt, step: StepView, failed: Iterable[FailedAttempt]
) -> bool:
    """Return whether an attempt may have had its effect, as far as is known now.

    A step that is not idempotent is tried again by the same worker only after a probe or a person
    has said that the effect did not happen; so a later attempt shows that the outcome is known.
    """
    if each.failure.effect == "none":
        return False
    later = any(other.worker == each.worker and other.attempt > each.attempt for other in failed)
    return not later and not (step.worker == each.worker and step.attempts > each.attempt)


def _add(
    found: Past,
    name: str,
    text: str,
    each: FailedAttempt,
    operators: Operators,
    *,
    happened: bool,
) -> None:
    failure, before = each.failure, found.records.get((name, text))
    happened = happened or bool(before and before.happened)
    count = before.failures + 1 if before else 1
    kinds, kind = (before.kinds if before else {}), failure.failure_class
    kinds = {**kinds, kind: kinds.get(kind, 0) + 1}
    found.records[name, text] = OperatorRecord(count, failure, each.step, happened, kinds)
    operator = operators.by_name.get(name)
    if operator is None:
        return
    if failure.failure_class in SPLITTING:
        found.split.update(operator.gives)
    if failure.failure_class == "needs_info":
        named = tuple(requested_facts(failure, operator))
        found.asked_for[name] = tuple(dict.fromkeys((*found.asked_for.get(name, ()), *named)))


def requested_facts(failure: Failure, operator: Operator) -> Iterable[str]:
    """Return the facts that a worker asks for: named in details, or a parameter in its message."""
    details = failure.details
    if isinstance(details, dict):
        details = details.get("needs")
    if details:
        yield from [details] if isinstance(details, str) else map(str, details)
        return
    words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_-]*", failure.message))
    yield from (name for name in operator.may_take if name in words)


def with_requested_facts(
    operators: Operators, asked_for: Mapping[str, tuple[str, ...]]
) -> dict[str, Operator]:
    """Return the operators that asked for more facts, with those facts among their needs."""
    found = {}
    for name, facts in asked_for.items():
        old = operators.by_name.get(name)
        if old is None or not facts:
            continue
        takes = {**old.takes, **{fact: fact for fact in facts if fact in old.may_take}}
        rest = tuple(each for each in old.may_take if each not in takes)
        needs = tuple(sorted({*old.needs, *facts}))
        found[name] = msgspec.structs.replace(old, needs=needs, takes=takes, may_take=rest)
    return found


def prices(
    relevant: Iterable[Operator], view: PlannerView, world: World, before: Past, unit: float
) -> Prices:
    """Return the current cost of each relevant operator."""
    found = Prices({}, {})
    advised, wished = advice(view.recommendations), advice(words_of_people(view))
    touched = {name for name, _ in (*before.records, *before.skipped)}
    for operator in relevant:
        name = operator.name
        # Of two that cost the same, the quicker one; the thousandth of a second decides nothing.
        price = (operator.cost or unit) + unit * 1e-9 * min(operator.est_s, 1e6)
        # And the one that takes nothing away: what fails after it leaves more ways open.
        price += unit * LOSS * len(operator.drops)
        why = ""
        if name in touched:
            price, why = _remembered(operator, price, world, before, view)
        if price < inf and operator.worker in view.barred:
            price, why = price * BARRED, view.barred[operator.worker]
        if price < inf and view.budget_left is not None and operator.cost > view.budget_left + 1e-9:
            price, why = inf, f"costs {operator.cost:g}, and {view.budget_left:g} is left"
        if operator.worker in advised and price < inf:
            price *= ADVISED
        if operator.worker in wished and price < inf:
            price *= WISHED
        found.of[name] = price
        if why:
            found.why[name] = why
    return found


def _remembered(
    operator: Operator, price: float, world: World, before: Past, view: PlannerView
) -> tuple[float, str]:
    text = input_of(operator, world, view, before.changing)
    if text is None:
        return price, ""
    key = (operator.name, text)
    if key in before.skipped:
        return inf, f"was skipped ({before.skipped[key]})"
    record = before.records.get(key)
    if record is None:
        return price, ""
    kind = record.last.failure_class
    what = f"{kind}: {_short(record.last.message)}" if record.last.message else kind
    if record.happened and not operator.idempotent:
        return inf, f"failed ({what}), and what it did may have happened"
    if _ended(record, operator):
        times = "failed" if record.failures == 1 else f"failed {record.failures} times"
        return inf, f"{times} on this input ({what})"
    times = "once" if record.failures == 1 else f"{record.failures} times"
    return price * 2**record.failures, f"failed {times} on this input ({what})"


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= 100 else f"{line[:99]}…"


def words_of_people(view: PlannerView) -> list[str]:
    """Return what people told the planner: answers in words, and changes they asked for."""
    said = [str(answer.get("text") or "") for answer in view.answers]
    return [text for text in (*said, *view.findings) if text]


def advice(recommendations: Iterable[str]) -> dict[str, str]:
    """Workers that reports recommend, each with the words."""
    found: dict[str, str] = {}
    for text in recommendations:
        said = _ADVICE.match(text)
        if said:
            word = re.split(r"[\s,;:!?]", said[1].removeprefix("worker ").strip("'\"` "))[0]
            found.setdefault(word.strip("'\"`.").rstrip("."), text)
    return found


def price_text(value: float) -> str:
    """Return a price as text."""
    return "no price" if value == inf else f"{float(f'{value:.3g}'):g}"
