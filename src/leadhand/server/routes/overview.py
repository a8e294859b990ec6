"""The overview: what runs, what failed and why, and how runs ended over a range of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request, Response

from leadhand.app.overview import HOUR_US, Overview, Range, overview
from leadhand.server.app_state import app_state_of, now, of_database, seen
from leadhand.server.routes.common import document

if TYPE_CHECKING:
    from leadhand.server.cached_reader import CachedReader

router = APIRouter(tags=["overview"])


@router.get("/overview", responses=document(Overview))
async def shown(
    request: Request,
    period: Annotated[Range, Query(alias="range", description="How far back.")] = "7d",
) -> Response:
    """Return what runs now, what failed and why, and success, recovery and cost by interval."""
    app_state, at = app_state_of(request), now().wall

    def make(desk: CachedReader) -> Overview:
        return overview(desk, period, at, app_state.open_totals, app_state.known_failures)

    return await seen(request, lambda desk: f"{of_database(desk)} {at // HOUR_US}", make)
