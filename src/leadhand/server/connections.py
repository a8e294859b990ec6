"""Connections: bounded in number, and with a deadline for each request head.

uvicorn waits for a request without limit. So a client that sends half a head, a byte now and then,
would hold a connection for nothing, and a thousand of them would leave the process no file to open,
the database's among them. Here a head has a deadline from its first byte on, a silent connection
has the same from its beginning, and when there are too many the longest idle one makes room, or
else one of an unauthenticated client whose body does not arrive. If all are in use, the new one is
told to come again.

A head that two parsers could read differently is refused with 400, and the connection is closed:
behind a proxy, bytes after a body whose end is ambiguous would be read as another client's next
request. h11 is as lenient as RFC 9112 allows; current clients and proxies need none of that.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from leadhand.server.gate import PERSON

if TYPE_CHECKING:
    import asyncio


HEAD_S = 15.0
"""How long a request head may take."""
HEAD_BYTES = 16 << 10
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
_BLANK = re.compile(rb"\n\r?\n")
"""The end of a head as h11 sees it."""


class AmbiguousHead(h11.RemoteProtocolError):
    """A request head that two parsers could read differently."""


def check_head(head: bytes) -> None:
    """Raise `AmbiguousHead` unless a request head can be read in one way only.

    `head` reaches from the request line to the blank line.
    """
    head = head.lstrip(b"\r\n")
    if b"\n" in head.replace(b"\r\n", b"") or b"\r" in head.replace(b"\r\n", b""):
        raise AmbiguousHead("lines of the head must end with CR LF")
    if b"\0" in head:
        raise AmbiguousHead("the head holds a NUL")
    first, *lines = head.rstrip(b"\r\n").split(b"\r\n")
    lengths, codings = [], []
    for line in lines:
        name, _, value = line.partition(b":")
        if line[:1] in (b" ", b"\t"):
            raise AmbiguousHead("a header is folded over lines")
        if name.strip().lower() == b"content-length":
            lengths.append(value.strip(b" \t"))
        elif name.strip().lower() == b"transfer-encoding":
            codings.append(value.strip(b" \t").lower())
    if lengths and codings:
        raise AmbiguousHead("Content-Length and Transfer-Encoding exclude each other")
    if len(lengths) > 1 or any(not each.isdigit() for each in lengths):
        raise AmbiguousHead("Content-Length must be one number")
    if codings and (codings != [b"chunked"] or not first.endswith(b"HTTP/1.1")):
        raise AmbiguousHead("the only Transfer-Encoding is chunked, in HTTP/1.1")


class StrictConnection(h11.Connection):
    """h11's parser of requests, without ambiguous heads."""

    def next_event(self) -> Any:
        """Return h11's next event. Raise `AmbiguousHead` for a refused head."""
        if self.their_state is h11.IDLE:
            waiting = self.trailing_data[0]
            if end := _BLANK.search(waiting, len(waiting) - len(waiting.lstrip(b"\r\n"))):
                check_head(waiting[: end.end()])
        return super().next_event()


class StrictProtocol(H11Protocol):
    """One connection."""

    connections_max = 512

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        most = self.config.h11_max_incomplete_event_size or HEAD_BYTES
        self.conn = StrictConnection(h11.SERVER, most)
        self._deadline: asyncio.TimerHandle | None = None
        self.idle_since = time.monotonic()

    @property
    def idle(self) -> bool:
        """Whether no request is in progress on it."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def dawdles(self) -> bool:
        """Whether the body of an unauthenticated client is still awaited."""
        return self.cycle is not None and self.cycle.more_body and not self.scope.get(PERSON)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it if there are too many."""
        if len(self.connections) >= self.connections_max and not self._made_room():
            super().connection_made(transport)
            transport.write(FULL)
            transport.close()
            return
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up a lost connection."""
        self._satisfied()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle received bytes; bytes after a response begin the next head."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if not self.idle:
            self._satisfied()
        elif self._deadline is None and not self.transport.is_closing():
            self._expect()

    def on_response_complete(self) -> None:
        """Note the end of a response; the next request may already be waiting."""
        self.idle_since = time.monotonic()
        super().on_response_complete()
        if self.idle and self.conn.trailing_data[0]:
            self._expect()

    def _expect(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_S, self._too_late)

    def _satisfied(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self.idle:
            self.transport.close()

    def _made_room(self) -> bool:
        protocols = [each for each in self.connections if isinstance(each, StrictProtocol)]
        idle = [each for each in protocols if each.idle] or [
            each for each in protocols if each.dawdles
        ]
        if not idle:
            return False
        oldest = min(idle, key=lambda each: each.idle_since)
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True


def strict_protocol(connections: int) -> type[StrictProtocol]:
    """Return the HTTP protocol class for at most so many connections."""
    return type("BoundedProtocol", (StrictProtocol,), {"connections_max": connections})
