"""A server behind a URL: the edge between the SDK's HTTP transport and the network.

The address stands in the configuration, so a plan cannot choose it: the host that is named may be
loopback or private, and no other is reached. As everywhere, a name is resolved once, every address
is judged, what was judged is what is connected to, and link-local and metadata addresses are
reached only by naming the address. Redirects stay within the origin (the SDK sees to that), proxies
of the environment are ignored. Headers that hold secrets are put on here, at the last moment, so
that nothing above ever has them to print.

The SDK would let a broken connection tear down the session with all its calls, and reduces every
status to one sentence. So the edge answers in the server's place, with a JSON-RPC error that says
what happened (`failures.EDGE`): exactly the call it belongs to fails, with the right class.
"""

from __future__ import annotations

import json
import os
import ssl
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2

from leadhand.workers.http.netguard import PORTS, AddressRefused, Guard, canonical
from leadhand.workers.http.worker import retry_after_s
from leadhand.workers.mcp.failures import edge_error, status_class
from leadhand.workers.reports import bounded_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from leadhand.workers.http.request import Header

ERROR_BYTES = 8 << 10
CONNECT_S = 15.0
STREAM_S = 300.0
"""How long a stream may be silent; a call's own limit is nearer."""


class OneHostTransport(httpx2.AsyncBaseTransport):
    """The transport below the SDK: sends to the configured host only, within limits."""

    def __init__(self, url: str, headers: tuple[Header, ...], limit: int) -> None:
        parsed = httpx2.URL(url)
        host = parsed.raw_host.decode("ascii")
        self._origin = (parsed.scheme, parsed.host)
        port = parsed.port or PORTS[parsed.scheme]
        entry = f"[{host.strip('[]')}]:{port}" if ":" in host else f"{host}:{port}"
        self._guard = Guard.of([entry], [host])
        self._headers = headers
        self._limit = limit
        tls = (
            httpx2.create_ssl_context(trust_env=False)
            if parsed.scheme == "https"
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        self._below = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Handle one exchange; a failure of a POST is returned as an answer."""
        if request.method != "POST":
            return await self._below.handle_async_request(await self._ready(request))
        try:
            ready = await self._ready(request)
        except (AddressRefused, ValueError, OSError) as error:
            return _answer(request, edge_error("unavailable", str(error), sent=False))
        try:
            response = await self._below.handle_async_request(ready)
            return await self._bounded(request, response)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            message = f"no connection: {error or type(error).__name__}"
            return _answer(request, edge_error("transient", message, sent=False))
        except httpx2.TransportError as error:
            return _answer(request, edge_error("lost", str(error) or type(error).__name__))

    async def aclose(self) -> None:
        """Let go of the connections."""
        await self._below.aclose()

    async def _ready(self, request: httpx2.Request) -> httpx2.Request:
        """Return the request to a checked address, with the secret headers added."""
        url = request.url
        host = url.raw_host.decode("ascii").rstrip(".")
        if (url.scheme, url.host) != self._origin:
            raise AddressRefused(f"{host} is not the configured server")
        place = await self._guard.place(url.scheme, host, url.port)
        headers = dict(request.headers) | {"host": url.netloc.decode("ascii")}
        headers["accept-encoding"] = "identity"
        for each in self._headers:
            headers[each.name.lower()] = each.fill({}, os.environ)
        extensions = dict(request.extensions)
        if canonical(host) is None:
            extensions["sni_hostname"] = host
        return httpx2.Request(
            request.method,
            url.copy_with(host=place.addresses[0]),
            headers=headers,
            stream=request.stream,
            extensions=extensions,
        )

    async def _bounded(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Return the answer, read within the limit unless it is a stream of events."""
        kind = response.headers.get("content-type", "").lower()
        failed = response.status_code >= 400
        if not failed and kind.startswith("text/event-stream"):
            return response
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return _answer(request, edge_error("invalid_output", "the answer is compressed"))
        body = bytearray()
        try:
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > self._limit:
                    message = f"the result is larger than {self._limit:,} bytes"
                    return _answer(request, edge_error("invalid_output", message))
        finally:
            await response.aclose()
        if failed and not _is_error(kind, body):
            return _answer(request, _refusal(response, bytes(body[:ERROR_BYTES])))
        return httpx2.Response(
            response.status_code, headers=response.headers, content=bytes(body), request=request
        )


@asynccontextmanager
async def http(url: str, headers: tuple[Header, ...], limit: int) -> AsyncIterator[Any]:
    """Open the two streams of a session with a server behind a URL."""
    from mcp.client.streamable_http import streamable_http_client

    limits = httpx2.Timeout(CONNECT_S, read=STREAM_S)
    async with (
        httpx2.AsyncClient(
            transport=OneHostTransport(url, headers, limit), timeout=limits, trust_env=False
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield streams


def _answer(request: httpx2.Request, error: Mapping[str, Any]) -> httpx2.Response:
    # A status of 400 and above makes the SDK give the error to the call that was sent.
    doc = {"jsonrpc": "2.0", "id": None, "error": error}
    headers = {"content-type": "application/json"}
    return httpx2.Response(502, headers=headers, content=json.dumps(doc), request=request)


def _is_error(kind: str, body: bytearray) -> bool:
    """Return whether a body is a JSON-RPC error of the server itself."""
    if not kind.startswith("application/json"):
        return False
    try:
        doc = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(doc, dict) and isinstance(doc.get("error"), dict) and "jsonrpc" in doc


def _refusal(response: httpx2.Response, body: bytes) -> dict[str, Any]:
    status = response.status_code
    kind = status_class(status)
    text = body.decode("utf-8", "backslashreplace").strip()
    said = "" if "html" in response.headers.get("content-type", "") else bounded_text(text, 300)
    message = f"answered {status}" + (f": {said}" if said else "")
    wait = retry_after_s(response.headers.get("retry-after"), time.time())
    return edge_error(kind, message, retry_after_s=wait, status=status)
