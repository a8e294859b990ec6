"""The comparison of a suite's arms: a document, a table of trials, a page."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.codec import html
from leadhand.evals.campaign import as_table
from leadhand.evals.statistics import (
    Interval,
    Share,
    difference_of,
    mean_of,
    share_difference,
    share_of,
    variance_shares,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leadhand.evals.campaign import TrialResult
    from leadhand.evals.suite import Suite

SIZES = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 10**9))
"""Sizes of plans, in steps, that first attempts are counted by."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of some trials."""

    trials: int
    errors: int
    """Trials that could not be carried out or judged; they count as no success."""
    success: Interval
    """Reached, and called a success."""
    false_success: Interval
    """Called a success, and not reached."""
    false_rejection: Interval
    """Reached, and not called a success."""
    cost: Interval
    money: Interval
    seconds: Interval
    questions: Interval
    """How often a person was needed: reviews and questions."""
    attempts: Interval
    steps: Interval
    """The size of the plan."""
    planner_calls: Interval
    first_pass: Interval
    """The share of attempted steps that succeeded at their first attempt."""


class ArmFigures(Figures, frozen=True, kw_only=True):
    """The figures of one arm."""

    arm: str
    levels: dict[str, str]


class LevelFigures(Figures, frozen=True, kw_only=True):
    """The figures of all arms with one level of a factor, whatever their other levels."""

    factor: str
    level: str


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """How some trials differ from others, goal by goal."""

    against: str
    success: Interval
    false_success: Interval
    cost: Interval
    seconds: Interval


class ArmDifference(Difference, frozen=True, kw_only=True):
    """How an arm differs from the first one."""

    arm: str


class LevelDifference(Difference, frozen=True, kw_only=True):
    """How a level differs from the first one of its factor, over all other factors."""

    factor: str
    level: str


class SizeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """First attempts by the size of the plan."""

    steps: str
    plans: int
    first_pass: Interval
    """The share of attempted steps that succeeded at their first attempt."""
    success: Interval


