"""Totals over all runs of a database: the document of `leadhand metrics --json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from leadhand.app.documents import run_row
from leadhand.core.calendar import iso
from leadhand.core.views.metrics import Metrics
from leadhand.core.views.recovery_stats import WinRate, win_rates
from leadhand.core.views.run import ENDED
from leadhand.errors import StoreError

if TYPE_CHECKING:
    from leadhand.app.documents import Driver
    from leadhand.app.reader import Reader
    from leadhand.core.decide.circuit_breaker import Circuit


Counted = dict[str, tuple[int, Metrics]]
"""The counts of runs that have ended, and the length of their logs then."""


class CircuitRow(Struct, kw_only=True):
    """A worker that all runs leave alone, and until when."""

    worker: str
    """The worker that no run uses at the moment."""
    until: str
    """When it may be used again, in ISO 8601."""
    times: int
    """How often the circuit has opened in a row."""
    reason: str
    """Why the circuit opened."""


class MetricsDocument(Struct, kw_only=True):
    """What all runs amount to, as `leadhand metrics --json`."""

    runs: dict[str, int]
    """The number of runs by status."""
    attempts: int
    """The number of started attempts."""
    steps_tried: int
    """The number of steps whose first attempt has reported or was lost."""
    first_pass: int
    """The number of steps whose first attempt succeeded."""
    first_pass_rate: float | None
    """The share of tried steps whose first attempt succeeded, from 0 to 1; null without tried
    steps."""
    failed_steps: int
    """The number of steps that failed at least once and whose recovery is decided."""
    recovered: int
    """The number of those whose last recovery succeeded."""
    recovery_rate: float | None
    """The share of failed steps that recovered, from 0 to 1; null without failed steps."""
    planner_calls: int
    """The number of calls of planners."""
    cost: float
    """The cost of all runs: US dollars of models and cost units of workers together."""
    money: float
    """The part of the cost that is money, in US dollars."""
    origins: dict[str, int]
    """The number of runs that ended without success, by origin of the failure."""
    questions: int
    """The number of questions to people."""
    answered_by_default: int
    """The number of questions that got their default answer."""
    recovery: list[WinRate]
    """How often each recovery strategy succeeded, by failure class."""
    open_circuits: list[CircuitRow]
    """The workers that no run uses at the moment."""
    unreadable: list[str]
    """The errors of runs whose logs cannot be read."""


class Figures(NamedTuple):
    """Runs by status, their attempts, open circuits, and unreadable logs."""

    runs: dict[str, int]
    found: Metrics
    circuits: list[CircuitRow]
    unread: list[str]
    cost: float
    """The cost of all runs: money, and the cost units of workers."""
    money: float
    """The part of it that is money, in dollars."""

    def document(self) -> MetricsDocument:
        """Return the figures in the form that `metrics --json` prints."""
        found = self.found
        return MetricsDocument(
            runs=self.runs,
            attempts=found.attempts,
            steps_tried=found.tried,
            first_pass=found.first_pass,
            first_pass_rate=found.first_pass_rate,
            failed_steps=found.failed_steps,
            recovered=found.recovered,
            recovery_rate=found.recovery_rate,
            planner_calls=found.planner_calls,
            cost=round(self.cost, 6),
            money=round(self.money, 6),
            origins=dict(sorted(found.origins.items())),
            questions=found.questions,
            answered_by_default=found.answered_by_default,
            recovery=win_rates(found.answers),
            open_circuits=self.circuits,
            unreadable=self.unread,
        )


def figures(
    reader: Reader, driver: Driver, counted: Counted | None = None, *, since: int = 0
) -> Figures:
    """Read every log; with `counted`, which is updated, only those that may have changed.

    `since` leaves out runs that started before that moment, in UTC microseconds.
    """
    runs: dict[str, int] = {}
    found, unread, cost, money = Metrics(), list[str](), 0.0, 0.0
    known = {} if counted is None else counted
    for header in reader.runs():
        if header.created < since:
            continue
        row = run_row(reader, header, driver)
        runs[row.status] = runs.get(row.status, 0) + 1
        cost += row.cost or 0.0
        money += row.money or 0.0
        seq, one = known.get(header.run, (0, Metrics()))
        if seq != header.seq:
            one = Metrics()
            try:
                one.add([event for _entry, event in reader.events(header.run)])
            except StoreError as error:
                unread.append(str(error))
                continue
            if row.status in ENDED:
                known[header.run] = (header.seq, one)
        found.join(one)
    counts = dict(sorted(runs.items()))
    return Figures(counts, found, open_circuits(reader), unread, cost, money)


def open_circuits(reader: Reader) -> list[CircuitRow]:
    """Return the workers with an open circuit, and until when."""
    circuits = reader.host_state().circuits
    return [circuit_row(name, each) for name, each in sorted(circuits.items())]


def circuit_row(worker: str, circuit: Circuit) -> CircuitRow:
    """Return an open circuit as a row."""
    return CircuitRow(
        worker=worker, until=iso(circuit.until), times=circuit.trips, reason=circuit.reason
    )
