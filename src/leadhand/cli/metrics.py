"""`leadhand metrics`: what all runs of a database amount to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import reading, settings_of, store_option
from leadhand.cli.text import clean, count, iso
from leadhand.errors import StoreError

if TYPE_CHECKING:
    from leadhand.app.reader import Reader
    from leadhand.core.metrics import Metrics
    from leadhand.core.plan import Doc
    from leadhand.settings import Settings


@command("metrics", "leadhand metrics\nleadhand metrics --json")
@store_option
def metrics(console: Console, store: str | None) -> int:
    """Runs by status, first-pass success, and how often each answer to a failure won.

    A retry or another worker won when the next verdict on the step was good; splitting,
    replanning and asking won when the step, or what took its place, succeeded in the end.
    """
    settings = settings_of(store)
    with reading(settings) as reader:
        runs, found, unread = _collected(settings, reader)
        circuits = _circuits(reader)
    if console.json:
        console.document(_document(runs, found, circuits, unread))
        return 0
    _print(console, runs, found, circuits)
    for line in unread:
        console.say(clean(line, 300))
    return 0


def _collected(settings: Settings, reader: Reader) -> tuple[dict[str, int], Metrics, list[str]]:
    from leadhand.cli.ls import run_rows
    from leadhand.core.metrics import Metrics

    runs: dict[str, int] = {}
    found, unread = Metrics(), []
    for row in run_rows(settings):
        runs[row["status"]] = runs.get(row["status"], 0) + 1
        try:
            found.add([event for _entry, event in reader.events(row["run"])])
        except StoreError as error:
            unread.append(str(error))
    return dict(sorted(runs.items())), found, unread


def _circuits(reader: Reader) -> list[Doc]:
    """Workers that all runs leave alone, and until when."""
    circuits = reader.host_state().circuits
    return [
        {"worker": name, "until": iso(each.until), "times": each.trips}
        for name, each in sorted(circuits.items())
    ]


def _document(runs: dict[str, int], found: Metrics, circuits: list[Doc], unread: list[str]) -> Doc:
    from leadhand.core.recoveries import rate_row, win_rates

    return {
        "runs": runs,
        "attempts": found.attempts,
        "steps_tried": found.tried,
        "first_pass": found.first_pass,
        "first_pass_rate": found.first_pass_rate,
        "failed_steps": found.failed_steps,
        "recovered": found.recovered,
        "recovery_rate": found.recovery_rate,
        "planner_calls": found.planner_calls,
        "questions": found.questions,
        "answered_by_default": found.answered_by_default,
        "recovery": [rate_row(row) for row in win_rates(found.answers)],
        "open_circuits": circuits,
        "unreadable": unread,
    }


def _print(console: Console, runs: dict[str, int], found: Metrics, circuits: list[Doc]) -> None:
    from leadhand.cli.worth import print_rates, share
    from leadhand.core.recoveries import win_rates

    by_status = ", ".join(f"{number} {status}" for status, number in runs.items()) or "none"
    rows = {
        "runs": by_status,
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
