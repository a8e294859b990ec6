"""The capacity of a fleet in virtual time: bounds that arithmetic knows, and who is held up."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.fleet.capacity import CapacityPlan, capacity
from tests.support.cli import Folder


def tried(seed=1, **knobs):
    return capacity(CapacityPlan(**knobs), random.Random(seed))


plans = st.builds(
    CapacityPlan,
    agents=st.integers(1, 60),
    hours=st.floats(0.5, 3.0),
    work_s=st.floats(5.0, 2000.0),
    gate_s=st.floats(5.0, 900.0),
    gates=st.integers(1, 12),
    tracks=st.integers(1, 12),
    unsound=st.floats(0.0, 0.7),
    clashing=st.floats(0.0, 0.3),
    strict=st.booleans(),
    batch_max=st.integers(1, 16),
    cost=st.just(0.0),
)


@given(plans, st.integers(0, 10_000))
def test_nobody_works_more_than_there_is_time(plan, seed):
    """No gate does two things at once, no agent either, and nothing lands that nobody made."""
    found = capacity(plan, random.Random(seed))
    whole = plan.hours * 3600
    assert 0 <= found.landed <= found.attempts
    assert found.landed <= plan.gates * (whole / plan.gate_s)
    for share in (found.working, found.gates_busy, found.tracks_busy):
        assert 0 <= share <= 1.0 + 1e-9
    assert found.train_s <= found.train_late_s <= whole
    if found.landed:
        assert found.train_late_s >= plan.gate_s - 1e-6
        assert found.gate_runs >= 1.0


@given(plans, st.integers(0, 10_000))
def test_the_same_plan_and_chance_give_the_same(plan, seed):
    assert capacity(plan, random.Random(seed)) == capacity(plan, random.Random(seed))


def test_without_waiting_it_is_what_arithmetic_says():
    """One agent, nothing ever red: a task takes its work, its gate and the train's."""
    found = tried(agents=1, hours=500.0, work_s=600, gate_s=60, unsound=0.0, clashing=0.0)
    assert found.per_hour == pytest.approx(3600 / (600 + 60 + 60), rel=0.03)
    assert found.limit == "agents"
    assert found.gate_wait_s == 0.0


def test_who_is_held_up_is_named_and_more_of_it_helps():
    few = tried(agents=200, gates=2, tracks=16)
    assert few.limit == "gates"
    more = tried(agents=200, gates=64, tracks=16)
    assert more.per_hour > 3 * few.per_hour
    slow = tried(agents=1000, gates=512, tracks=2, clashing=0.1)
    assert slow.limit == "merge queue"
    quick = tried(agents=1000, gates=512, tracks=32, clashing=0.1)
    assert quick.per_hour > 1.5 * slow.per_hour


def test_clashes_and_strictness_cost_something():
    calm = tried(agents=400, gates=256, clashing=0.0)
    wild = tried(agents=400, gates=256, clashing=0.2)
    assert wild.per_hour < calm.per_hour
    strict = tried(agents=400, gates=256, strict=True, clashing=0.0)
    assert strict.gate_runs > calm.gate_runs


def test_ten_thousand_agents_from_the_command_line(tmp_path):
    folder = Folder(tmp_path)
    options = ("--agents", "100,10000", "--gates", "512", "--hours", "2", "--cost", "0.5")
    done = folder.run("fleet", "capacity", *options, "--json")
    assert done.code == 0, done
    small, large = done.doc
    assert (small["agents"], large["agents"]) == (100, 10000)
    assert large["per_hour"] > small["per_hour"] > 0
    assert small["cost"] >= 0.5
    assert small["limit"] == "agents"
    text = folder.run("fleet", "capacity", *options).out
    assert "10000" in text
    assert "bottleneck" in text


@pytest.mark.parametrize("agents", ["many", "0", "100,", "99999999"])
def test_sizes_that_are_none_are_refused_in_words(tmp_path, agents):
    done = Folder(tmp_path).run("fleet", "capacity", "--agents", agents)
    assert done.code == 2
    assert "--agents" in done.err
    assert "Traceback" not in done.err
