"""Edits of the past: how often changes of a file met the lines of other changes. PURE but for git.

The last commits of main are followed hunk by hunk. The lines that a commit wrote are kept, and
moved by the commits after it; the next edits of the file are compared with them:

    apart       they would have merged, had both been made at once
    touching    they border on each other, or change the same place: git would call it a conflict
    rewriting   the later edit changes lines that the earlier one wrote: it builds on that one, and
                could not have been made at the same time. Such a pair says nothing

Lines of commits in between count as nothing: had both been made at once, those were not there.
Renamed files keep their past. Commits that touch many files (formatting, moves) only move lines.

A file whose edits hardly ever remove a line only grows: a list of seeds, a log, a register. Where
it is plain text, the lines of all changes can be kept (`append_files`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from leadhand.errors import LeadhandError
from leadhand.fleet.repository.git import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leadhand.fleet.repository.git import Git

COMMITS_MAX = 400
FILES_MAX = 20
"""Files of a commit whose edits are compared."""
COMPARED = 12
"""Earlier edits of a file that an edit is compared with."""
HUNKS_MAX = 200
"""Hunks of a file in one commit; a file with more was rewritten."""
APPENDED = 0.95
"""The share of edits that remove no line, from which on a file only grows."""
EDITS_LEAST = 8
"""Edits of a file before it is known to only grow."""
TEXT = frozenset({".txt", ".md", ".rst", ".csv", ".tsv", ".jsonl", ".log", ".lst"})
"""Plain text: lines of several changes can be kept without breaking each other."""
PRIOR_MET, PRIOR_TOUCHED = 20.0, 1.0
"""Before anything was seen: one pair of edits in twenty touches."""
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class Hunk(NamedTuple):
    """Lines `first` up to but not including `end` are replaced by `added` others."""

    first: int
    end: int
    added: int

    @property
    def growth(self) -> int:
        """Return by how many lines the file grows."""
        return self.added - (self.end - self.first)


class Merges(NamedTuple):
    """How often changes of a file met others' changes of it, and how often in conflict."""

    met: int = 0
    conflicts: int = 0


class CommitEdits(NamedTuple):
    """What one commit did to each file."""

    name: str
    files: dict[str, list[Hunk]]
    renamed: dict[str, str]
    """By new name: the old one."""
    created: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()


Lines = Sequence[tuple[int, int]]
APART, TOUCHING, REWRITING = range(3)


def meeting(written: Lines, hunks: Sequence[Hunk], recent: Lines = ()) -> int:
    """Return how an edit meets lines that an earlier one wrote: apart, touching or rewriting.

    `recent` are the blocks of lines that other commits wrote meanwhile (`blocks_of`).
    """
    found = APART
    for first, end in written:
        if any(hunk.first < end and first < hunk.end for hunk in hunks):
            return REWRITING
        near = [block for block in recent if block[0] <= end and first <= block[1]]
        low, high = min([first, *(each[0] for each in near)]), max([end, *(b for _, b in near)])
        if any(hunk.first <= high and low <= hunk.end for hunk in hunks):
            found = TOUCHING
    return found


def blocks_of(written: Iterable[Lines]) -> Lines:
    """Return the lines that several edits wrote, those that border on each other as one block."""
    found: list[tuple[int, int]] = []
    for first, end in sorted(each for lines in written for each in lines):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return found


def moved(written: Lines, hunks: Sequence[Hunk]) -> Lines:
    """Return where lines are after an edit."""
    found = []
    for first, end in written:
        before = first + sum(hunk.growth for hunk in hunks if hunk.end <= first)
        after = end + sum(hunk.growth for hunk in hunks if hunk.end <= end)
        found.append((before, max(before, after)))
    return found


def written_by(hunks: Sequence[Hunk]) -> Lines:
    """Return the lines that an edit wrote, as they are numbered after it."""
    found, growth = [], 0
    for hunk in hunks:
        found.append((hunk.first + growth, hunk.first + growth + hunk.added))
        growth += hunk.growth
    return found


