"""The checks of one step within its scope.

`Scope` is everything a step is checked against: the catalogue, the parameters, the ids around it. A
plan and a planner's proposal differ only in their scope. Each check gets a step without its
malformed fields (already reported), so that every mistake gives exactly one finding.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.core import calendar, durations
from leadhand.core.catalog import CALLER, NO_CALLERS, NO_CALLERS_FIX
from leadhand.core.jsonschema import problems, unusable
from leadhand.core.lint import reference_checks
from leadhand.core.plan import expressions, references
from leadhand.core.plan.graph import context_of
from leadhand.core.plan.model import (
    FAILURE_ACTIONS,
    dependency_id,
    dependency_tolerant,
    failure_action_of,
)
from leadhand.core.wording import listed, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from leadhand.core.catalog import Catalog, Offer
    from leadhand.core.lint.findings import Findings
    from leadhand.core.lint.reference_checks import TakenBack
    from leadhand.core.lint.rules import Level
    from leadhand.core.plan.model import Doc, Json


# A fast path for plain steps, so that a plan of ten thousand steps is checked quickly.
#
# Most steps of a large plan name only a worker, an action and dependencies. For such a step a few
# comparisons prove that the full checks would find nothing. Every other step gets the full checks,
# which do the reporting; a wrong "no" here costs only time. `tests/core/test_lint_plain_steps.py`
# compares the two. 5,000 such steps take 76 ms with it and 332 ms without (before each run).


PLAIN = frozenset({"id", "worker", "action", "depends_on", "parameters"})
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
DEPENDENCIES_MAX = 100


class KnownActions:
    """The fast path, with a memory of workers and actions seen: these are few, steps are many."""

    __slots__ = ("_catalog", "_fitting", "_words", "formed")

    def __init__(self, catalog: Catalog | None = None) -> None:
        self._catalog = catalog
        self._words: set[str] = set()
        self._fitting: dict[tuple[str, str], bool] = {}
        self.formed: set[int] = set()
        """The indexes of the steps found to be of plain form."""

    def form(self, step: Any) -> bool:
        """Return whether a step is plain and certainly well formed."""
        if type(step) is not dict or not PLAIN.issuperset(step):
            return False
        ident = step.get("id")
        if type(ident) is not str or not _ID.fullmatch(ident):
            return False
        if not (self._word(step.get("worker")) and self._word(step.get("action", "w"))):
            return False
        after = step.get("depends_on", ())
        if after:
            if type(after) is not list or len(after) > DEPENDENCIES_MAX:
                return False
            if any(type(name) is not str or not _ID.fullmatch(name) for name in after):
                return False
            if len(after) > 1 and len(set(after)) != len(after):
                return False
        elif after not in ((), []):
            return False
        return "parameters" not in step or type(step["parameters"]) is dict

    def _word(self, word: Any) -> bool:
        if type(word) is not str:
            return False
        if word in self._words:
            return True
        good = _WORD.fullmatch(word) is not None
        if good:
            self._words.add(word)
        return good

    def good(self, step: dict[str, Any], known: Container[str]) -> bool:
        """Return whether a step of plain form certainly has no findings."""
        if step.get("parameters"):
            return False
        who = (step["worker"], step.get("action", ""))
        fits = self._fitting.get(who)
        if fits is None:
            fits = self._fitting[who] = self._fits(*who)
        if not fits:
            return False
        after = step.get("depends_on")
        return not after or all(name in known and name != step["id"] for name in after)

    def _fits(self, worker: str, action: str) -> bool:
        if self._catalog is None:
            return True
        offer = self._catalog.offer(worker, action)
        if offer is None or offer.missing:
            return False
        if offer.returns is not None and unusable(offer.returns):
            return False
        return offer.parameters is None or not problems({}, offer.parameters)


LOST = frozenset({"failed", "skipped", "cancelled"})
"""Statuses of steps that ended without a result."""

_UNCLEAR_ID = re.compile(r"\.data(\.|$)")
_NO_CHECKS = 'It has none; write an expression such as "data.failed == 0".'
_RULE_OF = {
    "missing": "parameter-missing",
    "unknown": "parameter-unknown",
    "hole": "result-unfit",
    "schema": "schema-unusable",
}


class Scope(NamedTuple):
    """Everything a step is checked against."""

    catalog: Catalog | None
    names: reference_checks.KnownNames
    status: Callable[[str], str | None]
    """Returns the status of a step ("new" for one of the same document), or None if unknown."""
    ids: Iterable[str]
    """Candidates for a misspelt id."""
    resources: Mapping[str, int] | None
    """Capacities by resource; None if unknown here."""
    run_refs: Level = "error"
    """The level of a reference to the run being rolled back, outside a rollback plan."""


class Here(NamedTuple):
    """One step under check, its undo included."""

    scope: Scope
    out: Findings
    step: Doc
    id: str
    tolerant: frozenset[str]
    """The dependencies whose failure it tolerates."""


def check_step(scope: Scope, step: Doc, place: str, out: Findings) -> None:
    """Report all findings about one step."""
    entries = step.get("depends_on", ())
    tolerant = frozenset(dependency_id(entry) for entry in entries if dependency_tolerant(entry))
    here = Here(scope, out, step, step.get("id", ""), tolerant)
    if _UNCLEAR_ID.search(here.id):
        message = f"references could not tell the id {shown(here.id)} from its data"
        out.add("id-unclear", f"{place}.id", message, 'Take ".data" out of the id.')
    _check_dependencies(here, place)
    _check_task(here, step, place)
    _check_alternatives(here, place)
    _check_misplaced(step, place, out)
    _check_times(step, place, out)
    for name, summary in context_of(step).items():
        # The summary of a failed step is available to a step that tolerates the failure.
        if not (summary and name in tolerant and scope.status(name) in LOST):
            _check_used(here, step, name, f"{place}.context", f"context {shown(name)}")
    word = step.get("failure_action")
    if word is not None and failure_action_of(word) is None and references.MARK not in word:
        fix = out.guess(word, FAILURE_ACTIONS) or f"Write one of {listed(FAILURE_ACTIONS)}."
        message = f"{shown(word)} is not a failure action"
        out.add("failure-action-unknown", f"{place}.failure_action", message, fix)
    undo = step.get("undo")
    if undo is not None:
        _check_task(here, undo, f"{place}.undo")
        _check_misplaced(undo, f"{place}.undo", out)


def check_duration(value: Json, place: str, out: Findings, *, positive: bool = False) -> None:
    """Report a malformed duration; with `positive`, also one too short to be a limit."""
    if value is None:
        return
    try:
        length = durations.seconds(value)
        if positive and (short := durations.too_short(length)):
            out.add("duration-wrong", place, short)
    except ValueError as error:
        out.add("duration-wrong", place, str(error))


def check_criteria(
    value: Json, place: str, out: Findings, names: frozenset[str] = expressions.NAMES
) -> list[tuple[str, str]]:
    """Report malformed expressions. Return the names of checks, each with its place."""
    found = []
    for i, text in enumerate(texts(value)):
        here = place if isinstance(value, str) else f"{place}[{i}]"
        if references.MARK in text:
            continue  # Reported as misplaced.
        if expressions.is_check_name(text) and names is expressions.NAMES:
            found.append((text.strip(), here))
            continue
        try:
            expressions.parse(text, names)
        except ValueError as error:
            out.add("expression-wrong", here, f"{shown(text)}: {error}")
    return found


def amounts(uses: Json) -> dict[str, int]:
    """Return the amount of each resource a step holds: `uses` in its three spellings."""
    if isinstance(uses, dict):
        return uses
    return dict.fromkeys(texts(uses), 1)


def check_misplaced(value: Json, place: str, out: Findings) -> None:
    """Report references in places where they are not replaced."""
    for ref in references.find(value, place):
        fix = "References can stand only in the values of parameters; $${{ is a literal ${{."
        out.add(
            "reference-misplaced", ref.place, f"{ref.text[:80]} would not be replaced here", fix
        )


def texts(value: Json) -> list[str]:
    """Return a text or a list of texts as a list."""
    return (
        [value]
        if isinstance(value, str)
        else [name for name in value or () if isinstance(name, str)]
    )


def _check_dependencies(here: Here, place: str) -> None:
    scope, out, own = here.scope, here.out, shown(here.id)
    for i, entry in enumerate(here.step.get("depends_on", ())):
        name, at = dependency_id(entry), f"{place}.depends_on[{i}]"
        if references.MARK in name:
            continue  # Reported as misplaced.
        if name == here.id:
            out.add("dependency-self", at, f"step {own} depends on itself", "Take it out.")
            continue
        status = scope.status(name)
        if status is None:
            fix = out.guess(name, scope.ids) or "Add that step, or take the dependency out."
            message = f"step {own} depends on {shown(name)}, which is not in the plan"
            out.add("dependency-missing", at, message, fix)
        elif status in LOST and name not in here.tolerant:
            fix = 'Plan around it, or write {"step": ..., "if": "finished"}.'
            message = f"step {own} depends on {shown(name)}, which is {status}"
            out.add("dependency-failed", at, message, fix)


def _check_task(here: Here, task: Doc, place: str) -> None:
    """Check the shared fields of a step and its undo: worker, parameters, criteria, limits."""
    out = here.out
    parameters = task.get("parameters") or {}
    found = references.find(parameters, f"{place}.parameters")
    for ref in found:
        _check_ref(here, task, ref)
    checks = check_criteria(task.get("success_criteria"), f"{place}.success_criteria", out)
    checks += check_criteria(task.get("expect"), f"{place}.expect", out)
    offer = _offer(here, task, place)
    if offer is not None:
        if offer.parameters is not None:
            value = reference_checks.fill(parameters, here.scope.names) if found else parameters
            _check_parameters(task, offer.parameters, value, place, out, holes_=bool(found))
        if offer.returns is not None and (reason := unusable(offer.returns)):
            what = f"what {_asked(task)} returns cannot be judged by its schema: {reason}"
            out.add("schema-unusable", f"{place}.worker", what, "Mend the schema of the worker.")
        for name, at in checks:
            if name not in offer.checks:
                what = f"worker {shown(task['worker'])} has no check {shown(name)}"
                known = f"It has: {listed(offer.checks)}." if offer.checks else _NO_CHECKS
                out.add("check-unknown", at, what, out.guess(name, offer.checks) or known)
    check_duration(task.get("timeout"), f"{place}.timeout", out, positive=True)
    retry = task.get("retry")
    if isinstance(retry, dict):
        for word in ("backoff", "max_backoff"):
            check_duration(retry.get(word), f"{place}.retry.{word}", out)
    _check_uses(here.scope, task, place, out)


def _add_unknown_worker(here: Here, name: str, place: str) -> None:
    """Report a worker that is not in the catalog; a run without callers says why it has none."""
    out, workers = here.out, here.scope.catalog.workers if here.scope.catalog else {}
    message = f"no worker {shown(name)} is registered"
    if name == CALLER:
        fix = f"{NO_CALLERS_FIX[0].upper()}{NO_CALLERS_FIX[1:]}."
        out.add("worker-unknown", place, f"{message}: {NO_CALLERS}", fix)
        return
    known = f"Registered: {listed(workers)}." if workers else "None are."
    out.add("worker-unknown", place, message, f"{out.guess(name, workers)} {known}".strip())


def _offer(here: Here, task: Doc, place: str) -> Offer | None:
    """Return the offer a task asks for; report an unknown name."""
    catalog, name, action = here.scope.catalog, task.get("worker"), task.get("action", "")
    if catalog is None or name is None or references.MARK in name or references.MARK in action:
        return None
    out = here.out
    spec = catalog.workers.get(name)
    if spec is None:
        _add_unknown_worker(here, name, f"{place}.worker")
        return None
    offer = spec.offer(action)
    if offer is None:
        known = f"It offers: {listed(spec.offers)}." if spec.offers else "It offers nothing."
        what = f"does not offer {shown(action)}" if action else "is not told which action"
        fix = f"{out.guess(action, spec.offers)} {known}".strip()
        out.add("action-unknown", f"{place}.action", f"worker {shown(name)} {what}", fix)
    elif offer.missing:
        why, _, fix = offer.missing.partition(" Fix: ")
        out.add("worker-unavailable", f"{place}.worker", f"worker {shown(name)}: {why}", fix)
    return offer


def _asked(task: Doc) -> str:
    asked = f"{task['worker']}.{task['action']}" if task.get("action") else task["worker"]
    return str(asked)[:80]


def _check_parameters(
    task: Doc, schema: Doc, value: Json, place: str, out: Findings, *, holes_: bool
) -> None:
    for problem in out.problems(value, schema, f"{place}.parameters", holes=holes_):
        rule = _RULE_OF.get(problem.kind, "parameter-wrong")
        name = problem.path.removeprefix(f"{place}.")
        what = problem.message if problem.kind == "unknown" else f"{name} {problem.message}"
        out.add(rule, problem.path, f"{what} (for {_asked(task)})", problem.fix)


def _check_ref(here: Here, task: Doc, ref: references.Ref) -> None:
    out, names = here.out, here.scope.names
    if ref.problem:
        message = f"{ref.text[:80]} is not a reference: {ref.problem}"
        out.add("reference-wrong", ref.place, message)
        return
    if ref.kind == "params":
        known = names.params if names.values is None else names.values
        if ref.name not in known and ref.name not in names.params:
            fix = out.guess(ref.name, known)
            fix = fix or (f"Declared: {listed(known)}." if known else 'Declare it in "params".')
            message = f"{ref.text}: the plan has no parameter {shown(ref.name)}"
            out.add("reference-unresolved", ref.place, message, fix)
            return
    elif ref.kind == "run":
        if not check_run_ref(ref, names.taken_back, here.scope.run_refs, out):
            return
    elif not _check_used(here, task, ref.name, ref.place, ref.text):
        return
    elif ref.name in here.tolerant:
        what = f"the step starts even if {shown(ref.name)} failed, and then there is no result"
        fix = 'Take out "if": "finished".'
        out.add("reference-uncertain", ref.place, f"{ref.text}: {what}", fix)
    if reference_checks.is_secret(ref, names):
        _check_secret(here, task, ref)
    reference_checks.check_ref(ref, names, ref.place, out)


def check_run_ref(
    ref: references.Ref, taken_back: TakenBack | None, level: Level, out: Findings
) -> bool:
    """Report a reference to the run being rolled back unless it names a step of that run.

    `level` is the level of the finding outside a rollback plan. Return whether the step exists.
    """
    if taken_back is None:
        message = f"{ref.text} has a value only in a rollback plan"
        fix = 'Name this plan in "rollback_plan" of the plan that it takes back.'
        out.add("reference-rollback", ref.place, message, fix, level=level)
        return False
    if ref.name not in taken_back.steps:
        message = f"{ref.text}: there is no step {shown(ref.name)} in the plan that is taken back"
        fix = out.guess(ref.name, taken_back.steps)
        out.add("reference-unresolved", ref.place, message, fix)
    return ref.name in taken_back.steps


def _check_secret(here: Here, task: Doc, ref: references.Ref) -> None:
    """Report a secret shown to a person, or put into an argument list."""
    catalog = here.scope.catalog
    spec = catalog.workers.get(task.get("worker", "")) if catalog else None
    if spec is not None and spec.kind == "human":
        fix = "Let the person get it where it is kept."
        here.out.add("secret-misplaced", ref.place, f"{ref.text} cannot be shown to a person", fix)
    elif spec is not None and spec.kind == CALLER:
        message = f"{ref.text} cannot be handed out to the agent that drives the run"
        fix = "Let a command or function that declares the secret do this part."
        here.out.add("secret-misplaced", ref.place, message, fix)
    elif spec is not None and spec.kind == "command":
        message = f"{ref.text} may stand in the arguments of {shown(spec.name)}, which all can see"
        fix = 'Name its variable in the worker\'s "secrets", and let the command read that.'
        here.out.add("secret-exposed", ref.place, message, fix)


def _check_used(here: Here, task: Doc, name: str, place: str, text: str) -> bool:
    """Return whether the result of a step can be used here; report the reason if not."""
    scope, out = here.scope, here.out
    if name == here.id:
        # The undo of a step runs after it, and may need its result.
        if task is here.step:
            message = f"{text}: step {shown(name)} cannot use its own result"
            out.add("reference-unresolved", place, message)
        return task is not here.step
    status = scope.status(name)
    if status is None:
        message = f"{text}: there is no step {shown(name)} in the plan"
        out.add("reference-unresolved", place, message, out.guess(name, scope.ids))
        return False
    if status in LOST:
        message = f"{text}: step {shown(name)} is {status} and has no result"
        out.add("reference-unresolved", place, message)
        return False
    return True


def _check_alternatives(here: Here, place: str) -> None:
    scope, out, step = here.scope, here.out, here.step
    if scope.catalog is None or not step.get("alternatives"):
        return
    workers, action = scope.catalog.workers, step.get("action", "")
    own = scope.catalog.offer(step.get("worker", ""), action)
    criteria = {text.strip() for text in texts(step.get("success_criteria"))}
    needed = sorted(criteria & set(own.checks)) if own else []
    for i, name in enumerate(step["alternatives"]):
        at = f"{place}.alternatives[{i}]"
        if name not in workers:
            _add_unknown_worker(here, name, at)
            continue
        offer = scope.catalog.offer(name, action)
        missing = [check for check in needed if offer and check not in offer.checks]
        if offer is None:
            message = f"worker {shown(name)} does not offer {shown(action)}"
            out.add("alternative-unfit", at, message)
        elif missing:
            message = f"worker {shown(name)} has no check {shown(missing[0])}"
            out.add("alternative-unfit", at, message)


def _check_uses(scope: Scope, task: Doc, place: str, out: Findings) -> None:
    if scope.resources is None or task.get("uses") is None:
        return
    for name, amount in amounts(task["uses"]).items():
        if references.MARK in name:
            continue
        capacity = scope.resources.get(name)
        if capacity is None:
            example = f'Add it to the plan: "resources": {{"{name[:40]}": 1}}.'
            fix = out.guess(name, scope.resources) or example
            message = f"resource {shown(name)} is not declared"
            out.add("resource-unknown", f"{place}.uses", message, fix)
        elif amount > capacity:
            message = f"it uses {amount} of {shown(name)}, and there are {capacity}"
            out.add("resource-exceeded", f"{place}.uses", message)


def _check_misplaced(task: Doc, place: str, out: Findings) -> None:
    for key, value in task.items():
        if key in ("parameters", "undo"):
            continue
        if isinstance(value, (dict, list)) or (isinstance(value, str) and references.MARK in value):
            check_misplaced(value, f"{place}.{key}", out)


def _check_times(step: Doc, place: str, out: Findings) -> None:
    check_duration(step.get("est"), f"{place}.est", out)
    for key, parse in (("not_before", calendar.parse), ("window", calendar.parse_window)):
        value = step.get(key)
        if value is None:
            continue
        try:
            warning = calendar.fixed_offset(parse(value))
        except ValueError as error:
            out.add("time-wrong", f"{place}.{key}", str(error))
        else:
            if warning:
                out.add("zone-fixed", f"{place}.{key}", warning)
