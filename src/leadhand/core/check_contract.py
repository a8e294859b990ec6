"""Advice on what a step promises: how we know it is done, what it touches, whether it belongs."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from leadhand.core import expressions, graph
from leadhand.core.check_form import join
from leadhand.core.check_step import texts
from leadhand.core.hashing import canonical
from leadhand.core.plan import failure_action_of
from leadhand.core.wording import shown

if TYPE_CHECKING:
    from leadhand.core.findings import Findings
    from leadhand.core.plan import Doc
    from leadhand.core.whole import Whole

ALIKE = 0.8
"""The share of words two descriptions must have in common to say the same."""

STEPS_MIN = 3
_SAID = expressions.NAMES - {"true", "false", "null"}
_ADDRESS = re.compile(r"\bhttps?://[^\s\"'<>)\]]+")
_WORD = re.compile(r"\w+")


def check_contract(whole: Whole, out: Findings) -> None:
    """Everything about single steps, then what only shows among all of them."""
    for ident, step in whole.steps.items():
        _check_done(whole, ident, step, out)
        _check_bounds(whole, ident, step, out)
        _check_outside(whole, ident, step, out)
    _check_results(whole, out)
    _check_goal(whole, out)
    _check_orphans(whole, out)
    _check_repeated(whole, out)
    _check_rollback(whole, out)


def _check_done(whole: Whole, ident: str, step: Doc, out: Findings) -> None:
    if not whole.judged(step):
        message = f"nothing tells whether step {shown(ident)} is done: it is taken at its word"
        fix = "Add success criteria, or give the worker a return type or a check."
        out.add("criteria-missing", whole.place(ident), message, fix)
    for text in texts(step.get("success_criteria")):
        if expressions.is_check_name(text):
            continue
        try:
            tree = expressions.parse(text)
        except ValueError:
            continue  # Reported.
        if not any(isinstance(node, ast.Name) and node.id in _SAID for node in ast.walk(tree)):
            message = f"{shown(text)} is the same whatever the step reports"
            fix = "Compare something of the report, such as data.failed."
            out.add("criteria-idle", whole.place(ident, "success_criteria"), message, fix)


def _check_bounds(whole: Whole, ident: str, step: Doc, out: Findings) -> None:
    effects = whole.effects(step)
    if not effects:
        return
    if not whole.touched(step, "writes"):
        message = f"step {shown(ident)} changes {shown(effects[0])} and does not say what it writes"
        fix = 'With "writes", steps that would get in each other\'s way are found.'
        out.add("boundary-undeclared", whole.place(ident), message, fix)
    if whole.timeout(step) is None:
        message = f"step {shown(ident)} has effects and no timeout: it may take an hour"
        out.add("timeout-missing", whole.place(ident), message, 'Add "timeout".')


def _check_outside(whole: Whole, ident: str, step: Doc, out: Findings) -> None:
    found = _ADDRESS.findall(step.get("description", ""))
    if not found:
        return
    fields = ("parameters", "reads", "writes", "effects", "uses")
    declared = str([step.get(field) for field in fields])
    declared += str([whole.touched(step, "reads"), whole.touched(step, "writes")])
    for address in found:
        if address.rstrip(".,;") not in declared:
            message = f"the description names {shown(address)}, and no field does"
            fix = 'Put it into "parameters" or "reads", where it is checked and recorded.'
            out.add("dependency-outside", whole.place(ident, "description"), message, fix)


def _check_results(whole: Whole, out: Findings) -> None:
    if whole.catalog is None:
        return
    told: set[str] = set()
    for ident, step in whole.steps.items():
        for name in graph.used(step):
            giver = whole.steps.get(name)
            offer = whole.offer(giver) if giver is not None else None
            if offer is not None and not offer.returns and name not in told:
                told.add(name)
                message = f"step {shown(ident)} uses the result of {shown(name)}, of unknown form"
                fix = "Let its worker declare what it returns: then references are checked."
                out.add("result-undeclared", whole.place(name), message, fix)


def _check_goal(whole: Whole, out: Findings) -> None:
    if "goal" not in whole.plan or whole.goal.get("acceptance") or whole.goal.get("want"):
        return
    last = [whole.steps[name] for name in graph.sinks(whole.edges)]
    offers = [whole.offer(step) for step in last]
    if not any(step.get("success_criteria") for step in last) and not any(
        offer is not None and offer.result_check for offer in offers
    ):
        message = "nothing tells whether the goal is reached"
        fix = 'Add "acceptance" to the goal, or criteria to the last step.'
        out.add("goal-unchecked", join(whole.prefix, "goal"), message, fix)


def _check_orphans(whole: Whole, out: Findings) -> None:
    waited_for = {name for names in whole.edges.values() for name in names}
    if len(whole.steps) < STEPS_MIN or not waited_for:
        return
    loose = [name for name, names in whole.edges.items() if not names and name not in waited_for]
    if len(loose) * 2 >= len(whole.steps):
        return  # It is a set of tasks rather than a chain with one forgotten.
    wanted = set(whole.goal.get("want", ()))
    for name in loose:
        if wanted.isdisjoint(whole.facts(whole.steps[name], "gives")):
            message = f"step {shown(name)} waits for nothing, and nothing waits for it"
            fix = "Say what it comes after, or leave it out."
            out.add("step-orphan", whole.place(name), message, fix)


def _check_repeated(whole: Whole, out: Findings) -> None:
    """Steps that differ in nothing but their ids, or little more than that."""
    first: dict[Any, str] = {}
    for ident, step in whole.steps.items():
        what = [step.get("worker"), step.get("action"), step.get("parameters") or {}]
        key = (canonical(what), frozenset(whole.edges[ident]))
        other = first.setdefault(key, ident)
        if other != ident and _alike(step, whole.steps[other]):
            message = f"step {shown(ident)} does what {shown(other)} does, at the same point"
            out.add("step-repeated", whole.place(ident), message, "Leave one of them out.")


def _alike(one: Doc, other: Doc) -> bool:
    a, b = (set(_WORD.findall(step.get("description", "").lower())) for step in (one, other))
    return not (a or b) or len(a & b) >= ALIKE * len(a | b)


def _check_rollback(whole: Whole, out: Findings) -> None:
    steps = whole.steps.values()
    asked = any(failure_action_of(step.get("failure_action")) == "rollback" for step in steps)
    if not asked or "rollback_plan" in whole.plan or not any("undo" in step for step in steps):
        return  # Without any way back it is said once, as rollback-absent.
    for ident, step in whole.steps.items():
        if whole.effects(step) and "undo" not in step:
            message = f"a rollback would leave what step {shown(ident)} did"
            out.add("rollback-partial", whole.place(ident), message, 'Add "undo" to it.')
