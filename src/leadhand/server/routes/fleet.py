"""The coding fleet of this process: its board, its tasks, and what people do with it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from msgspec import Struct
from pydantic import Field, StringConstraints

from leadhand.errors import UsageError
from leadhand.server.app_state import answer, app_state_of, person_of
from leadhand.server.problems import RequestRefused, missing
from leadhand.server.request_forms import Form, ReasonForm, Text
from leadhand.server.routes.common import document, done

if TYPE_CHECKING:
    from leadhand.server.fleet_station import FleetStation

router = APIRouter(tags=["fleet"])
YEAR_S = 366 * 86_400
EPIC_CHARS = 1 << 20


class MessageForm(Form):
    """Something for an agent at work."""

    text: Text = Field(min_length=1)
    """The message."""


class ResumeForm(Form):
    """What goes on again."""

    login: Annotated[str, StringConstraints(max_length=200)] = ""
    """Lift the usage limit of this login; empty: end the pause of the fleet."""


class StopForm(ReasonForm):
    """How an agent is stopped."""

    final: bool = False
    """Start no other attempt: the task waits for a decision of the planner or of a person."""


class EpicForm(Form):
    """An epic for the fleet."""

    text: str = Field(min_length=1, max_length=EPIC_CHARS)
    """The epic in Markdown, as in a file for `leadhand fleet submit`."""
    name: Annotated[str, StringConstraints(max_length=200)] = ""
    """The name of its file; by default its title."""
    priority: int | None = Field(default=None, ge=-1000, le=1000)
    """Higher priorities are started first; by default that of the text, or 0."""


class EpicSubmitted(Struct, kw_only=True):
    """An epic that the fleet takes up."""

    run: str
    """The id of the epic's run."""
    title: str
    """The title of the epic."""
    tasks: int
    """How many tasks the epic names; 0: the planner plans them."""
    priority: int
    """The priority of the epic."""
    known: str | None
    """The status of the same epic if it was submitted before: it is not done twice."""


class FleetOrdered(Struct, kw_only=True, omit_defaults=True):
    """What was done with the fleet."""

    agents: int
    """How many agents are running; they go on."""
    paused: bool | None = None
    """Whether the fleet is paused now."""
    draining: bool | None = None
    """Whether the fleet ends now."""
    login: str | None = None
    """The login whose usage limit was lifted."""
    tasks: int | None = None
    """How many tasks waited for the end of that limit."""


class TaskDocument(Struct, kw_only=True):
    """One task in detail."""

    epic: str
    """The title of its epic."""
    status: str
    """The status of its step."""
    card: dict[str, Any] | None
    """Its card on the board; null for a task that was replaced."""
    planned: dict[str, Any]
    """Its goal, paths and acceptance."""
    attempts: list[dict[str, Any]]
    """Its attempts, oldest first, with the gate's output and the recovery that followed."""
    change: dict[str, Any] | None
    """The difference of its commit, or of the work that was saved of an attempt."""
    commit: dict[str, Any] | None
    """The commit on main, once it is merged."""
    cost: float
    """The cost so far."""
    why: str
    """Why it failed last, or waits."""


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


@router.get("/fleet", responses=document(FleetDocument))
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


@router.post("/fleet/epics", responses=done(EpicSubmitted))
async def submit(request: Request, form: EpicForm) -> Response:
    """Submit an epic, with the checks of `leadhand fleet submit`."""
    given = (form.text, form.name, form.priority, _who(request))
    return answer(await asyncio.to_thread(_station(request).submit, *given))


@router.post("/fleet/pause", responses=done(FleetOrdered))
async def pause(request: Request) -> Response:
    """Start no new agents until the fleet is resumed; running agents go on."""
    return answer(_station(request).order("pause", actor=_who(request)))


@router.post("/fleet/resume", responses=done(FleetOrdered))
async def resume(request: Request, form: ResumeForm | None = None) -> Response:
    """Start agents again after a pause, or lift the usage limit of a login."""
    login = form.login if form is not None else ""
    verb = "lift" if login else "resume"
    return answer(_station(request).order(verb, login, actor=_who(request)))


@router.post("/fleet/drain", responses=done(FleetOrdered))
async def drain(request: Request) -> Response:
    """Start no new agents, wait for running ones, and end the fleet with its server."""
    return answer(_station(request).order("drain", actor=_who(request)))


@router.get("/fleet/{run}/{task}", responses=done(TaskDocument))
async def task_detail(request: Request, run: str, task: str) -> Response:
    """Return a task with its attempts, the gate's output and the difference that it made."""
    station = _station(request)
    try:
        return answer(await station.task(run, task))
    except UsageError as error:
        raise missing(str(error)) from None


@router.get("/fleet/{run}/{task}/words", responses=done(AgentWords))
async def words(
    request: Request,
    run: str,
    task: str,
    attempt: Annotated[int, Query(ge=0, le=1_000_000, description="0: the last one.")] = 0,
) -> Response:
    """Return the transcript of a task's agent; text that looks like a secret is hidden."""
    station = _station(request)
    try:
        return answer(await asyncio.to_thread(station.transcript, run, task, attempt))
    except UsageError as error:
        raise missing(str(error)) from None


@router.post("/fleet/{run}/{task}/stop", responses=done(AgentTold))
async def stop(request: Request, run: str, task: str, form: StopForm) -> Response:
    """Stop the agent of a task; its changes are saved, and recovery continues the task."""
    name, verb = await _agent(request, run, task), "end" if form.final else "stop"
    return answer(_station(request).order(verb, name, form.reason, _who(request)))


@router.post("/fleet/{run}/{task}/message", responses=done(AgentTold))
async def message(request: Request, run: str, task: str, form: MessageForm) -> Response:
    """Send a message to the agent of a task."""
    name = await _agent(request, run, task)
    return answer(_station(request).order("message", name, form.text, _who(request)))


async def _agent(request: Request, run: str, task: str) -> str:
    """Return the name of a task's agent; raise unless `run` is the whole id of an epic."""
    _station(request)
    await app_state_of(request).cached_readers.read(lambda desk: desk.header(run))
    return f"{run}/{task}"


def _who(request: Request) -> str:
    return person_of(request).name


def _station(request: Request) -> FleetStation:
    found = app_state_of(request).station
    if found is None:
        raise RequestRefused(
            404,
            "no fleet is running in this server",
            fix="`leadhand fleet start` runs a fleet with this API and dashboard",
        )
    return found
