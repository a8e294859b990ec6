"""Workers, metrics, settings, artifacts, and the stop of everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from leadhand.app.composition import planner_name
from leadhand.app.documents import setting_row, settings_table, worker_rows
from leadhand.app.metrics import MetricsDocument, figures
from leadhand.app.usage import By, DayRange, UsageDocument, usage, usage_csv
from leadhand.app.worker_use import WorkerUsePage, worker_use_page
from leadhand.errors import StoreError, UsageError
from leadhand.models.names import TIERS
from leadhand.server import documents
from leadhand.server.app_state import answer, app_state_of, now, of_database, person_of, seen
from leadhand.server.bodies import apart
from leadhand.server.problems import missing
from leadhand.server.request_forms import ReasonForm
from leadhand.server.routes.common import PROBLEMS, document, done

if TYPE_CHECKING:
    from leadhand.server.cached_reader import CachedReader


router = APIRouter(tags=["others"])
BYTES = {
    200: {"description": "The bytes.", "content": {"application/octet-stream": {}}},
    **PROBLEMS,
}


@router.get("/workers", responses=done(documents.WorkersDocument))
async def workers(request: Request) -> Response:
    """Return the workers with their actions, the planners and the contexts."""
    app_state = app_state_of(request)
    registry = app_state.supervisor.registry
    settings = app_state.settings
    tiers = [tier for tier in TIERS if tier in settings.tiers]
    planners = dict.fromkeys(name for name in ("goal", planner_name(settings), *tiers) if name)
    return answer(
        documents.WorkersDocument(
            digest=registry.catalog().digest(),
            workers=worker_rows(registry),
            contexts=list(settings.contexts),
            planners=list(planners),
        )
    )


@router.get("/workers/use", responses=document(WorkerUsePage))
async def used(request: Request) -> Response:
    """Return how workers were used in 30 days: failures, p50, last error, circuit."""
    app_state = app_state_of(request)
    names = app_state.supervisor.registry.catalog().workers

    def version(desk: CachedReader) -> str:
        at = now().wall
        circuits = desk.host_state().circuits.items()
        return f"{of_database(desk)} {[name for name, each in circuits if each.until > at]}"

    def make(desk: CachedReader) -> WorkerUsePage:
        used = usage(desk, DayRange.of(None, None), "worker", app_state.open_totals)
        return worker_use_page(desk, names, now().wall, used, app_state.worker_use)

    return await seen(request, version, make)


@router.get("/metrics", responses=document(MetricsDocument))
async def metrics(request: Request) -> Response:
    """Return metrics over all runs."""
    known = app_state_of(request).open_totals

    def make(desk: CachedReader) -> MetricsDocument:
        return figures(desk, known).document()

    return await seen(request, of_database, make)


USED = document(UsageDocument)
USED[200]["content"]["text/csv"] = {"schema": {"type": "string"}}


@router.get("/usage", responses=USED)
async def use(
    request: Request,
    start: Annotated[
        str | None,
        Query(alias="from", max_length=20, description="The first day; 30 days before `to`."),
    ] = None,
    end: Annotated[
        str | None, Query(alias="to", max_length=20, description="The last day; today, in UTC.")
    ] = None,
    by: Annotated[By, Query(description="What each row is for.")] = "day",
    format: Annotated[  # noqa: A002 - the name in the address
        Literal["json", "csv"], Query(description="`csv`: the rows as a table.")
    ] = "json",
) -> Response:
    """Return outcomes, recoveries, cost and the part of people over a range of days."""
    known, days = app_state_of(request).open_totals, DayRange.of(start, end)

    def make(desk: CachedReader) -> UsageDocument:
        return usage(desk, days, by, known)

    if format == "csv":
        body = await app_state_of(request).cached_readers.read(lambda desk: usage_csv(make(desk)))
        named = {"Content-Disposition": f'attachment; filename="usage-by-{by}.csv"'}
        return Response(body.encode(), 200, named, "text/csv; charset=utf-8")
    # By day of the clock too: the range may end today.
    return await seen(request, lambda desk: f"{of_database(desk)} {days}", make)


@router.get("/settings", responses=done(documents.SettingsDocument))
async def settings(request: Request) -> Response:
    """Return the effective settings with their sources, without secrets."""
    app_state = app_state_of(request)
    rows = settings_table(app_state.settings)
    people = await apart(app_state.people.everyone)  # they may have changed since the start
    key, roles = "server.people", {each.name: each.role for each in people if not each.owner}
    rows[key] = setting_row(key, roles, rows[key].source)
    found = documents.SettingsDocument(
        settings=rows,
        files=[str(path) for path in app_state.settings.files],
        version=app_state.version,
        store=str(app_state.settings.store),
        unhosted=app_state.supervisor.unhosted,
    )
    return answer(found)


@router.get("/artifacts/{ref}", responses=BYTES)
async def artifact(request: Request, ref: str) -> Response:
    """Download an artifact by its name, `sha256:…`."""

    def look(desk: CachedReader) -> bytes:
        try:
            return desk.store.get_artifact(ref)
        except (UsageError, StoreError):
            raise missing(f"artifact {ref[:100]} not found") from None

    data = await app_state_of(request).cached_readers.read(look)
    headers = {
        "Content-Disposition": f'attachment; filename="{ref.rpartition(":")[2][:16]}.bin"',
        "Cache-Control": "private, max-age=31536000, immutable",
    }
    return Response(data, 200, headers, "application/octet-stream")


@router.post("/stop-all", responses=done(documents.StopState))
async def stop(request: Request, form: ReasonForm) -> Response:
    """Emergency stop: no run starts new steps, also after a restart."""
    app_state, person = app_state_of(request), person_of(request)
    details = {"reason": form.reason}
    return answer(await app_state.supervisor.send_command("", "stop_all", person.name, details))


@router.delete("/stop-all", responses=done(documents.StopState))
async def lift(request: Request) -> Response:
    """Lift the emergency stop."""
    app_state, person = app_state_of(request), person_of(request)
    return answer(await app_state.supervisor.send_command("", "lift", person.name, {}))
