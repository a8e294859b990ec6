"""`leadhand metrics`: what all runs of a database amount to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import reading, settings_of, store_option
from leadhand.cli.text import clean, count

if TYPE_CHECKING:
    from leadhand.core.metrics import Metrics
    from leadhand.core.plan import Doc


@command("metrics", "leadhand metrics\nleadhand metrics --json")
@store_option
def metrics(console: Console, store: str | None) -> int:
    """Runs by status, first-pass success, and how often each answer to a failure won.

    A retry or another worker won when the next verdict on the step was good; splitting,
    replanning and asking won when the step, or what took its place, succeeded in the end.
    """
    from leadhand.app.figures import figures
    from leadhand.app.hosting import looked

    settings = settings_of(store)
    with reading(settings) as reader:
        told = figures(reader, looked(settings, reader)[0])
    if console.json:
        console.document(told.document())
        return 0
    _print(console, told.runs, told.found, told.circuits)
    for line in told.unread:
        console.say(clean(line, 300))
    return 0


def _print(console: Console, runs: dict[str, int], found: Metrics, circuits: list[Doc]) -> None:
    from leadhand.cli.worth import print_rates, share
    from leadhand.core.recoveries import win_rates

    by_status = ", ".join(f"{number} {status}" for status, number in runs.items()) or "none"
    ends = ", ".join(f"{number} {origin}" for origin, number in sorted(found.origins.items()))
    rows = {
        "runs": by_status,
        **({"failed by": ends} if ends else {}),
        "attempts": f"{found.attempts} at {count(found.tried, 'step')}",
        "first pass": f"{found.first_pass} of {found.tried}  {share(found.first_pass_rate)}",
        "recovered": f"{found.recovered} of {count(found.failed_steps, 'step')} that failed  "
        f"{share(found.recovery_rate)}",
        "planner": f"asked {count(found.planner_calls, 'time')}",
        "questions": f"{found.questions}, {found.answered_by_default} answered by default",
    }
    for name, value in rows.items():
        console.out(f"{name:<12}{value.rstrip()}")
    rates = win_rates(found.answers)
    if rates:
        console.out("Recovery:")
        print_rates(console, rates)
    for row in circuits:
        console.out(f"left alone  {clean(row['worker'])} until {row['until']}")
