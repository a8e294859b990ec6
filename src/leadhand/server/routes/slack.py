"""The endpoint of Slack: buttons that were pressed, signed by the app's secret."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from leadhand.server.app_state import app_state_of
from leadhand.server.bodies import form_fields

router = APIRouter(include_in_schema=False)


@router.post("/slack")
async def actions(request: Request) -> Response:
    """Take the press of a button; the result goes to the response address that Slack names."""
    body = await request.body()
    payload = form_fields(body).get("payload", "")
    app_state_of(request).slack.receive(request.headers, body, payload)
    return Response(None, 200)
