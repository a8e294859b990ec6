"""The exact search: a budget that is just enough is enough, and one that is not is proved so."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadhand.core.report import Ask, Finish, GiveUp, Propose
from leadhand.planners.goal.operators import Operator
from leadhand.planners.goal.planner import GoalPlanner
from leadhand.planners.goal.search import landmarks, within
from leadhand.planners.goal.task import PlanningTask
from tests.planners.goal.judge import Does, Run
from tests.planners.goal.test_properties import best, worlds


def task_of(workers, have, want):
    """The planning problem of some workers, each at its cost."""
    operators = [
        Operator(
            name=each.name,
            worker=each.name,
            needs=each.needs,
            gives=each.gives,
            drops=each.drops,
            cost=each.cost,
        )
        for each in workers
    ]
    return PlanningTask(operators, {each.name: each.cost for each in workers}, have, want)


def ended(search):
    """What a search comes to."""
    while True:
        try:
            next(search)
        except StopIteration as done:
            return done.value


@pytest.mark.slow
@pytest.mark.parametrize("drops", [False, True])
def test_the_exact_search_agrees_with_brute_force(drops):
    """At the least cost a plan is found, just below it is proved that there is none."""

    @given(worlds(drops=drops))
    @settings(max_examples=200)
    def compare(world):
        workers, have, want = world
        least = best(workers, have, want)
        task = task_of(workers, have, want)
        if least is None:
            answer = ended(within(task, 1000.0, 20_000))
            assert (answer.plan, answer.proved) == (None, True)
            return
        answer = ended(within(task, least, 20_000))
        assert task.works(answer.plan)
        assert sum(task.operators[each].cost for each in answer.plan) == least
        below = ended(within(task, least - 0.5, 20_000))
        assert (below.plan, below.proved) == (None, True) or least == 0

    compare()


@given(worlds())
def test_the_bound_never_overestimates(world):
    """Else a way that is affordable would be missed."""
    workers, have, want = world
    least = best(workers, have, want)
    task = task_of(workers, have, want)
    bound, _ = landmarks(task, task.start, task.prices)
    assert least is None or bound <= least + 1e-9


@given(worlds(), st.sampled_from([0.0, 1e-12, -1e-12]))
def test_a_budget_that_is_just_enough_is_enough(world, slip):
    """The run reaches the goal with what the best way costs, rounding errors aside."""
    workers, have, want = world
    least = best(workers, have, want)
    if least is None:
        return
    run = Run(workers, want, have, budget=least + slip, one_by_one=True)
    assert isinstance(run.to_the_end(GoalPlanner(), calls_max=60), Finish)
    assert run.spent == least
    if least:
        short = Run(workers, want, have, budget=least - 0.5)
        decision = short.ask(GoalPlanner())
        assert isinstance(decision, (Ask, GiveUp))
        text = decision.question if isinstance(decision, Ask) else decision.reason
        assert "is left" in text


def maze(size):
    """Layers of facts, each by several workers with needs across: many ways, hard to bound."""
    workers = []
    for depth in range(size):
        for i in range(size):
            for n in range(3):
                needs = tuple(sorted({f"f{depth - 1}_{(i + n * k) % size}" for k in range(2)}))
                cost = 1.0 + (7 * i + 5 * n + 3 * depth) % 4
                workers.append(
                    Does(f"w{depth}_{i}_{n}", needs if depth else (), (f"f{depth}_{i}",), cost=cost)
                )
    return workers, [f"f{size - 1}_{i}" for i in range(size)]


def test_where_the_search_ends_early_it_is_not_called_unaffordable():
    """A person is asked, with what is known and what is not."""
    workers, want = maze(6)
    free = Run(workers, want, one_by_one=True)
    assert isinstance(free.to_the_end(GoalPlanner()), Finish)
    decision = Run(workers, want, budget=free.spent - 1).ask(GoalPlanner(nodes_max=2))
    if isinstance(decision, Propose):
        return
    assert isinstance(decision, Ask)
    assert "is not known" in decision.question
