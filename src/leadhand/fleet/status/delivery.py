"""Delivery: the figures of a fleet for the head of engineering, by period and by week.

Every figure has one definition (`FIGURES`), a value and a sample size. Where there is no data the
value is None, shown as "not measured", and never 0. The page, the CSV file and the JSON document
are three forms of one `Delivery`.

    period   from `--since`, or the first epic of the fleet if that is later, until now
    weeks    seven days each, counted back from now; the first one may be shorter
    before   as long as the period, and ended by the first epic: what git tells of it

The sources are the log (epics, failures, decisions), the journal (cost) and git (commits).
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from leadhand.core.calendar import iso
from leadhand.fleet.status.figures import (
    DAY,
    HOUR,
    WEEK,
    failed_lines,
    is_person,
    share,
    spent_in,
)
from leadhand.fleet.status.rework import FIX_WORDS, FIXED, REVERTED, WINDOW_DAYS, reworked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leadhand.fleet.status.figures import FailedLine, Landing, Sources
    from leadhand.fleet.status.rework import MainChange

MINUTE = HOUR // 60
DECISION_MINUTES_MAX = 10
NOT_MEASURED = "not measured"


class FigureDefinition(msgspec.Struct, frozen=True):
    """What a figure is."""

    name: str
    title: str
    unit: str
    """changes, usd, hours, share, minutes, decisions or tasks"""
    definition: str
    sample: str
    """What its sample size counts."""
    sums: bool = False
    """Whether the figure of a period is the sum of those of its weeks."""


_FLEET = "commits on main that name a task of the fleet in their trailers, by commit time"
_ANY = "commits on main that are no merges, of people and of the fleet, by commit time"
_REWORK = (
    f"reverted: within {WINDOW_DAYS} days a later commit names it (“This reverts commit …”) or is "
    f"exactly its reverse; fixed: within {WINDOW_DAYS} days a later commit with a word of a fix in "
    f"its subject ({FIX_WORDS}) removes or replaces a line that it added. Each change counts "
    f"once, as reverted if both. A change younger than {WINDOW_DAYS} days may still be reworked"
)
FIGURES = (
    FigureDefinition("merged", "Merged by the fleet", "changes", _FLEET, "changes", sums=True),
    FigureDefinition(
        "merged_per_week",
        "Merged per week",
        "changes",
        f"{_FLEET}, divided by the weeks of the period; not measured for less than a day",
        "changes",
    ),
    FigureDefinition(
        "spend",
        "Model spend",
        "usd",
        "cost that agents, reviewers and planners reported, failed and lost attempts included; "
        "machines and people are not in it",
        "reports of a cost",
        sums=True,
    ),
    FigureDefinition(
        "cost_per_merged",
        "Cost per merged change",
        "usd",
        "model spend of the period, divided by the changes that the fleet merged in it",
        "changes",
    ),
    FigureDefinition(
        "lead_hours_median",
        "Time from submission to main, median",
        "hours",
        "from when the issue of the epic was written on the code host, or else from when the fleet "
        "took the epic up (at its submission, if the fleet was running), to the commit on main, "
        "for each change that the fleet merged; half of them took no longer",
        "changes",
    ),
    FigureDefinition(
        "lead_hours_p90",
        "Time from submission to main, p90",
        "hours",
        "the same; nine of ten took no longer",
        "changes",
    ),
    FigureDefinition(
        "without_person",
        "Merged without a person",
        "changes",
        "changes that the fleet merged without a question to a person about their task or the "
        "tasks that it replaced; the review of a plan is not counted here, but as a decision",
        "changes",
        sums=True,
    ),
    FigureDefinition(
        "without_person_share",
        "Share without a person",
        "share",
        "changes merged without a person, of all changes that the fleet merged",
        "changes",
    ),
    FigureDefinition(
        "decisions",
        "Decisions of people",
        "decisions",
        "answers, approvals, rejections, requested changes, holds, pauses and cancellations by "
        "people in the log of epics, and messages to agents, stops and submissions; answers by "
        "default are left out",
        "decisions",
        sums=True,
    ),
    FigureDefinition(
        "human_minutes",
        "Minutes of people",
        "minutes",
        "for each decision the time since it was asked for, or since the same person's decision "
        f"before if that is later, but at most {DECISION_MINUTES_MAX} minutes: how long people "
        "read is not in the log; reading outside of it and writing epics is not counted",
        "decisions",
        sums=True,
    ),
    FigureDefinition(
        "failed",
        "Failed tasks that are settled",
        "tasks",
        "tasks with a failed attempt in the period that have landed since, or were left to a "
        "person; counted in the week of the first failure",
        "tasks",
        sums=True,
    ),
    FigureDefinition(
        "recovered",
        "Recovered without a person",
        "tasks",
        "of these, tasks that landed without a person; a split task when all its parts have",
        "tasks",
        sums=True,
    ),
    FigureDefinition(
        "recovery_rate",
        "Recovery rate",
        "share",
        "recovered tasks, of the failed tasks that are settled",
        "tasks",
    ),
    FigureDefinition(
        "reverted", "Reverted", "changes", f"changes of the fleet. {_REWORK}", "changes", sums=True
    ),
    FigureDefinition(
        "fixed", "Fixed", "changes", f"changes of the fleet. {_REWORK}", "changes", sums=True
    ),
    FigureDefinition(
        "rework_share",
        "Rework",
        "share",
        f"changes of the fleet that were reverted or fixed, of all it merged. {_REWORK}",
        "changes",
    ),
    FigureDefinition("changes", "All changes on main", "changes", _ANY, "changes", sums=True),
    FigureDefinition(
        "changes_per_week",
        "All changes per week",
        "changes",
        f"{_ANY}, divided by the weeks of the period; not measured for less than a day",
        "changes",
    ),
    FigureDefinition(
        "changes_reworked",
        "All changes reworked",
        "changes",
        f"changes of people and of the fleet. {_REWORK}",
        "changes",
        sums=True,
    ),
    FigureDefinition(
        "changes_rework_share",
        "Rework of all changes",
        "share",
        f"reverted or fixed changes, of all changes on main. {_REWORK}",
        "changes",
    ),
)
BY_NAME = {each.name: each for each in FIGURES}


class Measured(msgspec.Struct, frozen=True):
    """The value of a figure, and how many cases it was computed from."""

    value: int | float | None = None
    """None: not measured."""
    sample: int = 0


class DeliveryPeriod(msgspec.Struct, frozen=True):
    """The figures of one period: from `since` until before `until`."""

    name: str
    """period, before or week"""
    since: str
    until: str
    days: float
    figures: dict[str, Measured]


class Delivery(msgspec.Struct, frozen=True):
    """All figures: the period, its weeks, and the time before the fleet."""

    period: DeliveryPeriod
    before: DeliveryPeriod | None
    weeks: list[DeliveryPeriod]
    definitions: tuple[FigureDefinition, ...] = FIGURES


class _Facts(NamedTuple):
    """What all periods are computed from."""

    landings: Sequence[Landing]
    lead: Mapping[str, int]
    """The time from submission to main, by commit."""
    alone: Mapping[str, bool]
    """Whether a change was merged without a person, by commit."""
    spent: Sequence[tuple[int, float]]
    decided: Sequence[tuple[int, int]]
    """When people decided, and the time that this took at most."""
    failed: Sequence[FailedLine]
    changes: Sequence[MainChange] | None
    rework: Mapping[str, str]
    began: int
    """When the fleet began; 0: it did not."""


def delivery(sources: Sources, changes: Sequence[MainChange] | None) -> Delivery:
    """Return the figures since `sources.since`.

    - `changes`: what git knows of main from `history_since` on; None if that cannot be told.
    """
    facts = _facts(sources, changes)
    now, began = sources.now, facts.began
    since = max(sources.since, began) if began else sources.since or now
    weeks = []
    until = now + 1  # what happened at this very moment belongs to the last week
    for at in _edges(since, now):
        weeks.append(_period("week", at, until, facts))
        until = at
    before = None
    if began and changes is not None:
        before = _period("before", began - (now - since), began, facts)
    return Delivery(_period("period", since, now + 1, facts), before, weeks[::-1])


def history_since(sources: Sources) -> int:
    """Return from when on the changes of main are needed: the length of the period before it."""
    began = _began(sources)
    since = max(sources.since, began)
    return max(0, min(since, began - (sources.now - since))) if began else sources.since


def _edges(since: int, now: int) -> list[int]:
    """Return the beginnings of the weeks, the last one first."""
    found = list(range(now - WEEK, since, -WEEK))
    return [*found, since]


def _began(sources: Sources) -> int:
    return min((epic.started for epic in sources.epics if epic.started), default=0)


def _facts(sources: Sources, changes: Sequence[MainChange] | None) -> _Facts:
    started = {epic.run: epic.asked_at or epic.started for epic in sources.epics}
    tasks = {task.name: task for epic in sources.epics for task in epic.tasks.values()}
    touched = {task.line for task in tasks.values() if task.person}
    landings = list({(each.run, each.task): each for each in sources.landings}.values())
    known = {each.sha: tasks.get(f"{each.run}/{each.task}") for each in landings}
    return _Facts(
        landings=landings,
        lead={
            each.sha: max(0, each.at - started[each.run])
            for each in landings
            if started.get(each.run)
        },
        alone={sha: task.line not in touched for sha, task in known.items() if task is not None},
        spent=[each for each in spent_in(sources) if each[1]],
        decided=_decisions(sources),
        failed=[each for each in failed_lines(sources) if each.well or each.badly],
        changes=changes,
        rework=reworked(changes or ()),
        began=_began(sources),
    )


def _decisions(sources: Sources) -> list[tuple[int, int]]:
    """Return when people decided, and how long that took at most."""
    acts = [act for epic in sources.epics for act in epic.acts]
    acts += [
        (note["at"], str(note.get("actor", "")), 0)
        for note in sources.notes
        if note["what"] == "ordered" and is_person(str(note.get("actor", "")))
    ]
    last: dict[str, int] = {}
    found = []
    for at, actor, asked in sorted(acts):
        since = max(asked, last.get(actor, 0))
        found.append((at, min(at - since, DECISION_MINUTES_MAX * MINUTE)))
        last[actor] = at
    return found


def _period(name: str, since: int, until: int, facts: _Facts) -> DeliveryPeriod:
    days = (until - since) / DAY
    found = _on_main(since, until, facts, days)
    if name == "before" and not found["changes"].value:
        found = {}  # the repository may not have been there
    if facts.began and name != "before":
        found |= _of_fleet(since, until, facts, days)
    figures = {each.name: found.get(each.name, Measured()) for each in FIGURES}
    return DeliveryPeriod(name, iso(since), iso(until), round(days, 3), figures)


def _on_main(since: int, until: int, facts: _Facts, days: float) -> dict[str, Measured]:
    if facts.changes is None:
        return {}
    inside = [each.sha for each in facts.changes if since <= each.at < until]
    count, redone = len(inside), sum(sha in facts.rework for sha in inside)
    return {
        "changes": Measured(count, count),
        "changes_per_week": Measured(_per_week(count, days), count),
        "changes_reworked": Measured(redone, count),
        "changes_rework_share": _share(redone, count),
    }


def _of_fleet(since: int, until: int, facts: _Facts, days: float) -> dict[str, Measured]:
    own = [each.sha for each in facts.landings if since <= each.at < until]
    merged = len(own)
    spent = [cost for at, cost in facts.spent if since <= at < until]
    lead = [facts.lead[sha] / HOUR for sha in own if sha in facts.lead]
    known = [facts.alone[sha] for sha in own if sha in facts.alone]
    took = [each for at, each in facts.decided if since <= at < until]
    failed = [each for each in facts.failed if since <= each.at < until]
    well = sum(each.well for each in failed)
    found = {
        "merged": Measured(merged, merged),
        "merged_per_week": Measured(_per_week(merged, days), merged),
        "lead_hours_median": Measured(share(lead, 0.5), len(lead)),
        "lead_hours_p90": Measured(share(lead, 0.9), len(lead)),
        "without_person": Measured(sum(known), len(known)),
        "without_person_share": _share(sum(known), len(known)),
        "decisions": Measured(len(took), len(took)),
        "human_minutes": Measured(round(sum(took) / MINUTE, 6), len(took)),
        "failed": Measured(len(failed), len(failed)),
        "recovered": Measured(well, len(failed)),
        "recovery_rate": _share(well, len(failed)),
    }
    if facts.spent:  # agents that report no cost are not free
        cost = round(sum(spent) / merged, 6) if merged and spent else None
        found["spend"] = Measured(round(sum(spent), 6), len(spent))
        found["cost_per_merged"] = Measured(cost, merged)
    if facts.changes is not None:
        seen = {each.sha for each in facts.changes}
        counted = [sha for sha in own if sha in seen]
        how = [facts.rework.get(sha, "") for sha in counted]
        found["reverted"] = Measured(how.count(REVERTED), len(counted))
        found["fixed"] = Measured(how.count(FIXED), len(counted))
        found["rework_share"] = _share(how.count(REVERTED) + how.count(FIXED), len(counted))
    return found


def _per_week(count: int, days: float) -> float | None:
    return round(count * 7 / days, 3) if days >= 1 else None


def _share(part: int, whole: int) -> Measured:
    return Measured(round(part / whole, 4) if whole else None, whole)


# The forms of a figure.


def shown(unit: str, value: float | None) -> str:
    """Return a value for people; "not measured" where there is none."""
    if value is None:
        return NOT_MEASURED
    match unit:
        case "share":
            return f"{value:.0%}"
        case "usd":
            return f"${value:,.4f}" if 0 < value < 0.1 else f"${value:,.2f}"
        case "hours":
            return _duration(value)
        case "minutes":
            return f"{value:,.0f} min"
        case _:
            return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _duration(hours: float) -> str:
    if hours < 1:
        return f"{hours * 60:.1f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"


COLUMNS = ("period", "since", "until", "figure", "unit", "value", "sample", "definition")


def as_csv(found: Delivery) -> str:
    """Return the figures as CSV: a row for each figure of each period; no value: not measured."""
    out = io.StringIO()
    rows = csv.writer(out)
    rows.writerow(COLUMNS)
    for period in _periods(found):
        for name, each in period.figures.items():
            about = BY_NAME[name]
            value = "" if each.value is None else repr(each.value)
            when = (period.name, period.since, period.until)
            rows.writerow((*when, name, about.unit, value, each.sample, about.definition))
    return out.getvalue()


def _periods(found: Delivery) -> Iterable[DeliveryPeriod]:
    yield found.period
    if found.before is not None:
        yield found.before
    yield from found.weeks
