"""A server behind a URL: the edge between the SDK's HTTP transport and the network.

The address stands in the configuration, so a plan cannot choose it: the host that is named may be
loopback or private, and no other is reached. As everywhere, a name is resolved once, every address
is judged, what was judged is what is connected to, and link-local and metadata addresses are
reached only by naming the address. Redirects stay within the origin (the SDK sees to that), proxies
of the environment are ignored. Headers that hold secrets are put on here, at the last moment, so
that nothing above ever has them to print.

With an `Authorization` each call carries a token. Addresses of a sign-in come from the server, so
they are judged as those of HTTP workers are: public hosts over TLS, or those that `allow` names.

The SDK would let a broken connection tear down the session with all its calls, and reduces every
status to one sentence. So the edge answers in the server's place, with a JSON-RPC error that says
what happened (`failures.EDGE`): exactly the call it belongs to fails, with the right class.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2

from leadhand.errors import UsageError
from leadhand.workers.http.netguard import PORTS, AddressRefused, Guard, canonical, judge
from leadhand.workers.http.worker import retry_after_s
from leadhand.workers.mcp.failures import edge_error, status_class
from leadhand.workers.mcp.oauth import AuthorizationFailed
from leadhand.workers.reports import bounded_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from leadhand.workers.http.request import Header
    from leadhand.workers.mcp.authorization import Authorization

ERROR_BYTES = 8 << 10
SIGN_IN_BYTES, SIGN_IN_S = 1 << 20, 30.0
"""The size and time limits of each answer in a sign-in."""
RENEWALS_MAX = 2
"""How often one call may get another token: one that is valid, and one with more scopes."""
CONNECT_S = 15.0
STREAM_S = 300.0
"""How long a stream may be silent; a call's own limit is nearer."""


