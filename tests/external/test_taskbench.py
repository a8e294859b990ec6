"""Lint against plans from outside: what small models wrote, and what people approved.

The thresholds hold for any data of this form: most plans of weak models do not survive a check
of tools, references and types, and plans that people approved do.
"""

from __future__ import annotations

import pytest

from leadhand.core.catalog import Catalog
from leadhand.core.lint.plan import lint
from tests.external import data, howto, taskbench, worfbench
from tests.support.need import need

WEAK_MIN = 0.40
GOLD_MAX = 0.04

TASKBENCH = data.folder("taskbench")
need(TASKBENCH.is_dir(), f"TaskBench in {TASKBENCH}; LEADHAND_TEST_DATA names another folder")


def flagged(catalog: Catalog | None, plans: list[taskbench.Doc]) -> int:
    """How many plans have an error."""
    return sum(
        any(each.level == "error" for each in lint(plan, catalog, advice=False)) for plan in plans
    )


def test_weak_plans_are_flagged():
    """At least two in five of the recorded plans have an error."""
    sets = taskbench.recorded().values()
    plans = sum(len(plans) for _, plans in sets)
    assert plans
    assert sum(flagged(*each) for each in sets) >= WEAK_MIN * plans


@pytest.mark.parametrize("name", sorted(taskbench.gold()))
def test_gold_plans_pass(name):
    """At most one in twenty-five of the plans that people approved has an error."""
    catalog, plans = taskbench.gold()[name]
    assert plans
    assert flagged(catalog, plans) <= GOLD_MAX * len(plans)


@pytest.mark.parametrize("source", [worfbench, howto], ids=["worfbench", "asynchow"])
def test_gold_graphs_pass(source):
    """The same for graphs of sentences, whose workers are unknown."""
    plans = source.gold()
    need(plans, f"{source.__name__} in the data")
    assert flagged(None, plans) <= GOLD_MAX * len(plans)


def test_every_error_says_what_to_look_at():
    """A place and a message for each; no plan makes lint fail."""
    for catalog, plans in taskbench.recorded().values():
        for plan in plans:
            for each in lint(plan, catalog):
                assert each.place, each
                assert each.message, each
                assert not each.place.startswith("steps[") or each.step, each


def test_a_wrong_plan_is_flagged_for_what_is_wrong():
    """The conversion keeps what the author wrote: one plan of our own, every mistake in it."""
    registry = {
        "nodes": [
            {"id": "Look", "input-type": ["image"], "output-type": ["text"]},
            {"id": "Paint", "input-type": ["text"], "output-type": ["image"]},
            {"id": "Anything"},
        ]
    }
    row = {
        "user_request": "Look, then paint",
        "task_steps": ["Step 1: Look", "Step 2: Paint"],
        "task_nodes": [
            {"task": "Look", "arguments": ["a.jpg"]},
            {"task": "Paint", "arguments": [{"name": "text", "value": "<node-0>"}]},
            {"task": "Look", "arguments": ["<node-0>"]},
            {"task": "Paint", "arguments": ["<node-9>"]},
            {"task": "Sing"},
            {"task": "Anything", "arguments": ["<node-0>", "<node-1>"]},
        ],
        "task_links": [
            {"source": "Look", "target": "Paint"},
            {"source": "Dance", "target": "Anything"},
            {"source": "Paint", "target": "none"},
        ],
    }
    found = lint(taskbench.plan(row), taskbench.catalog(registry), advice=False)
    assert [(each.rule, each.step) for each in found] == [
        ("result-unfit", "node-2"),
        ("reference-unresolved", "node-3"),
        ("worker-unknown", "node-4"),
        ("dependency-missing", "node-5"),
    ]
