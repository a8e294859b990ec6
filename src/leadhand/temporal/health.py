"""Health checks for a process: is it alive, and does it take work.

    GET /livez    200 while the process lives
    GET /readyz   200 while it takes work; 503 while it starts or drains

Nothing else is answered, and nothing about runs is revealed.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from leadhand.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

LINE_BYTES_MAX = 4096
WAIT_S = 5.0


@asynccontextmanager
async def answering_health(bind: str, port: int, ready: Callable[[], bool]) -> AsyncIterator[int]:
    """Answer health checks on a port while the block runs; yield the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, TimeoutError):
            line = await asyncio.wait_for(reader.readline(), WAIT_S)
            writer.write(_said(line, ready=ready()))
            await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(answer, bind, port, limit=LINE_BYTES_MAX)
    except OSError as error:
        raise Conflict(f"{bind} port {port}: cannot listen there ({error.strerror})") from None
    async with server:
        yield server.sockets[0].getsockname()[1]


def _said(line: bytes, *, ready: bool) -> bytes:
    method, _, rest = line.decode("latin-1").partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    status, text = "404 Not Found", "not found"
    if method in ("GET", "HEAD") and path == "/livez":
        status, text = "200 OK", "alive"
    elif method in ("GET", "HEAD") and path == "/readyz":
        status, text = ("200 OK", "ready") if ready else ("503 Service Unavailable", "not ready")
    body = "" if method == "HEAD" else f"{text}\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text) + 1}"
    return f"{head}\r\nConnection: close\r\n\r\n{body}".encode()
