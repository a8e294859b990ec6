"""The price of overlap: whether tasks that share files run at once. The decision is pure.

Two tasks that may write the same file need not wait for each other: most edits of one file merge.
A conflict costs the work of redoing one of the two; waiting costs the time until those ahead have
landed. A task starts beside others when the first is expected to be less than the second.

    chance      that the task conflicts with one of those ahead of it: by the size of the files that
                both may write (a small file leaves no room for two edits), by how often edits of
                them met in the history of main (`edit_history.py`), by the symbols that both goals
                name, by how often such a file is touched when a task names its folder only, and by
                this fleet's own record, which outweighs the guesses as it grows
    loss        the chance, times the cost of redoing, which rises with the share of changes that
                had to be redone of late
    waiting     the tasks ahead, as far as they are still to be done

Laws
    1. A task does not start where one such start in three would be redone (`LIKELY`).
    2. More chance, a higher cost, less waiting: never a start that was refused with less.
    3. Files that cannot be merged are written by one task at a time: those that are declared
       (`exclusive`: lock files), binary files, files that both tasks would create.
    4. Files that only grow (`append`) cost nothing.
"""

from __future__ import annotations

import asyncio
import re
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.core import paths
from leadhand.errors import LeadhandError
from leadhand.fleet.boundaries import Sharing, clash, within
from leadhand.fleet.edit_history import EditHistory, Merges
from leadhand.fleet.planning.map_history import history_of, read_commits
from leadhand.fleet.repository.git import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from leadhand.fleet.repository.hub import Hub

REACH = 15.0
"""Lines of a file that an edit keeps others from: itself, its neighbours, where edits cluster."""
SAME_SYMBOL = 0.6
"""The least chance of a conflict when both goals name the same symbol."""
OTHER_SYMBOLS = 0.5
"""What is left of the chance when both goals name symbols, and none in common."""
GUESS_WEIGHT = 5.0
"""Merges of a file that count as much as the guess before them."""
PAST_MAX = 30
"""Pairs of past edits of a file that count: the fleet's own record must outweigh them."""
LIKELY = 0.35
"""The chance of a conflict from which on a task waits, whatever waiting costs."""
REDO = 1.4
"""The cost of redoing, in tasks: a conversation that goes on is shorter, but it is paid for."""
REDONE_AIM = 0.08
"""The share of changes that may have to be redone before redoing becomes dearer."""
RECENT = 100.0
"""Changes that the share of redone ones is counted over, about."""
FIRM = 20.0
"""Changes that landed without a conflict before the first was seen, as it were."""
TOUCHES = 3.0
"""Files that one task touches in a folder that it names, about."""
FILES_MAX = 500
"""Files that two tasks share that are looked at."""
PATHS_AT_ONCE = 200
_CODE = re.compile(r"[A-Za-z_]\w{3,}")


NONE = Merges()


# The decision. Pure.


class FileShape(NamedTuple):
    """A file of main, as far as merging goes."""

    lines: int
    binary: bool = False


def file_chance(
    shape: FileShape | None,
    seen: Merges,
    *,
    past: Merges = NONE,
    usual: float = 0.0,
    same: bool | None = None,
) -> float:
    """Return the chance that two edits of one file conflict.

    `shape` is None for a file that is not there: both would create it. `past` are edits of the file
    in the history of main, `usual` is the share of such pairs that touch in all files. `same`:
    whether the goals name a symbol in common; None where one of them names none.
    """
    if shape is None or shape.binary:
        return 1.0
    guess = min(1.0, max(usual, REACH / max(shape.lines, 1)))
    counted = min(1.0, PAST_MAX / max(past.met, 1))
    guess = (guess * GUESS_WEIGHT + past.conflicts * counted) / (GUESS_WEIGHT + past.met * counted)
    if same is not None:
        guess = max(guess, SAME_SYMBOL) if same else guess * OTHER_SYMBOLS
    return (guess * GUESS_WEIGHT + seen.conflicts) / (GUESS_WEIGHT + max(seen.met, seen.conflicts))


def any_of(chances: Iterable[float]) -> float:
    """Return the chance that at least one of several things happens."""
    return 1.0 - prod(1.0 - each for each in chances)


def runs_at_once(chances: Iterable[float], waiting: float, redone: float = 0.0) -> bool:
    """Return whether a task starts beside others.

    `chances` are those of a conflict with each; `waiting` is what it would wait for, in tasks;
    `redone` is the recent share of changes that had to be redone.
    """
    chance = any_of(chances)
    if chance <= 0.0:
        return True
    priced = chance * max(1.0, redone / REDONE_AIM)
    return priced < LIKELY and priced * REDO < waiting


def named_symbols(goal: str) -> frozenset[str]:
    """Return the words of a goal that are names of code, and not plain language."""
    words = _CODE.findall(goal)
    return frozenset(w for w in words if "_" in w or not (w.islower() or w.istitle()))


