"""Lint of a plan document: whether it can run, with all findings at once.

`lint` checks a document, `proposal` the steps a planner wants to add to a run. Both use the same
checks of single steps (`check_step`) and add the checks across steps: duplicate ids, cycles,
declarations. The order is always the same:

1. Form: the document against its schema. A malformed field is reported once and removed before the
   later checks, so they neither fail on it nor report it again.
2. Meaning: each step against its scope (ids, parameters, catalogue, resources).
3. Graph: the steps against each other.
4. The whole: facts, files, estimates; and, if advice is wanted, what is merely unwise.

Everything is linear in the size of the document; `proposal` reads only the steps of the run that
the new steps name. Findings are bounded, and so is the guessing of misspelt words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from leadhand.core import calendar, durations
from leadhand.core.lint.advice import check_contract, check_coupling, check_estimates
from leadhand.core.lint.context import LintContext
from leadhand.core.lint.document_form import (
    by_id,
    check_cycles,
    clean,
    join,
    returns,
    well_formed,
    wrong_fields,
)
from leadhand.core.lint.facts import check_facts
from leadhand.core.lint.findings import Finding, Findings, name_steps
from leadhand.core.lint.reference_checks import KnownNames, TakenBack
from leadhand.core.lint.rules import Level
from leadhand.core.lint.step import (
    KnownActions,
    Scope,
    check_criteria,
    check_duration,
    check_misplaced,
    check_run_ref,
    check_step,
)
from leadhand.core.plan import expressions, graph, references
from leadhand.core.plan.model import GOAL_PLANNER, failure_action_of
from leadhand.core.plan.parameters import bind, check_declared
from leadhand.core.plan.schema import PLAN_SCHEMA, STEPS_MAX
from leadhand.core.promises import CLAIMED, widenings
from leadhand.core.wording import listed, shown, type_with_article

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.catalog import Catalog
    from leadhand.core.lint.findings import Findings
    from leadhand.core.plan.model import Doc, Json


# Checks of the whole plan: facts, files, estimates; and, on request, advice.
#
# Before each run only errors matter, so only they are searched for there; a plan that declares no
# facts, files, budget or deadline then costs next to nothing. Advice reads every step once more.


def check_whole(whole: LintContext, out: Findings, *, advice: bool) -> None:
    """Report findings about the plan as a whole."""
    _check_promises(whole, out)
    check_facts(whole, out, advice=advice)
    check_coupling(whole, out, advice=advice)
    check_estimates(whole, out, advice=advice)
    if advice:
        check_contract(whole, out)


def _check_promises(whole: LintContext, out: Findings) -> None:
    """Report claims of steps beyond their workers: they count only once a person approved them."""
    if whole.catalog is None:
        return
    fix = "Declare it with the worker; else it counts only once a person has approved it as shown."
    if not whole.persons:
        fix = (
            'Declare it with the worker: "planner" says who wrote this plan, and no approval helps.'
        )
    for ident, claims in widenings(whole.steps.values(), whole.catalog).items():
        for field, several in claims.items():
            message = f"step {shown(ident)}: {CLAIMED[field].format(', '.join(several))}"
            out.add("promise-widened", whole.place(ident, field), message, fix)


ROLLBACKS_MAX = 3
"""The maximum depth of rollback plans within rollback plans."""

_HEAD_SCHEMA: Doc = {
    **PLAN_SCHEMA["$defs"]["plan"],
    "$defs": PLAN_SCHEMA["$defs"],
    "properties": {
        **PLAN_SCHEMA["$defs"]["plan"]["properties"],
        # Steps and the inner plan are checked one by one: each problem then names its step.
        "steps": {"type": "array"},
        "rollback_plan": {"type": ["string", "object"]},
    },
}


def lint(
    doc: Json,
    catalog: Catalog | None,
    *,
    params: Mapping[str, Json] | None = None,
    resources: Mapping[str, int] | None = None,
    library: Mapping[str, Doc] | None = None,
    planners: Planners | None = None,
    run_refs: Level = "error",
    advice: bool = True,
) -> list[Finding]:
    """Return all findings about a plan document.

    - `catalog`: the known workers; None skips all checks of workers.
    - `params`: values for the plan's parameters, checked too if given.
    - `resources`: the capacities the host declares.
    - `library`: the saved plans by name, for `rollback_plan`.
    - `planners`: tells why a planner named by the plan cannot be used.
    - `run_refs`: the level of a reference to the run being rolled back. An error, unless the plan
      is itself a rollback plan.
    - `advice`: False finds every error and little else, as needed before each run.
    """
    out = Findings()
    around = _Around(catalog, resources or {}, advice, library, planners, run_refs)
    _lint(doc, around, params, "", out)
    return name_steps(out.done(), doc)


Planners = Callable[[str], tuple[str, str, Level] | None]
"""Maps a planner's name to (reason, fix, level) if it cannot be used; None if it can."""


