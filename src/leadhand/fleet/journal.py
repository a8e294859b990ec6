"""The fleet's journal: what the log of the runs does not know, kept across restarts.

The log knows tasks, attempts, failures and answers. It does not know when an agent's process
began and ended, what the train tested, and how long a change waited. Each of these is a line in
a file, written at once and never changed, so that a process that is killed loses nothing.

    opened, closed                    a fleet began, and ended in order
    agent, agent ended                one agent's process, with what it cost
    queued, landed, ejected           a change at the train
    tested, moved                     a prefix that was gated; main that moved over some changes
    held                              why nobody starts, or that somebody may again

A file that grows beyond `BYTES_MAX` becomes the older one, and the one before that is dropped.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BYTES_MAX = 64 << 20
NAME = "journal.jsonl"

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
        """Write down that something happened now. Trouble with the disk stops nobody's work."""
        if self._file < 0:
            return
        line = json.dumps({"at": time.time_ns() // 1000, "what": what, **more}) + "\n"
        try:
            self._size += os.write(self._file, line.encode())
        except OSError:
            return
        if self._size > self._bytes_max:
            os.close(self._file)
            self._path.replace(older(self._path))
            self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._file).st_size
        if self._size:
            os.write(self._file, b"\n")  # the last line may have been cut off


def older(path: Path) -> Path:
    """Where the lines before those of the file are."""
    return path.with_name(f"older-{path.name}")


def read(folder: Path) -> list[Note]:
    """Everything that is kept, oldest first."""
    path = folder / NAME
    return [note for each in (older(path), path) for note in _lines(each)]


def _lines(path: Path) -> Iterator[Note]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            note = json.loads(line)
        except ValueError:
            continue  # cut off
        if isinstance(note, dict) and isinstance(note.get("at"), int) and "what" in note:
            yield note
