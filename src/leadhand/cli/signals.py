"""Ctrl-C and SIGTERM: the first drains, the second ends at once.

Ending at once is safe: the log has the attempts in flight, commands die with their host, and the
next host continues from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Self


async def first_of(told: Coroutine[Any, Any, Any], failed: Coroutine[Any, Any, Any]) -> None:
    """Wait for the end of `told`, or raise the error of `failed`."""
    tasks = [asyncio.create_task(told), asyncio.create_task(failed)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[1].done():
            tasks[1].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Signals:
    """Handles signals while a run is hosted."""

    def __init__(self, first: Callable[[int], None], second: Callable[[], None]) -> None:
        self.number = 0
        """The first signal, or 0."""
        self.came = asyncio.Event()
        self.intercept: Callable[[], None] | None = None
        """While a question is open: what Ctrl-C does in place of draining."""
        self._first = first
        self._second = second

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread
                loop.add_signal_handler(number, self._arrived, int(number))
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(number)

    def _arrived(self, number: int) -> None:
        if number == signal.SIGINT and self.intercept is not None:
            self.intercept()
            return
        if self.number:
            self._second()
            os._exit(128 + number)
        self.number = number
        self.came.set()
        self._first(number)
