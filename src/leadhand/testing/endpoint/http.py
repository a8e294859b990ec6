"""As much of HTTP/1.1 as clients of models need: one request after the other on a connection.

Everything is bounded: the head, the body, how long a client may take to send either.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from leadhand.testing.endpoint.request import Headers

HEAD_BYTES_MAX = 64 << 10
READ_SECONDS_MAX = 30.0
IDLE_SECONDS_MAX = 120.0
LINGER_SECONDS_MAX = 1.0


class Refused(Exception):
    """A request that is not taken, with its status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Arrival:
    """A request as it came."""

    method: str
    path: str
    headers: Headers
    body: bytes = field(repr=False)


async def read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body_bytes_max: int
) -> Arrival | None:
    """The next request, or None when the client has no more."""
    try:
        async with asyncio.timeout(IDLE_SECONDS_MAX):
            head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, version = first.split(" ")
        pairs = [line.split(":", 1) for line in lines if line]
        headers = Headers({name.strip(): value.strip() for name, value in pairs})
        if not version.startswith("HTTP/1."):
            raise Refused(505, "this is an HTTP/1.1 server")
        if "100-continue" in headers.get("expect", "").lower():
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        async with asyncio.timeout(READ_SECONDS_MAX):
            body = await _body(reader, headers, body_bytes_max)
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        return None
    except asyncio.LimitOverrunError as error:
        raise Refused(431, "the head of the request is too large") from error
    except ValueError as error:
        raise Refused(400, f"not HTTP: {error}") from error
    return Arrival(method, target.partition("?")[0], headers, body)


async def _body(reader: asyncio.StreamReader, headers: Headers, bytes_max: int) -> bytes:
    too_large = Refused(413, f"the body is larger than {bytes_max} bytes")
    if headers.get("transfer-encoding", "").lower() != "chunked":
        size = int(headers.get("content-length", "0"))
        if not 0 <= size <= bytes_max:
            raise too_large
        return await reader.readexactly(size)
    body = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        if size < 0 or len(body) + size > bytes_max:
            raise too_large
        body += (await reader.readexactly(size + 2))[:-2]
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return bytes(body)


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """The status line and the headers."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Overloaded" if status == 529 else "Scripted"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", errors="replace")


async def write_whole(
    writer: asyncio.StreamWriter,
    status: int,
    content: bytes,
    headers: Mapping[str, str],
    *,
    stop_at: int | None = None,
) -> None:
    """A response in one piece, or only its first bytes."""
    sized = {**headers, "content-length": str(len(content))}
    writer.write(head(status, sized) + content[:stop_at])
    await writer.drain()


async def write_chunks(
    writer: asyncio.StreamWriter,
    headers: Mapping[str, str],
    chunks: AsyncIterable[bytes],
    *,
    ended: bool,
) -> None:
    """A response chunk by chunk; unless it is ended the client waits for more."""
    writer.write(head(200, {**headers, "transfer-encoding": "chunked"}))
    async for chunk in chunks:
        if chunk:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
    if ended:
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Let the client read what it was told, though not all it sent was read.

    Closed at once, the connection would be reset, and the client might never see why.
    """
    try:
        async with asyncio.timeout(LINGER_SECONDS_MAX):
            writer.write_eof()
            while await reader.read(1 << 16):
                pass
    except (ConnectionError, OSError, TimeoutError):
        pass


def encode(value: Any) -> bytes:
    """A body: a text or bytes as they stand, anything else as JSON."""
    if isinstance(value, bytes):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode(errors="replace")


async def hung_up(reader: asyncio.StreamReader, seconds: float | None) -> bool:
    """Wait, and notice when the client does not: whether it went away meanwhile."""
    try:
        async with asyncio.timeout(seconds):
            # Nothing is due from a client that waits for its answer; so this is the end of it.
            await reader.read(1)
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True