class VarianceShares(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the variance of a figure each factor explains."""

    figure: str
    shares: dict[str, Share]
    """They add up to 1; empty if the figure does not vary."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a suite."""

    suite: str
    about: str
    """What the suite says of itself."""
    digest: str
    """Of the suite's document."""
    goals: int
    repeat: int
    trials: int
    errors: list[str]
    """Why trials could not be carried out or judged; at most ten."""
    arms: list[ArmFigures]
    levels: list[LevelFigures]
    """The levels of each factor with several, over all other factors."""
    level_differences: list[LevelDifference]
    differences: list[ArmDifference]
    variance: list[VarianceShares]
    sizes: list[SizeFigures]
    by_goal: dict[str, dict[str, float]]
    """The share of successes by goal and arm."""


def compare(suite: Suite, results: Sequence[TrialResult]) -> Comparison:
    """Return the comparison of a suite's arms by the results of all trials."""
    first = suite.arms[0].name
    return Comparison(
        suite=suite.name,
        about=suite.about,
        digest=suite.digest,
        goals=len(suite.goals),
        repeat=suite.repeat,
        trials=len(results),
        errors=[
            f"{each.goal}, {each.arm}, trial {each.trial}: {_trouble(each)}"
            for each in results
            if each.error
        ][:10],
        arms=[
            ArmFigures(arm=arm.name, levels=arm.levels, **_figures(_of(results, arm.name)))
            for arm in suite.arms
        ],
        levels=[
            LevelFigures(factor=factor, level=level, **_figures(own))
            for factor, levels in _by_level(suite, results).items()
            for level, own in levels.items()
        ],
        level_differences=[
            LevelDifference(
                factor=factor, level=level, against=first_of, **_difference(levels[first_of], own)
            )
            for factor, levels in _by_level(suite, results).items()
            for first_of in [next(iter(levels))]
            for level, own in levels.items()
            if level != first_of
        ],
        differences=[
            ArmDifference(
                arm=arm.name,
                against=first,
                **_difference(_of(results, first), _of(results, arm.name)),
            )
            for arm in suite.arms
            if arm.name != first
        ],
        variance=_variance(suite, results),
        sizes=_sizes(results),
        by_goal={
            goal.name: {
                arm.name: _share(_of(results, arm.name, goal.name), _succeeded).value
                for arm in suite.arms
            }
            for goal in suite.goals
        },
    )


def _trouble(each: TrialResult) -> str:
    last = each.said.rpartition("\n")[2]
    return f"{each.run.reason}: {last}" if last else each.run.reason


def _of(results: Sequence[TrialResult], arm: str, goal: str = "") -> list[TrialResult]:
    return [each for each in results if each.arm == arm and goal in ("", each.goal)]


def _succeeded(each: TrialResult) -> bool:
    return each.claimed and each.reached


def _false_success(each: TrialResult) -> bool:
    return each.claimed and not each.reached


def _false_rejection(each: TrialResult) -> bool:
    return each.reached and not each.claimed


def _share(results: Sequence[TrialResult], good: Callable[[TrialResult], bool]) -> Interval:
    return share_of(_by_goal(results, lambda each: float(good(each))))


MEANS = ("cost", "money", "seconds", "questions", "attempts", "steps", "planner_calls")


def _figures(results: Sequence[TrialResult]) -> dict[str, Any]:
    """Return the fields of `Figures`."""
    return {
        "trials": len(results),
        "errors": sum(each.error for each in results),
        "success": _share(results, _succeeded),
        "false_success": _share(results, _false_success),
        "false_rejection": _share(results, _false_rejection),
        **{name: mean_of(_by_goal(results, _figure_of(name))) for name in MEANS},
        "first_pass": _first_pass(results),
    }


def _first_pass(results: Sequence[TrialResult]) -> Interval:
    """Return the share of attempted steps that succeeded at their first attempt."""
    steps: dict[str, list[float]] = defaultdict(list)
    for each in results:
        failed = each.run.tried - each.run.first_pass
        steps[each.goal] += [1.0] * each.run.first_pass + [0.0] * failed
    return share_of(steps)


def _by_level(
    suite: Suite, results: Sequence[TrialResult]
) -> dict[str, dict[str, list[TrialResult]]]:
    """Return the trials of each level of each factor; empty if arms differ in one factor only."""
    several = {factor: levels for factor, levels in suite.factors.items() if len(levels) > 1}
    levels_of = {arm.name: arm.levels for arm in suite.arms}
    return {
        factor: {
            level: [each for each in results if levels_of[each.arm][factor] == level]
            for level in levels
        }
        for factor, levels in (several.items() if len(several) > 1 else ())
    }


def _figure_of(name: str) -> Callable[[TrialResult], float]:
    return lambda each: float(getattr(each.run, name))


def _by_goal(
    results: Sequence[TrialResult], figure: Callable[[TrialResult], float]
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for each in results:
        found[each.goal].append(figure(each))
    return found


def _difference(one: Sequence[TrialResult], other: Sequence[TrialResult]) -> dict[str, Interval]:
    """Return the fields of `Difference` but for `against`."""

    def shares(good: Callable[[TrialResult], bool]) -> Interval:
        def counted(each: TrialResult) -> float:
            return float(good(each))

        return share_difference(_by_goal(one, counted), _by_goal(other, counted))

    def means(name: str) -> Interval:
        return difference_of(_by_goal(one, _figure_of(name)), _by_goal(other, _figure_of(name)))

    return {
        "success": shares(_succeeded),
        "false_success": shares(_false_success),
        "cost": means("cost"),
        "seconds": means("seconds"),
    }


def _variance(suite: Suite, results: Sequence[TrialResult]) -> list[VarianceShares]:
    """Return the shares of each factor and of the goal; of the arm if not all combinations ran."""
    levels = {arm.name: tuple(arm.levels.values()) for arm in suite.arms}
    factors = tuple(suite.factors)
    if len(suite.arms) != math.prod(map(len, suite.factors.values())):
        levels, factors = {arm.name: (arm.name,) for arm in suite.arms}, ("arm",)
    figures: dict[str, Callable[[TrialResult], float]] = {
        "success": lambda each: float(_succeeded(each)),
        "false success": lambda each: float(_false_success(each)),
        "cost": _figure_of("cost"),
        "attempts": _figure_of("attempts"),
    }
    found = []
    for name, figure in figures.items():
        cells: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for each in results:
            cells[(*levels[each.arm], each.goal)].append(figure(each))
        shares = variance_shares(cells, (*factors, "goal"))
        if shares or name == "success":
            found.append(VarianceShares(figure=name, shares=shares))
    return found


def _sizes(results: Sequence[TrialResult]) -> list[SizeFigures]:
    found = []
    for least, most in SIZES:
        own = [each for each in results if least <= each.run.steps <= most]
        if not own:
            continue
        name = (
            str(least) if least == most else f"{least} or more" if most > 100 else f"{least}-{most}"
        )
        found.append(
            SizeFigures(
                steps=name,
                plans=len(own),
                first_pass=_first_pass(own),
                success=_share(own, _succeeded),
            )
        )
    return found


def trials_csv(results: Sequence[TrialResult]) -> str:
    """Return all trials as CSV."""
    rows = as_table(results)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def page(found: Comparison) -> str:
    """Return the comparison as a page that loads nothing and runs nothing."""
    shown: dict[str, Any] = {
        "found": found,
        "arms": [(arm.arm, arm) for arm in found.arms],
        "levels": [(f"{each.factor}: {each.level}", each) for each in found.levels],
        "gaps": [(each.arm, each) for each in found.differences],
        "level_gaps": [
            (f"{each.factor}: {each.level} against {each.against}", each)
            for each in found.level_differences
        ],
        "percent": percent,
        "span": span,
        "figure": figure,
        "points": points,
        "gap": gap,
    }
    return html.render("leadhand.evals", "eval.html", shown)


def percent(value: float) -> str:
    """Return a share for people."""
    return f"{100 * value:.0f} %"


def span(interval: Interval) -> str:
    """Return a share with its interval for people."""
    return f"{100 * interval.value:.0f} % ({100 * interval.low:.0f}–{100 * interval.high:.0f})"


def figure(interval: Interval) -> str:
    """Return a mean with its interval for people; the mean alone if there is no interval."""
    if interval.low == interval.high:
        return f"{interval.value:.3g}"
    return f"{interval.value:.3g} ({interval.low:.3g}–{interval.high:.3g})"


def gap(interval: Interval) -> str:
    """Return a difference of means with its interval for people."""
    if interval.low == interval.high:
        return f"{interval.value:+.3g}"
    return f"{interval.value:+.3g} ({interval.low:+.3g} to {interval.high:+.3g})"


def points(interval: Interval) -> str:
    """Return a difference of shares in points, with its interval, for people."""
    return f"{100 * interval.value:+.0f} ({100 * interval.low:+.0f} to {100 * interval.high:+.0f})"
