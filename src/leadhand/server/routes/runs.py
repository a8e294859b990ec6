"""Runs: list, start, run again, pause, resume, cancel, roll back; retry and hold their steps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response

from leadhand.app.documents import run_rows, shown_document
from leadhand.app.run_filters import as_csv, run_query
from leadhand.core.review.limits import limits_of
from leadhand.core.rollback import rollback_id
from leadhand.core.views.run import ENDED, run_status, summary
from leadhand.engine.approvals import signed_releases
from leadhand.errors import Conflict
from leadhand.server import documents
from leadhand.server.app_state import (
    answer,
    app_state_of,
    encoded,
    of_database,
    of_run,
    person_of,
    seen,
)
from leadhand.server.idempotency import keyed, other_body
from leadhand.server.problems import RequestRefused
from leadhand.server.request_forms import ReasonForm, RedoForm, RerunForm, StartForm
from leadhand.server.routes.common import Cursor, Limit, document, done, key_of, send_command
from leadhand.server.run_start import rerun, start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leadhand.core.state.model import State
    from leadhand.core.views.run import StepRow
    from leadhand.ports import RunHandle, RunQuery
    from leadhand.server.app_state import AppState
    from leadhand.server.cached_reader import CachedReader
    from leadhand.server.idempotency import Keyed

router = APIRouter(tags=["runs"])
JSON = "application/json"
CSV_MAX = 10_000
"""The number of runs in a list as CSV."""
LISTED = document(documents.RunPage)
LISTED[200]["content"]["text/csv"] = {"schema": {"type": "string"}}
WAITING_SHOWN = 100
"""The number of questions in a run's document; the inbox has all."""


@router.get("/runs", responses=LISTED)
async def runs(  # noqa: PLR0913, PLR0917 - one parameter for each filter
    request: Request,
    status: Annotated[
        list[str] | None, Query(max_length=12, description="Only runs of these statuses.")
    ] = None,
    q: Annotated[
        str | None, Query(max_length=200, description="A text in the id, the goal or the plan id.")
    ] = None,
    plan: Annotated[
        str | None, Query(max_length=200, description="The plan id, or its beginning and `*`.")
    ] = None,
    actor: Annotated[str | None, Query(max_length=200, description="Who started it.")] = None,
    label: Annotated[
        str | None, Query(max_length=200, description="A label: `name` or `name=value`.")
    ] = None,
    environment: Annotated[
        str | None, Query(max_length=200, description="The environment it was started in.")
    ] = None,
    start: Annotated[
        str | None,
        Query(
            alias="from",
            max_length=40,
            description="Created then or later: a date in UTC, an instant, or `7d` ago.",
        ),
    ] = None,
    end: Annotated[
        str | None,
        Query(alias="to", max_length=40, description="Created until then; a date is included."),
    ] = None,
    sort: Annotated[
        str,
        Query(
            max_length=20,
            description="`created`, `ended`, `duration` or `cost`; `-` in front reverses it.",
        ),
    ] = "-created",
    cursor: Cursor = None,
    limit: Limit = 50,
    format: Annotated[  # noqa: A002 - the name in the address
        Literal["json", "csv"],
        Query(description=f"`csv`: all runs that match, at most {CSV_MAX:,}, without pages."),
    ] = "json",
) -> Response:
    """List runs, newest first."""
    query = run_query(
        status=status or (),
        text=q,
        plan=plan,
        actor=actor,
        label=label,
        environment=environment,
        start=start,
        end=end,
        sort=sort,
        cursor=cursor,
        limit=limit if format == "json" else CSV_MAX,
    )
    if format == "csv":
        look = partial(_csv, query=query)
        body = await app_state_of(request).cached_readers.read(look)
        named = {"Content-Disposition": 'attachment; filename="runs.csv"'}
        return Response(body, 200, named, "text/csv; charset=utf-8")
    return await seen(request, of_database, partial(run_page, query=query))


