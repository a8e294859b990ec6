"""The comparison of a suite's arms: a document, a table of trials, a page."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from leadhand.codec import html
from leadhand.evals.campaign import as_table
from leadhand.evals.statistics import (
    Interval,
    difference_of,
    mean_of,
    share_of,
    variance_shares,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leadhand.evals.campaign import TrialResult
    from leadhand.evals.suite import Suite

SIZES = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 10**9))
"""Sizes of plans, in steps, that first attempts are counted by."""


class ArmFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one arm."""

    arm: str
    levels: dict[str, str]
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
    attempts: Interval
    steps: Interval
    planner_calls: Interval


class ArmDifference(msgspec.Struct, frozen=True, kw_only=True):
    """How an arm differs from the first one, goal by goal."""

    arm: str
    against: str
    success: Interval
    false_success: Interval
    cost: Interval
    seconds: Interval


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
    shares: dict[str, float]
    """Empty if the figure does not vary."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a suite."""

    suite: str
    digest: str
    """Of the suite's document."""
    goals: int
    repeat: int
    trials: int
    errors: list[str]
    """Why trials could not be carried out or judged; at most ten."""
    arms: list[ArmFigures]
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
        digest=suite.digest,
        goals=len(suite.goals),
        repeat=suite.repeat,
        trials=len(results),
        errors=[
            f"{each.goal}, {each.arm}, trial {each.trial}: {_trouble(each)}"
            for each in results
            if each.error
        ][:10],
        arms=[_arm(suite, arm.name, arm.levels, results) for arm in suite.arms],
        differences=[
            _difference(suite, first, arm.name, results) for arm in suite.arms if arm.name != first
        ],
        variance=_variance(suite, results),
        sizes=_sizes(results),
        by_goal={
            goal.name: {
                arm.name: share_of(*_counted(_of(results, arm.name, goal.name), _succeeded)).value
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


def _counted(
    results: Sequence[TrialResult], good: Callable[[TrialResult], bool]
) -> tuple[int, int]:
    return sum(map(good, results)), len(results)


def _arm(
    suite: Suite, name: str, levels: dict[str, str], results: Sequence[TrialResult]
) -> ArmFigures:
    own = _of(results, name)
    names = ("cost", "money", "seconds", "questions", "attempts", "steps", "planner_calls")
    means = {name: mean_of(_by_goal(own, _figure_of(name)), suite.seed) for name in names}
    return ArmFigures(
        arm=name,
        levels=levels,
        trials=len(own),
        errors=sum(each.error for each in own),
        success=share_of(*_counted(own, _succeeded)),
        false_success=share_of(*_counted(own, _false_success)),
        false_rejection=share_of(*_counted(own, _false_rejection)),
        **means,
    )


def _figure_of(name: str) -> Callable[[TrialResult], float]:
    return lambda each: float(getattr(each.run, name))


def _by_goal(
    results: Sequence[TrialResult], figure: Callable[[TrialResult], float]
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for each in results:
        found[each.goal].append(figure(each))
    return found


def _difference(
    suite: Suite, against: str, arm: str, results: Sequence[TrialResult]
) -> ArmDifference:
    def between(figure: Callable[[TrialResult], float]) -> Interval:
        one, other = _of(results, against), _of(results, arm)
        return difference_of(_by_goal(one, figure), _by_goal(other, figure), suite.seed)

    return ArmDifference(
        arm=arm,
        against=against,
        success=between(lambda each: float(_succeeded(each))),
        false_success=between(lambda each: float(_false_success(each))),
        cost=between(lambda each: each.run.cost),
        seconds=between(lambda each: each.run.seconds),
    )


def _variance(suite: Suite, results: Sequence[TrialResult]) -> list[VarianceShares]:
    """Return the shares of each factor and of the goal; the design is balanced by construction."""
    levels = {arm.name: tuple(arm.levels.values()) for arm in suite.arms}
    figures: dict[str, Callable[[TrialResult], float]] = {
        "success": lambda each: float(_succeeded(each)),
        "cost": lambda each: each.run.cost,
        "attempts": lambda each: float(each.run.attempts),
    }
    found = []
    for name, figure in figures.items():
        cells: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for each in results:
            cells[(*levels[each.arm], each.goal)].append(figure(each))
        shares = variance_shares(cells, (*suite.factors, "goal"))
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
        tried = sum(each.run.tried for each in own)
        found.append(
            SizeFigures(
                steps=name,
                plans=len(own),
                first_pass=share_of(sum(each.run.first_pass for each in own), tried),
                success=share_of(*_counted(own, _succeeded)),
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
    return html.render(
        "leadhand.evals",
        "eval.html",
        {"found": found, "percent": percent, "span": span, "figure": figure, "points": points},
    )


def percent(value: float) -> str:
    """Return a share for people."""
    return f"{100 * value:.0f} %"


def span(interval: Interval) -> str:
    """Return a share with its interval for people."""
    return f"{100 * interval.value:.0f} % ({100 * interval.low:.0f}–{100 * interval.high:.0f})"


def figure(interval: Interval) -> str:
    """Return a mean with its interval for people."""
    return f"{interval.value:.3g} ({interval.low:.3g}–{interval.high:.3g})"


def points(interval: Interval) -> str:
    """Return a difference of shares in points, with its interval, for people."""
    return f"{100 * interval.value:+.0f} ({100 * interval.low:+.0f} to {100 * interval.high:+.0f})"
