"""`leadhand metrics`: totals over all runs of a database."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from msgspec import UNSET

from leadhand.app.usage import BYS, DayRange, usage
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import reading, settings_of, store_option
from leadhand.cli.rendering.text import clean, count, table
from leadhand.core.durations import seconds
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.app.metrics import Figures
    from leadhand.app.usage import By, UsageDocument, UsageRow

RUN_COLUMNS = (
    "runs",
    "open",
    "succeeded",
    "failed",
    "success_rate",
    "recovery_rate",
    "cost",
    "money",
    "approvals",
    "answer_median_s",
    "unattended_rate",
)
WORKER_COLUMNS = ("attempts", "failed", "failure_rate", "busy_s", "cost")
MODEL_COLUMNS = ("calls", "failed", "tokens_in", "tokens_out", "money")


@command("metrics", "leadhand metrics --since 7d\nleadhand metrics --by plan --from 2026-11-01")
@click.option(
    "--since",
    metavar="WHEN",
    help="Count only runs that started since then: 7d, 12h, or a date with a time zone.",
)
@click.option(
    "--by",
    type=click.Choice(BYS),
    help="Show runs, cost and the part of people in a table: a row for each day, plan, worker or "
    "model.",
)
@click.option(
    "--from", "start", metavar="DATE", help="With --by: the first day, in UTC; 30 days by default."
)
@click.option("--to", "end", metavar="DATE", help="With --by: the last day, in UTC; today.")
@store_option
def metrics(
    console: Console,
    since: str | None,
    by: By | None,
    start: str | None,
    end: str | None,
    store: str | None,
) -> int:
    """Show totals over all runs, and how often each recovery worked.

    The totals are runs by status, first-pass success and cost. A retry or a switch to another
    worker worked if the next check of the step passed. Splitting, re-planning and asking a
    person worked if the step, or its replacement, eventually succeeded.
    """
    from leadhand.app.metrics import figures

    if by is None and (start or end):
        raise UsageError("--from and --to go with --by. Fix: add --by day, or use --since")
    if by is not None and since:
        raise UsageError("--since does not go with --by. Fix: use --from and --to")
    settings = settings_of(store)
    if by is not None:
        with reading(settings) as reader:
            used = usage(reader, DayRange.of(start, end), by)
        if console.json:
            console.document(used)
        else:
            _print_usage(console, used)
        return 0
    with reading(settings) as reader:
        told = figures(reader, since=_began(since))
    if console.json:
        console.document(told.document())
        return 0
    _print(console, told)
    for line in told.unread:
        console.say(clean(line, 300))
    return 0


def _print_usage(console: Console, used: UsageDocument) -> None:
    """Print a table of use, and the total where rows are of runs."""
    names = {"worker": WORKER_COLUMNS, "model": MODEL_COLUMNS}.get(used.by, RUN_COLUMNS)
    rows = [row for row in used.rows if row.runs != 0]  # of days without runs nothing is known
    cells = [[_name(row, used.by), *(_cell(getattr(row, key)) for key in names)] for row in rows]
    if used.by in ("day", "plan"):
        cells.append(["total", *(_cell(getattr(used.total, key)) for key in names)])
    heads = tuple(key.removesuffix("_s").replace("_", " ").upper() for key in (used.by, *names))
    for line in table(heads, map(tuple, cells)):
        console.row(line)
    span = f"{used.start} to {used.end} (UTC), by the day that runs were created"
    added = f"; {count(used.open_included, 'open run')} included" if used.open_included else ""
    console.say(f"{span}{added}")
    for line in used.unreadable:
        console.say(clean(line, 300))


def _name(row: UsageRow, by: By) -> str:
    return clean(row.name, 60) or ("(no plan)" if by == "plan" else "")


def _cell(value: Any) -> str:
    """Return a figure for a table; nothing for one that is not known."""
    if value is None or value is UNSET:
        return ""
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _began(since: str | None) -> int:
    """Return an instant in UTC microseconds: a duration ago, or a date. Raise `UsageError`."""
    if since is None:
        return 0
    try:
        return time.time_ns() // 1000 - int(seconds(since) * 1_000_000)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        raise UsageError(
            f"--since: {clean(since, 60)} is neither a duration nor a date. "
            "Fix: write 7d, 12h, or 2026-11-17T09:00+00:00."
        ) from None
    return int(moment.astimezone(UTC).timestamp() * 1_000_000)


def _print(console: Console, told: Figures) -> None:
    from leadhand.cli.rendering.recovery import print_rates, share

    found = told.document()
    by_status = ", ".join(f"{number} {status}" for status, number in told.runs.items()) or "none"
    ends = ", ".join(f"{number} {origin}" for origin, number in found.origins.items())
    rows = {
        "runs": by_status,
        **({"failed by": ends} if ends else {}),
        "attempts": f"{found.attempts} at {count(found.steps_tried, 'step')}",
        "first pass": f"{found.first_pass} of {found.steps_tried}  {share(found.first_pass_rate)}",
        "recovered": f"{found.recovered} of {count(found.failed_steps, 'step')} that failed  "
        f"{share(found.recovery_rate)}",
        "planner": f"{count(found.planner_calls, 'call')}",
        "cost": f"{found.cost:.6f}".rstrip("0").rstrip("."),
        "questions": f"{found.questions}, {found.answered_by_default} answered by default",
    }
    for name, value in rows.items():
        console.out(f"{name:<12}{value.rstrip()}")
    if found.recovery:
        console.out("Recovery:")
        print_rates(console, found.recovery)
    for row in told.circuits:
        console.out(f"unavailable {clean(row.worker)} until {row.until}")
