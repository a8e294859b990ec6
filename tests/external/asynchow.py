"""AsyncHow: everyday tasks as graphs of durations, planned from what workers need and give alone.

Nobody tells the planner what can be done side by side. Only structure and durations are used; the
texts of the steps are never read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from leadhand import Goal, GoalPlanner
from tests.external import data, timed


class Task(NamedTuple):
    """One task: how long each part takes, what must end before it, and the least time for all."""

    seconds: dict[str, float]
    before: dict[str, list[str]]
    gold_s: float


def tasks() -> list[Task]:
    """All tasks that are there."""
    files = sorted(data.folder("asynchow").glob("*.json*"))
    return [read(row) for path in files for row in data.load(path)]


def read(row: dict[str, Any]) -> Task:
    """One task, in time that fits into some months."""
    factor = timed.scale(row["dur_s"].values())
    seconds = {f"part-{name}": value * factor for name, value in row["dur_s"].items()}
    before: dict[str, list[str]] = {name: [] for name in seconds}
    for source, target in row["deps"]:
        if f"part-{source}" in before and f"part-{target}" in before:
            before[f"part-{target}"].append(f"part-{source}")
    return Task(seconds, before, row["gold_s"] * factor)


def carried_out(task: Task) -> tuple[float, list[str]]:
    """How long it took, and what is wrong with how it was done."""
    workers = [
        timed.Sleeper(
            name,
            seconds,
            needs=tuple(f"done:{other}" for other in task.before[name]),
            gives=(f"done:{name}",),
        )
        for name, seconds in task.seconds.items()
    ]
    goal = Goal(want=[f"done:{name}" for name in task.seconds])
    done = timed.run(goal, workers, GoalPlanner(), by="worker")
    wrong = timed.broken_rules(done.spans, task.seconds, task.before)
    return done.seconds, [*done.troubles, *wrong, *([] if done.ok else ["it did not succeed"])]


def equal(task: Task, seconds: float) -> bool:
    """Whether it took what it must, to a thousandth of a per cent."""
    return abs(seconds - task.gold_s) <= 1e-5 * task.gold_s + 1e-5
