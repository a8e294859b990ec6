"""What a coder prints, as documents: one JSON object on each line, in bounded memory.

A line that is longer than the most is dropped up to its end, and counted: a tool result of a
hundred megabytes must neither fill our memory nor end the conversation. What is no JSON is kept
as text, since that is how programs say what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from leadhand.codec.events import escaped

LINE_BYTES_MAX = 10 << 20


class Lines:
    """Takes chunks as they come, gives lines when they are whole."""

    def __init__(self, most: int = LINE_BYTES_MAX) -> None:
        self._most = most
        self._begun = bytearray()
        self._skipping = False
        self.dropped = 0
        """Lines that were too long."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that are whole now."""
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            self._take(piece)
            if not self._skipping:
                yield bytes(self._begun)
            self._begun.clear()
            self._skipping = False
        self._take(rest)

    def rest(self) -> Iterator[bytes]:
        """What was printed last, without an end of line."""
        if self._begun and not self._skipping:
            yield bytes(self._begun)
        self._begun.clear()

    def _take(self, piece: bytes) -> None:
        if self._skipping:
            return
        if len(self._begun) + len(piece) > self._most:
            self._begun.clear()
            self._skipping = True
            self.dropped += 1
        else:
            self._begun += piece


def document(line: bytes) -> Mapping[str, Any] | None:
    """The object on a line; None if it is something else."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    found: Mapping[str, Any] = escaped(value) if b"\\u" in line else value
    return found