class MergeRecord:
    """What became of changes that met others' changes: by file, and of late."""

    def __init__(self) -> None:
        self._files: dict[str, Merges] = {}
        self._landed, self._redone = FIRM, 0.0

    def of(self, path: str) -> Merges:
        """Return the record of a file."""
        return self._files.get(path, Merges())

    @property
    def redone(self) -> float:
        """Return the recent share of changes that conflicted, and had to be redone."""
        return self._redone / (self._landed + self._redone)

    def add(self, paths: Iterable[str], *, conflict: bool) -> None:
        """Record a change that landed, or conflicted, and its files that others had changed."""
        self._landed, self._redone = self._landed + (not conflict), self._redone + conflict
        if self._landed + self._redone > RECENT + FIRM:
            self._landed, self._redone = self._landed / 2, self._redone / 2
        for path in paths:
            before = self.of(path)
            self._files[path] = Merges(before.met + 1, before.conflicts + conflict)


class OverlapPrice:
    """The price of starting a task beside others, from what is known of the repository."""

    def __init__(
        self,
        sharing: Sharing,
        notes: Iterable[Mapping[str, Any]] = (),
        history: EditHistory | None = None,
    ) -> None:
        """`notes` are those of the journal: the record of earlier fleets."""
        self.sharing = sharing
        self._history = history
        self.shapes: dict[str, FileShape] = {}
        self.churn: Mapping[str, int] = {}
        self.record = MergeRecord()
        for note in notes:
            if note["what"] == "merged" and isinstance(note.get("paths"), list):
                self.record.add(map(str, note["paths"]), conflict=bool(note.get("conflict")))
        self._main = ""
        self._reading = asyncio.Lock()

    def allows(self, chances: Iterable[float], waiting: float) -> bool:
        """Return whether a task starts beside others (`runs_at_once`)."""
        return runs_at_once(chances, waiting, self.record.redone)

    def chance(self, writes: Sequence[str], goal: str, others: Sequence[str], other: str) -> float:
        """Return the chance that two tasks conflict, by their paths and goals."""
        ours, theirs = named_symbols(goal), named_symbols(other)
        same = bool(ours & theirs) if ours and theirs else None
        found = []
        for one, two in paths.overlaps(writes, others):
            for path, touched in self._shared(one, two):
                if clash([path], self.sharing.exclusive):
                    return 1.0
                found.append(touched * self._file_chance(path, same=same))
        return any_of(found)

    def _file_chance(self, path: str, *, same: bool | None) -> float:
        shape, seen, history = self.shapes.get(path), self.record.of(path), self._history
        if history is None:
            return file_chance(shape, seen, same=same)
        return file_chance(shape, seen, past=history.of(path), usual=history.usual, same=same)

    def _shared(self, one: str, two: str) -> Iterator[tuple[str, float]]:
        """Yield the files that two paths mean, and the chance that both tasks touch each."""
        if one == two and one in self.shapes:
            yield one, 1.0
            return
        ours, theirs = self._files(one), self._files(two)
        both = [path for path in ours if path in theirs]
        if not both or len(both) > FILES_MAX:
            yield one, 1.0  # nothing is known of it, or too much: as if both created it
            return
        for path in both:
            yield path, self._touch(path, ours) * self._touch(path, theirs)

    def _files(self, text: str) -> dict[str, int]:
        if text in self.shapes:
            return {text: 1}
        return {path: self.churn.get(path, 0) + 1 for path in self.shapes if within(path, (text,))}

    def _touch(self, path: str, files: Mapping[str, int]) -> float:
        return min(1.0, TOUCHES * files[path] / sum(files.values()))

    async def refresh(self, hub: Hub, at: str = "") -> None:
        """Look at the files of main again, or of another commit; trouble leaves all as it was."""
        async with self._reading:
            main = at or hub.main()
            if main == self._main:
                return
            try:
                if self._main:
                    changed = await hub.changed(self._main, main)
                    for path in changed:
                        self.shapes.pop(path, None)
                    there = [path for path, status in changed.items() if status != "D"]
                else:
                    self.churn = history_of(await read_commits(hub.git, main)).churn
                    there = []
                for first in range(0, len(there) or 1, PATHS_AT_ONCE):
                    if there or not self._main:
                        some = there[first : first + PATHS_AT_ONCE]
                        self.shapes |= await _shapes(hub, main, some)
            except (LeadhandError, OSError):
                return
            self._main = main

    async def merged(
        self, hub: Hub, base: str, head: str, onto: str, *, conflicts: Sequence[str] | None = None
    ) -> list[str]:
        """Record a change that was put on `onto`, or was in conflict there; return its paths."""
        found = list(conflicts or ())
        if conflicts is None and base != onto:
            ours, theirs = await hub.changed(base, head), await hub.changed(base, onto)
            found = [path for path in ours if path in theirs and not self._free(path)]
        self.record.add(found, conflict=conflicts is not None)
        return found

    def _free(self, path: str) -> bool:
        return within(path, self.sharing.append)


async def _shapes(hub: Hub, main: str, some: Sequence[str]) -> dict[str, FileShape]:
    """Return the shapes of files of main; of all where none are named."""
    empty = (await hub.git("hash-object", "-t", "tree", "--stdin", stdin=b"")).text
    argv = ("diff-tree", "-r", "-z", "--numstat", "--no-renames", empty, main, "--")
    said = await hub.git(*argv, *some)
    found = {}
    for entry in said.out.split(b"\0"):
        added, _, path = entry.split(b"\t", 2) if entry.count(b"\t") > 1 else (b"", b"", b"")
        if path:
            binary = added == b"-"
            found[name_of(path)] = FileShape(0 if binary else int(added), binary)
    return found
