"""Workers in the logs of runs: attempts, failures, durations, the last error. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from leadhand.core import events as ev
from leadhand.core.calendar import iso
from leadhand.core.decide.circuit_breaker import SILENT

if TYPE_CHECKING:
    from collections.abc import Iterable

MESSAGE_MAX = 500


class WorkerError(msgspec.Struct, kw_only=True):
    """A failed attempt of a worker."""

    run: str
    """The id of the run."""
    step: str
    """The id of the step."""
    attempt: int
    """The number of the attempt, from 1."""
    at: str
    """When the attempt failed, in ISO 8601."""
    failure_class: str
    """The failure class."""
    message: str
    """What went wrong; the first 500 characters."""


class WorkerTally(msgspec.Struct, kw_only=True):
    """The attempts of one worker."""

    attempts: int = 0
    """Attempts that were started."""
    succeeded: int = 0
    failed: int = 0
    lost: int = 0
    """Attempts that ended with their host: they tell nothing about the worker."""
    durations: list[float] = msgspec.field(default_factory=list)
    """Of attempts that succeeded, in seconds."""
    used: int = 0
    """When the last attempt started, in UTC microseconds; 0 for never."""
    failed_at: int = 0
    """When the last attempt failed, in UTC microseconds; 0 for never."""
    error: WorkerError | None = None

    def join(self, other: WorkerTally) -> None:
        """Add other attempts of the same worker."""
        self.attempts += other.attempts
        self.succeeded += other.succeeded
        self.failed += other.failed
        self.lost += other.lost
        self.durations += other.durations
        self.used = max(self.used, other.used)
        if other.failed_at > self.failed_at:
            self.failed_at, self.error = other.failed_at, other.error

    def fail(self, at: int, error: WorkerError) -> None:
        """Add a failed attempt."""
        self.failed += 1
        self.failed_at, self.error = at, error


def worker_use(run: str, log: Iterable[tuple[int, ev.Event]]) -> dict[str, WorkerTally]:
    """Return how each worker was used in the log of a run: (at, event), in order."""
    found: dict[str, WorkerTally] = {}
    going: dict[str, tuple[str, int]] = {}
    for at, event in log:
        match event:
            case ev.AttemptStarted():
                tally = found.setdefault(event.worker, WorkerTally())
                tally.attempts += 1
                tally.used = at
                going[event.step] = (event.worker, at)
            case ev.AttemptReported() if event.step in going:
                worker, start = going.pop(event.step)
                if event.met:
                    found[worker].succeeded += 1
                    found[worker].durations.append((at - start) / 1e6)
                    continue
                failure = event.failure or {}
                message = str(failure.get("message", "")) or "; ".join(event.findings)
                error = _error(run, event, at, str(failure.get("class", "")), message)
                found[worker].fail(at, error)
            case ev.AttemptLost() if event.step in going:
                worker, _ = going.pop(event.step)
                if event.failure_class in SILENT:
                    found[worker].lost += 1
                    continue
                error = _error(run, event, at, event.failure_class, event.reason)
                found[worker].fail(at, error)
            case _:
                pass  # not about an attempt
    return found


def _error(
    run: str, event: ev.AttemptReported | ev.AttemptLost, at: int, kind: str, message: str
) -> WorkerError:
    return WorkerError(
        run=run,
        step=event.step,
        attempt=event.attempt,
        at=iso(at),
        failure_class=kind,
        message=message[:MESSAGE_MAX],
    )
