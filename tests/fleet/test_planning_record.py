"""The record of planning: what it counts, and what lint and prompt make of it."""

from collections import Counter

import pytest

from leadhand.core.state.model import State, StepState
from leadhand.fleet.planning.lint import Ground, PlanRules, warn_reply
from leadhand.fleet.planning.progress import EpicProgress
from leadhand.fleet.planning.prompt import PAST
from leadhand.fleet.planning.record import (
    FinishedTask,
    PlannedEpic,
    planned_epic,
    planning_record,
    too_large,
)
from leadhand.fleet.planning.reply import SCHEMA, read
from tests.fleet.planned import task, wave


def tasks(paths, first, later, folder="src/api"):
    """Tasks that landed at the first attempt, and later."""
    writes = tuple(f"{folder}/{number}.py" for number in range(paths))
    return [FinishedTask(paths, 1, landed=True, writes=writes)] * first + [
        FinishedTask(paths, 3, landed=True, writes=writes)
    ] * later


def record(*rows):
    return planning_record([PlannedEpic([each for row in rows for each in row], Counter())])


def test_the_log_of_an_epic_tells_splits_questions_conflicts_and_answers():
    """From the steps of the run and from the notes that stand in its log."""
    state = State()
    asked = {"class": "needs_info", "message": "which colour?", "details": {"by": "coder"}}
    clash = {"class": "criteria_unmet", "message": "ejected", "details": {"conflict": {"a": 1}}}
    for name, failures in {"a": [asked], "b": [clash, clash], "c": []}.items():
        step = StepState({"id": name, "writes": ["x/y.py"]}, 0, "coder", status="succeeded")
        step.failures, step.attempts = tuple(failures), len(failures) + 1
        state.steps[name] = step
    rungs = {"a": {"answered": 1}, "b": {"split": 1, "asked": 1}, "c": {"drift": 2, "replan": 1}}
    state.planner.notes = {"rungs": rungs, "proposals": 5, "usable": 3}
    found = planning_record([planned_epic(state), planned_epic(State())])
    assert found.counts() == {
        "tasks": 3, "landed": 3, "first_pass": 1, "conflicts": 2, "handbacks": 1, "split": 1,
        "replanned": 1, "overtaken": 2, "people": 1, "proposals": 5, "refused": 2,
    }  # fmt: skip
    assert found.counts().keys() == PAST.keys(), "each has words in the prompt and on the page"
    (area,) = found.areas
    assert (area.area, area.tasks, area.conflicts, area.sizes) == ("x", 3, 2, {"1 path": (1, 3)})
    assert planning_record([]).counts() == {}


@pytest.mark.parametrize(
    ("known", "says"),
    [
        ((tasks(4, 1, 5), tasks(1, 6, 0)), "1 of 6 tasks with 4-7 paths in src/api landed at the"),
        ((tasks(4, 1, 5, "lib"), tasks(1, 6, 0, "lib")), "1 of 6 tasks with 4-7 paths landed"),
        ((tasks(4, 1, 3), tasks(1, 6, 0)), ""),
        ((tasks(4, 1, 5), tasks(1, 2, 4)), ""),
        ((tasks(4, 1, 5), tasks(1, 3, 0)), ""),
        ((tasks(4, 4, 2), tasks(1, 6, 0)), ""),
        ((tasks(4, 1, 5),), ""),
        ((tasks(4, 5, 1), tasks(4, 1, 9, "lib"), tasks(1, 9, 0, "lib")), ""),
    ],
    ids=["area", "fleet", "few", "no better", "few smaller", "good", "no smaller", "good here"],
)
def test_a_size_is_too_large_where_smaller_tasks_did_clearly_better(known, says):
    """With at least five tasks of both sizes; the folder counts before the fleet."""
    found = too_large(record(*known), [f"src/api/{number}.py" for number in range(4)])
    assert found.startswith(says)
    assert bool(found) == bool(says)


def test_lint_tells_once_of_a_task_that_is_too_large_by_history():
    """In its first findings; a task of a size that did well is not named."""
    ground = Ground(PlanRules(), EpicProgress(), {}, record=record(tasks(4, 0, 6), tasks(1, 6, 0)))
    large = task("large", *(f"src/api/{number}.py" for number in range(4)))
    (found,) = warn_reply(read(wave(large, task("small"))), ground)
    assert found.startswith("task 'large' is probably too large: 0 of 6 tasks with 4-7 paths")
    assert "against 6 of 6 with 1 path" in found


def test_models_must_say_why_each_task_is_one():
    assert "why" in SCHEMA["properties"]["tasks"]["items"]["required"]
