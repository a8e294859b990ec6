"""The loops of a fleet: each looks again and again, whatever it meets.

A loop that ended with the first error would leave a fleet that looks alive and does nothing. So
this is where errors end: what went wrong is said where people look (`told`), under the name of the
loop, and after a pause it looks again; a look that goes well takes the words back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


LOOK_S = 1.0
"""How often the folder of epics and the user's branch are looked at."""
AGAIN_S = 5.0
"""The pause after a look that failed: what is short of something is not pressed for it."""


async def watch(
    name: str, look: Callable[[], Awaitable[None]], told: dict[str, str], every_s: float = LOOK_S
) -> None:
    """Look for ever."""
    while True:
        try:
            await look()
        except Exception as error:  # noqa: BLE001 - a loop is a boundary: it goes on
            told[name] = f"{str(error) or type(error).__name__}; it is tried again"
            await asyncio.sleep(max(every_s, AGAIN_S))
        else:
            told.pop(name, None)
            await asyncio.sleep(every_s)


async def stop(watching: asyncio.Task[None]) -> None:
    """End a loop, and see it ended."""
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
