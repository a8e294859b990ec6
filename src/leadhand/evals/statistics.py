"""Statistics of a comparison: intervals, paired differences, shares of variance.

Pure, without chance: the same trials give the same figures. The unit is the goal, since repetitions
of one goal resemble each other: an interval says what to expect of other goals like these. With a
single goal it says what to expect of further repetitions of that goal.

    share_of            Wilson's interval, for as many trials as the goals are worth together
    mean_of             Student's interval over the means of the goals
    difference_of       the same over paired differences
    share_difference    the same for shares, which stays honest where no goal differs
    variance_shares     sums of squares of a crossed, balanced design
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from functools import lru_cache
from statistics import fmean, stdev
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Groups = Mapping[str, Sequence[float]]

Z95 = 1.959963984540054


class Interval(msgspec.Struct, frozen=True):
    """A figure with its 95 % interval; both ends are the figure where one value is all there is."""

    value: float
    low: float
    high: float


class Share(msgspec.Struct, frozen=True):
    """The share of the variance that something explains."""

    share: float
    by_chance: float
    """What it would explain on average if it made no difference: the share of its degrees of
    freedom."""


def wilson(rate: float, of: float) -> Interval:
    """Return Wilson's interval for a share of `of` independent trials; 0 to 1 for none."""
    if of <= 0:
        return Interval(0.0, 0.0, 1.0)
    square = Z95 * Z95
    middle = (rate + square / (2 * of)) / (1 + square / of)
    half = Z95 * math.sqrt(rate * (1 - rate) / of + square / (4 * of * of)) / (1 + square / of)
    return Interval(rate, max(0.0, min(rate, middle - half)), min(1.0, max(rate, middle + half)))


def share_of(groups: Groups) -> Interval:
    """Return the share of ones among the zeros and ones of each goal, with its interval.

    Wilson's interval for the number of independent trials that these are worth (Kish's effective
    size): as many as there are if the goals do not differ, as few as there are goals if every
    goal's trials are alike. To the goals one that always and one that never succeeds are added
    before their spread is measured, so that a few goals that all succeed are no proof of others.
    """
    held = [values for values in groups.values() if values]
    trials = sum(map(len, held))
    if not trials:
        return Interval(0.0, 0.0, 1.0)
    rate = sum(map(sum, held)) / trials
    if len(held) == 1:
        return wilson(rate, trials)
    shares = [*map(fmean, held), 0.0, 1.0]
    middle = fmean(shares)
    spread = stdev(shares) ** 2 / len(shares)
    worth = middle * (1 - middle) / spread * len(held) / (len(held) + 1)
    return wilson(rate, min(float(trials), max(float(len(held)), worth)))


def mean_of(groups: Groups) -> Interval:
    """Return the mean over the goals, with Student's interval."""
    held = [values for values in groups.values() if values]
    if not held:
        return Interval(0.0, 0.0, 0.0)
    values = list(held[0]) if len(held) == 1 else [fmean(each) for each in held]
    found = _student(values)
    if min(map(min, held)) >= 0:  # what cannot be negative is not said to be
        return msgspec.structs.replace(found, low=max(0.0, found.low))
    return found


def difference_of(one: Groups, other: Groups) -> Interval:
    """Return the mean of `other` less that of `one` over the goals of both, paired by goal."""
    goals = _goals_of(one, other)
    if len(goals) == 1:
        return _of_two(one[goals[0]], other[goals[0]])
    return _student(_gaps(goals, one, other)) if goals else Interval(0.0, 0.0, 0.0)


def share_difference(one: Groups, other: Groups) -> Interval:
    """Return the difference of two shares over the goals of both, paired by goal.

    Before the spread is measured, two pairs of trials are added that split evenly between better,
    worse and no difference (Agresti and Min, 2005): goals that all agree do not make the interval
    vanish. They weigh as much as two of the trials that a goal has. For a single goal its
    repetitions are compared, with one success and one failure added to each side (Agresti and
    Caffo, 2000).
    """
    goals = _goals_of(one, other)
    if not goals:
        return Interval(0.0, -1.0, 1.0)
    if len(goals) == 1:
        return _of_two_shares(one[goals[0]], other[goals[0]])
    gaps = _gaps(goals, one, other)
    added = 2 / min(len(each[goal]) for each in (one, other) for goal in goals)
    count = len(gaps) + added
    middle = sum(gaps) / count
    spread = (sum(gap * gap for gap in gaps) + added / 2) / count - middle * middle
    half = student(int(count) - 1) * math.sqrt(max(0.0, spread) / count)
    return _bounded(fmean(gaps), middle, half)


def _bounded(value: float, middle: float, half: float) -> Interval:
    low, high = max(-1.0, middle - half), min(1.0, middle + half)
    return Interval(value, min(value, low), max(value, high))


