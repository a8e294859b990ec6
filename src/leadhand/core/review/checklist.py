"""The checklist of a review: one line for each thing to look at, with its mark. Pure.

It says what is in order as well as what is not, from the same findings that the review lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from leadhand.core.calendar import utc
from leadhand.core.durations import text
from leadhand.core.lint.rules import RULES
from leadhand.core.policy import Policy
from leadhand.core.visible import visible_name
from leadhand.core.wording import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from leadhand.core.review.assessment import ReviewFinding
    from leadhand.core.review.consequences import StepFacts

TIMEOUT = RULES["timeout-missing"].code
UNDO = ("undo-missing", "undo-risky")
TIMEOUT_S = Policy().timeout_s
CUT = "findings-cut"
"""The plan was too large for the linter."""
OWN = frozenset({"effects-undeclared", "budget-missing", TIMEOUT, *UNDO})
"""The findings that have a line of their own; the others stand under `lint`."""


class ReviewCheck(Struct, kw_only=True):
    """One line of the checklist."""

    name: str
    """What is checked: `side effects`, `timeouts`, `rollback`, `budget`, …"""
    mark: str
    """`ok`, `note` or `warning`."""
    text: str
    """What was found, in one sentence."""
    steps: list[str]
    """The steps that it is about; empty: the plan."""


class Reviewed(Struct, kw_only=True):
    """What the checklist is made of, besides the findings."""

    facts: Mapping[str, StepFacts]
    budget: float | None
    rollback_plan: bool = False
    untrusted: bool = False
    outside: list[str] = []
    widens: list[str] = []
    overclaims: list[str] = []
    lookalikes: list[str] = []
    people: int = 0
    approved_by: list[str] = []
    approval_s: float | None = None
    timeout_s: float = TIMEOUT_S
    instants: Mapping[str, int] = {}
    now: int = 0


def checks(findings: Iterable[ReviewFinding], known: Reviewed) -> list[ReviewCheck]:
    """Return the checklist of a review."""
    found = [*findings]
    return [
        _side_effects(known),
        *_scope(known),
        *_claims(known),
        *_characters(known),
        _untrusted(known),
        _timeouts(found, known),
        _rollback(found, known),
        _budget(known),
        *_approvals(known),
        _expiry(known),
        *_lint(found),
    ]


def _check(name: str, mark: str, text: str, steps: Iterable[str] = ()) -> ReviewCheck:
    return ReviewCheck(name=name, mark=mark, text=text, steps=[*dict.fromkeys(steps)])


def _side_effects(known: Reviewed) -> ReviewCheck:
    silent = sorted({name for each in known.facts.values() for name in each.silent})
    if not silent:
        return _check("side effects", "ok", "every worker declares its side effects")
    verb = "declares" if len(silent) == 1 else "declare"
    steps = (step for step, each in known.facts.items() if each.silent)
    told = f"{listed(map(visible_name, silent), 8)} {verb} none, and may change anything"
    return _check("side effects", "warning", told, steps)


def _scope(known: Reviewed) -> Iterator[ReviewCheck]:
    if known.outside:
        told = f"beyond what was approved before: {'; '.join(known.outside)}"
        yield _check("scope", "warning", told)


def _claims(known: Reviewed) -> Iterator[ReviewCheck]:
    if known.widens:
        told = f"approving accepts claims beyond the workers: {'; '.join(known.widens)}"
        yield _check("claims", "warning", told)
    if known.overclaims:
        told = f"claims of the planner that do not count: {'; '.join(known.overclaims)}"
        yield _check("claims", "note", told)


def _characters(known: Reviewed) -> Iterator[ReviewCheck]:
    if known.lookalikes:
        told = f"look-alike or invisible characters: {'; '.join(known.lookalikes)}"
        yield _check("characters", "warning", told)


def _untrusted(known: Reviewed) -> ReviewCheck:
    if known.untrusted:
        told = "proposed by an agent, or after results of an untrusted worker, which may steer it"
        return _check("untrusted input", "warning", told)
    told = "no worker that is declared untrusted had reported before this was proposed"
    return _check("untrusted input", "ok", told)


def _timeouts(found: list[ReviewFinding], known: Reviewed) -> ReviewCheck:
    missing = [each.step for each in found if each.rule == TIMEOUT and each.step]
    if any(each.rule == CUT for each in found):
        return _check("timeouts", "note", "not checked: the plan is too large for the linter")
    if not missing:
        told = "every step with declared side effects has a timeout of its own"
        return _check("timeouts", "ok", told)
    limit = text(known.timeout_s)
    told = f"side effects, and no timeout of its own: an attempt may take {limit}, the default"
    return _check("timeouts", "note", told, missing)


def _rollback(found: list[ReviewFinding], known: Reviewed) -> ReviewCheck:
    lasting = [each.step for each in found if each.rule == "undo-missing" and each.step]
    risky = [each.step for each in found if each.rule == "undo-risky" and each.step]
    unknown = [s for s, each in known.facts.items() if each.silent and not each.undo]
    if lasting:
        return _check("rollback", "warning", "cannot be rolled back: no undo", lasting)
    if unknown:
        told = "not known whether it can be rolled back: nothing is declared"
        return _check("rollback", "note", told, unknown)
    if risky:
        told = "the undo has high risk, so a rollback may wait for an approval of its own"
        return _check("rollback", "note", told, risky)
    if known.rollback_plan:
        return _check("rollback", "ok", "the plan names a rollback plan")
    if any(each.effects for each in known.facts.values()):
        return _check("rollback", "ok", "every step with declared side effects has an undo")
    return _check("rollback", "ok", "no side effects, so nothing to undo")


def _budget(known: Reviewed) -> ReviewCheck:
    if known.budget is None:
        return _check("budget", "note", "no budget: nothing limits the cost")
    return _check("budget", "ok", f"the run may cost {known.budget:g} at most")


def _approvals(known: Reviewed) -> Iterator[ReviewCheck]:
    if not known.people:
        return
    left, given = known.people - len(known.approved_by), listed(known.approved_by)
    if known.people == 1:
        yield _check("approvals", "ok", "needs 1 approval")
    elif not given:
        told = f"needs {known.people} approvals by different people"
        yield _check("approvals", "note", told)
    else:
        told = f"approved by {given}; {left} more by another person"
        yield _check("approvals", "note", told)


def _expiry(known: Reviewed) -> ReviewCheck:
    if not known.approval_s:
        return _check("expiry", "ok", "the approval does not expire unless you set an expiry")
    ends = known.now + round(known.approval_s * 1_000_000)
    late = [step for step, at in known.instants.items() if at >= ends]
    if late:
        told = f"given now, it expires at {utc(ends)}, before the start time of these steps"
        return _check("expiry", "warning", told, late)
    told = f"the approval expires {text(known.approval_s)} after it was given"
    return _check("expiry", "ok", told)


def _lint(found: list[ReviewFinding]) -> Iterator[ReviewCheck]:
    """Yield a check for each rule; one finding in its own words, several in those of the rule."""
    rules: dict[str, list[ReviewFinding]] = {}
    for each in found:
        if each.rule not in OWN:
            rules.setdefault(each.rule, []).append(each)
    meanings = {rule.code: rule.meaning for rule in RULES.values()}
    for rule, each_of in rules.items():
        said = each_of[0].message if len(each_of) == 1 else meanings.get(rule, each_of[0].message)
        code = f" ({rule})" if rule.startswith("LH") else ""
        steps = [each.step for each in each_of if each.step]
        yield _check("lint", each_of[0].level, f"{said}{code}", steps)
    if not rules:
        yield _check("lint", "ok", "the linter finds nothing else")