class _Around(NamedTuple):
    """The environment a plan is checked against."""

    catalog: Catalog | None
    resources: Mapping[str, int]
    advice: bool
    library: Mapping[str, Doc] | None = None
    planners: Planners | None = None
    run_refs: Level = "error"
    taken_back: TakenBack | None = None
    depth: int = 0


def _head(doc: Doc) -> Doc:
    """Return the plan without its steps and its inner plan, each replaced by an empty one."""
    large = {"steps": list, "rollback_plan": dict}
    return {
        key: kind() if (kind := large.get(key)) and isinstance(value, kind) else value
        for key, value in doc.items()
    }


def _lint(
    doc: Json, around: _Around, params: Mapping[str, Json] | None, prefix: str, out: Findings
) -> None:
    if not isinstance(doc, dict):
        out.add(
            "field-wrong", prefix, f"a plan is an object with steps, not {type_with_article(doc)}"
        )
        return
    catalog = around.catalog
    plan = clean(doc, wrong_fields(_head(doc), _HEAD_SCHEMA, out), prefix, out)
    given = plan.get("steps")
    if given == []:
        out.add("plan-empty", join(prefix, "steps"), "the plan has no steps", "Add one.")
    elif given is not None and len(given) > STEPS_MAX:
        message = f"the plan has {len(given)} steps, and the limit is {STEPS_MAX}"
        out.add("steps-too-many", join(prefix, "steps"), message, "Split it into several plans.")
        return
    declared = check_declared(plan.get("params", {}), out, f"{prefix}." if prefix else "")
    values = None if params is None else bind(declared, params, out)
    plain = KnownActions(catalog)
    steps = well_formed(given or [], prefix, out, plain)
    known = by_id(steps, prefix, out)
    names = KnownNames(declared, values, returns(catalog, known.get), around.taken_back)
    pools = {**around.resources, **plan.get("resources", {})}
    scope = Scope(
        catalog,
        names,
        lambda ident: "new" if ident in known else None,
        known,
        pools,
        around.run_refs,
    )
    for i, step in steps:
        if i in plain.formed and plain.good(step, known):
            continue
        if out.full:
            return
        place = join(prefix, f"steps[{i}]")
        check_step(scope, step, place, out)
        if "supersedes" in step:
            old, new = shown(step["supersedes"]), shown(step.get("id"))
            what = f"step {new} supersedes {old}, but nothing is running yet"
            out.add("supersedes-unknown", f"{place}.supersedes", what, "Take it out.")
    whole = LintContext(plan, steps, catalog, pools, prefix)
    if any(step.get("depends_on") or not graph.USERS.isdisjoint(step) for step in known.values()):
        check_cycles(whole.edges, steps, prefix, out)
    _check_plan(plan, steps, catalog, prefix, out)
    _check_planner(plan, steps, around, prefix, out)
    check_whole(whole, out, advice=around.advice)
    taken_back = TakenBack(known, names.returns)
    _check_rollback(plan, around._replace(resources=pools, taken_back=taken_back), prefix, out)


def _check_rollback(plan: Doc, inside: _Around, prefix: str, out: Findings) -> None:
    """Check the rollback plan in the environment `inside`."""
    inner, place = plan.get("rollback_plan"), join(prefix, "rollback_plan")
    if isinstance(inner, str) and inside.library is not None:
        kept = inside.library.get(inner.partition("@")[0])
        if kept is None:
            message = f"the library has no plan {shown(inner)} to roll back with"
            fix = f"Save one: leadhand library save {inner[:60]} PLAN."
            out.add("rollback-unknown", place, message, fix)
        elif "@" not in inner:
            parameters = [step.get("parameters") for step in kept.get("steps", ())]
            for ref in references.find(parameters, place):
                if ref.kind == "run":
                    check_run_ref(ref._replace(place=place), inside.taken_back, "error", out)
    elif isinstance(inner, dict):
        if inside.depth >= ROLLBACKS_MAX:
            out.add("field-wrong", place, "plans to roll back with are nested too deeply")
        else:
            _lint(inner, inside._replace(depth=inside.depth + 1), None, place, out)


