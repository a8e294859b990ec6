"""What files hold, kept by the ids of their contents, in a file of the fleet's folder.

One line for each content. The first line names the form and how symbols were found: another reader
begins a new file. A line that cannot be read is a line less. The cache is never needed: a disk
without room costs time, nothing else.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from leadhand.fleet.planning.symbols import FileFacts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORM = 1
SPARE = 1000
"""Lines of contents that are gone from main, before the file is written anew."""


class Line(msgspec.Struct, frozen=True, array_like=True):
    """A content, and what it holds."""

    key: str
    facts: FileFacts


_READ = msgspec.json.Decoder(Line)


class FactsCache:
    """The facts of known contents; without a path nothing is kept."""

    def __init__(self, path: Path | None, reader: str) -> None:
        self._path, self._head = path, f'["leadhand map",{FORM},"{reader}"]'.encode()
        self.known: dict[str, FileFacts] = {}
        self._lines = 0
        self._begun = False

    def load(self) -> None:
        """Read what is kept."""
        data = b""
        if self._path is not None:
            with contextlib.suppress(OSError):
                data = self._path.read_bytes()
        head, *lines = data.split(b"\n")
        self._begun = head == self._head
        if not self._begun:
            return
        for line in lines:
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                read = _READ.decode(line)
                self.known[read.key] = read.facts
        self._lines = len(lines)

    def save(self, new: Mapping[str, FileFacts], live: set[str]) -> None:
        """Keep new facts; once most lines are of contents that are gone, keep only live ones."""
        self.known.update(new)
        if self._path is None or not (new or self._lines > 2 * len(live) + SPARE):
            return
        stale = self._lines + len(new) > 2 * len(live) + SPARE
        if stale:
            self.known = {key: facts for key, facts in self.known.items() if key in live}
        fresh = stale or not self._begun
        rows = self.known if fresh else new
        data = b"".join(msgspec.json.encode(Line(*row)) + b"\n" for row in rows.items())
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if fresh:
                aside = self._path.with_suffix(".new")
                aside.write_bytes(self._head + b"\n" + data)
                aside.replace(self._path)
            else:
                with self._path.open("ab") as file:
                    file.write(b"\n" + data)
            self._begun, self._lines = True, len(rows) if fresh else self._lines + len(rows)
