"""The governor: how many agents work at once, by free resources, work and failures.

The number of places rises by one after a stretch without trouble and is halved by trouble
(additive increase, multiplicative decrease), between 1 and the configured most. Trouble is what
more agents would make worse: a provider that says "too many", a machine short of memory or disk,
a load far above its cores, a train that falls behind. Starts are staggered. A stop flag is read
by whoever wants a place, so that "stop" means no new start.

Places are given in the order of the line, the most urgent first. A kind of agent that fails again
and again is tried one at a time; whoever is of another kind goes past those who wait for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from bisect import insort
from collections import Counter, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from leadhand.fleet.usage_limits import UsageLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from leadhand.fleet.pause import Pause

CROWDED = frozenset({"rate_limited", "transient", "unavailable"})
SAMPLES_MIN = 5
"""Fewer outcomes than this say nothing about a kind of agent."""
SAMPLES = 20
BAD_SHARE = 0.5
LOOK_S = 2.0
STAGGERED = "starts are staggered"


class Room(NamedTuple):
    """The free resources of the machine."""

    memory_mb: float
    disk_mb: float
    load: float
    """Load for each core."""


class Needs(NamedTuple):
    """The resources that must be free before another agent may start."""

    memory_mb: float = 300.0
    disk_mb: float = 500.0
    load: float = 8.0


class Ticket(NamedTuple):
    """A place in the line."""

    rank: int
    number: int
    kind: str
    login: str = ""
    against: Callable[[], str] = lambda: ""
    """Why this one must wait, while others may start; empty: it need not."""


class Overtaken(Exception):
    """A waiting agent must not get its place now."""


class Governor:
    """Gives places to agents."""

    def __init__(
        self,
        most: int,
        *,
        stagger_s: float = 0.2,
        folder: Path | None = None,
        needs: Needs | None = None,
        behind: Callable[[], int] = lambda: 0,
        behind_max: int = 50,
        room: Callable[[Path | None], Room] | None = None,
        against: Callable[[], str] = lambda: "",
    ) -> None:
        """Take the limits; `behind` returns how many changes wait for the train.

        `against` returns further reasons not to start an agent, such as an empty budget.
        """
        self._against = against
        self.limits = UsageLimits()
        self.most, self.limit = most, float(most)
        self.busy = self.peak = 0
        self.stopped = False
        self.paused: Pause | None = None
        """Set while a person keeps new agents from starting."""
        self._kept = ""
        """Why the first in line was not started at the last look; empty if it was."""
        self._needs = needs or Needs()
        self._folder, self._room = folder, room or room_of
        self._stagger_s, self._last = stagger_s, 0.0
        self._behind, self._behind_max = behind, behind_max
        self._until, self._why = 0.0, ""
        self._outcomes: dict[str, deque[bool]] = {}
        self._changed = asyncio.Event()
        self._line: list[Ticket] = []
        self._at_work: Counter[str] = Counter()
        self._came = 0

    @asynccontextmanager
    async def place(
        self,
        kind: str,
        priority: int = 0,
        unless: Callable[[], bool] = lambda: False,
        login: str = "",
        against: Callable[[], str] = lambda: "",
    ) -> AsyncIterator[None]:
        """Hold a place for one agent of a kind; the most urgent come first.

        No place is given while a usage limit of `login` holds; without a login no limit counts.
        Nor while `against` says why this agent must wait; others pass it then.
        Raise `Overtaken` if `unless` returns True before there is a place.
        """
        self._came += 1
        ticket = Ticket(-priority, self._came, kind, login, against)
        insort(self._line, ticket)
        try:
            await self._turn(ticket, unless)
        finally:
            self._line.remove(ticket)
            self._changed.set()
        self._last = time.monotonic()
        self.busy += 1
        self._at_work[kind] += 1
        self.peak = max(self.peak, self.busy)
        try:
            yield
        finally:
            self.busy -= 1
            self._at_work[kind] -= 1
            self._changed.set()

    async def _turn(self, ticket: Ticket, unless: Callable[[], bool]) -> None:
        """Wait to be the first in line who may start, with a free place and no objection."""
        while True:
            if unless():
                raise Overtaken
            first = self._first() == ticket
            why = self._not_now(ticket) if first else ""
            if first and not why and self.busy < int(self.limit):
                self._kept = ""
                return
            if first:
                self._kept = why
            soon = self._last + self._stagger_s - time.monotonic() if why == STAGGERED else LOOK_S
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.01, soon)):
                    await self._changed.wait()

    def _first(self) -> Ticket:
        tried = {kind for kind in self._outcomes if self._fails(kind)}
        limited = {limit.login for limit in self.limits.standing()}
        may = (
            each
            for each in self._line
            if not (each.kind in tried or each.login in limited or each.against())
        )
        return next(may, self._line[0])

    def _fails(self, kind: str) -> bool:
        """Return whether enough agents of a kind are at work, given how often they fail."""
        seen = self._outcomes.get(kind, ())
        bad = len(seen) >= SAMPLES_MIN and sum(seen) > BAD_SHARE * len(seen)
        return bad and self._at_work[kind] > 0

    @property
    def held_back(self) -> str:
        """Return why a waiting agent gets no place; empty while starts go on.

        Staggered starts are no reason: the next one comes by itself in a moment.
        """
        return self._kept if self._line and self._kept != STAGGERED else ""

    @property
    def waiting(self) -> int:
        """Return how many agents wait for a place."""
        return len(self._line)

    def waiting_for(self, login: str) -> int:
        """Return how many tasks of a login wait for a place, or for the end of its limit."""
        return self.limits.parked[login] + sum(each.login == login for each in self._line)

    def heard(self, kind: str, failure: str, retry_after_s: float | None = None) -> None:
        """Take the outcome of an agent's run."""
        crowded = failure in CROWDED
        self._outcomes.setdefault(kind, deque(maxlen=SAMPLES)).append(crowded)
        if crowded:
            self.limit = max(1.0, self.limit / 2)
            self.pause("a provider asked for a pause", min(retry_after_s or 0.0, 600.0))
        else:
            self.limit = min(float(self.most), self.limit + 1 / max(1.0, self.limit))
        self._changed.set()

    def pause(self, why: str, seconds: float) -> None:
        """Start no agent for a while."""
        until = time.monotonic() + seconds
        if until > self._until:
            self._until, self._why = until, why

    def stop(self) -> None:
        """Start no agent any more."""
        self.stopped = True

    def set_pause(self, pause: Pause | None) -> None:
        """Start no agent until this is called with None."""
        self.paused = pause
        self._changed.set()

    def look_again(self) -> None:
        """Look at once who may start, since something has changed."""
        self._changed.set()

    def go_on(self) -> None:
        """Places are given again."""
        self.stopped = False
        self._changed.set()

    def _not_now(self, ticket: Ticket) -> str:
        now = time.monotonic()
        if self.stopped:
            return "stopped"
        if self.paused is not None:
            return self.paused.why
        if why := ticket.against() or self._against():
            return why
        if now < self._until:
            return self._why
        if now - self._last < self._stagger_s:
            return STAGGERED
        if limit := self.limits.limit_of(ticket.login):
            return limit.why
        if self._fails(ticket.kind):
            return f"{ticket.kind} fails again and again"
        if self._behind() > self._behind_max:
            return "the train is behind"
        return self._no_room()

    def _no_room(self) -> str:
        room, needs = self._room(self._folder), self._needs
        if room.memory_mb < needs.memory_mb:
            return f"{room.memory_mb:.0f} MB of memory are left"
        if room.disk_mb < needs.disk_mb:
            return f"{room.disk_mb:.0f} MB of disk are left"
        # The load may come from other programs, and passes: one agent may always start.
        high = self.busy and room.load > needs.load
        return f"the load is {room.load:.0f} for each core" if high else ""


def room_of(folder: Path | None) -> Room:
    """Return the free resources of this machine; infinite where they are unknown."""
    memory = float("inf")
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 - no path of a user
            fields = dict(line.split(":", 1) for line in file if ":" in line)
        memory = float(fields["MemAvailable"].split()[0]) / 1024
    except (OSError, KeyError, ValueError):
        pass
    disk = shutil.disk_usage(folder).free / 1e6 if folder is not None else float("inf")
    return Room(memory, disk, os.getloadavg()[0] / (os.cpu_count() or 1))
