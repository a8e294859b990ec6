"""The event stream over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response

from leadhand.server.app_state import app_state_of
from leadhand.server.gate import STILL
from leadhand.server.problems import RequestRefused
from leadhand.server.routes.common import PROBLEMS
from leadhand.server.stream import PING_S

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from leadhand.core.plan.model import Doc
    from leadhand.server.app_state import AppState
    from leadhand.server.cached_reader import CachedReader

router = APIRouter(tags=["events"])
STALL_S = 20.0
"""A reader that takes nothing for so long is disconnected."""
LOOK_S = 2.0
"""The interval of checks whether a reader is still allowed."""
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
    after: Annotated[
        int | None,
        Query(ge=0, le=1 << 53, description="Begin after this position; by default from now on."),
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(max_length=20, description="The last position read; takes precedence over `after`."),
    ] = None,
) -> Response:
    """Stream all events of all runs, from now on or after a position."""
    if last_event_id:
        if not last_event_id.isascii() or not last_event_id.isdigit() or len(last_event_id) > 15:
            raise RequestRefused(400, "Last-Event-ID is a position of this stream")
        after = int(last_event_id)
    return EventStream(app_state_of(request).hub.events(after, run), request.scope[STILL])


LIVE = {
    200: {
        "description": "Server-sent events: `live` has `attempt`, `message`, `fraction` and "
        "`output`, the last 16,000 characters; `end` comes when nothing of the step is under way.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    **PROBLEMS,
}
LIVE_S = 0.5
"""The interval of looks at a step that is watched."""


@router.get("/runs/{run}/steps/{step}/live", responses=LIVE, response_class=Response)
async def live(request: Request, run: str, step: str) -> Response:
    """Stream the output and the progress of a running step, without secrets."""

    def look(desk: CachedReader) -> bool:
        desk.header(run)
        return step in desk.state(run).steps

    if not await app_state_of(request).cached_readers.read(look):
        raise RequestRefused(404, f"run {run} has no step {step[:100]}")
    return EventStream(_watched(app_state_of(request), run, step), request.scope[STILL])


async def _watched(app_state: AppState, run: str, step: str) -> AsyncGenerator[bytes]:
    """Yield frames of one step: one for each change, nothing queued."""
    last: Doc | None = None
    quiet = 0.0
    yield b": watching\n\n"
    while True:
        hosted = app_state.host.runs.get(run)
        found: Doc | None = await hosted.live(step) if hosted is not None else None
        if found is None:
            yield b"event: end\ndata: {}\n\n"
            return
        if found != last:
            last, quiet = found, 0.0
            yield b"event: live\ndata: " + msgspec.json.encode(found) + b"\n\n"
        elif quiet >= PING_S:
            quiet = 0.0
            yield b": ping\n\n"
        await asyncio.sleep(LIVE_S)
        quiet += LIVE_S


class EventStream(Response):
    """Sends chunks as they come; ends when the client leaves or is no longer allowed."""

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncGenerator[bytes], still: Callable[[], bool]) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._chunks = chunks
        self._still = still

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        works = (_gone(receive), _over(self._still), self._send(send))
        gone, _, sending = tasks = [asyncio.ensure_future(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._chunks.aclose()
        if gone in done or (sending in done and sending.exception() is not None):
            return
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Any) -> None:
        async for chunk in self._chunks:
            async with asyncio.timeout(STALL_S):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _over(still: Callable[[], bool]) -> None:
    while still():  # noqa: ASYNC110 - settings are files, and have no event
        await asyncio.sleep(LOOK_S)
