"""Capture of a worker's output for its attempt, instead of the terminal.

`install_capture` puts a proxy in front of sys.stdout and sys.stderr. Inside an attempt (the
context variable `current` holds a sink; threads get a copy of it) what is written goes to
that sink, which keeps the beginning and the end of it. Outside, it passes through.

It sees what Python writes. A program that a function starts itself inherits the real file
descriptors; workers that start programs should be commands, or run with isolate="process".
"""

from __future__ import annotations

import codecs
import io
import sys
import threading
from collections import deque
from contextvars import ContextVar
from typing import Any, TextIO, cast

LIMIT = 1 << 20
"""Characters kept of one attempt, half from the beginning and half from the end."""
PIECES_MAX = 4096
"""Many tiny writes are packed together now and then."""


_lock = threading.Lock()


class Sink:
    """The output of one attempt, bounded. Making one is cheap: most attempts print nothing."""

    __slots__ = ("_head", "_limit", "_room", "_tail", "_tail_size", "total")

    def __init__(self, limit: int = LIMIT) -> None:
        self.total = 0
        self._limit = limit

    def write(self, text: str) -> None:
        """Take a text; keep its beginning and its end, and drop the middle."""
        with _lock:
            if not self.total:
                self._head: list[str] = []
                self._room = self._limit // 2
                self._tail: deque[str] = deque()
                self._tail_size = 0
            self.total += len(text)
            half = self._limit // 2
            if self._room:
                self._head.append(text[: self._room])
                text = text[self._room :]
                self._room -= len(self._head[-1])
            if not text:
                return
            self._tail.append(text[-half:])
            self._tail_size += len(self._tail[-1])
            while self._tail_size - len(self._tail[0]) >= half:
                self._tail_size -= len(self._tail.popleft())
            if len(self._tail) > PIECES_MAX:
                self._tail = deque(["".join(self._tail)])

    def tail(self, length: int) -> str:
        """Return the end of what was written so far."""
        if not self.total:
            return ""
        with _lock:
            found = "".join(self._tail)[-length:]
            if len(found) < length and self.total <= self._limit:
                found = "".join(self._head)[len(found) - length :] + found
        return found.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")

    def text(self) -> str:
        """Return what was kept, with a note where it was cut."""
        if not self.total:
            return ""
        with _lock:
            head, tail = "".join(self._head), "".join(self._tail)[-(self._limit // 2) :]
        left_out = self.total - len(head) - len(tail)
        gap = f"\n[... {left_out:,} characters left out ...]\n" if left_out else ""
        whole = head + gap + tail
        return whole.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


LIVE_LIMIT = 128 << 10
"""Characters kept of what a process prints, for those who watch it; its output is kept apart."""


class LiveStreams:
    """Both streams of a process as one bounded text, for readers who watch it."""

    def __init__(self) -> None:
        self.sink = Sink(LIVE_LIMIT)
        self._decoders = {
            name: codecs.getincrementaldecoder("utf-8")("backslashreplace")
            for name in ("stdout", "stderr")
        }

    def __call__(self, stream: str, chunk: bytes) -> None:
        """Take a chunk of a stream."""
        self.sink.write(self._decoders[stream].decode(chunk))


def shown_live(context: Any, sink: Sink) -> Sink:
    """Show a sink's text to readers who watch the attempt; return the sink."""
    printing = getattr(context, "printing", None)
    if printing is not None:
        printing(sink.tail)
    return sink


current: ContextVar[Sink | None] = ContextVar("leadhand_output", default=None)
"""Where the running attempt's output goes."""


class _Bytes(io.RawIOBase):
    """The `buffer` of a proxy, for code that writes bytes."""

    def __init__(self, original: TextIO) -> None:
        super().__init__()
        self._original = original

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raw = bytes(data)
        sink = current.get()
        if sink is None:
            return self._original.buffer.write(raw)
        sink.write(raw.decode("utf-8", "backslashreplace"))
        return len(raw)

    def flush(self) -> None:
        if current.get() is None:
            self._original.buffer.flush()

    def close(self) -> None:
        """Do nothing: the real stream is not ours to close."""


class _Proxy(io.TextIOBase):
    """A text stream that finds at each write the attempt whose output it is."""

    def __init__(self, original: TextIO) -> None:
        super().__init__()
        self.original = original
        self._bytes = _Bytes(original)

    def write(self, text: str) -> int:
        sink = current.get()
        if sink is None:
            return self.original.write(text)
        sink.write(text)
        return len(text)

    def flush(self) -> None:
        if current.get() is None:
            self.original.flush()

    def isatty(self) -> bool:
        return current.get() is None and self.original.isatty()

    def fileno(self) -> int:
        if current.get() is None:
            return self.original.fileno()
        raise io.UnsupportedOperation("the output of a worker is not a file")

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: the real stream is not ours to close."""

    @property
    def buffer(self) -> Any:
        return self._bytes

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.original.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.original.errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


def install_capture() -> None:
    """Put the proxies in place; calling it again changes nothing."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _Proxy):
            setattr(sys, name, cast("TextIO", _Proxy(stream)))
