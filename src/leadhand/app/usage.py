"""Use over a range of days: outcomes, recoveries, cost, and how often people were needed.

The figures of ended runs come from the totals that a store keeps by day; no log of an ended run is
read. Open runs are folded and added, so that what is under way counts too. A run belongs to the
day, in UTC, on which it was created.
"""

from __future__ import annotations

import time
from collections import Counter
from datetime import date, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import UNSET, Struct, UnsetType, field

from leadhand.app.run_filters import csv_table
from leadhand.core.views.run import summary
from leadhand.core.views.totals import (
    DAY_US,
    OTHER,
    OUTCOMES,
    Totals,
    added,
    named,
    quantile,
    rate,
    run_totals,
)
from leadhand.errors import StoreError, UsageError
from leadhand.stores.run_list import totals_so_far

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.app.reader import Reader

By = Literal["day", "plan", "worker", "model"]
BYS: tuple[By, ...] = ("day", "plan", "worker", "model")
DAYS_DEFAULT = 30
DAYS_MAX = 3660
"""Ten years."""
OpenTotals = dict[str, tuple[int, dict[str, int]]]
"""What open runs add, by run, with the length of their logs then: folded again when that grew."""
ROWS_MAX = 1000
"""The most rows by plan: cheaper plans are added up in the last, which is called `(other)`."""
EPOCH = date(1970, 1, 1)
FIRST_DAY = (date.min - EPOCH).days


class UsageRow(Struct, kw_only=True):
    """Figures of all runs, or of one day, plan, worker or model, as far as they apply."""

    name: str
    """The day (`2026-11-17`), plan, worker or model; empty in the total and for runs of no plan."""
    runs: int | UnsetType = UNSET
    """The number of runs: ended and open."""
    open: int | UnsetType = UNSET
    """Of them, not ended."""
    succeeded: int | UnsetType = UNSET
    """Ended with success."""
    failed: int | UnsetType = UNSET
    """Runs that failed; for a worker or model its failed attempts or calls."""
    cancelled: int | UnsetType = UNSET
    """Ended by a person or a limit."""
    rejected: int | UnsetType = UNSET
    """Ended because the plan was refused."""
    success_rate: float | UnsetType | None = UNSET
    """The share of ended runs that succeeded, from 0 to 1; null without ended runs."""
    attempts: int | UnsetType = UNSET
    """Started attempts."""
    failure_rate: float | UnsetType | None = UNSET
    """For a worker or model: the share of attempts or calls that failed, from 0 to 1."""
    failed_steps: int | UnsetType = UNSET
    """Steps that failed at least once and whose recovery is decided."""
    recovered: int | UnsetType = UNSET
    """Of them, those whose last recovery succeeded."""
    recovery_rate: float | UnsetType | None = UNSET
    """The share of failed steps that recovered, from 0 to 1; null without failed steps."""
    cost: float | UnsetType = UNSET
    """US dollars of models and cost units of workers together."""
    money: float | UnsetType = UNSET
    """The part of the cost that is money, in US dollars."""
    approvals: int | UnsetType = UNSET
    """Approvals that people gave."""
    approvals_per_run: float | UnsetType | None = UNSET
    """Approvals for each run; null without runs."""
    answers: int | UnsetType = UNSET
    """Questions and reviews that people answered."""
    answer_mean_s: float | UnsetType | None = UNSET
    """How long people took to answer, in seconds on average; null without answers."""
    answer_median_s: int | UnsetType | None = UNSET
    """Within how many seconds half of the answers came, rounded up to 10 s, 30 s, 1, 2, 5, 10 or
    30 min, 1, 2, 4, 8 or 24 hours, 2, 7 or 30 days; null without answers, or if later."""
    answer_p95_s: int | UnsetType | None = UNSET
    """The same for 95 of 100 answers."""
    unattended: int | UnsetType = UNSET
    """Runs for which no person was needed, so far as they went."""
    unattended_rate: float | UnsetType | None = UNSET
    """The share of runs for which no person was needed, from 0 to 1; null without runs."""
    duration_mean_s: float | UnsetType | None = UNSET
    """The duration of ended runs in seconds, on average; null without ended runs."""
    busy_s: float | UnsetType = UNSET
    """For a worker: the time of its attempts in seconds, added up."""
    calls: int | UnsetType = UNSET
    """For a model: calls."""
    tokens_in: int | UnsetType = UNSET
    """For a model: input tokens."""
    tokens_out: int | UnsetType = UNSET
    """For a model: output tokens."""


