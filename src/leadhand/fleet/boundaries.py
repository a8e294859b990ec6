"""Boundaries: the paths that each agent at work may write; no two of them overlap.

A task holds the paths that it may write from its start until it has landed or failed. One that
would overlap with a holder waits, first come first served, so that nobody is passed over (one
who is more urgent may ask holders that have not started yet to make way, `worker.py`): a task
also waits for those who came before it and are still waiting for something that it wants.

Thousands may stand in line. So whom a task waits for is found when it comes, by the folders of its
paths, and whoever leaves tells those who wait for it and nobody else. Paths with wildcards are few,
and are compared with all.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from contextlib import asynccontextmanager
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from leadhand.core import paths

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence


WAITS_SHOWN = 4


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


def reserved(writes: Iterable[str], append: Sequence[str]) -> list[str]:
    """Return the paths that one task writes alone: all but files that only grow (`append`)."""
    return [path for path in writes if not within(path, append)]


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


class Boundaries:
    """The paths that agents hold, and the claims that wait for them."""

    def __init__(self) -> None:
        self._line: dict[_Claim, None] = {}
        self._wide: dict[_Claim, None] = {}
        self._here: dict[str, dict[_Claim, None]] = {}
        """By path: the claims on exactly this file or folder."""
        self._below: dict[str, dict[_Claim, None]] = {}
        """By folder: the claims on something in it."""

    @asynccontextmanager
    async def hold(
        self, writes: Sequence[str], priority: int = 0, name: str = ""
    ) -> AsyncIterator[_Claim]:
        """Wait until no other claim overlaps `writes`, then hold them for the task `name`."""
        claim = _Claim(tuple(writes), priority, name)
        claim.ahead = self._clashing(claim)
        for other in claim.ahead:
            other.behind[claim] = None
            other.wanted = other.wanted or priority > other.priority
        self._enter(claim)
        try:
            if claim.ahead:
                await claim.free.wait()
            yield claim
        finally:
            self._leave(claim)

    @property
    def held(self) -> int:
        """Return how many claims are held or wait."""
        return len(self._line)

    def waits(self, most: int) -> dict[str, list[str]]:
        """Return for tasks that wait whose paths they wait for; `most` of each."""
        waiting = (claim for claim in self._line if claim.ahead and claim.name)
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
        for other in claim.behind:
            other.ahead.pop(claim, None)
            if not other.ahead:
                other.free.set()


class _Claim:
    def __init__(self, writes: tuple[str, ...], priority: int, name: str) -> None:
        self.writes, self.priority, self.name = writes, priority, name
        self.wanted = False
        self.paths = [_plain(text) for text in writes]
        self.wide = any("*" in text or "?" in text for text in writes) or "" in self.paths
        self.free = asyncio.Event()
        self.ahead: dict[_Claim, None] = {}
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
