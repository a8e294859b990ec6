"""Clocks for tests: one moved by hand, one that follows a simulated loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadhand.testing.loop import SimLoop

EPOCH_US = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z: where simulated calendars begin."""


class ManualClock:
    """A clock moved by hand.

    `start_us` is the initial time in microseconds. `advance` moves both clocks, as time does;
    `jump` moves only the calendar, as a person or a time server does.
    """

    def __init__(self, start_us: int = EPOCH_US) -> None:
        self._now = start_us
        self._wall = start_us

    def now(self) -> int:
        """Microseconds on the run clock."""
        return self._now

    def wall(self) -> int:
        """Microseconds of the calendar."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Move both clocks forward by `seconds`."""
        if seconds < 0:
            raise ValueError("time cannot go backwards; `jump` moves the calendar")
        self._now += int(seconds * 1_000_000)
        self._wall += int(seconds * 1_000_000)

    def jump(self, seconds: float) -> None:
        """Move the calendar by `seconds`, forward or back."""
        self._wall += int(seconds * 1_000_000)

    async def sleep(self, seconds: float) -> None:
        """Move both clocks forward by `seconds`, and let other tasks run."""
        self.advance(seconds)
        await asyncio.sleep(0)


class Calendar:
    """The simulated time of the operating system: the loop's time plus all jumps so far."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.offset_us = 0

    def now(self) -> int:
        """Microseconds since 1970."""
        return EPOCH_US + int(self._loop.time() * 1_000_000) + self.offset_us


class SimClock:
    """A host's clocks over a simulated loop, made as `engine.host.SystemClock` makes them."""

    def __init__(self, loop: SimLoop, calendar: Calendar, not_before: int = 0) -> None:
        self._loop = loop
        self._calendar = calendar
        self._base = max(calendar.now(), not_before) - int(loop.time() * 1_000_000)

    def now(self) -> int:
        """Microseconds on the run clock: the calendar at start plus elapsed time."""
        return self._base + int(self._loop.time() * 1_000_000)

    def wall(self) -> int:
        """Microseconds of the calendar, jumps included."""
        return self._calendar.now()

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(seconds)
