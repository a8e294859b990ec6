"""The parts on their own: pairs that exclude each other, order, advice, names."""

import pytest
from hypothesis import given

from leadhand.planners.goal.operator_costs import advice
from leadhand.planners.goal.operators import operators_of
from leadhand.planners.goal.search import Pairs
from leadhand.planners.goal.steps import StepIds, waits
from leadhand.planners.goal.task import PlanningTask
from tests.planners.goal.judge import Does, catalog_of
from tests.planners.goal.test_properties import worlds


def reachable(workers, have):
    """Every set of facts that can ever be true at once, by trying all."""
    seen, stack = set(), [frozenset(have)]
    while stack:
        facts = stack.pop()
        if facts in seen:
            continue
        seen.add(facts)
        stack += [
            frozenset((facts - set(each.drops)) | set(each.gives))
            for each in workers
            if set(each.needs) <= facts
        ]
    return seen


@given(worlds())
def test_facts_that_are_said_to_exclude_each_other_do(world):
    """A pair that occurs in a state that can be reached is never called impossible."""
    workers, have, want = world
    operators = list(operators_of(catalog_of(workers)).by_name.values())
    task = PlanningTask(
        operators, dict.fromkeys((each.name for each in operators), 1.0), have, want
    )
    pairs = Pairs(task)
    states = reachable(workers, have)
    for facts in states:
        codes = [task.facts[fact] for fact in facts if fact in task.facts]
        for one in codes:
            for other in codes:
                assert pairs.mates[one] >> other & 1
    names = [each.name for each in operators]
    used = {names[number] for number in pairs.used}
    for each in workers:
        if any(set(each.needs) <= facts for facts in states):
            assert each.name in used


def test_a_plan_keeps_only_the_order_that_matters():
    """Who gives comes first; who drops comes after those who need it."""
    plan = [
        Does("make", (), ("x",)),
        Does("other", (), ("y",)),
        Does("use", ("x",), ("z",)),
        Does("spend", ("x", "y"), ("w",), drops=("x",)),
    ]
    steps = list(operators_of(catalog_of(plan)).by_name.values())
    steps.sort(key=lambda each: [one.name for one in plan].index(each.name))
    assert waits(steps, ()) == [[], [], [0], [0, 1, 2]]
    assert waits(steps, ("x",)) == [[], [], [], [0, 1, 2]]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("use api_b", "api_b"),
        ("Use worker api_b instead.", "api_b"),
        ("try `api_b`, it is up", "api_b"),
        ("switch to api.b.", "api.b"),
        ("do not use api_b", None),
        ("replan: use api_b", None),
        ("used api_b", None),
    ],
)
def test_only_plain_advice_is_advice(text, found):
    """A recommendation names a worker after a plain verb, or says nothing to the planner."""
    assert list(advice([text])) == ([found] if found else [])


def test_ids_are_readable_and_unique():
    """By worker and action, numbered when taken, without what references could stumble over."""
    names = StepIds({"clean"})
    (clean,) = operators_of(catalog_of([Does("clean", (), ("x",))])).by_name.values()
    (odd,) = operators_of(catalog_of([Does("a.data:b.c", (), ("x",))])).by_name.values()
    assert [names.take(clean), names.take(clean)] == ["clean-2", "clean-3"]
    assert names.take(odd) == "a-data-b-c"
