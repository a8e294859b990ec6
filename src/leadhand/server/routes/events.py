"""The event stream over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from leadhand.server.office import office_of
from leadhand.server.problems import Refusal
from leadhand.server.routes.common import PROBLEMS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

router = APIRouter(tags=["events"])
STALL_S = 20.0
"""A reader that takes nothing for so long is let go."""
STREAM = {
    200: {
        "description": "Server-sent events: `id` is the position, `event` the type.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    **PROBLEMS,
}


@router.get("/events", responses=STREAM, response_class=Response)
async def events(
    request: Request,
    run: Annotated[str, Query(max_length=120, description="Only of this run.")] = "",
    after: Annotated[int | None, Query(ge=0, le=1 << 53)] = None,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> Response:
    """Everything that becomes durable from now on, or after a position that was seen."""
    if last_event_id:
        if not last_event_id.isascii() or not last_event_id.isdigit() or len(last_event_id) > 15:
            raise Refusal(400, "Last-Event-ID is a position of this stream")
        after = int(last_event_id)
    return EventStream(office_of(request).hub.events(after, run))


class EventStream(Response):
    """Sends chunks as they come, and ends with whoever listens."""

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncGenerator[bytes]) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._chunks = chunks

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        gone = asyncio.ensure_future(_gone(receive))
        sending = asyncio.ensure_future(self._send(send))
        try:
            await asyncio.wait((gone, sending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)
            await self._chunks.aclose()
        if sending.done() and not sending.cancelled() and sending.exception() is None:
            with contextlib.suppress(OSError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Any) -> None:
        async for chunk in self._chunks:
            async with asyncio.timeout(STALL_S):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
