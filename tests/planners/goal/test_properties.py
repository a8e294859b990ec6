"""Random worlds against brute force: valid, near the best, explained, the same every time."""

import asyncio
import heapq
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadhand.core.report import Ask, Failure, Finish, GiveUp, Propose
from leadhand.planners.goal.planner import GoalPlanner
from tests.planners.goal.judge import Does, Run, succeed

FACTS = [f"f{i}" for i in range(6)] + [f"flag:{i}" for i in range(3)]


@st.composite
def worlds(draw, *, drops=True):
    """Some workers, what is there and what is wanted."""
    facts = st.sampled_from(FACTS)
    workers = []
    for i in range(draw(st.integers(1, 9))):
        gives = tuple(draw(st.lists(facts, min_size=1, max_size=2, unique=True)))
        needs = tuple(sorted(set(draw(st.lists(facts, max_size=3))) - set(gives)))
        lost = draw(st.lists(facts, max_size=2)) if drops else []
        cost = draw(st.sampled_from([1.0, 2.0, 3.0, 5.0]))
        gone = tuple(sorted(set(lost) - set(gives)))
        workers.append(Does(f"w{i}", needs, gives, gone, cost))
    have = dict.fromkeys(draw(st.lists(facts, max_size=3, unique=True)), 1)
    want = draw(st.lists(facts, min_size=1, max_size=3, unique=True))
    return workers, have, want


def best(workers, have, want):
    """The least that any way costs, by trying all; None when there is none."""
    tie = count()
    heap, seen = [(0.0, next(tie), frozenset(have))], set()
    while heap:
        cost, _, facts = heapq.heappop(heap)
        if set(want) <= facts:
            return cost
        if facts in seen:
            continue
        seen.add(facts)
        for each in workers:
            if set(each.needs) <= facts:
                after = (facts - set(each.drops)) | set(each.gives)
                heapq.heappush(heap, (cost + each.cost, next(tie), frozenset(after)))
    return None


@given(worlds(), st.integers(0, 3))
def test_every_run_is_valid_and_ends_as_it_must(world, seed):
    """The judge accepts every step; the goal is reached exactly where it can be."""
    workers, have, want = world
    run = Run(workers, want, have, seed=seed)
    decision = run.to_the_end(GoalPlanner(), calls_max=60)
    if best(workers, have, want) is None:
        assert isinstance(decision, (Ask, GiveUp))
        assert run.done == []
    else:
        assert isinstance(decision, Finish)


@given(worlds())
def test_what_cannot_be_reached_is_explained(world):
    """The reason names a wanted fact, and either no worker gives something or it is impossible."""
    workers, have, want = world
    decision = Run(workers, want, have).ask(GoalPlanner())
    if isinstance(decision, Propose | Finish):
        return
    text = decision.question if isinstance(decision, Ask) else decision.reason
    assert any(fact in text for fact in want)
    assert "no worker gives" in text or "impossible" in text or "needs" in text


@given(worlds())
def test_the_same_state_gets_the_same_decision(world):
    """From the same planner and from a new one, whatever order workers are registered in."""
    workers, have, want = world
    planner = GoalPlanner()
    view = Run(workers, want, have).view()
    turned = Run(workers[::-1], want, dict(reversed(list(have.items())))).view()
    decisions = [
        asyncio.run(each.decide(seen))
        for each, seen in ((planner, view), (planner, view), (GoalPlanner(), turned))
    ]
    assert decisions[0] == decisions[1] == decisions[2]


@given(worlds(), st.data())
@settings(max_examples=60)
def test_failures_never_make_it_loop_or_lie(world, data):
    """With any failure at any attempt the run ends, and what is finished is true."""
    workers, have, want = world
    kinds = st.sampled_from(
        ["", "", "transient", "permanent", "unavailable", "criteria_unmet", "too_complex"]
    )

    def attempt(step, number):
        kind = data.draw(kinds)
        return Failure(kind, "drawn") if kind else succeed(step, number)

    run = Run(workers, want, have, attempt)
    assert isinstance(run.to_the_end(GoalPlanner(), calls_max=300), (Finish, Ask, GiveUp))


@pytest.mark.slow
@pytest.mark.parametrize("drops", [False, True])
def test_plans_are_near_the_best(drops):
    """The mean gap to brute force over many small worlds stays below five per cent."""
    gaps = []

    @given(worlds(drops=drops))
    @settings(max_examples=150, derandomize=True, database=None)
    def measure(world):
        workers, have, want = world
        least = best(workers, have, want)
        if least:
            run = Run(workers, want, have, one_by_one=True)
            assert isinstance(run.to_the_end(GoalPlanner(), calls_max=60), Finish)
            gaps.append(run.spent / least - 1)

    measure()
    assert len(gaps) > 20
    assert sum(gaps) / len(gaps) < 0.05, f"mean gap {sum(gaps) / len(gaps):.3f}"
