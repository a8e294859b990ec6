"""How the workers of a database were used: over its newest runs, so that the cost has a bound."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from leadhand.app.metrics import CircuitRow, circuit_row
from leadhand.core.calendar import iso
from leadhand.core.views.worker_use import WorkerError, WorkerTally, worker_use
from leadhand.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.app.reader import Reader
    from leadhand.ports import RunHeader

RUNS_MAX = 200
"""The number of runs that are looked at, the newest first."""
EVENTS_MAX = 50_000
"""The number of events of all of them together; the newest run is always looked at."""

UseCache = dict[str, tuple[int, dict[str, WorkerTally]]]
"""The tallies of runs, with the length of their logs then."""
Availability = Literal["available", "unavailable", "on trial", "not configured"]


class WorkerUseRow(Struct, kw_only=True):
    """How a worker was used in the newest runs, and whether it is available."""

    worker: str
    """The name of the worker."""
    availability: Availability
    """unavailable: its circuit is open; on trial: the next attempt decides whether its circuit
    closes; not configured: runs used it, and this server does not know it."""
    attempts: int
    """The number of started attempts."""
    failed: int
    """The number of attempts that failed."""
    lost: int
    """The number of attempts that were lost with their host, which are not counted as failed."""
    failure_rate: float | None
    """The share of ended attempts that failed, from 0 to 1; null without ended attempts."""
    p50_s: float | None
    """The p50 of the duration of successful attempts, in seconds; null without any."""
    last_used: str | None
    """When the last attempt started, in ISO 8601."""
    last_error: WorkerError | None
    """The last failed attempt."""
    circuit: CircuitRow | None
    """The open circuit, if there is one."""


class WorkerUsePage(Struct, kw_only=True):
    """How the workers were used in the newest runs."""

    items: list[WorkerUseRow]
    """The workers, by name."""
    next: None
    """Always null: there is one page."""
    runs: int
    """The number of runs that were counted, the newest ones."""
    since: str | None
    """When the oldest of them was created, in ISO 8601."""
    complete: bool
    """Whether these are all runs of the database."""


def worker_use_page(
    reader: Reader, configured: Iterable[str], now: int, known: UseCache | None = None
) -> WorkerUsePage:
    """Return the use of the configured workers, and of others that the newest runs used.

    `now` is in UTC microseconds. With `known`, which is updated, only changed logs are read.
    """
    cache = {} if known is None else known
    headers, complete = newest(reader)
    found: dict[str, WorkerTally] = {name: WorkerTally() for name in configured}
    own = frozenset(found)
    for header in headers:
        for worker, tally in _tallies(reader, header, cache).items():
            found.setdefault(worker, WorkerTally()).join(tally)
    for gone in cache.keys() - {header.run for header in headers}:
        cache.pop(gone, None)
    circuits = reader.host_state().circuits
    rows = []
    for name in sorted(found):
        each = circuits.get(name)
        state: Availability = "available" if name in own else "not configured"
        if each is not None:
            state = "unavailable" if each.until > now else "on trial"
        circuit = None if each is None else circuit_row(name, each)
        rows.append(_row(name, found[name], state, circuit))
    since = iso(headers[-1].created) if headers else None
    return WorkerUsePage(items=rows, next=None, runs=len(headers), since=since, complete=complete)


def newest(reader: Reader) -> tuple[list[RunHeader], bool]:
    """Return the newest runs within the bounds, newest first, and whether these are all."""
    found: list[RunHeader] = []
    events = 0
    for header in reversed(reader.runs()):
        events += header.seq
        if len(found) == RUNS_MAX or (found and events > EVENTS_MAX):
            return found, False
        found.append(header)
    return found, True


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
    name: str, tally: WorkerTally, state: Availability, circuit: CircuitRow | None
) -> WorkerUseRow:
    ended = tally.succeeded + tally.failed
    return WorkerUseRow(
        worker=name,
        availability=state,
        attempts=tally.attempts,
        failed=tally.failed,
        lost=tally.lost,
        failure_rate=round(tally.failed / ended, 4) if ended else None,
        p50_s=round(median(tally.durations), 3) if tally.durations else None,
        last_used=iso(tally.used) if tally.used else None,
        last_error=tally.error,
        circuit=circuit,
    )
