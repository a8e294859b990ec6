"""The one timer of a run: it rings at the next moment at which something is due."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SLACK_S = 0.001


class Alarm:
    """Rings once. Ringing too early is harmless: whoever hears it looks, and sets it again."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._when = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def set(self, delay_s: float) -> None:
        """Ring in this time at the latest."""
        loop = asyncio.get_running_loop()
        when = loop.time() + delay_s
        if self._handle is not None:
            if self._when <= when + SLACK_S:  # it rings before, and then there is time left
                return
            self._handle.cancel()
        self._when, self._handle = when, loop.call_at(when, self._rings)

    def drop(self) -> None:
        """Do not ring."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _rings(self) -> None:
        self._handle = None
        self._ring()