def _csv(desk: CachedReader, query: RunQuery) -> bytes:
    return as_csv(run_page(desk, query).items).encode()


def run_page(desk: CachedReader, query: RunQuery) -> documents.RunPage:
    """Return one page of runs; only the open ones on it are folded."""
    try:
        rows, further = run_rows(desk, desk.driver, query)
    except ValueError as error:
        raise RequestRefused(400, str(error)) from None
    return documents.RunPage(items=rows, next=further)


@router.get("/runs/{run}", responses=document(documents.ShownRun))
async def run(request: Request, run: str, cursor: Cursor = None, limit: Limit = 500) -> Response:
    """Return a run: status, a page of its steps, open questions and cost."""
    unhosted = app_state_of(request).supervisor.unhosted.get(run)

    def make(desk: CachedReader) -> documents.ShownRun:
        state = desk.state(run)
        doc = shown_document(desk, state, desk.driver)
        fields = {name: getattr(doc, name) for name in doc.__struct_fields__}
        page, further = _steps_page(doc.steps, cursor, limit)
        fields |= {"steps": page, "steps_total": len(doc.steps), "next": further}
        if doc.waiting_for:
            fields["waiting_for"] = doc.waiting_for[:WAITING_SHOWN]
        limits = limits_of(state.policy)
        return documents.ShownRun(**fields, limits=limits, paused=state.paused, unhosted=unhosted)

    known = of_run(run)
    return await seen(request, lambda desk: f"{known(desk)} {unhosted}", make)


def _steps_page(
    steps: list[StepRow], cursor: str | None, limit: int
) -> tuple[list[StepRow], str | None]:
    """Return the steps after a cursor, the id of the last one before them, and the next cursor."""
    first = 0
    if cursor is not None:
        places = [place for place, row in enumerate(steps) if row.id == cursor]
        if not places:
            raise RequestRefused(400, "this cursor is of no page that was given out")
        first = places[0] + 1
    page = steps[first : first + limit]
    return page, page[-1].id if first + limit < len(steps) else None


# Begin.