def _goals_of(one: Groups, other: Groups) -> list[str]:
    return [goal for goal in one if one[goal] and other.get(goal)]


def _gaps(goals: Sequence[str], one: Groups, other: Groups) -> list[float]:
    return [fmean(other[goal]) - fmean(one[goal]) for goal in goals]


def _of_two_shares(one: Sequence[float], other: Sequence[float]) -> Interval:
    """Return the difference of two shares of independent trials, after Agresti and Caffo."""
    sizes = [len(each) + 2 for each in (one, other)]
    rates = [(sum(each) + 1) / size for each, size in zip((one, other), sizes, strict=True)]
    spread = sum(rate * (1 - rate) / size for rate, size in zip(rates, sizes, strict=True))
    value = fmean(other) - fmean(one)
    return _bounded(value, rates[1] - rates[0], Z95 * math.sqrt(spread))


def _of_two(one: Sequence[float], other: Sequence[float]) -> Interval:
    """Return the difference of two samples' means with Welch's interval."""
    value = fmean(other) - fmean(one)
    if min(len(one), len(other)) < 2:
        return Interval(value, value, value)
    parts = [stdev(each) ** 2 / len(each) for each in (one, other)]
    if not sum(parts):
        return Interval(value, value, value)
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(each) - 1) for part, each in zip(parts, (one, other), strict=True)
    )
    half = student(max(1, int(freedom))) * math.sqrt(sum(parts))
    return Interval(value, value - half, value + half)


def _student(values: Sequence[float]) -> Interval:
    value = fmean(values)
    if len(values) < 2:
        return Interval(value, value, value)
    half = student(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Interval(value, value - half, value + half)


@lru_cache(maxsize=256)
def student(freedom: int) -> float:
    """Return the bound that Student's t stays within, up or down, 95 times in 100."""
    low, high = 1.0, 13.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 0.95 else (low, middle)
    return (low + high) / 2


def _within(bound: float, freedom: int) -> float:
    """Return how probable |t| < bound is: Abramowitz and Stegun 26.7.3 and 26.7.4, exact."""
    angle = math.atan(bound / math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for step in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (step - 1) / step
        total += term
    found = math.sin(angle) * total
    return 2 / math.pi * (angle + found) if odd else found


def variance_shares(
    cells: Mapping[tuple[str, ...], Sequence[float]], factors: Sequence[str]
) -> dict[str, Share]:
    """Return the share of the variance that each factor explains, pairs of them, and the rest.

    The shares add up to 1; there are none if nothing varies. A factor with one level has none.

    Args:
        cells: the values of each combination; its levels in the order of `factors`.
        factors: the names of the factors.

    Raises:
        ValueError: a combination of levels is missing, or they have unlike numbers of values.
    """
    levels = [sorted({key[place] for key in cells}) for place in range(len(factors))]
    sizes = {len(values) for values in cells.values()}
    if len(sizes) != 1 or math.prod(map(len, levels)) != len(cells):
        raise ValueError("the design is not crossed and balanced")
    values = [value for group in cells.values() for value in group]
    middle, count = fmean(values), len(values)
    total = sum((value - middle) ** 2 for value in values)
    if total <= 1e-24 * sum(value * value for value in values):  # but for rounding, all alike
        return {}
    free = [len(each) - 1 for each in levels]
    places = [place for place, freedom in enumerate(free) if freedom]
    alone = {place: _between(cells, (place,), middle) for place in places}
    found = {
        factors[place]: Share(square / total, free[place] / (count - 1))
        for place, square in alone.items()
    }
    for one, other in itertools.combinations(places, 2):
        square = _between(cells, (one, other), middle) - alone[one] - alone[other]
        chance = free[one] * free[other] / (count - 1)
        found[f"{factors[one]} with {factors[other]}"] = Share(max(0.0, square) / total, chance)
    within = sum((value - fmean(group)) ** 2 for group in cells.values() for value in group)
    if count > len(cells):
        found["repetitions"] = Share(within / total, (count - len(cells)) / (count - 1))
    if len(places) > 2:
        rest = 1.0 - sum(each.share for each in found.values())
        chance = 1.0 - sum(each.by_chance for each in found.values())
        found["three and more together"] = Share(max(0.0, rest), max(0.0, chance))
    return found


def _between(
    cells: Mapping[tuple[str, ...], Sequence[float]], places: tuple[int, ...], middle: float
) -> float:
    """Return the sum of squares between the groups that some factors make."""
    groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for levels, values in cells.items():
        groups[tuple(levels[place] for place in places)].extend(values)
    return sum(len(group) * (fmean(group) - middle) ** 2 for group in groups.values())
