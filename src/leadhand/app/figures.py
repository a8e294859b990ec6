"""What all runs of a database amount to: the document of `leadhand metrics --json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leadhand.app.documents import run_rows
from leadhand.core.metrics import Metrics
from leadhand.core.moments import iso
from leadhand.core.recoveries import rate_row, win_rates
from leadhand.errors import StoreError

if TYPE_CHECKING:
    from leadhand.app.documents import Driver
    from leadhand.app.reader import Reader
    from leadhand.core.plan import Doc


class Figures(NamedTuple):
    """Runs by status, what was tried in them, circuits that are open, and logs left out."""

    runs: dict[str, int]
    found: Metrics
    circuits: list[Doc]
    unread: list[str]

    def document(self) -> Doc:
        """As `metrics --json` prints it."""
        found = self.found
        return {
            "runs": self.runs,
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
            "open_circuits": self.circuits,
            "unreadable": self.unread,
        }


def figures(reader: Reader, driver: Driver) -> Figures:
    """Read every log."""
    runs: dict[str, int] = {}
    found, unread = Metrics(), []
    for row in run_rows(reader, driver):
        runs[row["status"]] = runs.get(row["status"], 0) + 1
        try:
            found.add([event for _entry, event in reader.events(row["run"])])
        except StoreError as error:
            unread.append(str(error))
    return Figures(dict(sorted(runs.items())), found, open_circuits(reader), unread)


def open_circuits(reader: Reader) -> list[Doc]:
    """Workers that all runs leave alone, and until when."""
    circuits = reader.host_state().circuits
    return [
        {"worker": name, "until": iso(each.until), "times": each.trips}
        for name, each in sorted(circuits.items())
    ]
