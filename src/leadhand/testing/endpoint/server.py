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
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, cast

from leadhand.testing.endpoint import http
from leadhand.testing.endpoint.answers import tokens
from leadhand.testing.endpoint.delivery import DIALECTS, JSON, Delivery
from leadhand.testing.endpoint.replies import Fail, Loop, Reply
from leadhand.testing.endpoint.request import Headers, Protocol, Request

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
        """How many are open now."""
        return len(self._connections)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", self._port, limit=http.HEAD_BYTES_MAX, backlog=1024
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
                await self._refuse(reader, writer, http.Refused(503, "too many connections"))
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
            arrival = await http.read_request(reader, writer, self._body_bytes_max)
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
        except http.Refused as refused:
            await self._refuse(reader, writer, refused)
            return False
        return going_on and arrival.headers.get("connection", "").lower() != "close"

    def _request(self, arrival: http.Arrival, protocol: Protocol) -> Request:
        if len(self.requests) >= self._requests_max:
            raise http.Refused(429, f"this endpoint takes {self._requests_max} requests")
        body = _json(arrival.body)
        try:
            parsed = DIALECTS[protocol].read(body)
        except (AttributeError, KeyError, TypeError) as error:
            raise http.Refused(400, f"not a request of {protocol}: {error!r}") from error
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

    async def _aside(self, arrival: http.Arrival, path: str, writer: asyncio.StreamWriter) -> None:
        """What clients ask for besides answers; the script is not asked."""
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
        content = b"" if arrival.method == "HEAD" else http.encode(body)
        await http.write_whole(writer, status, content, JSON)

    async def _refuse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, refused: http.Refused
    ) -> None:
        body = http.encode({"error": {"type": "invalid_request_error", "message": str(refused)}})
        await http.write_whole(writer, refused.status, body, {**JSON, "connection": "close"})
        await http.linger(reader, writer)


def in_order(script: Sequence[Reply]) -> Answering:
    """One reply after the other, whatever is asked."""
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
        raise http.Refused(400, f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise http.Refused(400, "the body is not an object")
    return value


def _spoken(headers: Headers, path: str) -> Protocol:
    """Which provider a client takes us for."""
    return "anthropic" if "anthropic-version" in headers or "/messages" in path else "chat"
