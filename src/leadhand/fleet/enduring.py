"""Trouble of the machine is nobody's fault: it is waited for, and uses up no try.

A disk that is full, a package index that does not answer, a process that cannot be started:
whoever comes next fares no better, so no other agent is asked, and what an agent has finished is
kept. It is tried again, later and later; meanwhile nobody starts, and `fleet status` says why. What
does not pass within a day is reported, as an outage.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

from leadhand.fleet.gate import GateTrouble
from leadhand.fleet.git import GitFailed
from leadhand.fleet.preparing import SetupFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leadhand.fleet.governor import Governor

TROUBLE = (SetupFailed, GateTrouble, GitFailed, OSError)
PATIENCE_S = 86_400.0
PAUSE_S = 1.0
PAUSE_S_MAX = 60.0
OUTAGE_S = 600.0
"""How long an outage is reported to last: long enough to be parked."""
WORDS = 300

T = TypeVar("T")


class Patience:
    """How long something has been in trouble by now."""

    def __init__(self, governor: Governor, said: Callable[[str], None]) -> None:
        self._governor, self._said = governor, said
        self._since: float | None = None
        self._pause_s = PAUSE_S

    def another(self, trouble: Exception) -> float:
        """For how long to wait, in which nobody starts; 0: it was too long already."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= PATIENCE_S:
            return 0.0
        words = " ".join(str(trouble).split())[:WORDS]
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, PAUSE_S_MAX)
        self._governor.pause(f"trouble, which is waited for: {words}", pause_s)
        self._said(f"waits, since {words}")
        return pause_s


async def endure(
    governor: Governor, said: Callable[[str], None], work: Callable[[], Awaitable[T]]
) -> T:
    """What comes of something when the machine lets it; trouble that does not pass is raised."""
    patience = Patience(governor, said)
    while True:
        try:
            return await work()
        except TROUBLE as trouble:
            if not (pause_s := patience.another(trouble)):
                raise
        await asyncio.sleep(pause_s)
