"""Graphs of timed steps through the engine, in exact virtual time; and a checker of the outcome.

Workers do nothing but take their time. What is judged is the log: when each step started and ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from leadhand import Policy, Report
from leadhand.core import events as ev
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.testing import simulate

DAY_S = 86_400.0
LONGEST_S = 100 * DAY_S
POLICY = Policy(timeout_s=1000 * DAY_S, max_concurrency=100_000)


class Sleeper:
    """A worker that takes its time: that of its own, or the one it is told."""

    def __init__(self, name: str, seconds: float | None = None, **offer: Any) -> None:
        self.spec = WorkerSpec(name=name, offers={"": Offer(est_s=seconds, **offer)})
        self._seconds = seconds

    async def perform(self, task: Any, context: Any) -> Report:
        """Wait."""
        own = self._seconds
        await asyncio.sleep(task.parameters["seconds"] if own is None else own)
        return Report()

    async def probe(self, task: Any, context: Any) -> Report | None:
        """Nothing is ever lost here."""
        raise LookupError

    def check(self, name: str, action: str, data: Any) -> bool:
        """There are no checks."""
        return False

    async def close(self) -> None:
        """Nothing to let go of."""


class Span(NamedTuple):
    """When a step ran, in microseconds."""

    start: int
    end: int


class Timed(NamedTuple):
    """What a run took, and when each worker's or step's part of it was."""

    ok: bool
    seconds: float
    spans: dict[str, Span]
    """By step; by worker where the plan was found by a planner."""
    troubles: list[str]


def scale(seconds: Iterable[float]) -> float:
    """A power of two that makes it all fit into some months of virtual time."""
    total, factor = sum(seconds), 1.0
    while total * factor > LONGEST_S:
        factor /= 2
    return factor


def run(what: Any, workers: list[Sleeper], planner: Any = None, *, by: str = "step") -> Timed:
    """Run it and read the log."""
    done = simulate(what, workers, planner, policy=POLICY, seed=None)
    troubles = [str(each) for each in done.violations]
    starts: dict[str, tuple[str, int]] = {}
    spans: dict[str, Span] = {}
    for at, event in done.events:
        if isinstance(event, ev.AttemptStarted):
            starts[event.step] = (getattr(event, by), at)
        elif isinstance(event, ev.AttemptReported):
            name, start = starts.pop(event.step)
            if name in spans or not event.met:
                troubles.append(f"{name} ran again, or failed")
            spans[name] = Span(start, at)
    if starts:
        troubles.append(f"{sorted(starts)} never ended")
    took = max(s.end for s in spans.values()) - min(s.start for s in spans.values()) if spans else 0
    return Timed(done.outcome.ok, took / 1e6, spans, troubles)


def broken_rules(
    spans: Mapping[str, Span],
    seconds: Mapping[str, float],
    before: Mapping[str, Iterable[str]],
    holds: Mapping[str, Mapping[str, int]] | None = None,
    room: Mapping[str, int] | None = None,
) -> list[str]:
    """What is wrong with a schedule: each step once, for its time, after its own, within limits."""
    found = [f"{name} did not run" for name in seconds if name not in spans]
    found += [f"{name} is no step" for name in spans if name not in seconds]
    if found:
        return found
    for name, span in spans.items():
        if abs(span.end - span.start - seconds[name] * 1e6) > 2:
            found.append(f"{name} took {(span.end - span.start) / 1e6} s, not {seconds[name]}")
        found += [
            f"{name} began before {other} had ended"
            for other in before[name]
            if spans[other].end > span.start
        ]
    for pool, most in (room or {}).items():
        # Ends count before starts of the same moment, and what takes no time holds nothing.
        changes = sorted(
            (at, sign * holds[name].get(pool, 0))
            for name, span in spans.items()
            if span.end > span.start and holds is not None
            for at, sign in ((span.end, -1), (span.start, 1))
        )
        used = 0
        for at, change in changes:
            used += change
            if used > most:
                found.append(f"{used} of {pool} at {at}, and there are {most}")
                break
    return found
