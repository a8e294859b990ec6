"""The coding fleet of this process: its status, its agents' transcripts, and messages to them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from msgspec import Struct
from pydantic import Field

from leadhand.errors import UsageError
from leadhand.server.app_state import answer, app_state_of, person_of
from leadhand.server.problems import missing
from leadhand.server.request_forms import Form, ReasonForm, Text
from leadhand.server.routes.common import done

if TYPE_CHECKING:
    from leadhand.server.fleet_station import FleetStation

router = APIRouter(tags=["fleet"])
YEAR_S = 366 * 86_400


class MessageForm(Form):
    """Something for an agent at work."""

    text: Text = Field(min_length=1)
    """The message."""


class FleetDocument(Struct, kw_only=True):
    """A fleet's figures, as `leadhand fleet status --json`; null where there is none."""

    fleet: dict[str, Any] | None
    """The figures of the fleet."""


class AgentWords(Struct, kw_only=True):
    """What the last agent of a task said and did."""

    run: str
    """The id of the run."""
    task: str
    """The id of the task."""
    attempt: int
    """The number of the attempt, from 1."""
    lines: list[dict[str, Any]]
    """What the agent said and did, oldest first."""


class AgentTold(Struct, kw_only=True):
    """What was done."""

    task: str
    """The id of the task."""
    attempt: int
    """The number of the attempt, from 1."""


@router.get("/fleet", responses=done(FleetDocument))
async def fleet(
    request: Request,
    since: Annotated[int, Query(ge=0, le=YEAR_S, description="Seconds; 0: all time.")] = 0,
) -> Response:
    """Return the figures of the fleet and its running agents."""
    station = app_state_of(request).station
    found = None if station is None else await station.figures(float(since))
    headers = {"ETag": _tag(found), "Cache-Control": "private, no-cache"}
    if headers["ETag"].removeprefix("W/") in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    return answer(FleetDocument(fleet=found), headers=headers)


def _tag(found: dict[str, Any] | None) -> str:
    """Return the same tag for figures that differ only in the time at which they were taken."""
    live = {**(found or {}).get("live", {}), "at": 0} if (found or {}).get("live") else None
    words = json.dumps({**(found or {}), "at": "", "live": live}, sort_keys=True)
    return f'W/"{hashlib.sha256(words.encode()).hexdigest()[:20]}"'


@router.get("/fleet/{run}/{task}/words", responses=done(AgentWords))
async def words(request: Request, run: str, task: str) -> Response:
    """Return the transcript of a task's last agent; text that looks like a secret is hidden."""
    station = _station(request)
    try:
        return answer(await asyncio.to_thread(station.transcript, run, task))
    except UsageError as error:
        raise missing(str(error)) from None


@router.post("/fleet/{run}/{task}/stop", responses=done(AgentTold))
async def stop(request: Request, run: str, task: str, form: ReasonForm) -> Response:
    """Stop the agent of a task; its changes are saved, and recovery continues the task."""
    return answer(_station(request).order("stop", f"{run}/{task}", form.reason, _who(request)))


@router.post("/fleet/{run}/{task}/message", responses=done(AgentTold))
async def message(request: Request, run: str, task: str, form: MessageForm) -> Response:
    """Send a message to the agent of a task."""
    return answer(_station(request).order("message", f"{run}/{task}", form.text, _who(request)))


def _who(request: Request) -> str:
    return person_of(request).name


def _station(request: Request) -> FleetStation:
    found = app_state_of(request).station
    if found is None:
        raise missing("no fleet is running in this server")
    return found
