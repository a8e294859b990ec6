"""The fleet's journal: events that the runs' logs do not hold, kept across restarts.

The log knows tasks, attempts, failures and answers. It does not know when an agent's process
began and ended, what the train tested, and how long a change waited. Each of these is a line in
a file, written at once and never changed, so that a process that is killed loses nothing.

    opened, closed                    a fleet began, and ended in order
    agent, agent ended                one agent's process, with what it cost
    queued, landed, ejected           a change at the train
    withdrawn                         one whose owner was ended, or told of trouble
    conflict                          work in progress that main now conflicts with
    tested, moved                     a prefix that was gated; main that moved over some changes
    merged                            what of it others had changed too, and whether in conflict
    checked, looked                   a change that was gated before the train; main by itself
    machine lost                      another machine that did not carry out its order
    given back                        commits of a person that could not land
    pull request                      one was opened
    pull merged, pull landed          the host was told to merge it; main holds it
    issue taken, issue ignored        by an epic; since its starter may not
    issue closed, issue left open     with evidence; since its epic did not succeed
    comment ignored, answered         what became of an answer in a comment
    held                              why nobody starts, or that somebody may again

A file that grows beyond `BYTES_MAX` becomes the older one, and the one before that is dropped.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


BYTES_MAX = 64 << 20
NAME = "journal.jsonl"
LATEST = 253_402_300_800_000_000
"""The year 10000, in microseconds."""
NUMBERS = frozenset({"cost", "seconds", "size", "waited_s"})
NEEDED = {"moved": ("size",), "tested": ("size",), "pull request": ("code",)}

Note = dict[str, Any]


class Journal:
    """Open it with `with`; `note` from one thread."""

    def __init__(self, folder: Path, bytes_max: int = BYTES_MAX) -> None:
        self._path = folder / NAME
        self._bytes_max = bytes_max
        self._file = -1
        self._size = 0

    def __enter__(self) -> Self:
        self._open()
        self.note("opened", pid=os.getpid())
        return self

    def __exit__(self, *_: object) -> None:
        self.note("closed", pid=os.getpid())
        os.close(self._file)
        self._file = -1

    def note(self, what: str, **more: Any) -> None:
        """Record an event with the present time. Trouble with the disk is ignored: work goes on."""
        if self._file < 0:
            return
        line = json.dumps({"at": time.time_ns() // 1000, "what": what, **more}) + "\n"
        try:
            self._size += os.write(self._file, line.encode())
        except OSError:
            return
        if self._size > self._bytes_max:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Begin a new file; if that fails the old one, which is closed last, goes on."""
        full = self._file
        try:
            with contextlib.suppress(FileNotFoundError):  # it was moved the last time
                self._path.replace(older(self._path))
            self._open()
        except OSError:
            return
        os.close(full)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._file).st_size
        if self._size:
            with contextlib.suppress(OSError):
                os.write(self._file, b"\n")  # the last line may have been cut off


def older(path: Path) -> Path:
    """Return the file with the lines before those of `path`."""
    return path.with_name(f"older-{path.name}")


def read(folder: Path) -> list[Note]:
    """Return all kept entries, oldest first."""
    path = folder / NAME
    return [note for each in (older(path), path) for note in _lines(each)]


class Tail:
    """Reads the journal again and again: what was read is not read again."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / NAME
        self._notes: list[Note] = []
        self._file: tuple[int, int] = (0, 0)
        """The file that was read, and how far."""

    def read(self) -> list[Note]:
        """Return all kept entries, oldest first; callers leave the list as it is."""
        try:
            with self._path.open("rb") as file:
                about = os.fstat(file.fileno())
                inode, start = self._file
                if inode != about.st_ino or about.st_size < start:  # another one took its place
                    self._notes, start = list(_lines(older(self._path))), 0
                file.seek(start)
                data = file.read()
        except OSError:
            return read(self._folder)
        whole = data[: data.rfind(b"\n") + 1]
        self._file = (about.st_ino, start + len(whole))
        self._notes = [*self._notes, *_parsed(whole.decode("utf-8", "replace"))]
        return self._notes


def _lines(path: Path) -> Iterator[Note]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    yield from _parsed(text)


def _parsed(text: str) -> Iterator[Note]:
    for line in text.splitlines():
        try:
            note = json.loads(line)
        except (ValueError, RecursionError):
            continue  # cut off
        if isinstance(note, dict) and is_whole(note):
            yield note


def is_whole(note: Note) -> bool:
    """Return whether a note can be counted: a spoilt line is treated as cut off."""
    at, what = note.get("at"), note.get("what")
    if not (isinstance(at, int) and 0 <= at < LATEST and isinstance(what, str)):
        return False
    needed = [key for key in NEEDED.get(what, ()) if key not in note]
    return not needed and all(is_sum(note[key]) for key in NUMBERS & note.keys())


def is_sum(value: Any) -> bool:
    """Return whether a value is a number that can be added up."""
    return isinstance(value, int | float) and 0 <= value < math.inf
