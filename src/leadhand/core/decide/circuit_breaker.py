"""When a worker is left alone for a while: one breaker for each, over all runs of a host.

A worker that fails for reasons of its own (it is down, it is overloaded, it does not answer) five
times in a row, at three different steps at least, is not called for 30 s; then one attempt is let
through, and its outcome closes the circuit or opens it for twice as long, up to ten minutes. One
step that fails again and again opens nothing: its own backoff is enough.

A worker that says how long it wants to be left alone (Retry-After) is believed at once, by all; for
a day at most, then one attempt looks whether it still is so.

What is counted is forgotten with the host. What follows from it, an open circuit, is an event of
the `$host` stream, and survives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from leadhand.core.plan.model import Doc


TROUBLE = frozenset({"transient", "rate_limited", "unavailable", "timeout"})
"""Classes that speak of the worker, not of the task."""
SILENT = frozenset({"lost"})
"""Classes that say nothing of the worker."""
UNHEARD: Doc = {"class": "lost"}
"""An outcome of one of these."""
FAILURES = 5
STEPS = 3
OPEN_S = 30.0
OPEN_MAX_S = 600.0
HOLD_MAX_S = 86_400.0
"""However long a worker asks to be left alone, it is looked at again after this."""


class Circuit(msgspec.Struct):
    """An open circuit: until when, and how often in a row it was opened."""

    until: int
    trips: int = 1
    reason: str = ""


def left_alone(down: Container[str], worker: str) -> str:
    """Return why a worker is not called now, as far as `down` knows: it asked for so long, or it
    failed so often in a row."""
    why: Callable[[str], str] | None = getattr(down, "why", None)
    return (why(worker) if why is not None else "") or "is left alone for now"


class FailureStreak(msgspec.Struct):
    """Failures of a worker in a row, and at which steps they were."""

    failures: int = 0
    steps: set[tuple[str, str]] = msgspec.field(default_factory=set)

    def add(self, run: str, step: str) -> None:
        """One more."""
        self.failures += 1
        if len(self.steps) < STEPS:
            self.steps.add((run, step))

    @property
    def enough(self) -> bool:
        """Whether this is the worker's doing."""
        return self.failures >= FAILURES and len(self.steps) >= STEPS


def asked_for_s(failure: Doc | None) -> float:
    """How long a failed worker asked to be left alone, as far as it is heeded."""
    asked = (failure or {}).get("retry_after")
    return max(0.0, min(float(asked), HOLD_MAX_S)) if asked is not None else 0.0


def is_trouble(failure: Doc | None) -> bool:
    """Whether a failure says that the worker is in trouble."""
    return (failure or {}).get("class") in TROUBLE


def is_silent(failure: Doc | None) -> bool:
    """Whether an outcome says nothing of the worker: its host died, or it was told to stop."""
    return (failure or {}).get("class") in SILENT


def open_for_s(trips: int) -> float:
    """How long a circuit stays open that opens for the nth time in a row."""
    return float(min(OPEN_MAX_S, OPEN_S * 2.0 ** min(trips - 1, 30)))
