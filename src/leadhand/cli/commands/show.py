"""`leadhand show`: a plan before it runs, or the current state of a run."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.app.composition import known_catalog, planner_problem, registry_of
from leadhand.app.contexts import in_context
from leadhand.app.step_graph import StepDocument, step_document
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import (
    context_option,
    pairs,
    reading,
    say_not_loaded,
    set_option,
    settings_of,
    stopped_by,
    store_option,
    told_values,
    values_of,
    without_echo,
    workers_option,
)
from leadhand.cli.plan_source import find_plan, in_library, with_lines
from leadhand.cli.rendering.graph import draw
from leadhand.cli.rendering.text import clean, clean_lines, count, gist, table
from leadhand.core.durations import text as duration
from leadhand.errors import PlanInvalid, UsageError
from leadhand.stores.location import there

if TYPE_CHECKING:
    from leadhand.core.catalog import Catalog
    from leadhand.core.plan.model import Doc
    from leadhand.core.policy import Policy
    from leadhand.core.views.failure_origin import FailureOrigin
    from leadhand.settings import Settings


# `leadhand show RUN STEP`: one step, with its parameters, each attempt, and its result.


VALUE_CHARS = 2000


def show_step(console: Console, settings: Settings, run: str, name: str) -> int:
    """Print one step of a run. Raise `UsageError` if the run has no such step."""
    with reading(settings) as reader:
        state = reader.state(reader.resolve(run))
        step = state.steps.get(name)
        if step is None:
            known = ", ".join(list(state.steps)[:12]) or "none yet"
            raise UsageError(f"run {state.run} has no step {name!r}. Its steps: {known}")
        doc = step_document(reader, state, step)
    if console.json:
        console.document(doc)
        return 0
    _print(console, doc)
    return 0


def _print(console: Console, doc: StepDocument) -> None:
    what = f"{doc.worker} {doc.action}".strip()
    console.out(f"{clean(doc.id)}: {clean(what)}, {doc.status}")
    console.out(f"outcome    {clean(doc.outcome)}")
    if doc.reason:
        console.out(f"reason     {clean(doc.reason, 1000)}")
    for row in doc.inputs:
        shown = f"({row.bytes:,} bytes, not shown)" if row.cut else _value(row.value)
        later = " (known only when the step starts)" if row.later else ""
        console.out(f"input      {clean(row.name)} = {shown}{later}")
        if row.expression is not None and row.expression != row.value:
            console.out(f"             from {_value(row.expression)}")
    if doc.inputs and not doc.attempts_made:
        console.out("           (planned; the step has not started)")
    for each in doc.criteria:
        found = f": {clean(each.finding, 500)}" if each.finding else ""
        judged = f"{each.outcome} ({each.judged_by}){found}"
        console.out(f"criterion  {clean(each.criterion, 500)}: {judged}")
    for made in doc.attempts_made:
        failure = made.failure
        why = f": {failure.failure_class}, {failure.message}" if failure else ""
        console.out(f"attempt {made.attempt}  {made.worker}, {made.status}{clean(why, 500)}")
    if doc.data is not None:
        console.out(f"result     {_value(doc.data)}")
    if doc.output:
        console.out("output")
        for line in clean_lines(doc.output).rstrip("\n").split("\n"):
            console.out(f"  {line}")


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return clean(text, VALUE_CHARS)


VALUE_MAX = 40
RESULT_MAX = 2000


@command("show", "leadhand show plan.yaml --graph\nleadhand show 7kq3\nleadhand show 7kq3 deploy")
@click.argument("what", metavar="PLAN|RUN")
@click.argument("step", required=False)
@click.option(
    "--graph",
    "form",
    is_flag=False,
    flag_value="ascii",
    type=click.Choice(["ascii", "mermaid", "dot"]),
    help="Draw the graph of the steps as ascii (the default), mermaid or dot.",
)
@click.option("--timeline", is_flag=True, help="For a run: show when each step ran and waited.")
@workers_option
@set_option
@context_option
@store_option
def show(  # noqa: PLR0913, PLR0917 - options
    console: Console,
    what: str,
    step: str | None,
    form: str | None,
    timeline: bool,  # noqa: FBT001 - an option
    workers: tuple[str, ...],
    sets: tuple[str, ...],
    context: str | None,
    store: str | None,
) -> int:
    """Show a plan or a run: as a list, a graph or a timeline.

    PLAN is a JSON or YAML file, - for standard input, or the name of a plan in the library;
    anything else is the id of a run. A plan is shown as it would run: order, risk, side effects
    and limits. With STEP the command shows that step of the run: its inputs, its attempts and
    its result. Nothing is executed.
    """
    settings = settings_of(store=store, workers=workers, context=context)
    if (
        what == "-"
        or Path(what).exists()
        or os.sep in what
        or what.endswith((".json", ".yaml", ".yml"))
        or in_library(settings, what)
    ):
        return show_plan(console, settings, what, sets, form)
    if not there(settings.store):
        raise UsageError(
            f"{what}: there is no such plan file, and no database at {settings.store} "
            "that could hold a run of this name"
        )
    if step is not None:
        return show_step(console, settings, what, step)
    return _show_run(console, settings, what, form, timeline=timeline)


def show_plan(
    console: Console, settings: Settings, plan: str, sets: tuple[str, ...], form: str | None = None
) -> int:
    """Check a plan and print it as it would run."""
    from leadhand.core.lint.plan import lint

    doc = find_plan(console, settings, plan).doc

    catalog, policy = known_catalog(settings, registry_of(settings)), settings.policy
    place = settings.context
    doc = in_context(settings, doc, catalog).doc
    given = pairs(sets, "--set")
    values, wrong = told_values(doc, given, place)
    known = catalog if catalog.workers else None
    told = lint(
        doc,
        known,
        params=values,
        resources=policy.resources,
        planners=partial(planner_problem, settings=settings, running=False),
        advice=False,
    )
    found = without_echo(wrong, told)
    errors = [each for each in found if each.level == "error"]
    if errors:
        raise PlanInvalid(with_lines(plan, errors))
    for each in with_lines(plan, found):
        console.say(clean(each))
    say_not_loaded(console, settings)
    if form is not None and not console.json:
        for line in draw(doc["steps"], form):
            console.out(line)
        return 0
    return show_checked(console, doc, catalog, policy, values_of(doc, given, place)[0])


def show_checked(
    console: Console, doc: Doc, catalog: Catalog, policy: Policy, values: Doc | None = None
) -> int:
    """Print a plan without errors; `values` holds the known parameters."""
    rows = plan_rows(doc, catalog, policy)
    for row in rows:
        row["parameters"] = fill_parameters(row["parameters"], values or {})
    if console.json:
        console.document(_plan_document(doc, rows))
        return 0
    _print_plan(console, doc, rows)
    return 0


def plan_rows(doc: Doc, catalog: Catalog, policy: Policy) -> list[Doc]:
    """Return each step in topological order, with everything that would apply to it."""
    from leadhand.core.catalog import declared_risk, effective_risk
    from leadhand.core.durations import seconds
    from leadhand.core.plan import graph
    from leadhand.core.promises import is_idempotent

    by_id = {step["id"]: step for step in doc["steps"]}
    rows = []
    for ident in graph.order(graph.edges(doc["steps"])):
        step = by_id[ident]
        offer = catalog.offer(step.get("worker", ""), step.get("action", ""))
        limit = step.get("timeout")
        effects = {*(step.get("effects") or ()), *((offer.effects if offer else None) or ())}
        rows.append(
            {
                "id": ident,
                "worker": step.get("worker", ""),
                "loaded": bool(catalog.workers),
                "action": step.get("action", ""),
                "parameters": step.get("parameters", {}),
                "after": list(graph.dependencies(step)),
                "risk": declared_risk(doc.get("risk_level"), step, catalog),
                "policy_risk": effective_risk(doc.get("risk_level"), step, catalog),
                "effects": sorted(effects),
                "timeout": seconds(limit)
                if limit is not None
                else (offer.timeout_s if offer and offer.timeout_s else policy.timeout_s),
                "attempts": _attempts(step, policy),
                "idempotent": is_idempotent(step, offer),
                "criteria": step.get("success_criteria"),
                "failure_action": step.get("failure_action"),
                "not_before": step.get("not_before"),
                "window": step.get("window"),
            }
        )
    return rows


def fill_parameters(value: Any, values: Doc) -> Any:
    """Return a value with the known parameters put in; references to steps stay as written."""
    from leadhand.core.plan import references

    if isinstance(value, dict):
        return {key: fill_parameters(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [fill_parameters(each, values) for each in value]
    found = references.find(value) if isinstance(value, str) else []
    if not found or any(ref.kind != "params" or ref.name not in values for ref in found):
        return value
    try:
        return references.resolve(value, lambda ref: values[ref.name])
    except references.Unresolved:
        return value


def _attempts(step: Doc, policy: Policy) -> int:
    retry = step.get("retry")
    if isinstance(retry, int) and not isinstance(retry, bool):
        return retry
    if isinstance(retry, dict):
        return int(retry.get("attempts", policy.attempts_max))
    return policy.attempts_max


def _plan_document(doc: Doc, rows: list[Doc]) -> Doc:
    return {
        "plan": doc.get("plan_id", ""),
        "goal": doc.get("goal", ""),
        "final": doc.get("final", True),
        "estimated_duration": doc.get("estimated_duration"),
        "risk": _highest(rows),
        "rollback_plan": doc.get("rollback_plan"),
        "planner": doc.get("planner"),
        "steps": rows,
    }


def _highest(rows: list[Doc]) -> str:
    from leadhand.core.catalog import highest

    return highest(row["risk"] for row in rows)


def _print_plan(console: Console, doc: Doc, rows: list[Doc]) -> None:
    goal = doc.get("goal", "")
    goal = goal.get("text", "") if isinstance(goal, dict) else goal
    console.out(
        clean(f"{doc.get('plan_id') or 'Plan'}: {goal}" if goal else doc.get("plan_id", "Plan"))
    )
    lines = table(
        ("", "STEP", "WORKER", "AFTER", "RISK", "LIMIT", "TRIES"),
        (
            (
                str(number),
                clean(row["id"]),
                clean(f"{row['worker']} {row['action']}".strip())
                + ("" if row["loaded"] else " (not loaded)"),
                clean(", ".join(row["after"]), VALUE_MAX),
                row["risk"],
                duration(row["timeout"]),
                str(row["attempts"]),
            )
            for number, row in enumerate(rows, 1)
        ),
    )
    console.out(f"  {lines[0]}")
    for line, row in zip(lines[1:], rows, strict=True):
        console.out(f"  {line}")
        for more in (_parameters(row["parameters"]), _notes(row), _times(row)):
            if more:
                console.out(f"       {clean(more)}")
    effects = sum(bool(row["effects"]) for row in rows)
    planned = doc.get("estimated_duration")
    end = f", estimated {planned}" if planned is not None else ""
    rollback = doc.get("rollback_plan")
    if rollback:
        name = (
            rollback if isinstance(rollback, str) else rollback.get("plan_id", "given in the plan")
        )
        end += f", rollback: {clean(name)}"
    if doc.get("planner"):
        end += f", may be revised by {clean(doc['planner'])}"
    console.out(
        f"{count(len(rows), 'step')}, {effects} with declared effects, risk {_highest(rows)}{end}"
    )


def _parameters(parameters: Doc) -> str:
    """Return parameters for a cell, each value shortened: --json has all."""
    import json

    def value(each: Any) -> str:
        text = each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)
        return text if len(text) <= VALUE_MAX else text[: VALUE_MAX - 1] + "…"

    return " ".join(f"{name}={value(each)}" for name, each in parameters.items())


def _notes(row: Doc) -> str:
    parts = [f"effects: {', '.join(row['effects'])}"] if row["effects"] else []
    if row["criteria"]:
        criteria = row["criteria"] if isinstance(row["criteria"], list) else [row["criteria"]]
        parts.append(f"must hold: {', '.join(map(str, criteria))}")
    if row["failure_action"]:
        parts.append(f"on failure: {row['failure_action']}")
    if row["idempotent"]:
        parts.append("repeatable")
    return "; ".join(parts)


def _times(row: Doc) -> str:
    parts = [f"not before {row['not_before']}"] if row["not_before"] else []
    window = row["window"]
    if isinstance(window, dict):
        window = f"{window['from']}-{window['to']} {window.get('zone', '')}".rstrip()
    if window:
        parts.append(f"only within {window}")
    return "; ".join(parts)


def _show_run(
    console: Console, settings: Any, what: str, form: str | None, *, timeline: bool
) -> int:
    from leadhand.app.documents import (
        answers_of,
        rollback_status,
        shown_document,
        timeline_document,
    )
    from leadhand.app.host_status import observe_host
    from leadhand.cli.rendering import recovery
    from leadhand.cli.rendering.outcome import now_of, print_head, print_run
    from leadhand.core.review.approval import approvals_in_log
    from leadhand.core.views.failure_origin import origin_of_run, refusals
    from leadhand.engine.results import result_of

    with reading(settings) as reader:
        state = reader.state(reader.resolve(what))
        owner, notes = observe_host(settings, reader, state)
        driver = owner.drives(state)
        back = rollback_status(reader, state)
        stopped = stopped_by(reader)
        if console.json:
            doc = shown_document(reader, state, owner)
            if timeline:
                doc.timeline = timeline_document(reader, state)
            console.document(doc)
        elif form is not None:
            from leadhand.app.step_graph import replacements, run_edges
            from leadhand.cli.rendering.run_rows import status_of

            steps = state.steps.values()
            now = now_of(state, hosted=bool(driver))
            statuses = {step.id: status_of(step, now) for step in steps}
            docs, edges = [step.doc for step in state.steps.values()], run_edges(state)
            for line in draw(docs, form, statuses, edges, replacements(state)):
                console.out(line)
        else:
            if timeline:
                print_head(console, state, hosted=bool(driver), stopped=stopped)
                recovery.print_timeline(console, reader, state)
            else:
                events = reader.events(state.run)
                log = [event for _, event in events]
                given = approvals_in_log((entry.at, event) for entry, event in events)
                rows = [each for each in given if each.by != "policy"]
                hosted = bool(driver)
                print_run(console, state, hosted=hosted, stopped=stopped, approvals=rows)
                _print_fault(console, origin_of_run(log))
                recovery.print_refusals(console, refusals(log))
                _print_result(console, state.run, result_of(reader.store, state))
            _print_rollback(console, state.run, back)
            recovery.print_recoveries(console, answers_of(reader, state))
            for note in notes:
                console.say(note)
            recovery.print_models(console, state)
    return 0


def _print_rollback(console: Console, run: str, status: str) -> None:
    """Print the status of a run's rollback."""
    from leadhand.core.rollback import rollback_id
    from leadhand.core.views.run import ENDED

    if status in ENDED:
        console.out(f"Rolled back in run {rollback_id(run)}: {status}")
    elif status:
        way = console.command(f"rollback {run}")
        console.out(f"Its rollback is not finished ({status}). Continue with: {way}")


def _print_fault(console: Console, found: FailureOrigin) -> None:
    """Print the origin of a failure: planning, or execution."""
    words = {
        "planning": "The planning failed",
        "execution": "The execution failed",
        "limits": "A limit was reached",
    }
    if found.where in words:  # that a person stopped it was already printed
        console.out(f"{words[found.where]}: {gist(found.why)}")


def _print_result(console: Console, run: str, result: Any) -> None:
    """Print the result of a run that succeeded; only the beginning of a long one."""
    import json

    from leadhand.cli.rendering.text import clean_lines

    if result is None:
        return
    text = result if isinstance(result, str) else json.dumps(result, indent=2, ensure_ascii=False)
    lines = clean_lines(text[:RESULT_MAX]).rstrip("\n").split("\n")
    if len(lines) == 1:
        console.out(f"Result: {lines[0]}")
    else:
        console.out("Result:")
        for line in lines:
            console.out(f"  {line}")
    if len(text) > RESULT_MAX:
        console.out(f"  … full result: {console.command(f'show {run} --json')}")
