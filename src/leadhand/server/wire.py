"""Connections: bounded in number, and none may take for ever to say what it wants.

uvicorn waits for a request as long as it takes. So whoever sends half a head, a byte now and then,
would keep a connection for nothing, and a thousand of them would leave the process no file to open,
the database's among them. Here a head has a deadline from its first byte on, a connection that says
nothing has the same from its beginning, and when there are too many the one that has been idle for
longest makes room. If all are at work, the new one is told to come again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

HEAD_S = 15.0
"""How long a request may take to say what it wants."""
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)


class Wire(H11Protocol):
    """One connection."""

    connections_max = 512

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._deadline: asyncio.TimerHandle | None = None
        self.idle_since = time.monotonic()

    @property
    def idle(self) -> bool:
        """Whether nothing is asked or answered on it."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody is there."""
        if len(self.connections) >= self.connections_max and not self._made_room():
            super().connection_made(transport)
            transport.write(FULL)
            transport.close()
            return
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._satisfied()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some bytes; those after an answer begin the next head."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if not self.idle:
            self._satisfied()
        elif self._deadline is None and not self.transport.is_closing():
            self._expect()

    def on_response_complete(self) -> None:
        """An answer has been given; what was sent after its request may be waiting already."""
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
        idle = [each for each in self.connections if isinstance(each, Wire) and each.idle]
        if not idle:
            return False
        oldest = min(idle, key=lambda each: each.idle_since)
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True


def wire(connections: int) -> type[Wire]:
    """What speaks HTTP, for so many connections at once."""
    return type("BoundedWire", (Wire,), {"connections_max": connections})
