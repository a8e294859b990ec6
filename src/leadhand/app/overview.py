"""The overview of a database: the document of `GET /overview`.

Figures come from the totals by day (`app/usage.py`), so no log of an ended run is read for them. Of
the failed runs that are named, each log is read once.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from leadhand.app.reader import summary_of
from leadhand.app.usage import DayRange, UsageRow, open_totals, usage, usage_row
from leadhand.core.calendar import iso
from leadhand.core.views.overview import CurrentRun, FailedRun, current_run, failed_run
from leadhand.core.views.totals import DAY_US, Totals, added
from leadhand.errors import StoreError
from leadhand.ports import RunQuery
from leadhand.stores.run_list import totals_of

if TYPE_CHECKING:
    from leadhand.app.reader import Reader
    from leadhand.app.usage import OpenTotals

Range = Literal["24h", "7d", "30d", "90d"]
DAYS: dict[Range, int] = {"24h": 2, "7d": 7, "30d": 30, "90d": 90}
"""The days, with today, that a range reaches into."""
HOUR_US = 3_600_000_000
HOURS = 24
HOURLY_MAX = 2000
"""Above so many runs in 24 hours they are counted by day: hours are counted run by run."""
ROWS_MAX = 20
"""How many running and failed runs are named."""
KNOWN_MAX = 1000

KnownFailures = dict[tuple[str, int], FailedRun]
"""Failed runs that were read, by run and length of the log."""


class Overview(Struct, kw_only=True):
    """What runs, what failed, and how runs ended over a range of time."""

    range: Range
    """The range."""
    since: str
    """The start of the range, in ISO 8601."""
    any_runs: bool
    """Whether the database has a run, of any age."""
    waiting: int
    """The number of open questions to people; `GET /inbox` lists them."""
    running: list[CurrentRun]
    """Runs that have not ended and do not only wait for a person, the newest first."""
    running_total: int
    """How many there are."""
    failed: list[FailedRun]
    """Runs that failed in the range, the last one first."""
    failed_more: bool
    """Whether more runs failed in the range than are named."""
    interval: Literal["hour", "day"]
    """What each row of `rows` is for. A run counts where it was created."""
    rows: list[UsageRow]
    """One row for each hour or day in UTC, the oldest first; `name` is when it begins."""
    total: UsageRow
    """The sum over the range."""


class _Use(NamedTuple):
    interval: Literal["hour", "day"]
    since: int
    rows: list[UsageRow]
    total: UsageRow


def overview(
    reader: Reader, name: Range, now: int, known: OpenTotals, failures: KnownFailures
) -> Overview:
    """Return the overview of a range; `known` and `failures`, which grow, spare reading."""
    use = (_by_hour(reader, now, known) if name == "24h" else None) or _by_day(
        reader, name, now, known
    )
    running, running_total = _running(reader)
    failed, more = _failed(reader, use.since, failures)
    waiting = [summary_of(header) for header in reader.waiting_runs()]
    return Overview(
        range=name,
        since=iso(use.since),
        any_runs=bool(reader.find_runs(RunQuery(limit=1)).headers),
        waiting=sum(said.waiting for said in waiting if said is not None),
        running=running,
        running_total=running_total,
        failed=failed,
        failed_more=more,
        interval=use.interval,
        rows=use.rows,
        total=use.total,
    )


def _by_day(reader: Reader, name: Range, now: int, known: OpenTotals) -> _Use:
    last = now // DAY_US
    days = DayRange(last - DAYS[name] + 1, last)
    found = usage(reader, days, "day", known)
    for row in found.rows:
        row.name = f"{row.name}T00:00:00+00:00"
    return _Use("day", days.first * DAY_US, found.rows, found.total)


def _by_hour(reader: Reader, now: int, known: OpenTotals) -> _Use | None:
    """Count the runs of the last 24 hours one by one; None if there are too many."""
    since = now // HOUR_US * HOUR_US - (HOURS - 1) * HOUR_US
    with reader.store.snapshot():  # a run that ends meanwhile must not count twice
        found = reader.find_runs(RunQuery(since=since, limit=HOURLY_MAX))
        if found.next is not None:
            return None
        open_totals(reader, since, now + DAY_US, known)
    hours: list[Totals] = [Counter() for _ in range(HOURS)]
    for header in found.headers:
        sums = totals_of(header) or known.get(header.run, (0, {}))[1]
        hours[min((header.created - since) // HOUR_US, HOURS - 1)].update(sums)
    rows = [usage_row(iso(since + at * HOUR_US), sums) for at, sums in enumerate(hours)]
    return _Use("hour", since, rows, usage_row("", added(hours)))


def _running(reader: Reader) -> tuple[list[CurrentRun], int]:
    found: list[CurrentRun] = []
    total = 0
    for header in reversed(reader.open_runs()):
        said = summary_of(header)
        if said is not None and said.status == "waiting":
            continue
        total += 1
        if len(found) < ROWS_MAX:
            try:
                found.append(current_run(reader.state(header.run)))
            except StoreError:  # the list of runs says what is wrong with it
                total -= 1
    return [run for run in found if run.status != "waiting"], total


def _failed(reader: Reader, since: int, known: KnownFailures) -> tuple[list[FailedRun], bool]:
    found = reader.find_runs(RunQuery(status=("failed",), sort="-ended", limit=ROWS_MAX + 1))
    recent = [
        header
        for header in found.headers
        if (said := summary_of(header)) is not None and said.ended >= since
    ]
    rows: list[FailedRun] = []
    for header in recent[:ROWS_MAX]:
        key = (header.run, header.seq)
        if key not in known:
            while len(known) >= KNOWN_MAX:
                known.pop(next(iter(known)), None)
            try:
                known[key] = failed_run(reader.state(header.run))
            except (StoreError, ValueError):  # unreadable, or reopened meanwhile
                continue
        rows.append(known[key])
    return rows, len(recent) > ROWS_MAX
