"""Who may change what, right now: no two agents at work may write the same.

A task holds the paths that it may write from its start until it has landed or failed. One that
would overlap with a holder waits, first come first served, so that nobody is passed over: a task
also waits for those who came before it and are still waiting for something that it wants.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from leadhand.core import paths

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


class Boundaries:
    """Paths that are held, and who waits for them."""

    def __init__(self) -> None:
        self._line: list[_Claim] = []

    @asynccontextmanager
    async def hold(self, writes: Sequence[str]) -> AsyncIterator[None]:
        """Wait until nobody else may write these, and keep others from them."""
        claim = _Claim(tuple(writes))
        self._line.append(claim)
        try:
            while any(clash(claim.writes, other.writes) for other in self._before(claim)):
                claim.changed.clear()
                await claim.changed.wait()
            yield
        finally:
            self._line.remove(claim)
            for other in self._line:
                other.changed.set()

    def _before(self, claim: _Claim) -> list[_Claim]:
        return self._line[: self._line.index(claim)]

    @property
    def held(self) -> int:
        """How many hold or wait."""
        return len(self._line)


class _Claim:
    def __init__(self, writes: tuple[str, ...]) -> None:
        self.writes = writes
        self.changed = asyncio.Event()


def clash(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two sets of paths overlap."""
    return next(iter(paths.overlaps(one, other)), None) is not None
