"""How the workers of a database were used, and whether they are available.

Attempts and failures are those of `usage` over the last days; the p50 and the last error are of the
newest runs, whose number has a bound: they need the logs.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from leadhand.app.metrics import CircuitRow, circuit_row
from leadhand.app.usage import UsageRow
from leadhand.core.calendar import iso
from leadhand.core.views.worker_use import WorkerError, WorkerTally, worker_use
from leadhand.errors import StoreError
from leadhand.ports import RunQuery

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.app.reader import Reader
    from leadhand.app.usage import UsageDocument
    from leadhand.ports import RunHeader

RUNS_MAX = 200
"""The number of runs that are looked at, the newest first."""
EVENTS_MAX = 50_000
"""The number of events of all of them together; the newest run is always looked at."""

UseCache = dict[str, tuple[int, dict[str, WorkerTally]]]
"""The tallies of runs, with the length of their logs then."""
Availability = Literal["available", "unavailable", "on trial", "not configured"]


class WorkerUseRow(Struct, kw_only=True):
    """How a worker was used, and whether it is available."""

    worker: str
    """The name of the worker."""
    availability: Availability
    """unavailable: its circuit is open; on trial: the next attempt decides whether its circuit
    closes; not configured: runs used it, and this server does not know it."""
    attempts: int
    """The number of attempts that were started in the range of days."""
    failed: int
    """The number of them that failed."""
    failure_rate: float | None
    """The share of attempts that failed, from 0 to 1; null without attempts."""
    p50_s: float | None
    """The p50 of the duration of successful attempts of the newest runs, in seconds; null without
    any."""
    last_used: str | None
    """When the last attempt in the newest runs started, in ISO 8601."""
    last_error: WorkerError | None
    """The last failed attempt in the newest runs."""
    circuit: CircuitRow | None
    """The open circuit, if there is one."""


class WorkerUsePage(Struct, kw_only=True):
    """How the workers were used."""

    items: list[WorkerUseRow]
    """The workers, by name."""
    next: None
    """Always null: there is one page."""
    start: str = field(name="from")
    """The first day whose runs count for attempts and failures, in UTC."""
    end: str = field(name="to")
    """The last of these days."""
    runs: int
    """The number of newest runs that the p50 and the last error are from."""


def worker_use_page(
    reader: Reader, configured: Iterable[str], now: int, used: UsageDocument, known: UseCache
) -> WorkerUsePage:
    """Return the use of the configured workers, and of others that runs used.

    `now` is in UTC microseconds, `used` the use by worker. `known` is brought up to date, so that
    only changed logs are read.
    """
    headers = newest(reader)
    found: dict[str, WorkerTally] = {}
    for header in headers:
        for worker, tally in _tallies(reader, header, known).items():
            found.setdefault(worker, WorkerTally()).join(tally)
    for gone in known.keys() - {header.run for header in headers}:
        known.pop(gone, None)
    counts = {row.name: row for row in used.rows}
    own, circuits = frozenset(configured), reader.host_state().circuits
    rows = []
    for name in sorted({*own, *found, *counts}):
        each = circuits.get(name)
        state: Availability = "available" if name in own else "not configured"
        if each is not None:
            state = "unavailable" if each.until > now else "on trial"
        circuit = None if each is None else circuit_row(name, each)
        rows.append(_row(name, counts.get(name), found.get(name), state, circuit))
    return WorkerUsePage(items=rows, next=None, start=used.start, end=used.end, runs=len(headers))


def newest(reader: Reader) -> list[RunHeader]:
    """Return the newest runs within the bounds, newest first."""
    found: list[RunHeader] = []
    events = 0
    for header in reader.find_runs(RunQuery(limit=RUNS_MAX)).headers:
        events += header.seq
        if found and events > EVENTS_MAX:
            break
        found.append(header)
    return found


def _tallies(reader: Reader, header: RunHeader, cache: UseCache) -> dict[str, WorkerTally]:
    seq, tallies = cache.get(header.run, (0, {}))
    if seq == header.seq:
        return tallies
    try:
        log = [(entry.at, event) for entry, event in reader.events(header.run)]
    except StoreError:  # damaged: `leadhand verify` reports it
        return {}
    tallies = worker_use(header.run, log)
    cache[header.run] = (header.seq, tallies)
    return tallies


def _row(
    name: str,
    used: UsageRow | None,
    tally: WorkerTally | None,
    state: Availability,
    circuit: CircuitRow | None,
) -> WorkerUseRow:
    tally = tally or WorkerTally()
    counts = used or UsageRow(name=name, attempts=0, failed=0, failure_rate=None)
    return WorkerUseRow(
        worker=name,
        availability=state,
        attempts=counts.attempts or 0,
        failed=counts.failed or 0,
        failure_rate=counts.failure_rate or (0.0 if counts.attempts else None),
        p50_s=round(median(tally.durations), 3) if tally.durations else None,
        last_used=iso(tally.used) if tally.used else None,
        last_error=tally.error,
        circuit=circuit,
    )
