"""The system's two clocks.

The run clock is the wall clock at start plus elapsed monotonic time: a jump of the wall
clock moves no deadline and no backoff. The calendar is whatever the operating system says.
"""

from __future__ import annotations

import time


class SystemClock:
    """Real time."""

    def __init__(self, not_before: int = 0) -> None:
        """`not_before`: the run clock never goes behind what a log already says."""
        self._base = max(time.time_ns() // 1000, not_before) - time.monotonic_ns() // 1000

    def now(self) -> int:
        """Microseconds on the run clock."""
        return self._base + time.monotonic_ns() // 1000

    def wall(self) -> int:
        """Microseconds of the calendar."""
        return time.time_ns() // 1000
