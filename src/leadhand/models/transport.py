"""HTTP to an address of the user's own: no redirects, no proxies, bounded answers.

A redirect could carry the key elsewhere. The provider's package holds a server's answer in memory
until an event is complete, so its size is counted here, before that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from leadhand.models.failures import ModelFailure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TIMEOUT_S = 600
BYTES_MAX = 64 << 20
"""Of one answer, as it comes over the wire: a hundred bytes for a character of a stream."""


def client(*, own: bool) -> httpx2.AsyncClient:
    """Return an HTTP client for an address of the user's own, or for the provider's."""
    if not own:
        return httpx2.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False)
    transport = _Bounded(httpx2.AsyncHTTPTransport(trust_env=False))
    return httpx2.AsyncClient(
        timeout=TIMEOUT_S, follow_redirects=False, trust_env=False, transport=transport
    )


class _Bounded(httpx2.AsyncBaseTransport):
    """A transport that bounds the length of every answer."""

    def __init__(self, inner: httpx2.AsyncHTTPTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Counted(response.stream),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > BYTES_MAX:
                raise ModelFailure(
                    "invalid_output", f"the answer is longer than {BYTES_MAX >> 20} MiB"
                )
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
