"""A plan with its workers bound to others."""

import pytest

from leadhand.core.plan.parameters import bind_texts
from leadhand.core.plan.rename_workers import rename_workers, workers_of

PLAN = {
    "limits": {"concurrency": 2, "workers": {"a": 1}},
    "steps": [
        {"id": "x", "worker": "a", "alternatives": ["b", "c"], "undo": {"worker": "d"}},
        {"id": "a", "worker": "e"},
    ],
    "rollback_plan": {"steps": [{"id": "y", "worker": "f"}]},
}


def test_workers_are_bound_everywhere_they_are_named():
    """In steps, alternatives, undo, limits and an inner plan; ids are no workers."""
    assert workers_of(PLAN) == {"a", "b", "c", "d", "e", "f"}
    bound = rename_workers(PLAN, {"a": "A", "c": "C", "d": "D", "f": "F"})
    assert bound == {
        "limits": {"concurrency": 2, "workers": {"A": 1}},
        "steps": [
            {"id": "x", "worker": "A", "alternatives": ["b", "C"], "undo": {"worker": "D"}},
            {"id": "a", "worker": "e"},
        ],
        "rollback_plan": {"steps": [{"id": "y", "worker": "F"}]},
    }
    assert rename_workers(PLAN, {}) == PLAN


@pytest.mark.parametrize("doc", [{}, {"steps": 3}, {"steps": [1, {"worker": 2, "undo": 3}]}])
def test_what_is_not_well_formed_is_left_for_lint(doc):
    """It reports it with its place."""
    assert rename_workers(doc, {"a": "b"}) == doc
    assert workers_of(doc) == set()


def test_a_texts_value_comes_before_one_that_is_known():
    """And what a plan does not declare is for another plan."""
    declared = {"n": {"type": "integer"}, "m": {"type": "integer"}}
    values, wrong = bind_texts(declared, {"n": "1"}, {"n": 2, "m": 3, "other": 4})
    assert (values, wrong) == ({"n": 1, "m": 3}, [])
    _, wrong = bind_texts(declared, {"n": "1"}, {"m": "three"})
    assert [each.rule for each in wrong] == ["param-wrong"]
