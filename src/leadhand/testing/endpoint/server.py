"""A scripted endpoint: a server on this machine that answers as a provider of models would.

    async with Endpoint([Use("look", {"at": "this"}), Say("It is fine.")]) as endpoint:
        client = AsyncAnthropic(base_url=endpoint.url, api_key="none")
        ...
        assert endpoint.requests[1].results[0].text == "..."

It speaks Anthropic Messages, OpenAI Chat Completions and OpenAI Responses on the same address,
with or without `/v1`. A script is replies, taken in the order in which requests arrive, or a
function of the request. When a list is used up, further requests are refused with a status
that no client tries again, and counted in `unanswered`: a script that ends is not an answer.

It listens on loopback only. Connections, bodies and requests are bounded, and when it ends
nothing of it is left: not a task, not a connection.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import typing
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self, cast

from leadhand.testing.endpoint import anthropic, chat, responses
from leadhand.testing.endpoint.answers import Answer, Event, answer_of, tokens
from leadhand.testing.endpoint.replies import (
    Cut,
    Fail,
    Garbage,
    Hang,
    Loop,
    Reply,
    Say,
    Slow,
    Wellformed,
)
from leadhand.testing.endpoint.request import Headers, Parsed, Protocol, Request

# HTTP/1.1 as far as clients of models need it: sequential requests on a connection.
#
# Everything is bounded: the head, the body, how long a client may take to send either.


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
    """Return the next request, or None when the client has closed the connection."""
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
    """Return the status line and the headers as bytes."""
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
    """Write a response in one piece, or only its first `stop_at` bytes."""
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
    """Write a response chunk by chunk; unless `ended`, the client waits for more."""
    writer.write(head(200, {**headers, "transfer-encoding": "chunked"}))
    async for chunk in chunks:
        if chunk:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
    if ended:
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Give the client time to read the response, although its request was not read to the end.

    If the connection were closed at once, it would be reset, and the client might never see the
    response.
    """
    try:
        async with asyncio.timeout(LINGER_SECONDS_MAX):
            writer.write_eof()
            while await reader.read(1 << 16):
                pass
    except (ConnectionError, OSError, TimeoutError):
        pass


def encode(value: Any) -> bytes:
    """Return a body as bytes: texts and bytes as they are, anything else as JSON."""
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


# Delivery of a reply: whole or streamed, its pace, and where it is cut.
#
# The wrapping replies are taken off from the outside, each leaving its mark; what is inside is then
# an answer in the protocol's shape, an error, or bytes that are neither.


JSON = {"content-type": "application/json"}
STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class Dialect(typing.Protocol):
    """The functions that the module of each protocol defines."""

    def read(self, body: Mapping[str, Any]) -> Parsed: ...

    def whole(self, request: Request, answer: Answer) -> dict[str, Any]: ...

    def events(self, request: Request, answer: Answer) -> Iterator[Event]: ...

    def error(self, fail: Fail, request: Request | None = None) -> dict[str, Any]: ...

    def error_events(self, fail: Fail, request: Request, answer: Answer) -> Iterator[Event]: ...

    def headers(self, request: Request | None) -> dict[str, str]: ...

    def models(self, names: list[str]) -> dict[str, Any]: ...


DIALECTS: dict[str, Dialect] = {"anthropic": anthropic, "chat": chat, "responses": responses}


@dataclass(frozen=True)
class Manner:
    """How a reply is delivered, as its wrapping replies ask."""

    pace_s: float = 0.0
    cut: Cut | None = None


