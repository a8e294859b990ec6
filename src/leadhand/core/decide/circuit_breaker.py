"""Circuit breakers: one per worker, across all runs of a host.

A worker that fails for reasons of its own (down, overloaded, unresponsive) five times in a row, at
three or more different steps, is not called for 30 s; then one attempt is let through, and its
outcome closes the circuit or opens it for twice as long, up to ten minutes. Repeated failures of
one step open nothing: its own backoff is enough.

A worker that requests a pause (Retry-After) gets it at once, in all runs; for a day at most, then
one attempt tests whether the outage persists.

The counts are lost with the host. An open circuit is an event of the `$host` stream, and survives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from leadhand.core.plan.model import Doc


TROUBLE = frozenset({"transient", "rate_limited", "unavailable", "timeout"})
"""Failure classes caused by the worker, not by the task."""
SILENT = frozenset({"lost"})
"""Failure classes that say nothing about the worker."""
UNHEARD: Doc = {"class": "lost"}
"""An outcome of such a class."""
FAILURES = 5
STEPS = 3
OPEN_S = 30.0
OPEN_MAX_S = 600.0
HOLD_MAX_S = 86_400.0
"""The longest pause a worker can request, in seconds."""


class Circuit(msgspec.Struct):
    """An open circuit: until when, and how often in a row it was opened."""

    until: int
    trips: int = 1
    reason: str = ""


def circuit_reason(down: Container[str], worker: str) -> str:
    """Return why a worker is not called now, as far as `down` knows the reason."""
    why: Callable[[str], str] | None = getattr(down, "why", None)
    return (why(worker) if why is not None else "") or "is unavailable for now"


class FailureStreak(msgspec.Struct):
    """Consecutive failures of a worker, and the steps they occurred at."""

    failures: int = 0
    steps: set[tuple[str, str]] = msgspec.field(default_factory=set)

    def add(self, run: str, step: str) -> None:
        """Add one failure."""
        self.failures += 1
        if len(self.steps) < STEPS:
            self.steps.add((run, step))

    @property
    def enough(self) -> bool:
        """Whether the failures are attributed to the worker."""
        return self.failures >= FAILURES and len(self.steps) >= STEPS


def requested_pause_s(failure: Doc | None) -> float:
    """Return the pause a failed worker requested in seconds, capped."""
    asked = (failure or {}).get("retry_after")
    return max(0.0, min(float(asked), HOLD_MAX_S)) if asked is not None else 0.0


def is_trouble(failure: Doc | None) -> bool:
    """Return whether a failure says that the worker is in trouble."""
    return (failure or {}).get("class") in TROUBLE


def is_silent(failure: Doc | None) -> bool:
    """Return whether an outcome says nothing about the worker: its host died, or it was stopped."""
    return (failure or {}).get("class") in SILENT


def open_for_s(trips: int) -> float:
    """Return how long a circuit stays open that opens for the nth time in a row."""
    return float(min(OPEN_MAX_S, OPEN_S * 2.0 ** min(trips - 1, 30)))
