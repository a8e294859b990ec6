"""Totals over all runs of a database: the document of `leadhand metrics --json`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from leadhand.app.documents import UNREADABLE
from leadhand.app.reader import ALL, summary_of
from leadhand.app.usage import open_totals
from leadhand.core.calendar import iso
from leadhand.core.views.recovery_stats import WinRate
from leadhand.core.views.totals import (
    DAY_US,
    LAST_DAY,
    OUTCOMES,
    Totals,
    added,
    rate,
    recovery_rates,
)
from leadhand.ports import RunQuery
from leadhand.stores.run_list import totals_of

if TYPE_CHECKING:
    from leadhand.app.reader import Reader
    from leadhand.app.usage import OpenTotals
    from leadhand.core.decide.circuit_breaker import Circuit


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
    """Runs by status, the totals over them, open circuits, and unreadable logs."""

    runs: dict[str, int]
    sums: Totals
    circuits: list[CircuitRow]
    unread: list[str]

    @property
    def origins(self) -> dict[str, int]:
        """Runs that ended without success, by origin of the failure."""
        mark = "origin:"
        found = {key: number for key, number in self.sums.items() if key.startswith(mark)}
        return {key.removeprefix(mark): number for key, number in sorted(found.items())}

    def document(self) -> MetricsDocument:
        """Return the figures in the form that `metrics --json` prints."""
        sums = self.sums
        return MetricsDocument(
            runs=self.runs,
            attempts=sums["attempts"],
            steps_tried=sums["tried"],
            first_pass=sums["first_pass"],
            first_pass_rate=rate(sums["first_pass"], sums["tried"]),
            failed_steps=sums["failed_steps"],
            recovered=sums["recovered"],
            recovery_rate=rate(sums["recovered"], sums["failed_steps"]),
            planner_calls=sums["planner_calls"],
            cost=sums["cost"] / 1e6,
            money=sums["money"] / 1e6,
            origins=self.origins,
            questions=sums["questions"],
            answered_by_default=sums["answered_by_default"],
            recovery=recovery_rates(sums),
            open_circuits=self.circuits,
            unreadable=self.unread,
        )


def figures(reader: Reader, known: OpenTotals | None = None, *, since: int = 0) -> Figures:
    """Return the totals over all runs: those of ended runs as stored, and open runs folded.

    `since` leaves out runs that were created before that moment, in UTC microseconds. `known` is
    what is kept of open runs between calls; it is brought up to date.
    """
    first = -(-since // DAY_US)  # the first whole day
    part = RunQuery(since=since, until=first * DAY_US, limit=ALL) if since % DAY_US else None
    with reader.store.snapshot():  # a run that ends meanwhile must not count twice
        running = open_totals(reader, since, (LAST_DAY + 1) * DAY_US, known)
        ended = reader.store.totals(first, LAST_DAY)
        begun = reader.find_runs(part).headers if part is not None else []
        still = [header for header in reader.open_runs() if header.created >= since]
    sums = added([ended, *map(totals_of, begun), *running.by_day.values()])
    runs = Counter(
        told.status
        if (told := summary_of(header)) and header.run not in running.unread
        else UNREADABLE
        for header in still
    )
    runs.update({outcome: sums[outcome] for outcome in OUTCOMES if sums[outcome]})
    unread = list(running.unread.values())
    return Figures(dict(sorted(runs.items())), sums, open_circuits(reader), unread)


def open_circuits(reader: Reader) -> list[CircuitRow]:
    """Return the workers with an open circuit, and until when."""
    circuits = reader.host_state().circuits
    return [circuit_row(name, each) for name, each in sorted(circuits.items())]


def circuit_row(worker: str, circuit: Circuit) -> CircuitRow:
    """Return an open circuit as a row."""
    return CircuitRow(
        worker=worker, until=iso(circuit.until), times=circuit.trips, reason=circuit.reason
    )