class UsageDocument(Struct, kw_only=True):
    """Use over a range of days, as `leadhand metrics --by … --json`."""

    start: str = field(name="from")
    """The first day, in UTC."""
    end: str = field(name="to")
    """The last day, in UTC."""
    by: By
    """What each row is for."""
    total: UsageRow
    """All runs of the range."""
    rows: list[UsageRow]
    """One row for each day (also without runs), plan, worker or model; the dearest first, days in
    order."""
    open_included: int
    """Open runs that were read from their logs and are included."""
    unreadable: list[str]
    """The errors of open runs whose logs cannot be read; they are not included."""


def usage_csv(doc: UsageDocument) -> str:
    """Return the rows of a document as CSV, with the figures that apply to them."""
    names = [name for name in UsageRow.__struct_fields__ if name != "name"]
    told = [name for name in names if any(getattr(row, name) is not UNSET for row in doc.rows)]
    return csv_table(["name", *told], doc.rows)


class DayRange(NamedTuple):
    """A range of days, counted from 1970-01-01 in UTC; both are included."""

    first: int
    last: int

    @classmethod
    def of(cls, start: str | None, end: str | None) -> DayRange:
        """Return the range from one date to another; by default the last 30 days.

        Raise `UsageError` for texts that are no dates, or a range that is too long.
        """
        last = _day(end) if end else int(time.time() // 86_400)
        first = _day(start) if start else max(last - DAYS_DEFAULT + 1, FIRST_DAY)
        if not 0 <= last - first < DAYS_MAX:
            raise UsageError(
                f"from {_date(first)} to {_date(last)} is no range. "
                f"Fix: end on the first day or later, at most {DAYS_MAX} days after it"
            )
        return cls(first, last)


def _day(text: str) -> int:
    try:
        return (date.fromisoformat(text) - EPOCH).days
    except ValueError:
        raise UsageError(f"{text[:40]!r} is no date. Fix: write it as 2026-11-17") from None


def _date(day: int) -> str:
    return (EPOCH + timedelta(days=day)).isoformat()


class OpenRuns(NamedTuple):
    """What the open runs add to the totals."""

    by_day: dict[int, Totals]
    folded: int
    """How many there were."""
    unread: dict[str, str]
    """By run, why its log cannot be read."""


def open_totals(reader: Reader, first: int, last: int, known: OpenTotals | None = None) -> OpenRuns:
    """Add up the open runs that were created from one moment until before another.

    Of a run that waits, the summary says what it adds; others are folded. `known` holds what was
    found before, and is brought up to date.
    """
    kept = {} if known is None else known
    found, count, unread = dict[int, Totals](), 0, dict[str, str]()
    seen = set()
    for header in reader.open_runs():
        seen.add(header.run)
        if not first <= header.created < last:
            continue
        seq, sums = kept.get(header.run, (0, dict[str, int]()))
        told = totals_so_far(header) if seq != header.seq else None
        if told is not None:
            sums = told
            kept[header.run] = (header.seq, sums)
        elif seq != header.seq:
            try:
                state = reader.state(header.run)
            except StoreError as error:
                unread[header.run] = str(error)
                continue
            sums = run_totals(state, summary(state))
            kept[header.run] = (state.seq, sums)
        count += 1
        found.setdefault(header.created // DAY_US, Counter()).update(sums)
    for run in kept.keys() - seen:
        kept.pop(run, None)
    return OpenRuns(found, count, unread)


def usage(reader: Reader, days: DayRange, by: By, known: OpenTotals | None = None) -> UsageDocument:
    """Return the use over a range of days. `known` is what is kept of open runs between calls."""
    first, last = days
    with reader.store.snapshot():  # a run that ends meanwhile must not count twice
        running = open_totals(reader, first * DAY_US, (last + 1) * DAY_US, known)
        ended = reader.store.totals(first, last, plans=by == "plan")
        daily = reader.store.daily_totals(first, last) if by == "day" else []
    sums = added([ended, *running.by_day.values()])
    if by == "day":
        rows = _days(days, daily, running)
    elif by == "plan":
        rows = [usage_row(name, each) for name, each in _plans(sums).items()]
    elif by == "worker":
        rows = [_worker(name, each) for name, each in named(sums, "worker").items()]
    else:
        rows = [_model(name, each) for name, each in named(sums, "model").items()]
    if by != "day":
        rows.sort(key=_dearest)
    return UsageDocument(
        start=_date(first),
        end=_date(last),
        by=by,
        total=usage_row("", sums),
        rows=rows,
        open_included=running.folded,
        unreadable=list(running.unread.values()),
    )


def _plans(sums: Totals) -> dict[str, Totals]:
    """Return the sums of the dearest plans, and of all others together."""
    found = named(sums, "plan")
    if len(found) <= ROWS_MAX:
        return found
    order = sorted(
        found, key=lambda name: (-found[name]["money"], -found[name]["cost"], -found[name]["runs"])
    )
    told = {name: found[name] for name in order[: ROWS_MAX - 1]}
    rest: Totals = Counter()
    for name in order[ROWS_MAX - 1 :]:
        rest.update(found[name])
    return {**told, OTHER: rest}


def _dearest(row: UsageRow) -> tuple[float, float, int, str]:
    size = row.runs or row.attempts or row.calls or 0
    return -(row.money or 0.0), -(row.cost or 0.0), -size, row.name


def _days(days: DayRange, daily: list[tuple[int, str, int]], running: OpenRuns) -> list[UsageRow]:
    by_day: dict[int, Totals] = {day: Counter() for day in range(days.first, days.last + 1)}
    for day, key, number in daily:
        by_day[day][key] += number
    for day, sums in running.by_day.items():
        by_day[day].update(sums)
    return [usage_row(_date(day), sums) for day, sums in by_day.items()]


def usage_row(name: str, sums: Mapping[str, int]) -> UsageRow:
    """Return the figures of all runs, of a day or of a plan."""
    found = Counter(sums)
    ended = sum(found[outcome] for outcome in OUTCOMES)
    unattended = found["runs"] - found["needed_person"]
    return UsageRow(
        name=name,
        runs=found["runs"],
        open=found["open"],
        succeeded=found["succeeded"],
        failed=found["failed"],
        cancelled=found["cancelled"],
        rejected=found["rejected"],
        success_rate=rate(found["succeeded"], ended),
        attempts=found["attempts"],
        failed_steps=found["failed_steps"],
        recovered=found["recovered"],
        recovery_rate=rate(found["recovered"], found["failed_steps"]),
        cost=found["cost"] / 1e6,
        money=found["money"] / 1e6,
        approvals=found["approvals"],
        approvals_per_run=rate(found["approvals"], found["runs"]),
        answers=found["answers"],
        answer_mean_s=_mean_s(found["human_wait_us"], found["answers"]),
        answer_median_s=quantile(found, 0.5),
        answer_p95_s=quantile(found, 0.95),
        unattended=unattended,
        unattended_rate=rate(unattended, found["runs"]),
        duration_mean_s=_mean_s(found["duration_us"], ended),
    )


def _mean_s(microseconds: int, times: int) -> float | None:
    return round(microseconds / times / 1e6, 3) if times else None


def _worker(name: str, sums: Totals) -> UsageRow:
    return UsageRow(
        name=name,
        attempts=sums["attempts"],
        failed=sums["failed"],
        failure_rate=rate(sums["failed"], sums["attempts"]),
        busy_s=round(sums["busy_us"] / 1e6, 3),
        cost=sums["cost"] / 1e6,
    )


def _model(name: str, sums: Totals) -> UsageRow:
    return UsageRow(
        name=name,
        calls=sums["calls"],
        failed=sums["failed"],
        failure_rate=rate(sums["failed"], sums["calls"]),
        tokens_in=sums["tokens_in"],
        tokens_out=sums["tokens_out"],
        money=sums["money"] / 1e6,
    )