_NO_PLANNER = "it has no effect in a plan that names no planner"


def _check_planner(
    plan: Doc, steps: list[tuple[int, Doc]], around: _Around, prefix: str, out: Findings
) -> None:
    """Report a planner that cannot revise the plan; without one, what has no effect."""
    name, place = plan.get("planner"), join(prefix, "planner")
    if name is not None:
        wrong = around.planners(name) if around.planners is not None else None
        goal = plan.get("goal")
        if wrong is not None:
            out.add("planner-unknown", place, *wrong)
        elif name == GOAL_PLANNER and not (isinstance(goal, dict) and goal.get("want")):
            message = "the goal planner works from facts, and the goal of this plan names none"
            fix = 'Say what is wanted: "goal": {"text": …, "want": ["summary"]}.'
            out.add("planner-unfit", place, message, fix)
        return
    if not around.advice:
        return
    if "mode" in plan:
        out.add("field-later", join(prefix, "mode"), _NO_PLANNER)
    if plan.get("final") is False:
        message = f"{_NO_PLANNER}: no planner adds to a plan file, and its run fails at the end"
        out.add("field-later", join(prefix, "final"), message, "Take it out, or name a planner.")
    for i, step in steps:
        if failure_action_of(step.get("failure_action")) == "replan":
            own = shown(step.get("id"))
            message = f"step {own} asks for a replan, and the plan names no planner: you are asked"
            at = join(prefix, f"steps[{i}].failure_action")
            out.add("replan-absent", at, message, 'Name one, as in "planner": "goal".')


def _check_plan(
    plan: Doc, steps: list[tuple[int, Doc]], catalog: Catalog | None, prefix: str, out: Findings
) -> None:
    """Report findings about the plan's own fields."""
    for key, value in plan.items():
        if key not in ("steps", "rollback_plan", "outlook", "$schema"):
            check_misplaced(value, join(prefix, key), out)
    check_duration(plan.get("estimated_duration"), join(prefix, "estimated_duration"), out)
    _check_deadline(plan.get("deadline"), join(prefix, "deadline"), out)
    goal = plan.get("goal")
    if isinstance(goal, dict):
        place = join(prefix, "goal")
        _check_deadline(goal.get("deadline"), f"{place}.deadline", out)
        check_criteria(goal.get("acceptance"), f"{place}.acceptance", out, expressions.GOAL_NAMES)
    for name in plan.get("limits", {}).get("workers", {}):
        if catalog is not None and name not in catalog.workers:
            fix = out.guess(name, catalog.workers) or f"Registered: {listed(catalog.workers)}."
            place = join(prefix, f"limits.workers.{name[:60]}")
            out.add(
                "worker-unknown",
                place,
                f"no worker {shown(name)} is registered",
                fix,
                level="warning",
            )
    if "rollback_plan" in plan or any("undo" in step for _, step in steps):
        return
    for i, step in steps:
        if "failure_action" in step and failure_action_of(step["failure_action"]) == "rollback":
            place = join(prefix, f"steps[{i}].failure_action")
            own = shown(step.get("id"))
            message = f"step {own} asks for a rollback, and the plan has nothing to do it with"
            out.add("rollback-absent", place, message, 'Add "rollback_plan", or "undo" to steps.')


def _check_deadline(value: Json, place: str, out: Findings) -> None:
    if value is None:
        return
    try:
        if short := durations.too_short(durations.seconds(value)):
            out.add("duration-wrong", place, short, "Leave it out if there is none.")
        return
    except ValueError as error:
        wrong = str(error)
    try:
        warning = calendar.fixed_offset(calendar.parse(value))
    except ValueError as error:
        # A clock or a date in the text tells that an instant was meant, not a duration.
        meant = str(error) if isinstance(value, str) and re.search(r"\d[:-]\d", value) else wrong
        out.add("time-wrong", place, meant)
    else:
        if warning:
            out.add("zone-fixed", place, warning)