class OneHostTransport(httpx2.AsyncBaseTransport):
    """The transport below the SDK: sends to the configured host only, within limits.

    - `url`, `headers`: the server, and the headers that hold secrets.
    - `limit`: the size limit of one answer.
    - `authorization`: where tokens come from; `allow`: the hosts of authorization servers.
    """

    def __init__(
        self,
        url: str,
        headers: tuple[Header, ...],
        limit: int,
        authorization: Authorization | None = None,
        allow: tuple[str, ...] = (),
    ) -> None:
        parsed = httpx2.URL(url)
        host = parsed.raw_host.decode("ascii")
        self._origin = _origin(parsed)
        port = parsed.port or PORTS[parsed.scheme]
        entry = f"[{host.strip('[]')}]:{port}" if ":" in host else f"{host}:{port}"
        self._guard = Guard.of([entry], [host])
        self._headers = headers
        self._limit = limit
        self._authorization = authorization
        self._allow = Guard.of(allow)
        self._begun = False
        self._denied: AuthorizationFailed | None = None
        """Why no session could begin: then the SDK tries an older protocol, which is denied too."""
        tls = (
            httpx2.create_ssl_context(trust_env=False)
            if parsed.scheme == "https" or authorization is not None
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        self._below = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Handle one exchange; a failure of a POST is returned as an answer."""
        if request.method != "POST":
            try:
                ready = await self._ready(request, await self._token())
            except AuthorizationFailed as error:
                raise httpx2.ConnectError(str(error), request=request) from None
            return await self._below.handle_async_request(ready)
        sent = False
        try:
            if self._denied is not None:
                raise self._denied
            for _ in range(RENEWALS_MAX + 1):
                token = await self._token()
                ready = await self._ready(request, token)
                sent = True
                response = await self._below.handle_async_request(ready)
                if self._authorization is None:
                    return await self._bounded(request, response)
                response.request = request  # without the secrets
                refusal = self._authorization.challenge(response)
                if refusal is None:
                    self._begun = True
                    return await self._bounded(request, response)
                sent = False  # a refused call has no effect
                await response.aclose()
                await self._authorization.renew(refusal, token, self._exchange)
            assert self._authorization is not None
            why = f"the server refuses every token{self._authorization.advice}"
            return _answer(request, edge_error("denied", why, status=401))
        except AuthorizationFailed as error:
            self._denied = None if self._begun else error
            return _answer(request, edge_error(error.failure_class, str(error), sent=False))
        except (AddressRefused, UsageError, ValueError, OSError) as error:
            return _answer(request, edge_error("unavailable", str(error), sent=False))
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            message = f"no connection: {error or type(error).__name__}"
            return _answer(request, edge_error("transient", message, sent=False))
        except httpx2.TransportError as error:
            message = str(error) or type(error).__name__
            return _answer(request, edge_error("lost" if sent else "transient", message, sent=sent))

    async def aclose(self) -> None:
        """Let go of the connections."""
        await self._below.aclose()

    async def _token(self) -> str:
        return (
            "" if self._authorization is None else await self._authorization.token(self._exchange)
        )

    async def _ready(self, request: httpx2.Request, token: str) -> httpx2.Request:
        """Return the request to a checked address, with the secret headers added."""
        url = request.url
        if _origin(url) != self._origin:
            raise AddressRefused(f"{url.host} is not the configured server")
        secret = {each.name.lower(): each.fill({}, os.environ) for each in self._headers}
        if token:
            secret["authorization"] = f"Bearer {token}"
        return await self._pinned(request, self._guard, secret, private=bool(token))

    async def _exchange(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of a sign-in, and read its answer. Raise `AuthorizationFailed`."""
        ours = _origin(request.url) == self._origin
        try:
            async with asyncio.timeout(SIGN_IN_S):
                guard = self._guard if ours else self._allow
                ready = await self._pinned(request, guard, {}, private=True)
                response = await self._below.handle_async_request(ready)
                body = await _read(response, SIGN_IN_BYTES)
        except (AddressRefused, ValueError) as error:
            why = str(error).replace("`allow`", "`auth.allow`")
            raise AuthorizationFailed(f"the sign-in is refused: {why}") from None
        except (httpx2.TransportError, OSError) as error:
            where = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
            message = f"no answer of {where}: {error or type(error).__name__}"
            raise AuthorizationFailed(message, "transient") from None
        if body is None:
            raise AuthorizationFailed(f"an answer of {request.url.host} is too large")
        headers = [(key, value) for key, value in response.headers.raw if key.lower() not in _CODED]
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)

    async def _pinned(
        self, request: httpx2.Request, guard: Guard, secret: Mapping[str, str], *, private: bool
    ) -> httpx2.Request:
        """Return the request to an address that `guard` lets through, with secret headers.

        `private`: it carries secrets, so only private addresses may be without TLS.
        """
        url = request.url
        host = url.raw_host.decode("ascii").rstrip(".")
        place = await guard.place(url.scheme, host, url.port)
        address = canonical(place.addresses[0])
        if private and url.scheme != "https" and address is not None and judge(address) is None:
            raise AddressRefused(f"{host} is public, and a sign-in to it needs https")
        headers = dict(request.headers) | {"host": url.netloc.decode("ascii")}
        headers["accept-encoding"] = "identity"
        headers |= secret
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
        body = await _read(response, self._limit)
        if body is None:
            message = f"the result is larger than {self._limit:,} bytes"
            return _answer(request, edge_error("invalid_output", message))
        if failed and not _is_error(kind, body):
            return _answer(request, _refusal(response, body[:ERROR_BYTES]))
        return httpx2.Response(
            response.status_code, headers=response.headers, content=body, request=request
        )


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or PORTS.get(url.scheme)


_CODED = (b"content-encoding", b"transfer-encoding", b"content-length")
"""Headers about the form of a body that was read already."""


async def _read(response: httpx2.Response, limit: int) -> bytes | None:
    """Return the body of an answer, and close it; None if it is over the limit."""
    body = bytearray()
    try:
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > limit:
                return None
    finally:
        await response.aclose()
    return bytes(body)


@asynccontextmanager
async def http(url: str, transport: OneHostTransport, limit: int) -> AsyncIterator[Any]:
    """Open the two streams of a session with a server behind a URL."""
    from mcp.client.streamable_http import streamable_http_client

    limits = httpx2.Timeout(CONNECT_S, read=STREAM_S)
    async with (
        httpx2.AsyncClient(transport=transport, timeout=limits, trust_env=False) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield streams


def _answer(request: httpx2.Request, error: Mapping[str, Any]) -> httpx2.Response:
    # A status of 400 and above makes the SDK give the error to the call that was sent.
    doc = {"jsonrpc": "2.0", "id": None, "error": error}
    headers = {"content-type": "application/json"}
    return httpx2.Response(502, headers=headers, content=json.dumps(doc), request=request)


def _is_error(kind: str, body: bytes) -> bool:
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
    if status == 401 and "resource_metadata" in response.headers.get("www-authenticate", ""):
        message += ". It wants an OAuth sign-in. Fix: add `auth = {}` to its table"
    wait = retry_after_s(response.headers.get("retry-after"), time.time())
    return edge_error(kind, message, retry_after_s=wait, status=status)
