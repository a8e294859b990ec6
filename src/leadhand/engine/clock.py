"""The system's two clocks.

The run clock is the wall clock at start plus elapsed monotonic time: a jump of the wall clock moves
no deadline and no backoff. The calendar is the current time of the operating system.
"""

from __future__ import annotations

import time


class SystemClock:
    """The clocks of the operating system."""

    def __init__(self, not_before: int = 0) -> None:
        """Start the run clock now, or at `not_before` (the newest time of a log) if later."""
        self._base = max(time.time_ns() // 1000, not_before) - time.monotonic_ns() // 1000

    def now(self) -> int:
        """Return the time of the run clock in microseconds."""
        return self._base + time.monotonic_ns() // 1000

    def wall(self) -> int:
        """Return the calendar time in microseconds."""
        return time.time_ns() // 1000
