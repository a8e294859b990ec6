"""Intervals, differences and shares of variance, against what is known of them."""

import itertools
import math
from operator import mul
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.evals.statistics import (
    difference_of,
    mean_of,
    share_difference,
    share_of,
    student,
    variance_shares,
    wilson,
)


def goals(*values):
    """Name the goals of a sample."""
    return {f"g{number}": [float(each) for each in some] for number, some in enumerate(values)}


# Shares.


def test_wilson_by_its_published_values():
    """Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29."""
    published = {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0.0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }
    for (good, of), ends in published.items():
        found = wilson(good / of, of)
        assert (round(found.low, 4), round(found.high, 4)) == ends
    assert (wilson(0.0, 0).low, wilson(0.0, 0).high) == (0.0, 1.0)


def test_a_share_of_one_goal_is_one_of_its_trials():
    found = share_of(goals([1] * 81 + [0] * 182))
    assert (round(found.low, 4), round(found.high, 4)) == (0.2553, 0.3662)


def test_one_trial_for_each_goal_is_plain_wilson():
    found = share_of(goals(*[[1]] * 81, *[[0]] * 182))
    assert (round(found.low, 4), round(found.high, 4)) == (0.2553, 0.3662)


def test_repetitions_that_are_all_alike_say_no_more_than_one():
    """Goals that are each always reached or never are worth as many trials as there are goals."""
    for good in range(11):
        each = [[1]] * good + [[0]] * (10 - good)
        once, often = share_of(goals(*each)), share_of(goals(*(some * 30 for some in each)))
        assert once.value == often.value
        assert once.low == pytest.approx(often.low, abs=0.05)
        assert once.high == pytest.approx(often.high, abs=0.05)


def test_goals_that_do_not_differ_are_worth_all_their_trials():
    """Many goals with the same share in each: nearly Wilson over all trials."""
    found = share_of(goals(*[[1, 0] * 5] * 40))
    plain = wilson(0.5, 400)
    assert found.high - found.low < 1.3 * (plain.high - plain.low)


def test_one_failure_more_never_makes_it_look_better():
    """From all successes to none, one at a time: both ends only fall."""
    held = [[1] * 5 for _ in range(6)]
    before = share_of(goals(*held))
    assert before.high == 1.0
    assert before.low < 0.75, "six goals are no proof of others"
    for goal, trial in itertools.product(range(6), range(5)):
        held[goal][trial] = 0
        found = share_of(goals(*held))
        assert found.value < before.value
        assert found.low <= before.low + 0.02
        assert found.high <= before.high + 0.02
        before = found
    assert (before.value, before.low) == (0.0, 0.0)


@given(st.lists(st.lists(st.integers(0, 1), max_size=6), max_size=12))
def test_a_share_lies_within_its_interval(held):
    found = share_of(goals(*held))
    assert 0 <= found.low <= found.value <= found.high <= 1


@pytest.mark.parametrize("alike", [0.0, 0.4, 1.0])
@pytest.mark.parametrize(("count", "repeat"), [(6, 3), (12, 2), (20, 5)])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_intervals_of_shares_hold_what_they_promise(alike, count, repeat, rate):
    """Of 400 samples of goals that resemble themselves more or less, 93 in 100 at least."""
    chance = Random(f"{alike}{count}{repeat}{rate}")
    held = 0
    for _ in range(400):
        shares = [_like(chance, rate, alike) for _ in range(count)]
        found = share_of(goals(*([chance.random() < p for _ in range(repeat)] for p in shares)))
        held += found.low <= rate <= found.high
    assert held >= 372


def _like(chance, rate, alike):
    """Draw a goal's share of successes; `alike` is the correlation of its trials."""
    if alike == 0:
        return rate
    if alike == 1:
        return float(chance.random() < rate)
    weight = 1 / alike - 1
    return chance.betavariate(rate * weight, (1 - rate) * weight)


# Means and differences.


def test_students_bounds_by_the_published_table():
    """Student's t, two-sided, 0.05."""
    table = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 10: 2.228, 30: 2.042, 120: 1.980}
    assert {freedom: round(student(freedom), 3) for freedom in table} == table


def test_a_mean_by_hand():
    """Goals' means 2, 4 and 9: 5 with a deviation of sqrt(13), and t for 2 degrees of freedom."""
    found = mean_of(goals([1, 3], [4, 4], [9]))
    half = 4.302653 * math.sqrt(13) / math.sqrt(3)
    assert (found.value, found.low) == (5.0, 0.0), "a cost is not negative"
    assert found.high == pytest.approx(5 + half, abs=1e-4)
    lower = mean_of(goals([-1, 3], [4, 4], [9]))
    assert lower.low < 0


