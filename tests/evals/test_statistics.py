"""Intervals, differences and shares of variance, against what is known of them."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.evals.statistics import difference_of, mean_of, share_of, variance_shares


def test_wilson_by_its_published_values():
    """Newcombe 1998, table I: 81 of 263, and 0 of 20."""
    found = share_of(81, 263)
    assert (round(found.low, 4), round(found.high, 4)) == (0.2553, 0.3662)
    none = share_of(0, 20)
    assert (none.value, none.low, round(none.high, 4)) == (0.0, 0.0, 0.1611)


@given(st.integers(0, 300), st.integers(0, 300))
def test_a_share_lies_within_its_interval(good, bad):
    found = share_of(good, good + bad)
    assert 0 <= found.low <= found.value + 1e-12
    assert found.value <= found.high + 1e-12 <= 1 + 1e-9


def test_repetitions_of_one_goal_are_not_independent():
    """Ten goals that are each always reached or never: 30 repetitions say no more than one."""
    few = {f"g{n}": [float(n % 2)] for n in range(10)}
    many = {f"g{n}": [float(n % 2)] * 30 for n in range(10)}
    one, other = mean_of(few, 1), mean_of(many, 1)
    assert one.value == other.value == 0.5
    assert abs((one.high - one.low) - (other.high - other.low)) < 0.11


def test_intervals_hold_what_they_promise():
    """Of 200 samples with a known mean, about 95 in 100 intervals hold it."""
    chance = Random(7)
    held = 0
    for seed in range(200):
        groups = {f"g{n}": [chance.gauss(3.0, 1.0)] for n in range(25)}
        found = mean_of(groups, seed)
        held += found.low <= 3.0 <= found.high
    assert 175 <= held <= 199


def test_a_paired_difference_sees_what_goals_hide():
    """Goals differ by far more than the arms do."""
    one = {f"g{n}": [float(10 * n)] * 3 for n in range(12)}
    other = {goal: [value + 1.0 for value in values] for goal, values in one.items()}
    found = difference_of(one, other, 1)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)
    assert difference_of(one, {}, 1).value == 0.0


def test_one_factor_that_decides_everything():
    cells = {(p, m): [float(p == "good")] * 4 for p in ("good", "bad") for m in ("x", "y", "z")}
    shares = variance_shares(cells, ("planner", "model"))
    assert shares["planner"] == pytest.approx(1.0)
    assert shares["model"] == pytest.approx(0.0)
    assert shares["repetitions"] == pytest.approx(0.0)


def test_two_factors_that_act_only_together():
    cells = {(a, b): [float((a == "1") != (b == "1"))] * 2 for a in "01" for b in "01"}
    shares = variance_shares(cells, ("a", "b"))
    assert shares["a with b"] == pytest.approx(1.0)


@given(st.integers(2, 3), st.integers(2, 3), st.integers(1, 3), st.randoms(use_true_random=False))
def test_shares_sum_to_one(first, second, repeat, chance):
    cells = {
        (str(a), str(b)): [chance.random() for _ in range(repeat)]
        for a in range(first)
        for b in range(second)
    }
    shares = variance_shares(cells, ("a", "b"))
    varies = len({value for values in cells.values() for value in values}) > 1
    assert math.isclose(sum(shares.values()), float(varies), abs_tol=1e-6)
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in shares.values())


def test_what_does_not_vary_has_no_shares_and_a_hole_is_refused():
    assert variance_shares({("a",): [1.0, 1.0], ("b",): [1.0, 1.0]}, ("x",)) == {}
    with pytest.raises(ValueError, match="not balanced"):
        variance_shares({("a",): [1.0], ("b",): [1.0, 2.0]}, ("x",))
