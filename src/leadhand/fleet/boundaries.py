"""Boundaries: the paths that each agent at work may write, and who waits for whom.

A task holds the paths that it may write from its start until it has landed or failed. One that
overlaps with a holder starts beside it when that is worth it (`overlap_price.py`), else it waits,
first come first served, so that nobody is passed over (one who is more urgent may ask holders that
have not started yet to make way, `worker.py`): those who came before it and are still waiting for
something that it wants count like holders. Without a price every overlap is waited for.

Thousands may stand in line. So whom a task waits for is found when it comes, by the folders of its
paths, and whoever leaves tells those who wait for it and nobody else. Paths with wildcards are few,
and are compared with all.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable
from contextlib import asynccontextmanager
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leadhand.core import paths

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence


WAITS_SHOWN = 4
SOON = 0.1
"""What is left of a task that takes longer than others did, as a share of one."""
HELD_S = 600.0
"""How long a task holds its paths, before any was seen."""


# Path patterns: whether a file matches the paths that an agent may write.
#
# The texts are those of steps (`core/paths.py`): parts between slashes, `*` and `?` within a part,
# `**` for any number of parts; a text without wildcards means the file or all that lies below it.
# The path is a real one: a star in it is a star.


def within(path: str, texts: Iterable[str]) -> bool:
    """Return whether one of the patterns `texts` matches `path`."""
    return any(_pattern(text).fullmatch(path) for text in texts)


def outside(paths: Iterable[str], texts: Iterable[str]) -> list[str]:
    """Return the paths that none of the patterns `texts` matches."""
    allowed = tuple(texts)
    return [path for path in paths if not within(path, allowed)]


class Sharing(NamedTuple):
    """Which paths several tasks may write at once."""

    append: tuple[str, ...] = ()
    """Files that only grow: all tasks may write them."""
    exclusive: tuple[str, ...] = ()
    """Files that cannot be merged: one task at a time."""
    price: bool = False
    """Whether others are shared when that is worth it; else one task at a time writes them."""

    def reserved(self, writes: Iterable[str]) -> list[str]:
        """Return the paths that count when tasks overlap: all but files that only grow."""
        return [path for path in writes if not within(path, self.append)]

    def learning(self, files: Iterable[str]) -> Sharing:
        """Return it with further files that only grow, but for those declared `exclusive`."""
        known = (*self.append, *self.exclusive)
        plain = (path for path in files if not set(path) & set("*?[\\"))
        more = [path for path in plain if not within(path, known)]
        return self._replace(append=(*self.append, *more))

    def ordered(self, writes: Iterable[str]) -> list[str]:
        """Return the paths for which a plan puts tasks in order, whatever waiting costs."""
        found = self.reserved(writes)
        return [path for path in found if not self.price or clash([path], self.exclusive)]


EXCLUSIVE = Sharing()
"""One task at a time writes a path."""


@lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    parts = [part for part in text.split("/") if part not in ("", ".")]
    words = []
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        if part == "**":
            words.append(".+" if last else "(?:.+/)?")
        else:
            words.append(_part(part) + ("" if last else "/"))
    wide = "*" in text or "?" in text
    below = "(?:/.*)?" if parts and (not wide or parts[-1] != "**") else ""
    return re.compile("".join(words) + below, re.DOTALL)


def _part(part: str) -> str:
    found = {"*": "[^/]*", "?": "[^/]"}
    return "".join(found.get(character, re.escape(character)) for character in part)


class Price(Protocol):
    """What starting a task beside others costs (`overlap_price.py`)."""

    def chance(self, writes: Sequence[str], goal: str, others: Sequence[str], other: str) -> float:
        """Return the chance that two tasks conflict."""

    def allows(self, chances: Iterable[float], waiting: float) -> bool:
        """Return whether a task starts beside others rather than wait for them."""


class Boundaries:
    """The paths that agents hold, and the claims that wait for them."""

    def __init__(self, price: Price | None = None) -> None:
        self._price = price
        self._held_s = HELD_S
        """How long the last tasks held their paths, about."""
        self._line: dict[_Claim, None] = {}
        self._wide: dict[_Claim, None] = {}
        self._here: dict[str, dict[_Claim, None]] = {}
        """By path: the claims on exactly this file or folder."""
        self._below: dict[str, dict[_Claim, None]] = {}
        """By folder: the claims on something in it."""

    @asynccontextmanager
    async def hold(
        self, writes: Sequence[str], priority: int = 0, name: str = "", goal: str = ""
    ) -> AsyncIterator[_Claim]:
        """Wait while claims that overlap `writes` are worth waiting for, then hold them.

        `name` and `goal` are the task's.
        """
        claim = _Claim(tuple(writes), priority, name, goal)
        claim.ahead = {other: self._chance(claim, other) for other in self._clashing(claim)}
        for other in claim.ahead:
            other.behind[claim] = None
        self._enter(claim)
        try:
            if not self._may_start(claim):
                for other in claim.ahead:
                    other.wanted = other.wanted or priority > other.priority
                await claim.free.wait()
            claim.free.set()
            claim.since = time.monotonic()
            yield claim
        finally:
            self._leave(claim)

    def _chance(self, claim: _Claim, other: _Claim) -> float:
        if self._price is None:
            return 1.0
        return self._price.chance(claim.writes, claim.goal, other.writes, other.goal)

    def _may_start(self, claim: _Claim) -> bool:
        if not claim.ahead or self._price is None:
            return not claim.ahead
        return self._price.allows(claim.ahead.values(), sum(map(self._left, claim.ahead)))

    def _left(self, claim: _Claim) -> float:
        """Return how much of a task is still to be done, as a share of a usual one."""
        if not claim.free.is_set():
            return 1.0
        return max(SOON, 1.0 - (time.monotonic() - claim.since) / max(self._held_s, 1e-3))

    @property
    def held(self) -> int:
        """Return how many claims are held or wait."""
        return len(self._line)

    def waits(self, most: int) -> dict[str, list[str]]:
        """Return for tasks that wait whose paths they wait for; `most` of each."""
        waiting = (claim for claim in self._line if claim.name and not claim.free.is_set())
        return {
            claim.name: [other.name for other in islice(claim.ahead, WAITS_SHOWN)]
            for claim in islice(waiting, most)
        }

    def _clashing(self, claim: _Claim) -> dict[_Claim, None]:
        if claim.wide:
            return {each: None for each in self._line if clash(claim.writes, each.writes)}
        found = {each: None for each in self._wide if clash(claim.writes, each.writes)}
        for path in claim.paths:
            found |= self._below.get(path, {})
            for folder in (path, *_folders(path)):
                found |= self._here.get(folder, {})
        return found

    def _enter(self, claim: _Claim) -> None:
        self._line[claim] = None
        if claim.wide:
            self._wide[claim] = None
            return
        for index, key in claim.places():
            (self._here if index else self._below).setdefault(key, {})[claim] = None

    def _leave(self, claim: _Claim) -> None:
        del self._line[claim]
        self._wide.pop(claim, None)
        for index, key in () if claim.wide else claim.places():
            places = self._here if index else self._below
            places.get(key, {}).pop(claim, None)
            if not places.get(key, True):
                del places[key]
        for other in claim.ahead:
            other.behind.pop(claim, None)
        if claim.free.is_set():
            self._held_s += (time.monotonic() - claim.since - self._held_s) / 8
        for other in claim.behind:
            other.ahead.pop(claim, None)
            if not other.free.is_set() and self._may_start(other):
                other.free.set()
                other.since = time.monotonic()


class _Claim:
    def __init__(self, writes: tuple[str, ...], priority: int, name: str, goal: str) -> None:
        self.writes, self.priority, self.name, self.goal = writes, priority, name, goal
        self.wanted = False
        self.since = 0.0
        self.paths = [_plain(text) for text in writes]
        self.wide = any("*" in text or "?" in text for text in writes) or "" in self.paths
        self.free = asyncio.Event()
        self.ahead: dict[_Claim, float] = {}
        """Overlapping claims that came before it, with the chance of a conflict with each."""
        self.behind: dict[_Claim, None] = {}

    def is_wanted(self) -> bool:
        """Return whether a more urgent claim waits for it."""
        return self.wanted

    def places(self) -> Iterator[tuple[bool, str]]:
        """Its keys in the two tables: true for its own paths, false for the folders above."""
        for path in self.paths:
            yield True, path
            for folder in _folders(path):
                yield False, folder


def _plain(text: str) -> str:
    return "/".join(part for part in text.split("/") if part not in ("", "."))


def _folders(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def clash(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two sets of paths overlap."""
    return next(iter(paths.overlaps(one, other)), None) is not None