def test_one_goal_is_judged_by_its_repetitions_and_one_value_by_nothing():
    """1, 2 and 3: 2 with a deviation of 1."""
    found = mean_of(goals([1, 2, 3]))
    assert found.high == pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-4)
    for one in (goals([7]), goals([7], [7])):
        assert mean_of(one).low == mean_of(one).high == 7.0
    assert mean_of({}).value == 0.0


@pytest.mark.parametrize("count", [3, 6, 12])
def test_intervals_of_means_hold_what_they_promise(count):
    """Goals that differ among themselves, with two repetitions each: few goals as well as many."""
    chance = Random(count)
    held = 0
    for _ in range(500):
        middles = [chance.gauss(3.0, 1.0) for _ in range(count)]
        found = mean_of(goals(*([chance.gauss(each, 0.5) for _ in "ab"] for each in middles)))
        held += found.low <= 3.0 <= found.high
    assert 462 <= held <= 490


def test_a_paired_difference_sees_what_goals_hide():
    """Goals differ by far more than the arms do."""
    one = goals(*([10 * n] * 3 for n in range(12)))
    other = {goal: [value + 1.0 for value in values] for goal, values in one.items()}
    found = difference_of(one, other)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)
    assert difference_of(one, {}).value == 0.0


def test_a_difference_by_hand():
    """Gaps 1, 3 and 5 of three goals; a goal of one side only does not count."""
    one, other = goals([1], [1], [1], [50]), goals([2], [4], [6])
    found = difference_of(one, other)
    half = 4.302653 * 2 / math.sqrt(3)
    assert (found.value, found.low) == (3.0, pytest.approx(3 - half, abs=1e-4))


def test_a_difference_of_one_goal_is_welchs():
    """1, 2, 3 against 4, 6, 8: variances 1 and 4, 2.94 degrees of freedom, taken as 2."""
    found = difference_of(goals([1, 2, 3]), goals([4, 6, 8]))
    assert found.value == 4.0
    assert found.high - found.value == pytest.approx(4.302653 * math.sqrt(5 / 3), abs=1e-4)


def test_a_difference_of_shares_after_agresti_and_min():
    """Of 20 pairs 8 are better and 2 worse: half a pair is added to each, two pairs in all."""
    one = goals(*[[0]] * 8, *[[1]] * 2, *[[1]] * 10)
    other = goals(*[[1]] * 8, *[[0]] * 2, *[[1]] * 10)
    found = share_difference(one, other)
    half = 2.079614 * math.sqrt((8.5 + 2.5) - (8.5 - 2.5) ** 2 / 22) / 22
    assert found.value == pytest.approx(0.3)
    assert found.low == pytest.approx(6 / 22 - half, abs=1e-6)
    assert found.high == pytest.approx(6 / 22 + half, abs=1e-6)


def test_goals_that_all_agree_prove_no_difference_to_be_none():
    """Six goals that succeed for both, or for one only."""
    all_, none = goals(*[[1, 1]] * 6), goals(*[[0, 0]] * 6)
    same, apart = share_difference(all_, all_), share_difference(none, all_)
    assert same.value == 0.0
    assert same.low < -0.15 < 0.15 < same.high
    assert (apart.value, apart.high) == (1.0, 1.0)
    assert 0 < apart.low < 0.7
    single = share_difference(goals([0] * 8), goals([1] * 8))
    assert 0.3 < single.low < single.value == single.high == 1.0
    assert (share_difference({}, {}).low, share_difference({}, {}).high) == (-1.0, 1.0)


@pytest.mark.parametrize("alike", [0.0, 0.4, 1.0])
@pytest.mark.parametrize(("count", "repeat"), [(6, 1), (12, 1), (12, 2), (12, 8)])
@pytest.mark.parametrize("rates", [(0.5, 0.5), (0.3, 0.6), (0.9, 0.95)])
def test_intervals_of_differences_hold_what_they_promise(alike, count, repeat, rates):
    """Of 400 samples of paired goals, 92 in 100 at least."""
    chance = Random(f"{alike}{count}{repeat}{rates}")
    held = 0
    for _ in range(400):
        sides = []
        for rate in rates:
            shares = [_like(chance, rate, alike) for _ in range(count)]
            sides.append(goals(*([chance.random() < p for _ in range(repeat)] for p in shares)))
        found = share_difference(*sides)
        held += found.low <= rates[1] - rates[0] <= found.high
    assert held >= 368


# Shares of variance.


def test_one_factor_that_decides_everything():
    cells = {(p, m): [float(p == "good")] * 4 for p in ("good", "bad") for m in ("x", "y", "z")}
    shares = variance_shares(cells, ("planner", "model"))
    assert shares["planner"].share == pytest.approx(1.0)
    assert shares["model"].share == pytest.approx(0.0)
    assert shares["repetitions"].share == pytest.approx(0.0)
    chances = {name: round(each.by_chance * 23) for name, each in shares.items()}
    assert chances == {"planner": 1, "model": 2, "planner with model": 2, "repetitions": 18}


