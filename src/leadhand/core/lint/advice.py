"""Advice on a plan: verification of steps, conflicts between them, time and cost."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

from leadhand.core import paths
from leadhand.core.durations import text as short
from leadhand.core.hashing import canonical
from leadhand.core.lint.context import seconds
from leadhand.core.lint.document_form import join
from leadhand.core.lint.step import amounts, texts
from leadhand.core.plan import expressions, graph
from leadhand.core.plan.model import failure_action_of
from leadhand.core.wording import listed, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leadhand.core.lint.context import LintContext
    from leadhand.core.lint.findings import Findings
    from leadhand.core.plan.model import Doc, Json


ALIKE = 0.8
"""The share of common words from which two descriptions count as the same."""

STEPS_MIN = 3
_SAID = expressions.NAMES - {"true", "false", "null"}
_ADDRESS = re.compile(r"\bhttps?://[^\s\"'<>)\]]+")
_WORD = re.compile(r"\w+")


def check_contract(whole: LintContext, out: Findings) -> None:
    """Report weak contracts: of single steps first, then across all steps."""
    for ident, step in whole.steps.items():
        _check_done(whole, ident, step, out)
        _check_bounds(whole, ident, step, out)
        _check_outside(whole, ident, step, out)
    _check_results(whole, out)
    _check_goal(whole, out)
    _check_orphans(whole, out)
    _check_repeated(whole, out)
    _check_rollback(whole, out)


def _check_done(whole: LintContext, ident: str, step: Doc, out: Findings) -> None:
    if not whole.judged(step):
        message = f"nothing tells whether step {shown(ident)} is done: it is taken at its word"
        fix = "Add success criteria, or give the worker a return type or a check."
        if whole.is_callers(step):
            fix = "Add success criteria, or a step after it that checks: a command, such as tests."
        out.add("criteria-missing", whole.place(ident), message, fix)
    for text in texts(step.get("success_criteria")):
        if expressions.is_check_name(text):
            continue
        try:
            tree = expressions.parse(text)
        except ValueError:
            continue  # Already reported.
        if not any(isinstance(node, ast.Name) and node.id in _SAID for node in ast.walk(tree)):
            message = f"{shown(text)} is the same whatever the step reports"
            fix = "Compare something of the report, such as data.failed."
            out.add("criteria-idle", whole.place(ident, "success_criteria"), message, fix)


def _check_bounds(whole: LintContext, ident: str, step: Doc, out: Findings) -> None:
    effects = whole.effects(step)
    if not effects:
        return
    if not whole.touched(step, "writes"):
        message = f"step {shown(ident)} changes {shown(effects[0])} and does not say what it writes"
        fix = 'With "writes", steps that would get in each other\'s way are found.'
        out.add("boundary-undeclared", whole.place(ident), message, fix)
    if whole.timeout(step) is None:
        message = f"step {shown(ident)} has effects and no timeout of its own: it may take an hour"
        out.add("timeout-missing", whole.place(ident), message, 'Add "timeout".')


def _check_outside(whole: LintContext, ident: str, step: Doc, out: Findings) -> None:
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


def _check_results(whole: LintContext, out: Findings) -> None:
    if whole.catalog is None:
        return
    told: set[str] = set()
    for ident, step in whole.steps.items():
        for name in graph.used_results(step):
            giver = whole.steps.get(name)
            offer = whole.offer(giver) if giver is not None else None
            if offer is not None and not offer.returns and name not in told:
                told.add(name)
                message = f"step {shown(ident)} uses the result of {shown(name)}, of unknown form"
                fix = "Let its worker declare what it returns: then references are checked."
                out.add("result-undeclared", whole.place(name), message, fix)


def _check_goal(whole: LintContext, out: Findings) -> None:
    if "goal" not in whole.plan or whole.goal.get("acceptance") or whole.goal.get("want"):
        return
    last = [whole.steps[name] for name in graph.sinks(whole.edges)]
    offers = [whole.offer(step) for step in last]
    if not any(step.get("success_criteria") for step in last) and not any(
        offer is not None and offer.result_check for offer in offers
    ):
        which = "the goal of the rollback plan" if whole.prefix else "the goal"
        message = f"no check tells whether {which} is reached"
        fix = 'Add "acceptance" to the goal, or "success_criteria" to the last step.'
        out.add("goal-unchecked", join(whole.prefix, "goal"), message, fix)


def _check_orphans(whole: LintContext, out: Findings) -> None:
    waited_for = {name for names in whole.edges.values() for name in names}
    if len(whole.steps) < STEPS_MIN or not waited_for:
        return
    loose = [name for name, names in whole.edges.items() if not names and name not in waited_for]
    if len(loose) * 2 >= len(whole.steps):
        return  # A set of independent tasks, rather than a chain with one step forgotten.
    wanted = set(whole.goal.get("want", ()))
    for name in loose:
        if wanted.isdisjoint(whole.facts(whole.steps[name], "gives")):
            message = f"step {shown(name)} waits for nothing, and nothing waits for it"
            fix = "Say what it comes after, or leave it out."
            out.add("step-orphan", whole.place(name), message, fix)


def _check_repeated(whole: LintContext, out: Findings) -> None:
    """Report steps that differ in their ids and little else."""
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


def _check_rollback(whole: LintContext, out: Findings) -> None:
    steps = whole.steps.values()
    asked = any(failure_action_of(step.get("failure_action")) == "rollback" for step in steps)
    if not asked or "rollback_plan" in whole.plan or not any("undo" in step for step in steps):
        return  # A plan without any undo is reported once, as rollback-absent.
    for ident, step in whole.steps.items():
        if whole.effects(step) and "undo" not in step:
            message = f"a rollback would leave what step {shown(ident)} did"
            out.add("rollback-partial", whole.place(ident), message, 'Add "undo" to it.')


# Conflicts between steps, and dependencies without a reason.
#
# Two steps that may run at once must not write the same path. Comparing every writer with every
# other would be quadratic; comparing each with its neighbours is enough. The writers of one path
# are put in topological order: if each waits for the one before, all are ordered, and if some are
# not, two neighbours are not. The same holds for a reader and the writers next to it. So the work
# grows with the number of overlapping paths (at most `paths.PAIRS_MAX`), with the neighbours
# (MEETINGS_MAX), and with the searches of `StepOrder`, which are bounded by the size of the plan.
# Conflicts beyond these limits are not reported.


HOT = 3
"""The number of writers from which a path is reported as contended."""

CHAIN_MIN = 5
"""The number of steps from which a fully sequential plan is worth a note."""

_APART = 'Let one wait for the other ("depends_on"), or let each write its own.'
_OWN = 'Say in the "writes" of each step which part of it is its own.'

MEETINGS_MAX = 200_000

Users = dict[str, list[int]]
"""By path, the numbers of the steps that touch it, in order."""


def check_coupling(whole: LintContext, out: Findings, *, advice: bool) -> None:
    """Report conflicts between writers and, as advice, between readers and writers."""
    writers = _users(whole, "writes")
    if writers:
        _check_writes(whole, writers, out, advice=advice)
    if advice:
        if writers:
            _check_reads(whole, writers, out)
            _check_hot(whole, writers, out)
        _check_waits(whole, out)
        _check_width(whole, out)


def _users(whole: LintContext, field: str) -> Users:
    specs = whole.catalog.workers.values() if whole.catalog is not None else ()
    declared = any(getattr(offer, field) for spec in specs for offer in spec.offers.values())
    if not declared and not any(field in step for _, step in whole.numbered):
        return {}
    found: Users = {}
    for number, ident in enumerate(whole.order.names):
        for path in dict.fromkeys(whole.touched(whole.steps[ident], field)):
            found.setdefault(path, []).append(number)
    return found


def _check_writes(whole: LintContext, writers: Users, out: Findings, *, advice: bool) -> None:
    seen: set[tuple[str, str]] = set()
    for one, other, first, second in _meetings(writers, writers):
        a, b = (whole.order.names[number] for number in sorted((first, second)))
        if (a, b) in seen or not _at_once(whole, a, b):
            continue
        seen.add((a, b))
        sure = _sure(whole, one, first) and _sure(whole, other, second)
        if not sure and not advice:
            continue
        both = f"steps {shown(a)} and {shown(b)} may run at once"
        fix = _APART if sure else _OWN
        place = whole.place(b, "writes" if "writes" in whole.steps[b] else "")
        message = f"{both}, and both write {_of(one, other)}"
        out.add("write-conflict", place, message, fix, level="error" if sure else "warning")


def _sure(whole: LintContext, path: str, number: int) -> bool:
    """Return whether a step writes exactly this path: `reports/` may be another file each time."""
    return not paths.wide(path) or "writes" in whole.steps[whole.order.names[number]]


def _check_reads(whole: LintContext, writers: Users, out: Findings) -> None:
    readers = _users(whole, "reads")
    seen: set[tuple[int, int]] = set()
    for read, written, reader, writer in _meetings(readers, writers):
        a, b = (whole.order.names[number] for number in (reader, writer))
        if (reader, writer) in seen or not _at_once(whole, a, b):
            continue
        seen.add((reader, writer))
        message = f"step {shown(a)} reads {_of(read, written)}, which {shown(b)} may be writing"
        out.add("read-conflict", whole.place(a), message, 'Let one wait ("depends_on").')


def _check_hot(whole: LintContext, writers: Users, out: Findings) -> None:
    for path, numbers in writers.items():
        if len(numbers) < HOT or paths.wide(path):
            continue
        idents = [whole.order.names[number] for number in numbers]
        if any("writes" in whole.steps[ident] for ident in idents):
            message = f"{len(idents)} steps write {shown(path)}: {listed(idents, 5)}"
            fix = "Let one step write it from what the others return."
            out.add("write-hot", whole.place(idents[0], "writes"), message, fix)


def _meetings(those: Users, others: Users) -> Iterator[tuple[str, str, int, int]]:
    """Yield overlapping paths with pairs of steps that touch them, neighbours in the order."""
    left = MEETINGS_MAX
    for one, other in paths.overlaps(those, others):
        mine, theirs = those[one], others[other]
        swap = len(mine) > len(theirs)
        for near, far in _neighbours(*((theirs, mine) if swap else (mine, theirs))):
            left -= 1
            if left < 0:
                return
            yield (one, other, far, near) if swap else (one, other, near, far)


def _neighbours(few: list[int], many: list[int]) -> Iterator[tuple[int, int]]:
    """Yield each number of `few` with its neighbours in `many`."""
    for number in few:
        before, after = bisect_left(many, number) - 1, bisect_right(many, number)
        if before >= 0:
            yield number, many[before]
        if after < len(many):
            yield number, many[after]


def _of(one: str, other: str) -> str:
    return shown(one) if one == other else f"{shown(one)} ({shown(other)})"


def _at_once(whole: LintContext, one: str, other: str) -> bool:
    """Return whether two steps may run at once: no dependency, limit or resource separates them."""
    a, b = whole.steps[one], whole.steps[other]
    limits = whole.plan.get("limits", {})
    if limits.get("concurrency") == 1:
        return False
    worker = a.get("worker", "")
    if worker == b.get("worker") and not (a.get("alternatives") or b.get("alternatives")):
        spec = whole.catalog.workers.get(worker) if whole.catalog is not None else None
        if limits.get("workers", {}).get(worker) == 1 or (spec and spec.max_concurrency == 1):
            return False
    held, wanted = amounts(a.get("uses")), amounts(b.get("uses"))
    for name in held.keys() & wanted.keys():
        if held[name] + wanted[name] > whole.resources.get(name, 0):
            return False
    return whole.order.together(one, other)


def _check_waits(whole: LintContext, out: Findings) -> None:
    """Report dependencies without a reason in data, facts, files, resources or effects."""
    for ident, step in whole.steps.items():
        if not _open(whole, step) or "depends_on" not in step:
            continue
        using = set(graph.used_results(step))
        for i, entry in enumerate(step["depends_on"]):
            name = entry if isinstance(entry, str) else entry["step"]
            other = whole.steps.get(name)
            if other is None or name in using or name == ident or not _open(whole, other):
                continue
            if other.get("success_criteria") or _related(whole, step, other):
                continue
            message = f"step {shown(ident)} waits for {shown(name)}, and uses nothing of it"
            fix = "Without the dependency both could run at once."
            out.add("wait-needless", whole.place(ident, f"depends_on[{i}]"), message, fix)


def _open(whole: LintContext, step: Doc) -> bool:
    """Return whether a step declares everything it touches and has no other effect."""
    return whole.effects(step) == () and bool(
        whole.touched(step, "reads") or whole.touched(step, "writes")
    )


def _related(whole: LintContext, step: Doc, other: Doc) -> bool:
    if set(whole.facts(step, "needs")) & set(whole.facts(other, "gives")):
        return True
    if amounts(step.get("uses")).keys() & amounts(other.get("uses")).keys():
        return True
    mine = whole.touched(step, "reads"), whole.touched(step, "writes")
    theirs = whole.touched(other, "reads"), whole.touched(other, "writes")
    pairs = ((mine[0], theirs[1]), (mine[1], theirs[0]), (mine[1], theirs[1]))
    return any(any(paths.overlaps(a, b)) for a, b in pairs)


def _check_width(whole: LintContext, out: Findings) -> None:
    lanes = set(whole.order.lane.values())
    if whole.order.complete and len(whole.steps) >= CHAIN_MIN and len(lanes) == 1:
        message = f"each of the {len(whole.steps)} steps waits for the one before"
        place = join(whole.prefix, "steps")
        out.add("parallel-none", place, message, "Take out dependencies that are only an order.")


# Time and cost: whether a plan can keep its limits by its own estimates.


FINE_S = 0.05
"""Below this duration the cost of starting a step dominates."""

DOMINANT = 0.6


def check_estimates(whole: LintContext, out: Findings, *, advice: bool) -> None:
    """Report a budget or deadline that cannot hold; as advice, missing or odd estimates."""
    for field, place in (("", "budget"), ("goal", "goal.budget")):
        budget = _amount((whole.goal if field else whole.plan).get("budget"))
        if budget is not None:
            _check_budget(whole, budget, join(whole.prefix, place), out)
    for field, place in (("", "deadline"), ("goal", "goal.deadline")):
        deadline = seconds((whole.goal if field else whole.plan).get("deadline"))
        if deadline is not None:
            _check_deadline(whole, deadline, join(whole.prefix, place), out)
    if advice:
        _advise(whole, out)


def _amount(budget: Json) -> float | None:
    found = budget.get("cost") if isinstance(budget, dict) else budget
    return float(found) if isinstance(found, (int, float)) else None


def _check_budget(whole: LintContext, budget: float, place: str, out: Findings) -> None:
    offers = (whole.offer(step) for step in whole.steps.values())
    cost = sum(offer.cost for offer in offers if offer is not None)
    if cost > budget * (1 + 1e-9):
        message = f"the steps cost {cost:g} by what their workers say, and the budget is {budget:g}"
        out.add("budget-short", place, message, "Raise the budget, or take cheaper workers.")


def _check_deadline(whole: LintContext, deadline: float, place: str, out: Findings) -> None:
    est = {ident: whole.est(step) or 0.0 for ident, step in whole.steps.items()}
    takes = max(graph.tails(whole.edges, est).values(), default=0.0)
    at_once = whole.plan.get("limits", {}).get("concurrency")
    if at_once:
        takes = max(takes, sum(est.values()) / at_once)
    takes = max(takes, seconds(whole.plan.get("estimated_duration")) or 0.0)
    if takes > deadline:
        own = f"by its own estimates the plan takes {short(takes)} at least"
        message = f"{own}, and it has {short(deadline)}"
        out.add("budget-short", place, message, "Give it more time, or do more at once.")


def _advise(whole: LintContext, out: Findings) -> None:
    known = {ident: whole.est(step) for ident, step in whole.steps.items()}
    total = sum(est for est in known.values() if est is not None)
    complete = None not in known.values() and len(known) >= STEPS_MIN
    some = any("est" in step for step in whole.steps.values())
    for ident, step in whole.steps.items():
        est, timeout = known[ident], whole.timeout(step)
        if est is None:
            if some:
                message = f"step {shown(ident)} has no estimate, and counts as instant"
                out.add("estimate-missing", whole.place(ident), message, 'Add "est".')
            continue
        place = whole.place(ident, "est" if "est" in step else "")
        if timeout is not None and est > timeout:
            should = f"step {shown(ident)} should take {short(est)}"
            message = f"{should}, and is stopped after {short(timeout)}"
            out.add("estimate-over-timeout", place, message, 'Raise "timeout".')
        if est < FINE_S:
            message = f"step {shown(ident)} takes about {est:g} s, which is less than starting it"
            out.add("step-fine", place, message, "Let a neighbour do it too.")
        if complete and est > DOMINANT * total:
            message = f"step {shown(ident)} is {est / total:.0%} of all the work"
            out.add("step-dominant", place, message, "Split it, if it can be split.")
