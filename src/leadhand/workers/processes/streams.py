"""Reading what a command prints: at full speed, in bounded memory.

Of each stream the first quarter and the last three quarters of its limit are kept (an error is
mostly at the end, what was asked at the beginning); the rest is read, counted and dropped. A pipe
is never left unread, since a command that cannot write would stand still. All streams of a host
share one buffer to read into, so an idle command costs no buffer.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass

READ_BYTES = 256 << 10
DRAIN_READS_MAX = 64

OnOutput = Callable[[str, bytes], None]
"""Gets "stdout" or "stderr" and each chunk as it arrives; once it fails it is not called again."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What was kept of a stream: its first ``head`` bytes and, after a gap if any, its last."""

    data: bytes
    total: int
    truncated: bool
    head: int


class Stream:
    """The reading end of one pipe, read by the running event loop."""

    def __init__(
        self, name: str, fd: int, limit: int, on_output: OnOutput | None, buffer: bytearray
    ) -> None:
        self._name, self._fd, self._limit = name, fd, limit
        self._on_output, self._buffer = on_output, buffer
        self._head, self._tail, self._total = bytearray(), bytearray(), 0
        self._tail_max = limit - limit // 4
        self._loop = asyncio.get_running_loop()
        if fd >= 0:  # else somebody else reads what the command says
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self.read)

    def read(self) -> bool:
        """Take what is there now; false if nothing is."""
        try:
            count = os.readv(self._fd, [self._buffer])
        except BlockingIOError:
            return False
        if count == 0:
            self.close()
            return False
        chunk = memoryview(self._buffer)[:count]
        self._keep(chunk)
        if self._on_output is not None:
            try:
                self._on_output(self._name, bytes(chunk))
            except Exception as error:  # noqa: BLE001 — a stranger's code, not the command's fault
                self._on_output = None
                context = {"message": "on_output failed and is dropped", "exception": error}
                self._loop.call_exception_handler(context)
        return True

    def _keep(self, chunk: memoryview) -> None:
        self._total += len(chunk)
        room = self._limit // 4 - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[max(room, len(chunk) - self._tail_max) :]
        if len(self._tail) > 2 * self._tail_max:
            del self._tail[: len(self._tail) - self._tail_max]

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def finish(self) -> Captured:
        """Empty the pipe without waiting: its writers are dead, or are no part of the command."""
        for _ in range(DRAIN_READS_MAX):
            if self._fd < 0 or not self.read():
                break
        self.close()
        tail = self._tail[max(0, len(self._tail) - self._tail_max) :]
        data = bytes(self._head + tail)
        return Captured(data, self._total, self._total > self._limit, len(self._head))
