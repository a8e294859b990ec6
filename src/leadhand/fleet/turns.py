"""A task's turn: the paths that it may write, and a place for its agent.

Paths come first, so that no place is taken by somebody who cannot start. But a task that has its
paths and waits for a place keeps others from them; should one of these be more urgent, it gives
them back, and lines up behind it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from leadhand.fleet.governor import Overtaken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from leadhand.fleet.boundaries import Boundaries
    from leadhand.fleet.governor import Governor


@asynccontextmanager
async def turn(
    boundaries: Boundaries, governor: Governor, writes: Sequence[str], kind: str, priority: int
) -> AsyncIterator[None]:
    """Wait for both, and keep them for as long as the block lasts."""
    while True:
        async with boundaries.hold(writes, priority) as claim:
            try:
                async with governor.place(kind, priority, unless=claim.is_wanted):
                    yield
                    return
            except Overtaken:
                continue
