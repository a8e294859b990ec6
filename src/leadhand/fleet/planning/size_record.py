"""First-pass success by the size of a task: what a planner learns from, counted from the log.

The size of a task is the number of paths it may write, known before anybody starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.fleet.status.ladder import CODER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.state.model import State, StepState


SIZES = ((1, "1 path"), (3, "2-3 paths"), (7, "4-7 paths"), (1 << 30, "8 or more paths"))


class FinishedTask(NamedTuple):
    """A task that is over."""

    paths: int
    attempts: int
    landed: bool


def done_in(state: State) -> list[FinishedTask]:
    """The tasks of a run that are over."""
    return [
        FinishedTask(len(step.doc.get("writes") or ()), _tries(step), step.status == "succeeded")
        for step in state.steps.values()
        if step.worker.partition("@")[0] == CODER
        and (step.status in ("succeeded", "failed") or (step.superseded_by and step.failures))
    ]


def _tries(step: StepState) -> int:
    """Its attempts but those whose host was killed: nobody came to an end, well or badly."""
    cut = [f for f in step.failures if f.get("class") == "lost" and not f.get("details")]
    return step.attempts - len(cut)


def by_size(tasks: Iterable[FinishedTask]) -> list[dict[str, Any]]:
    """The table; sizes nobody tried are left out."""
    rows: dict[str, dict[str, Any]] = {}
    for task in tasks:
        name = next(words for most, words in SIZES if task.paths <= most)
        row = rows.setdefault(name, {"size": name, "tasks": 0, "landed": 0, "first_pass": 0})
        row["tasks"] += 1
        row["landed"] += task.landed
        row["first_pass"] += task.landed and task.attempts == 1
    order = [words for _, words in SIZES]
    return sorted(rows.values(), key=lambda row: order.index(row["size"]))
