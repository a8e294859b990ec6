"""`leadhand metrics`: totals over all runs of a database."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import reading, settings_of, store_option
from leadhand.cli.rendering.text import clean, count
from leadhand.core.durations import seconds
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.app.metrics import Figures


@command("metrics", "leadhand metrics\nleadhand metrics --since 7d --json")
@click.option(
    "--since",
    metavar="WHEN",
    help="Count only runs that started since then: 7d, 12h, or a date with a time zone.",
)
@store_option
def metrics(console: Console, since: str | None, store: str | None) -> int:
    """Show totals over all runs, and how often each recovery worked.

    The totals are runs by status, first-pass success and cost. A retry or a switch to another
    worker worked if the next check of the step passed. Splitting, re-planning and asking a
    person worked if the step, or its replacement, eventually succeeded.
    """
    from leadhand.app.metrics import figures

    settings = settings_of(store)
    with reading(settings) as reader:
        told = figures(reader, since=_began(since))
    if console.json:
        console.document(told.document())
        return 0
    _print(console, told)
    for line in told.unread:
        console.say(clean(line, 300))
    return 0


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