def test_two_factors_that_act_only_together():
    cells = {(a, b): [float((a == "1") != (b == "1"))] * 2 for a in "01" for b in "01"}
    shares = variance_shares(cells, ("a", "b"))
    assert shares["a with b"].share == pytest.approx(1.0)


def dot(one, other):
    return sum(map(mul, one, other))


def projected(cells, factors):
    """Return the shares by least squares: each term's columns, made orthogonal one by one."""
    rows = [(key, value) for key, values in cells.items() for value in values]
    values = [value for _, value in rows]
    basis, found = [], {}
    total = sum((value - fmean(values)) ** 2 for value in values)
    terms = [("", ()), *((name, (at,)) for at, name in enumerate(factors))]
    terms += [
        (f"{factors[one]} with {factors[other]}", (one, other))
        for one, other in itertools.combinations(range(len(factors)), 2)
    ]
    terms.append(("three and more together", tuple(range(len(factors)))))
    for name, places in terms:
        explained = 0.0
        for group in sorted({tuple(key[at] for at in places) for key in cells}):
            column = [float(tuple(key[at] for at in places) == group) for key, _ in rows]
            for known in basis:
                along = dot(column, known)
                column = [each - along * other for each, other in zip(column, known, strict=True)]
            length = math.sqrt(dot(column, column))
            if length > 1e-8:
                column = [each / length for each in column]
                basis.append(column)
                explained += dot(column, values) ** 2
        found[name] = explained / total
    found["repetitions"] = 1 - sum(found.values()) + found.pop("")
    return found


@pytest.mark.parametrize("sizes", [(2, 3), (2, 2, 3), (3, 2, 2, 2)])
@pytest.mark.parametrize("repeat", [1, 3])
def test_shares_are_those_of_least_squares(sizes, repeat):
    """An independent way to the same: columns of dummies, made orthogonal."""
    chance = Random(f"{sizes}{repeat}")
    names = [f"f{number}" for number in range(len(sizes))]
    keys = itertools.product(*(map(str, range(size)) for size in sizes))
    cells = {key: [chance.gauss(float(key[0]), 1.0) for _ in range(repeat)] for key in keys}
    wanted = projected(cells, names)
    found = variance_shares(cells, names)
    for name, each in found.items():
        assert each.share == pytest.approx(wanted[name], abs=1e-9), name
    assert sum(each for name, each in wanted.items() if name in found) == pytest.approx(1.0)


def test_by_chance_is_what_chance_explains():
    """Factors that make no difference explain on average the share of their degrees of freedom."""
    chance = Random(3)
    keys = [*itertools.product("ab", "xyz", "1234")]
    sums: dict[str, float] = {}
    for _ in range(300):
        cells = {key: [chance.gauss(0, 1), chance.gauss(0, 1)] for key in keys}
        found = variance_shares(cells, ("p", "q", "r"))
        for name, each in found.items():
            sums[name] = sums.get(name, 0.0) + each.share / 300
    for name, each in found.items():
        assert sums[name] == pytest.approx(each.by_chance, abs=0.02), name


@given(st.integers(1, 3), st.integers(2, 3), st.integers(1, 3), st.randoms(use_true_random=False))
def test_shares_sum_to_one(first, second, repeat, chance):
    cells = {
        (str(a), str(b)): [chance.randint(0, 9) / 10 for _ in range(repeat)]
        for a in range(first)
        for b in range(second)
    }
    shares = variance_shares(cells, ("a", "b"))
    varies = len({value for values in cells.values() for value in values}) > 1
    assert math.isclose(sum(each.share for each in shares.values()), float(varies), abs_tol=1e-6)
    assert all(-1e-9 <= each.share <= 1 + 1e-9 for each in shares.values())
    assert ("a" in shares) == (varies and first > 1), "a factor with one level has no share"
    if varies:
        assert sum(each.by_chance for each in shares.values()) == pytest.approx(1.0)


def test_what_does_not_vary_has_no_shares_and_a_hole_is_refused():
    assert variance_shares({("a",): [1.0, 1.0], ("b",): [1.0, 1.0]}, ("x",)) == {}
    assert variance_shares({("a",): [0.1] * 3, ("b",): [0.1] * 3}, ("x",)) == {}
    with pytest.raises(ValueError, match="not crossed and balanced"):
        variance_shares({("a",): [1.0], ("b",): [1.0, 2.0]}, ("x",))
    with pytest.raises(ValueError, match="not crossed and balanced"):
        variance_shares({("a", "b"): [1.0], ("c", "d"): [2.0]}, ("x", "y"))