@router.post("/runs", status_code=201, responses=done(documents.RunBegun, 201))
async def begin(
    request: Request,
    form: StartForm,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> Response:
    """Start a run of a goal, a plan or a library plan; the answer follows the durable start."""
    person = person_of(request)
    key = keyed(idempotency_key, person.name, "POST /runs", await request.body())
    return await _begun(request, key, lambda: start(app_state_of(request), form, person.name, key))


@router.post("/runs/{run}/rerun", status_code=201, responses=done(documents.RunBegun, 201))
async def run_again(
    request: Request,
    run: str,
    form: RerunForm,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> Response:
    """Run a run again as a new run, from its beginning or from a step; its approvals are new."""
    person, body = person_of(request), await request.body()
    key = keyed(idempotency_key, person.name, f"POST /runs/{run}/rerun", body)
    return await _begun(
        request, key, lambda: rerun(app_state_of(request), run, form, person.name, key)
    )


async def _begun(
    request: Request, key: Keyed | None, begin_run: Callable[[], Awaitable[RunHandle]]
) -> Response:
    """Start a run once for its key; answer with the run that the key has started."""
    app_state = app_state_of(request)
    async with app_state.keys.turn(key) as before:
        if before is not None:
            return Response(before.body, before.status, _place(key), JSON)
        if key is not None and (known := await _known(app_state, key)) is not None:
            return answer(known, 201, _place(key))
        run = await begin_run()
        told = _started(run.state)
        app_state.keys.keep(key, 201, encoded(told))
    return answer(told, 201, {"Location": f"/api/v1/runs/{run.id}"})


def _place(key: Keyed | None) -> dict[str, str]:
    return {"Location": f"/api/v1/runs/{key.run_id}"} if key is not None else {}


async def _known(app_state: AppState, key: Keyed) -> documents.RunBegun | None:
    """Return the run that was started with this key, perhaps by an earlier server."""

    def look(desk: CachedReader) -> documents.RunBegun | None:
        if desk.store.header(key.run_id) is None:
            return None
        state = desk.state(key.run_id)
        if state.started is None or state.started.plan.get("request") != key.digest:
            raise other_body()
        return _started(state)

    return await app_state.cached_readers.read(look)


def _started(state: State) -> documents.RunBegun:
    told = summary(state)
    return documents.RunBegun(
        run=state.run, status=told.status, goal=told.goal, steps=told.steps, seq=state.seq
    )


# Control.


@router.post("/runs/{run}/pause", responses=done(documents.CommandDone))
async def pause(request: Request, run: str, form: ReasonForm) -> Response:
    """Pause a run: no new steps start."""
    return await send_command(request, run, "pause", reason=form.reason)


@router.post("/runs/{run}/resume", responses=done(documents.CommandDone))
async def resume(request: Request, run: str, form: ReasonForm) -> Response:
    """Resume a run that is paused or has no host."""
    app_state_of(request).supervisor.unhosted.pop(run, None)
    return await send_command(request, run, "resume", reason=form.reason)


@router.post("/runs/{run}/cancel", responses=done(documents.CommandDone))
async def cancel(request: Request, run: str, form: ReasonForm) -> Response:
    """Cancel a run."""
    return await send_command(request, run, "cancel", reason=form.reason)


@router.post("/runs/{run}/rollback", responses=done(documents.CommandDone))
async def rollback(request: Request, run: str, form: ReasonForm) -> Response:
    """Roll back a run that has ended, by a new run."""
    app_state, person = app_state_of(request), person_of(request)

    def look(desk: CachedReader) -> tuple[Any, State | None]:
        desk.header(run)
        ident = rollback_id(run)
        back = desk.state(ident) if desk.store.header(ident) is not None else None
        done = back is not None and back.ended is not None
        return desk.state(run), back if done else None

    state, back = await app_state.cached_readers.read(look)
    if run_status(state) not in ENDED:
        raise Conflict(f"run {run} is {run_status(state)}. Fix: end it first")
    if back is None:
        back = (await app_state.supervisor.roll_back(run, person.name, state, form.reason)).state
    return answer(documents.CommandDone(run=back.run, status=run_status(back)))


@router.post("/runs/{run}/steps/{step}/redo", responses=done(documents.CommandDone))
async def redo(request: Request, run: str, step: str, form: RedoForm) -> Response:
    """Retry a failed step."""
    await _refuse_unknown(request, run, step)
    return await send_command(request, run, "redo", step=step, reason=form.reason)


@router.post("/runs/{run}/steps/{step}/hold", responses=done(documents.CommandDone))
async def hold(request: Request, run: str, step: str, form: ReasonForm) -> Response:
    """Hold a step that has not started."""
    await _refuse_unknown(request, run, step)
    return await send_command(request, run, "hold", steps=[step], reason=form.reason)


@router.post("/runs/{run}/steps/{step}/release", responses=done(documents.CommandDone))
async def release(request: Request, run: str, step: str, form: ReasonForm) -> Response:
    """Release a held step."""
    app_state, person = app_state_of(request), person_of(request)
    await _refuse_unknown(request, run, step)
    key = key_of(person)
    state = (await app_state.supervisor.find(run)).state
    signed = signed_releases(state, [step], person.name, app_state.host.time(), key)
    return await send_command(
        request, run, "release", steps=[step], reason=form.reason, signed=signed
    )


async def _refuse_unknown(request: Request, run: str, step: str) -> None:
    def look(desk: CachedReader) -> bool:
        desk.header(run)
        return step in desk.state(run).steps

    if not await app_state_of(request).cached_readers.read(look):
        raise RequestRefused(404, f"run {run} has no step {step[:100]}")
