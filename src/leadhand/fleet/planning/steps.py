"""Steps of the plan from an accepted reply, with the counters of the ladder kept. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.core.plan.graph import StepOrder
from leadhand.core.plan.model import Goal
from leadhand.fleet.boundaries import EXCLUSIVE, Sharing, clash
from leadhand.fleet.epics import (
    plan_of,
    refuse_repositories,
    refuse_tiers,
    repository_named,
    step_of,
)
from leadhand.fleet.planning.progress import CHANGELOG, EXAMINER, EpicProgress
from leadhand.fleet.repositories import repository_of
from leadhand.fleet.status.ladder import CODER
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from leadhand.core.report import StepView
    from leadhand.fleet.epics import Epic
    from leadhand.fleet.planning.progress import EpicNotes
    from leadhand.fleet.planning.reply import Planned, Reply


Doc = dict[str, Any]
WHY_CHARS = 500
COUNTED = {"drift": "drift", "question": "answered", "lost": "again"}


class PlannedRepository(NamedTuple):
    """A repository, as far as steps need to know it."""

    main: str
    """The commit that its main is at."""
    sharing: Sharing = EXCLUSIVE
    protected: Sequence[str] = ()


Repositories = Mapping[str, PlannedRepository]
"""The repositories of a fleet, by name; the main one is ""."""


def given_steps(epic: Epic, places: Repositories, tiers: Sequence[str]) -> list[Doc]:
    """Return the tasks of an epic as steps; failures of protected ones go to a person."""
    others = {name: each.sharing for name, each in places.items() if name}
    plan = plan_of(epic, sharing=places[""].sharing, others=others)
    steps = [with_tier_agents(step, tiers) for step in plan["steps"]]
    for step in steps:
        place = places[repository_of(step)]
        step["parameters"]["base"] = place.main
        if clash(step["parameters"]["writes"], place.protected):
            step["failure_action"] = "escalate"
    return steps


def wave_steps(
    reply: Reply,
    standing: EpicProgress,
    notes: EpicNotes,
    places: Repositories,
    priority: int,
    tiers: Sequence[str],
) -> list[Doc]:
    """Return a wave as steps, and bring the notes up to date."""
    matters = {each.step.id: each for each in standing.matters}
    steps = []
    for task in reply.tasks:
        place = places[repository_named(task)]
        step = with_tier_agents(step_of(task, priority, place.sharing), tiers)
        step["parameters"]["base"] = place.main
        if task.why:
            step["description"] = scrub(task.why)[:WHY_CHARS]
        steps.append(step)
    for name, heirs in _replaced(reply.tasks).items():
        matter = matters.get(name)
        failed = matter is not None and matter.kind == "failed"
        kind = COUNTED.get(matter.kind, "") if matter is not None else ""
        notes.count(name, kind or ("split" if len(heirs) > 1 else "replan"))
        _take_place(name, heirs, steps, joined=standing.waits_for(name))
        for heir in heirs:
            notes.roots[heir] = notes.root(name)
            notes.depth[heir] = notes.depth.get(name, 0) + failed
    for each in reply.answers:
        notes.count(each.task, "answered")
        steps.append(told_step(matters[each.task].step, f"Answer: {each.text}", notes, places))
    return steps


def told_step(
    step: StepView, words: str, notes: EpicNotes, places: Repositories, *, anew: bool = False
) -> Doc:
    """Return the same task once more, with new information for its agent."""
    number = notes.count(step.id, "told") + 2
    ident = f"{notes.root(step.id)}-{number}"
    asked = step.error.message if step.error is not None else ""
    question = asked if step.error is not None and step.error.failure_class == "needs_info" else ""
    brief = [str(step.planned["parameters"].get("brief", ""))]
    brief += [f"An agent before you asked: {question}"] if question else []
    brief.append(words)
    notes.roots[ident] = notes.root(step.id)
    notes.depth[ident] = 0 if anew else notes.depth.get(step.id, 0)
    parameters = {**step.planned["parameters"], "brief": "\n\n".join(filter(None, brief))}
    kept = ("worker", "depends_on", "writes", "timeout")
    doc = {key: step.planned[key] for key in kept if key in step.planned}
    parameters["base"] = places[repository_of(step.planned)].main
    return {**doc, "id": ident, "parameters": parameters, "supersedes": step.id}


def _replaced(tasks: Sequence[Planned]) -> dict[str, list[str]]:
    """Return tasks by the task they replace, in an order in which they can be done."""
    new = {task.id for task in tasks}
    order = StepOrder({t.id: tuple(n for n in t.depends_on if n in new) for t in tasks})
    found: dict[str, list[str]] = {}
    for task in sorted(tasks, key=lambda each: order.number[each.id]):
        if task.replaces:
            found.setdefault(task.replaces, []).append(task.id)
    return found


def _take_place(name: str, heirs: list[str], steps: list[Doc], *, joined: bool) -> None:
    """Put the last of `heirs` in the place of `name`; steps that waited for it wait for all."""
    by_id = {step["id"]: step for step in steps}
    last = by_id[heirs[-1]]
    last["supersedes"] = name
    if joined:
        missing = [heir for heir in heirs[:-1] if heir not in last["depends_on"]]
        last["depends_on"] = [*last["depends_on"], *missing]


def with_tier_agents(step: Doc, tiers: Sequence[str]) -> Doc:
    """Return a step with the agents of its tier, if the fleet has that tier."""
    tier = step.get("tier", "")
    if tier not in tiers:
        return step
    rest = {key: value for key, value in step.items() if key != "tier"}
    return {**rest, "worker": f"{CODER}@{tier}"}


def outlook_steps(words: Sequence[str]) -> tuple[Doc, ...]:
    """Return the planner's expectations as steps, for people to read."""
    return tuple(
        {"id": f"later-{number}", "worker": CODER, "description": text[:500]}
        for number, text in enumerate(words[:20], 1)
    )