class EditHistory:
    """How edits of each file met the edits before them; commits come oldest first."""

    def __init__(self, commits: Iterable[CommitEdits] = (), compared: int = COMPARED) -> None:
        self._compared = compared
        self._files: dict[str, Merges] = {}
        self._lines: dict[str, list[tuple[str, Lines]]] = {}
        self._edits: Counter[str] = Counter()
        self._growing: Counter[str] = Counter()
        self._met, self._touched = PRIOR_MET, PRIOR_TOUCHED
        self.pairs: dict[tuple[str, str], int] = {}
        """By two commits, the earlier first: how they meet, where they are not apart."""
        for commit in commits:
            self.add(commit)

    def of(self, path: str) -> Merges:
        """Return how often edits of a file met, and touched."""
        return self._files.get(path, Merges())

    @property
    def usual(self) -> float:
        """Return the share of all pairs of edits of one file that touch."""
        return self._touched / self._met

    def append_files(self) -> list[str]:
        """Return the files of plain text that only grow."""
        return sorted(
            path
            for path, edits in self._edits.items()
            if edits >= EDITS_LEAST
            and self._growing[path] >= APPENDED * edits
            and PurePosixPath(path).suffix.lower() in TEXT
        )

    def add(self, commit: CommitEdits) -> None:
        """Compare a commit with those before it, and remember its lines."""
        for path, old in commit.renamed.items():
            self._rename(old, path)
        compares = len(commit.files) <= FILES_MAX
        for path, hunks in commit.files.items():
            if path in commit.deleted:
                self._lines.pop(path, None)
                continue
            known = self._lines.setdefault(path, [])
            if len(hunks) > HUNKS_MAX:
                known.clear()
                continue
            if compares and path not in commit.created:
                self._compare(commit.name, path, known, hunks)
            known[:] = [(name, moved(lines, hunks)) for name, lines in known]
            if compares and path not in commit.created:
                known.append((commit.name, written_by(hunks)))
                del known[: -self._compared]

    def _compare(
        self, name: str, path: str, known: Sequence[tuple[str, Lines]], hunks: Sequence[Hunk]
    ) -> None:
        recent = blocks_of(lines for _name, lines in known)
        self._edits[path] += 1
        self._growing[path] += all(hunk.first == hunk.end for hunk in hunks)
        met, conflicts = self.of(path)
        for other, lines in known:
            how = meeting(lines, hunks, recent)
            if how != APART:
                self.pairs[other, name] = max(how, self.pairs.get((other, name), APART))
            if how != REWRITING:
                met, conflicts = met + 1, conflicts + how
                self._met, self._touched = self._met + 1, self._touched + how
        self._files[path] = Merges(met, conflicts)

    def _rename(self, old: str, new: str) -> None:
        self._files[new] = self._files.pop(old, Merges())
        self._lines[new] = self._lines.pop(old, [])
        for counts in (self._edits, self._growing):
            counts[new] += counts.pop(old, 0)


# Reading them from git.


async def edits_of(git: Git, main: str, most: int = COMMITS_MAX) -> list[CommitEdits]:
    """Return the last commits of main, oldest first; merges left out.

    None where git has trouble with them, or where there is too much: a partial clone does not
    fetch what it has not.
    """
    argv = ("log", "--no-merges", "-p", "-U0", "-M", "--no-ext-diff", "--no-textconv", "--no-color")
    form = ("--format=%x01%H", f"--max-count={most}", main)
    try:
        said = await git(*argv, *form, env={"GIT_NO_LAZY_FETCH": "1"})
    except (LeadhandError, OSError):
        return []
    # No line of a difference begins with this character: each has a mark before its text.
    return [_commit(entry) for entry in (b"\n" + said.out).split(b"\n\1")[1:]][::-1]


def _commit(entry: bytes) -> CommitEdits:
    name, _, rest = entry.partition(b"\n")
    files: dict[str, list[Hunk]] = {}
    renamed: dict[str, str] = {}
    created, deleted = set(), set()
    lines = iter(rest.split(b"\n"))
    path = old = ""
    for line in lines:
        if line.startswith(b"diff --git "):
            path = _path(line)
        elif line.startswith(b"rename from "):
            old = name_of(line.removeprefix(b"rename from "))
        elif line.startswith(b"rename to "):
            path = name_of(line.removeprefix(b"rename to "))
            renamed[path] = old
        elif line.startswith(b"new file "):
            created.add(path)
        elif line.startswith(b"deleted file "):
            deleted.add(path)
        elif found := _HUNK.match(line):
            hunk = _hunk(found)
            _skip(lines, hunk.end - hunk.first + hunk.added)
            if path:
                files.setdefault(path, []).append(hunk)
    return CommitEdits(name.decode(), files, renamed, frozenset(created), frozenset(deleted))


def _path(line: bytes) -> str:
    """Return the path of a file that keeps its name; empty for others and for unusual names."""
    both = line.removeprefix(b"diff --git ")
    half = (len(both) - 1) // 2
    one, two = both[:half], both[half + 1 :]
    same = one.startswith(b"a/") and two.startswith(b"b/") and one[2:] == two[2:]
    return name_of(one[2:]) if same else ""


def _hunk(found: re.Match[bytes]) -> Hunk:
    first, gone = int(found[1]), int(found[2] or 1)
    first += not gone  # an insertion is named by the line before it
    return Hunk(first, first + gone, int(found[3] or 1))


def _skip(lines: Iterator[bytes], count: int) -> None:
    """Skip the lines of a hunk: they are a stranger's text, and may look like a header."""
    while count:
        line = next(lines, None)
        if line is None:
            return
        count -= not line.startswith(b"\\")  # "\ No newline at end of file" is no line
