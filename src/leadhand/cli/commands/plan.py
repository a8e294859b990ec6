"""`leadhand plan`: from a goal to a plan that can be read, changed, approved and run."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.app.composition import planner_name, planner_of
from leadhand.app.contexts import goal_registry
from leadhand.app.run_limits import limits_doc, limits_text
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import context_option, json_pairs, settings_of, several, workers_option
from leadhand.cli.rendering.requirements import Taking, taking_document, taking_of, taking_rows
from leadhand.cli.rendering.text import clean, count
from leadhand.core.plan.graph import dependencies
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc


@command("plan", 'leadhand plan "Sum it up" --have topic=prices --want summary -o plan.json')
@click.argument("goal")
@workers_option
@context_option
@click.option(
    "--planner", metavar="M:F", help="The planner: module:function, or goal, the built-in default."
)
@click.option(
    "--have", multiple=True, metavar="K=V", help="A fact that is true already, with its value."
)
@click.option(
    "--want",
    multiple=True,
    metavar="FACT",
    help="A fact that should be true at the end; repeat the option or use commas.",
)
@click.option("--budget", type=float, metavar="N", help="The most that the run may cost.")
@click.option(
    "-o", "--output", metavar="FILE", help="The file to write the plan to (.json or .yaml)."
)
def plan(console: Console, goal: str, **options: Any) -> int:
    """Plan how to reach a goal, without running anything.

    The output lists each step with its reason, and what the plan needs: workers, tools,
    secrets, resources, time and cost. If no plan reaches the goal, the message names what is
    missing and which worker would provide it, and the exit code is 1. `leadhand doctor PLAN`
    checks that everything the plan needs is available.
    """
    from leadhand.app.lead import Lead
    from leadhand.core.plan.model import Goal

    settings = settings_of(
        workers=options["workers"],
        planner=options["planner"],
        context=options["context"],
        executes=console,
    )
    registry = goal_registry(settings)
    if not settings.planner and not options["want"]:
        from leadhand.cli.commands.run import wanted_facts

        raise UsageError(
            "the goal names no facts. Fix: "
            f"{wanted_facts(registry, f'leadhand plan {shlex.quote(clean(goal, 60))}')} "
            "Or give --planner MODULE:FUNCTION."
        )
    file = _writable(options["output"])
    name = planner_name(settings) or "goal"
    planner = planner_of(name, settings)
    known = {name: planner}
    lead = Lead(registry, planner, policy=settings.policy, models=settings.book, planners=known)
    place = settings.context
    have = {**(place.params if place else {}), **json_pairs(options["have"], "--have")}
    wanted = Goal(text=goal, want=several(options["want"]), have=have, budget=options["budget"])
    policy = lead.policy_for(wanted)
    if getattr(planner, "calls", None) is not None or registry.agents:
        console.say(limits_text(policy))
    made = asyncio.run(lead.plan(wanted)).to_doc()
    taking = taking_of(made, registry)
    doc = {"goal": made.pop("goal"), "planner": made.pop("planner", None)}
    doc["base"] = registry.catalog().digest()
    if taking.seconds:
        doc["estimated_duration"] = taking.seconds
    doc |= {"params": made.pop("params", None), **made}
    doc = {key: value for key, value in doc.items() if value is not None}
    if file is not None:
        file.write_text(_written(doc, file), encoding="utf-8")
    if console.json:
        told = {
            "plan": doc,
            "takes": taking_document(taking),
            "limits": limits_doc(policy),
            "file": str(file) if file else None,
        }
        console.document(told)
        return 0
    _print(console, doc, taking)
    if file is not None:
        console.say(f"Written to {file}.")
        name = clean(file)
        console.next(f"leadhand doctor {name}   or   leadhand apply {name}")
    return 0


def _writable(name: str | None) -> Path | None:
    """Return the output file, checked before anything is planned."""
    if name is None:
        return None
    file = Path(name)
    if file.suffix not in (".json", ".yaml", ".yml"):
        raise UsageError(f"{name}: plans end with .json or .yaml. Fix: -o plan.json")
    if not file.parent.is_dir():
        raise UsageError(f"{file.parent}: there is no such folder")
    return file


def _written(doc: Doc, file: Path) -> str:
    if file.suffix == ".json":
        return json.dumps(doc, indent=2, ensure_ascii=False) + "\n"
    import yaml

    return yaml.safe_dump(doc, sort_keys=False, allow_unicode=True, width=100)


def _print(console: Console, doc: Doc, taking: Taking) -> None:
    goal = doc.get("goal", "")
    text = goal.get("text", "") if isinstance(goal, dict) else goal
    console.out(f"{count(len(doc['steps']), 'step')} to: {clean(text) or 'what is wanted'}")
    wide = max(len(clean(step["id"], 40)) for step in doc["steps"])
    for number, step in enumerate(doc["steps"], 1):
        waits = sorted(map(clean, dependencies(step)))
        tail = f"after {', '.join(waits)}" if waits else "at once"
        console.out(f"  {number:>2}  {clean(step['id'], 40):<{wide}}  {tail}")
        if step.get("because"):
            console.out(f"      {clean(step['because'])}")
    if doc.get("planner"):
        console.out(f"  May be revised by {clean(doc['planner'])} when a step fails or surprises.")
    if not doc.get("final", True):
        console.out("  The planner will be asked again after these.")
    console.out("It takes:")
    for name, value in taking_rows(taking):
        console.out(f"  {name:<10} {clean(value)}")
