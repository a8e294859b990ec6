"""Statistics of a comparison: intervals, paired differences, shares of variance.

Pure. What is drawn is drawn from a seed, so that the same trials give the same figures.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Z95 = 1.959963984540054
DRAWS = 2000


class Interval(msgspec.Struct, frozen=True):
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


def share_of(good: int, of: int) -> Interval:
    """Return a share with Wilson's interval, which is sound near 0 and 1; 0 to 1 for no trials."""
    if of == 0:
        return Interval(0.0, 0.0, 1.0)
    rate, square = good / of, Z95 * Z95
    middle = (rate + square / (2 * of)) / (1 + square / of)
    half = Z95 * math.sqrt(rate * (1 - rate) / of + square / (4 * of * of)) / (1 + square / of)
    return Interval(rate, max(0.0, middle - half), min(1.0, middle + half))


def mean_of(groups: Mapping[str, Sequence[float]], seed: int) -> Interval:
    """Return the mean over all values, with a bootstrap interval.

    Goals are drawn, then the repetitions within each: repetitions of one goal resemble each other,
    and drawing single trials would make the interval too narrow.
    """
    values = [value for group in groups.values() for value in group]
    if not values:
        return Interval(0.0, 0.0, 0.0)
    low, high = _percentiles([_redrawn(groups, chance) for chance in _draws(seed)])
    return Interval(fmean(values), low, high)


def difference_of(
    one: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]], seed: int
) -> Interval:
    """Return the mean of `other` less that of `one` over the goals of both, with its interval.

    Paired: each draw takes the same goals for both.
    """
    goals = [goal for goal in one if goal in other and one[goal] and other[goal]]
    if not goals:
        return Interval(0.0, 0.0, 0.0)
    gaps = {goal: fmean(other[goal]) - fmean(one[goal]) for goal in goals}
    drawn = []
    for chance in _draws(seed):
        total = 0.0
        for goal in chance.choices(goals, k=len(goals)):
            these, those = one[goal], other[goal]
            total += fmean(chance.choices(those, k=len(those)))
            total -= fmean(chance.choices(these, k=len(these)))
        drawn.append(total / len(goals))
    low, high = _percentiles(drawn)
    return Interval(fmean(gaps.values()), low, high)


def variance_shares(
    cells: Mapping[tuple[str, ...], Sequence[float]], factors: Sequence[str]
) -> dict[str, float]:
    """Return the share of the variance that each factor explains, pairs of them, and the rest.

    Sums of squares of a balanced design: every combination of levels has the same number of values.

    Args:
        cells: the values of each combination; its levels in the order of `factors`.
        factors: the names of the factors.

    Raises:
        ValueError: the design is not balanced.
    """
    sizes = {len(values) for values in cells.values()}
    if len(sizes) != 1 or not all(len(levels) == len(factors) for levels in cells):
        raise ValueError("the design is not balanced")
    values = [value for group in cells.values() for value in group]
    middle = fmean(values)
    total = sum((value - middle) ** 2 for value in values)
    if total == 0:
        return {}
    alone = {place: _between(cells, (place,), middle) for place in range(len(factors))}
    found = {factors[place]: square / total for place, square in alone.items()}
    for one, other in itertools.combinations(range(len(factors)), 2):
        square = _between(cells, (one, other), middle) - alone[one] - alone[other]
        found[f"{factors[one]} with {factors[other]}"] = max(0.0, square) / total
    within = sum((value - fmean(group)) ** 2 for group in cells.values() for value in group)
    found["repetitions"] = within / total
    rest = 1.0 - sum(found.values())
    return found | {"three and more together": rest} if rest > 1e-9 else found


def _between(
    cells: Mapping[tuple[str, ...], Sequence[float]], places: tuple[int, ...], middle: float
) -> float:
    """Return the sum of squares between the groups that some factors make."""
    groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for levels, values in cells.items():
        groups[tuple(levels[place] for place in places)].extend(values)
    return sum(len(group) * (fmean(group) - middle) ** 2 for group in groups.values())


def _draws(seed: int) -> list[Random]:
    chance = Random(seed)  # noqa: S311 - chance that can be repeated is the point
    return [chance] * DRAWS


def _redrawn(groups: Mapping[str, Sequence[float]], chance: Random) -> float:
    names = [name for name, group in groups.items() if group]
    drawn: list[float] = []
    for name in chance.choices(names, k=len(names)):
        drawn += chance.choices(groups[name], k=len(groups[name]))
    return fmean(drawn)


def _percentiles(values: list[float]) -> tuple[float, float]:
    values.sort()
    last = len(values) - 1
    return values[round(0.025 * last)], values[round(0.975 * last)]
