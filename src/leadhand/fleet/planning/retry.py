"""Trouble that passes is waited out: with longer and longer pauses, and not for ever.

A provider that is down, a disk that is full, a git that was killed: none of these says anything
about the epic, and a person who is asked could only wait as well.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


PAUSES_S = (1.0, 4.0, 15.0, 60.0, 120.0, 240.0, 300.0, 300.0, 300.0)
PATIENCE_S = 1800.0
"""In all, with the tries themselves."""

T = TypeVar("T")


class RetryPatience:
    """For one thing that is tried again."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._pauses = iter(PAUSES_S)

    async def pause(self, asked: float | None = None) -> bool:
        """Wait, and no less than was asked for; false: it was waited long enough."""
        pause = next(self._pauses, None)
        if pause is None:
            return False
        pause = max(pause, asked or 0.0)
        if time.monotonic() - self._begun + pause > PATIENCE_S:
            return False
        await asyncio.sleep(pause)
        return True


async def patiently(call: Callable[[], Awaitable[T]], troubles: tuple[type[Exception], ...]) -> T:
    """What the call gives; it is made again while it ends with one of these troubles."""
    patience = RetryPatience()
    while True:
        try:
            return await call()
        except troubles:
            if not await patience.pause():
                raise
