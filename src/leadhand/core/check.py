"""Whether a plan can be run, and everything that stands in its way, at once.

`lint` checks a document, `proposal` what a planner wants to add to a run. Both end in the same
checks of single steps (`check_step`); what they add is what only the whole can show: duplicate
ids, cycles, what is declared where. The order is always the same:

1. Form: the document against its schema. A field of the wrong form is reported once and
   taken out of what the later checks see, so they neither stumble nor report it again.
2. Meaning: each step against its scope (ids, parameters, catalogue, resources).
3. Graph: the steps against each other.

Everything is linear in the size of what is checked; `proposal` never looks at more of the run
than the new steps name. Findings are bounded, and so is the guessing of misspelt words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from leadhand.core import calendar, durations, expressions, graph
from leadhand.core.check_plain import plain_form, plainly_good
from leadhand.core.check_step import (
    Scope,
    check_criteria,
    check_duration,
    check_misplaced,
    check_step,
)
from leadhand.core.findings import RULES, Either, Finding, Findings, Level
from leadhand.core.holes import Names
from leadhand.core.params import bind, bind_params, bind_texts, check_declared, parse_param
from leadhand.core.plan import failure_action_of
from leadhand.core.schema import PLAN_SCHEMA, STEP_SCHEMA, STEPS_MAX
from leadhand.core.wording import listed, named, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from leadhand.core.catalog import Catalog
    from leadhand.core.plan import Doc, Json
    from leadhand.core.shape import Problem

__all__ = [
    "RULES",
    "Finding",
    "Level",
    "bind_params",
    "bind_texts",
    "lint",
    "parse_param",
    "proposal",
]

ROLLBACKS_MAX = 3
"""How deep plans may hold plans to roll back with."""

_FIELD = re.compile(r"[^.\[]+")
_RULE_OF = {"missing": "field-missing", "unknown": "field-unknown"}
_SETTLED = frozenset({"succeeded", "failed", "skipped", "cancelled", "superseded"})

_HEAD_SCHEMA: Doc = {
    **PLAN_SCHEMA["$defs"]["plan"],
    "$defs": PLAN_SCHEMA["$defs"],
    "properties": {
        **PLAN_SCHEMA["$defs"]["plan"]["properties"],
        # Steps and an inner plan are checked one by one: each problem then knows its step.
        "steps": {"type": "array", "minItems": 1},
        "rollback_plan": {"type": ["string", "object"]},
    },
}


def lint(
    doc: Json,
    catalog: Catalog | None,
    *,
    params: Mapping[str, Json] | None = None,
    resources: Mapping[str, int] | None = None,
) -> list[Finding]:
    """Everything there is to say about a plan document.

    Without a catalogue nothing is said about workers. With `params` the values given for the
    plan's parameters are checked too. `resources` are those the host declares.
    """
    out = Findings()
    _lint(doc, catalog, params, resources or {}, "", out, 0)
    return out.done()


def proposal(
    steps: list[Doc],
    known: Mapping[str, Any] | Callable[[str], Any],
    catalog: Catalog | None,
    params: Mapping[str, Json] | None = None,
    *,
    resources: Mapping[str, int] | None = None,
) -> list[Finding]:
    """Everything that speaks against adding steps to a run.

    `known` gives what the run knows of a step: its status as a text, or something with a
    `status` (and a `doc`, the step as planned); None for an id it does not know.
    """
    out = Findings()
    look = known if callable(known) else known.get
    some = () if callable(known) else known
    clean = _well_formed(steps, "", out)
    new = _by_id(clean, "", out)
    for i, step in clean:
        ident = step.get("id", "")
        if ident and look(ident) is not None:
            message = f"the run already has a step {shown(ident)}"
            fix = 'Take another id; "supersedes" says which step it takes the place of.'
            out.add("id-taken", f"steps[{i}].id", message, fix)
    replaced = {step["supersedes"]: ident for ident, step in new.items() if "supersedes" in step}

    def status(ident: str) -> str | None:
        return "new" if ident in new or _heir(look, ident) in replaced else _status(look(ident))

    def giver(ident: str) -> Doc | None:
        return new.get(ident) or _doc(look(ident))

    names = Names({}, params or {}, _returns(catalog, giver))
    scope = Scope(catalog, names, status, Either(new, some), resources)
    for i, step in clean:
        if out.full:
            break
        check_step(scope, step, f"steps[{i}]", out)
        old = step.get("supersedes")
        if old is not None and _status(look(old)) is None:
            what = f"step {shown(step.get('id'))} supersedes {shown(old)}, which is not in the run"
            out.add("supersedes-unknown", f"steps[{i}].supersedes", what, out.guess(old, some))
    _check_cycles(_reach(new, replaced, look), clean, "", out)
    return out.done()


def _lint(
    doc: Json,
    catalog: Catalog | None,
    params: Mapping[str, Json] | None,
    resources: Mapping[str, int],
    prefix: str,
    out: Findings,
    depth: int,
) -> None:
    if not isinstance(doc, dict):
        out.add("field-wrong", prefix, f"a plan is an object with steps, not {named(doc)}")
        return
    plan = _clean(doc, out.problems(doc, _HEAD_SCHEMA), prefix, out)
    steps = plan.get("steps", [])
    if len(steps) > STEPS_MAX:
        message = f"the plan has {len(steps)} steps, and the limit is {STEPS_MAX}"
        out.add("steps-too-many", _join(prefix, "steps"), message, "Split it into several plans.")
        return
    declared = check_declared(plan.get("params", {}), out, f"{prefix}." if prefix else "")
    values = None if params is None else bind(declared, params, out)
    clean = _well_formed(steps, prefix, out)
    by_id = _by_id(clean, prefix, out)
    names = Names(declared, values, _returns(catalog, by_id.get))
    pools = {**resources, **plan.get("resources", {})}
    scope = Scope(catalog, names, lambda ident: "new" if ident in by_id else None, by_id, pools)
    for i, step in clean:
        if out.full:
            return
        if plain_form(step) and plainly_good(step, catalog, by_id):
            continue
        place = _join(prefix, f"steps[{i}]")
        check_step(scope, step, place, out)
        if "supersedes" in step:
            old, new = shown(step["supersedes"]), shown(step.get("id"))
            what = f"step {new} supersedes {old}, but nothing is running yet"
            out.add("supersedes-unknown", f"{place}.supersedes", what, "Take it out.")
    if any(not graph.WAITERS.isdisjoint(step) for step in by_id.values()):
        _check_cycles(graph.edges(by_id.values()), clean, prefix, out)
    _check_plan(plan, clean, catalog, prefix, out)
    inner = plan.get("rollback_plan")
    if isinstance(inner, dict):
        place = _join(prefix, "rollback_plan")
        if depth >= ROLLBACKS_MAX:
            out.add("field-wrong", place, "plans to roll back with are nested too deeply")
        else:
            _lint(inner, catalog, None, pools, place, out, depth + 1)


def _check_plan(
    plan: Doc, steps: list[tuple[int, Doc]], catalog: Catalog | None, prefix: str, out: Findings
) -> None:
    """What belongs to the plan and to none of its steps."""
    for key, value in plan.items():
        if key not in ("steps", "rollback_plan", "outlook", "$schema"):
            check_misplaced(value, _join(prefix, key), out)
    check_duration(plan.get("estimated_duration"), _join(prefix, "estimated_duration"), out)
    _check_deadline(plan.get("deadline"), _join(prefix, "deadline"), out)
    goal = plan.get("goal")
    if isinstance(goal, dict):
        place = _join(prefix, "goal")
        _check_deadline(goal.get("deadline"), f"{place}.deadline", out)
        check_criteria(goal.get("acceptance"), f"{place}.acceptance", out, expressions.GOAL_NAMES)
    for name in plan.get("limits", {}).get("workers", {}):
        if catalog is not None and name not in catalog.workers:
            fix = out.guess(name, catalog.workers) or f"Registered: {listed(catalog.workers)}."
            place = _join(prefix, f"limits.workers.{name[:60]}")
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
        if failure_action_of(step.get("failure_action")) == "rollback":
            place = _join(prefix, f"steps[{i}].failure_action")
            own = shown(step.get("id"))
            message = f"step {own} asks for a rollback, and the plan has nothing to do it with"
            out.add(
                "rollback-absent",
                place,
                message,
                'Add "rollback_plan", or "undo" to steps.',
                level="warning",
            )


def _check_deadline(value: Json, place: str, out: Findings) -> None:
    if value is None:
        return
    try:
        durations.seconds(value)
        return
    except ValueError as error:
        wrong = str(error)
    try:
        warning = calendar.fixed_offset(calendar.parse(value))
    except ValueError as error:
        # Which of the two was meant shows in whether it has a clock or a date in it.
        meant = str(error) if isinstance(value, str) and re.search(r"\d[:-]\d", value) else wrong
        out.add("time-wrong", place, meant)
    else:
        if warning:
            out.add("zone-fixed", place, warning, level="warning")


def _well_formed(steps: list[Any], prefix: str, out: Findings) -> list[tuple[int, Doc]]:
    """The steps that are objects, each without its fields of the wrong form."""
    found = []
    for i, step in enumerate(steps):
        if out.full:
            break
        if plain_form(step):
            found.append((i, step))
            continue
        place = _join(prefix, f"steps[{i}]")
        wrong = out.problems(step, STEP_SCHEMA)
        if isinstance(step, dict):
            found.append((i, _clean(step, wrong, place, out) if wrong else step))
        else:
            out.add("field-wrong", place, f"a step is an object, not {named(step)}")
    return found


def _clean(doc: Doc, wrong: list[Problem], place: str, out: Findings) -> Doc:
    """The document without what is wrong with it, which is reported."""
    bad = set()
    for problem in wrong:
        field = _FIELD.match(problem.path)
        here = _join(place, problem.path)
        rule = _RULE_OF.get(problem.kind, "field-wrong")
        if field is not None:
            bad.add(field.group())
            if problem.path == "risk_level" or problem.path.endswith(".risk_level"):
                rule = "risk-unknown"
        subject = (
            f"step {shown(doc['id'])}" if isinstance(doc.get("id"), str) else place or "the plan"
        )
        message = (
            f"{problem.path} {problem.message}" if problem.path else f"{subject} {problem.message}"
        )
        if problem.kind == "unknown":
            message = problem.message
        out.add(rule, here, message, problem.fix)
    found = {key: value for key, value in doc.items() if key not in bad}
    if isinstance(doc.get("id"), str):
        found["id"] = doc["id"]  # Whoever names a step by its odd id is not wrong as well.
    if "depends_on" in bad and isinstance(doc["depends_on"], list):
        found["depends_on"] = [entry for entry in doc["depends_on"] if _is_dependency(entry)]
    return found


def _is_dependency(entry: Json) -> bool:
    return isinstance(entry, str) or (
        isinstance(entry, dict) and isinstance(entry.get("step"), str)
    )


def _by_id(steps: list[tuple[int, Doc]], prefix: str, out: Findings) -> dict[str, Doc]:
    found: dict[str, Doc] = {}
    first: dict[str, int] = {}
    for i, step in steps:
        ident = step.get("id")
        if ident is None:
            continue
        if ident in found:
            place = _join(prefix, f"steps[{i}].id")
            message = f"the id {shown(ident)} is taken by steps[{first[ident]}]"
            out.add("id-duplicate", place, message, "Give each step an id of its own.")
        else:
            found[ident] = step
            first[ident] = i
    return found


def _check_cycles(
    edges: Mapping[str, Collection[str]], steps: list[tuple[int, Doc]], prefix: str, out: Findings
) -> None:
    cycles = graph.cycles(edges)
    index = {step.get("id"): i for i, step in reversed(steps)} if cycles else {}
    for cycle in cycles:
        # A cycle through the run is told from the new step that closes it.
        first = next((name for name in cycle if name in index), cycle[0])
        at = cycle.index(first)
        names = cycle[at:] + cycle[:at]
        some = names if len(names) <= 12 else [*names[:6], "…", *names[-5:]]
        message = f"{' → '.join([*some, first])}: each waits for the next ({len(names)} steps)"
        place = _join(prefix, f"steps[{index.get(first, 0)}].depends_on")
        out.add("cycle", place, message, "Take one of these dependencies out.")


def _reach(
    new: Mapping[str, Doc], replaced: Mapping[str, str], look: Callable[[str], Any]
) -> dict[str, list[str]]:
    """The graph a proposal makes, as far as a cycle can go.

    Steps of the run never wait for new ones, except through `supersedes`: whoever waits for the
    old step then waits for the new one. Only then are steps of the run followed, and only those
    that have not ended.
    """
    found: dict[str, list[str]] = {ident: [] for ident in new}
    stack = list(new.items())
    while stack:
        ident, step = stack.pop()
        names = [_heir(look, name) for name in graph.dependencies(step)]
        found[ident] = waits_for = [replaced.get(name, name) for name in names]
        if not replaced:
            continue
        for name in waits_for:
            entry = None if name in found else look(name)
            doc = _doc(entry)
            if doc is not None and _status(entry) not in _SETTLED:
                found[name] = []
                stack.append((name, doc))
    return found


def _heir(look: Callable[[str], Any], ident: str) -> str:
    """The step that stands for an id now: the run may know that another took its place."""
    doc = _doc(look(ident))
    return ident if doc is None else str(doc.get("id", ident))


def _status(entry: Any) -> str | None:
    if entry is None or isinstance(entry, str):
        return entry
    status = entry.get("status") if isinstance(entry, dict) else getattr(entry, "status", None)
    return str(status) if status is not None else ""


def _doc(entry: Any) -> Doc | None:
    if entry is None or isinstance(entry, str):
        return None
    doc = entry.get("doc", entry) if isinstance(entry, dict) else getattr(entry, "doc", None)
    return doc if isinstance(doc, dict) else None


def _returns(
    catalog: Catalog | None, giver: Callable[[str], Doc | None]
) -> Callable[[str], Doc | None]:
    """What the worker of a step declares to return, where it is certain which worker that is."""

    def returns(ident: str) -> Doc | None:
        step = giver(ident)
        if catalog is None or step is None or step.get("alternatives"):
            return None
        offer = catalog.offer(step.get("worker", ""), step.get("action", ""))
        return offer.returns if offer else None

    return returns


def _join(prefix: str, path: str) -> str:
    return f"{prefix}.{path}" if prefix and path else prefix or path