def changelog_step(path: str, words: str, number: int, main: str) -> Doc:
    """Return the changelog entry as a task on main."""
    goal = (
        f"Add an entry to {path}, where the newest entries stand, in the form that the file has "
        f"(make the file if there is none). The entry says: {words}"
    )
    return {
        "id": f"{CHANGELOG}-{number}",
        "worker": CODER,
        "parameters": {"goal": goal, "writes": [path], "acceptance": [], "base": main},
        "writes": [path],
        "depends_on": [],
    }


def check_step(
    commands: Sequence[Sequence[str]], standing: EpicProgress, others: Sequence[str] = ()
) -> Doc:
    """Return a step that checks the epic's own acceptance on main.

    `others` are further repositories that it has changed: their mains must pass their own gates.
    """
    before = standing.check
    doc: Doc = {
        "id": f"acceptance-{len(standing.checks) + 1}",
        "worker": EXAMINER,
        "parameters": {
            "commands": [list(argv) for argv in commands],
            "landed": len(standing.landed),
            **({"repositories": list(others)} if others else {}),
        },
    }
    if before is not None and before.status == "failed":
        doc["supersedes"] = before.id
    return doc


def wanted_of(
    epic: Epic,
    tiers: Sequence[str],
    sharing: Sharing = EXCLUSIVE,
    others: Mapping[str, Sharing] | None = None,
    *,
    planned: bool,
) -> Goal | Doc:
    """Return what a run begins with: a goal for the planner, or else the given tasks.

    Given tasks succeed only if the epic's own acceptance holds when all of them have landed, and
    the gates of all repositories, where there are several. `others` says what tasks of further
    repositories share, by name.
    """
    refuse_tiers(epic, tiers)
    refuse_repositories(epic, list(others or ()))
    if planned:
        return Goal(text=epic.title, have={"epic": msgspec.to_builtins(epic)}, budget=epic.budget)
    plan = plan_of(epic, sharing=sharing, others=others)
    plan["steps"] = [with_tier_agents(step, tiers) for step in plan["steps"]]
    names = list(dict.fromkeys(filter(None, map(repository_of, plan["steps"]))))
    if epic.acceptance or names:
        step = check_step(epic.acceptance, EpicProgress(), names)
        step["depends_on"] = [each["id"] for each in plan["steps"]]
        plan["steps"].append(step)
    return plan


def ladder(standing: EpicProgress, notes: EpicNotes, tried: Mapping[str, int]) -> list[Doc]:
    """Return the history of each line of tasks that took more than one attempt."""
    rows: dict[str, Doc] = {}
    for step in standing.tasks:
        row = rows.setdefault(notes.root(step.id), {"attempts": 0})
        row["attempts"] += step.attempts
        row["same_conversation"] = row.get("same_conversation", 0) + tried.get(step.id, 0)
    for root, counts in notes.rungs.items():
        rows.setdefault(root, {"attempts": 0}).update(counts)
    return [
        {"task": root, **row} for root, row in rows.items() if len(row) > 2 or row["attempts"] > 1
    ]