class Delivery:
    """One reply on one connection."""

    def __init__(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._request = request
        self._dialect = DIALECTS[request.protocol]
        self._reader = reader
        self._writer = writer
        self._headers = self._dialect.headers(request)

    async def send(self, reply: Reply, manner: Manner = Manner()) -> bool:  # noqa: B008 - frozen
        """Send a reply; whether the connection can be used again."""
        match reply:
            case Loop(reply=inner):
                return await self.send(inner, manner)
            case Slow(reply=inner, seconds_per_event=pace_s):
                return await self.send(inner, replace(manner, pace_s=pace_s))
            case Cut(reply=inner):
                return await self.send(inner, replace(manner, cut=reply))
            case Hang(seconds=seconds, then=then):
                gone = await hung_up(self._reader, seconds)
                return False if gone or then is None else await self.send(then, manner)
            case Garbage(content=content):
                kind = STREAM if self._request.stream else JSON
                return await self._whole(200, encode(content), kind, manner)
            case Fail():
                return await self._fail(reply, manner)
            case _:
                return await self._answer(reply, manner)

    async def _answer(self, reply: Wellformed, manner: Manner) -> bool:
        answer = answer_of(reply, self._request)
        if self._request.stream:
            return await self._stream(self._dialect.events(self._request, answer), manner)
        body = encode(self._dialect.whole(self._request, answer))
        return await self._whole(200, body, JSON, manner)

    async def _fail(self, fail: Fail, manner: Manner) -> bool:
        if fail.streamed and self._request.stream:
            answer = answer_of(Say(""), self._request)
            events = self._dialect.error_events(fail, self._request, answer)
            return await self._stream(events, manner)
        body = self._dialect.error(fail, self._request) if fail.body is None else fail.body
        more = dict(fail.headers)
        if fail.retry_after_s is not None:
            more["retry-after"] = f"{fail.retry_after_s:g}"
        return await self._whole(fail.status, encode(body), {**JSON, **more}, manner)

    async def _whole(
        self, status: int, body: bytes, headers: Mapping[str, str], manner: Manner
    ) -> bool:
        headers = {**self._headers, **headers}
        if manner.pace_s and await hung_up(self._reader, manner.pace_s):
            return False
        cut = manner.cut
        if cut is None:
            await write_whole(self._writer, status, body, headers)
            return True
        size = _size(cut, len(body))
        if cut.how == "end":
            await write_whole(self._writer, status, body[:size], headers)
            return True
        await write_whole(self._writer, status, body, headers, stop_at=size)
        return await self._broken(cut)

    async def _stream(self, events: Iterable[Event], manner: Manner) -> bool:
        cut = manner.cut
        chunks = [event.encode() for event in events] if cut is None else _kept(cut, list(events))
        ended = cut is None or cut.how == "end"
        headers = {**self._headers, **STREAM}
        paced = self._paced(chunks, manner.pace_s)
        await write_chunks(self._writer, headers, paced, ended=ended)
        return ended if cut is None or ended else await self._broken(cut)

    async def _paced(self, chunks: list[bytes], pace_s: float) -> AsyncIterator[bytes]:
        for chunk in chunks:
            if pace_s and await hung_up(self._reader, pace_s):
                raise ConnectionResetError("the client went away")
            yield chunk

    async def _broken(self, cut: Cut) -> bool:
        if cut.how == "hang":
            await hung_up(self._reader, None)
        return False


def _size(cut: Cut, whole: int) -> int:
    """Return how many bytes are kept; never all of them."""
    size = int(whole * cut.after) if cut.size is None else cut.size
    return max(0, min(size, whole - 1))


def _kept(cut: Cut, events: list[Event]) -> list[bytes]:
    chunks = [event.encode() for event in events]
    if cut.events is not None:
        return chunks[: cut.events]
    if cut.at:
        places = [index for index, event in enumerate(events) if event.part == cut.at]
        if places:
            return chunks[: places[0 if cut.at == "end" else len(places) // 2]]
    left, kept = _size(cut, sum(map(len, chunks))), []
    for chunk in chunks:
        kept.append(chunk[:left])
        left -= len(kept[-1])
    return kept


BODY_BYTES_MAX = 32 << 20
CONNECTIONS_MAX = 2000
REQUESTS_MAX = 100_000

PATHS: dict[str, Protocol] = {
    "/messages": "anthropic",
    "/chat/completions": "chat",
    "/responses": "responses",
}
ENDED = Fail(400, message="the script has no reply left for this request")

Answering = Callable[[Request], Reply | Awaitable[Reply]]
Script = Sequence[Reply] | Answering


class Endpoint:
    """Answers requests as its script says, and remembers them."""

    def __init__(
        self,
        script: Script,
        *,
        port: int = 0,
        models: Sequence[str] = ("scripted",),
        body_bytes_max: int = BODY_BYTES_MAX,
        connections_max: int = CONNECTIONS_MAX,
        requests_max: int = REQUESTS_MAX,
    ) -> None:
        self.requests: list[Request] = []
        self.unanswered = 0
        """Requests for which the script had no reply."""
        self._answering = script if callable(script) else in_order(script)
        self._port = port
        self._models = list(models)
        self._body_bytes_max = body_bytes_max
        self._connections_max = connections_max
        self._requests_max = requests_max
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._ended = False
        self._wrong: Exception | None = None

    @property
    def url(self) -> str:
        """Its address; a client may add `/v1` or not."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._connections)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", self._port, limit=HEAD_BYTES_MAX, backlog=1024
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
        if self._wrong is not None and error is None:
            raise self._wrong

    async def close(self) -> None:
        """Stop listening, and end every connection."""
        server, self._server = self._server, None
        if server is None:
            return
        self._ended = True
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._ended:
            # It was let in just before the door was closed.
            writer.transport.abort()
            return
        task = cast("asyncio.Task[None]", asyncio.current_task())
        full = len(self._connections) >= self._connections_max
        self._connections.add(task)
        try:
            if full:
                await self._refuse(reader, writer, Refused(503, "too many connections"))
            else:
                while await self._one(reader, writer):
                    pass
        except ConnectionError:
            pass
        except asyncio.CancelledError:
            # The endpoint ends, and waits for no client to read what is left.
            writer.transport.abort()
        except Exception as error:  # noqa: BLE001 - raised again when the endpoint ends
            self._wrong = self._wrong or error
        finally:
            self._connections.discard(task)
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether there may be another one on this connection."""
        try:
            arrival = await read_request(reader, writer, self._body_bytes_max)
            if arrival is None:
                return False
            path = "/" + arrival.path.strip("/").removeprefix("v1").strip("/")
            if arrival.method == "POST" and path in PATHS:
                request = self._request(arrival, PATHS[path])
                reply = await self._reply(request)
                going_on = await Delivery(request, reader, writer).send(reply)
            else:
                await self._aside(arrival, path, writer)
                going_on = True
        except Refused as refused:
            await self._refuse(reader, writer, refused)
            return False
        return going_on and arrival.headers.get("connection", "").lower() != "close"

    def _request(self, arrival: Arrival, protocol: Protocol) -> Request:
        if len(self.requests) >= self._requests_max:
            raise Refused(429, f"this endpoint takes {self._requests_max} requests")
        body = _json(arrival.body)
        try:
            parsed = DIALECTS[protocol].read(body)
        except (AttributeError, KeyError, TypeError) as error:
            raise Refused(400, f"not a request of {protocol}: {error!r}") from error
        request = Request(
            **vars(parsed),
            number=len(self.requests),
            protocol=protocol,
            path=arrival.path,
            model=str(body.get("model", "")),
            stream=body.get("stream") is True,
            headers=arrival.headers,
            body=body,
            size=len(arrival.body),
            at=asyncio.get_running_loop().time(),
        )
        self.requests.append(request)
        return request

    async def _reply(self, request: Request) -> Reply:
        try:
            given = self._answering(request)
            reply = await given if inspect.isawaitable(given) else given
            if not isinstance(reply, Reply):
                raise TypeError(f"the script gave {reply!r}, which is no reply")
        except Exception as error:  # noqa: BLE001 - raised again when the endpoint ends
            self._wrong = self._wrong or error
            return Fail(400, message=f"the script failed: {error!r}")
        if reply is ENDED:
            self.unanswered += 1
        return reply

    async def _aside(self, arrival: Arrival, path: str, writer: asyncio.StreamWriter) -> None:
        """Answer requests for the list of models and the like, without the script."""
        dialect = DIALECTS[_spoken(arrival.headers, path)]
        status, body = 200, {}
        match arrival.method, path:
            case "GET", "/models":
                body = dialect.models(self._models)
            case "POST", "/messages/count_tokens":
                body = {"input_tokens": tokens(len(arrival.body))}
            case "GET" | "HEAD", "/":
                pass
            case _:
                status, body = 404, dialect.error(Fail(404, message=f"nothing is at {path}"))
        content = b"" if arrival.method == "HEAD" else encode(body)
        await write_whole(writer, status, content, JSON)

    async def _refuse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, refused: Refused
    ) -> None:
        body = encode({"error": {"type": "invalid_request_error", "message": str(refused)}})
        await write_whole(writer, refused.status, body, {**JSON, "connection": "close"})
        await linger(reader, writer)


def in_order(script: Sequence[Reply]) -> Answering:
    """Reply with the script's replies one after the other, independent of the request."""
    replies = _replies(script)
    return lambda _request: next(replies)


def _replies(script: Sequence[Reply]) -> Iterator[Reply]:
    for reply in script:
        yield reply
        while isinstance(reply, Loop):
            yield reply
    while True:
        yield ENDED


def _json(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError as error:
        raise Refused(400, f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Refused(400, "the body is not an object")
    return value


def _spoken(headers: Headers, path: str) -> Protocol:
    """Return the protocol that a client speaks."""
    return "anthropic" if "anthropic-version" in headers or "/messages" in path else "chat"
