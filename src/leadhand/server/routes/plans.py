"""Plans before they run: drafts from a goal, lint; and the library of saved plans."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from leadhand.app.comparison import Compared, DiffDocument
from leadhand.app.composition import planner_problem
from leadhand.app.contexts import in_context
from leadhand.app.library_history import LibraryPlan, library_plan, library_rows
from leadhand.core.library import find, parse_label
from leadhand.core.lint.plan import lint as check
from leadhand.core.plan.diff import differences
from leadhand.core.plan.parameters import parameter_rows
from leadhand.errors import PlanInvalid, UsageError
from leadhand.server import documents
from leadhand.server.app_state import answer, app_state_of, of_database, person_of, seen
from leadhand.server.bodies import apart
from leadhand.server.problems import finding_document, missing
from leadhand.server.request_forms import LintForm, SaveForm, StartForm, plan_document
from leadhand.server.routes.common import document, done
from leadhand.server.run_start import draft

if TYPE_CHECKING:
    from leadhand.core.lint.findings import Finding
    from leadhand.core.plan.model import Doc
    from leadhand.server.cached_reader import CachedReader

router = APIRouter(tags=["plans"])
Name = Annotated[str, Path(max_length=120)]


@router.post("/plans/draft", responses=done(documents.DraftDocument))
async def drafted(request: Request, form: StartForm) -> Response:
    """Return the plan that would run, its findings and the approvals it needs. Nothing runs."""
    return answer(await draft(app_state_of(request), form, person_of(request).name))


@router.post("/plans/lint", responses=done(documents.LintDocument))
async def linted(request: Request, form: LintForm) -> Response:
    """Return all lint findings of a plan."""
    app_state = app_state_of(request)
    kept = await app_state.cached_readers.read(_library_plans)

    def look() -> documents.LintDocument:
        settings, registry = app_state.supervisor.place(form.context or "")
        catalog = registry.catalog() if len(registry) else None
        doc = plan_document(form.plan)
        if settings.context is not None:
            doc = in_context(settings, doc, registry.catalog()).doc
        pools = settings.policy.resources
        found = check(
            doc,
            catalog,
            params=form.params,
            resources=pools,
            library=kept,
            run_refs="warning",
            planners=partial(planner_problem, settings=settings, served=True),
        )
        valid = not any(each.level == "error" for each in found)
        return documents.LintDocument(
            valid=valid,
            findings=[finding_document(each) for each in found],
            parameters=parameter_rows(doc.get("params")),
        )

    return answer(await apart(look))


def _library_plans(desk: CachedReader) -> dict[str, Doc]:
    """Return the plans of the library by name, each in its latest version."""
    return {name: saved[-1].document for name, saved in desk.library().plans.items()}


# The library.


@router.get("/library", responses=document(documents.LibraryPage))
async def library(request: Request) -> Response:
    """List the plans of the library with their runs and success rates."""

    def make(desk: CachedReader) -> documents.LibraryPage:
        return documents.LibraryPage(items=library_rows(desk), next=None)

    return await seen(request, of_database, make)


@router.get("/library/{name}", responses=document(LibraryPlan))
async def kept(request: Request, name: Name) -> Response:
    """Return a library plan, NAME or NAME@VERSION, with the history of its versions."""

    def make(desk: CachedReader) -> LibraryPlan:
        try:
            saved = find(desk.library(), name)
        except UsageError as error:
            raise missing(str(error)) from None
        return library_plan(desk, saved)

    return await seen(request, of_database, make)


@router.get("/library/{name}/diff", responses=document(DiffDocument))
async def differs(
    request: Request,
    name: Name,
    start: Annotated[int, Query(ge=0, alias="from", description="The old version.")],
    to: Annotated[int | None, Query(ge=1, description="The new one; the last by default.")] = None,
) -> Response:
    """Return the semantic differences between two versions of a plan; 0 is the empty plan."""

    def make(desk: CachedReader) -> DiffDocument:
        try:
            known = desk.library()
            new = find(known, f"{name}@{to}" if to else name)
            old = find(known, f"{name}@{start}") if start else None
        except UsageError as error:
            raise missing(str(error)) from None
        before = old.document if old is not None else {**new.document, "steps": []}
        was = old.label if old is not None else f"{name}@0"
        return Compared(was, new.label, differences(before, new.document)).document()

    return await seen(request, of_database, make)


@router.put("/library/{name}", responses=done(documents.LibraryChange))
async def keep(request: Request, name: Name, form: SaveForm) -> Response:
    """Save a plan as the next version of a name; unchanged content makes no new version."""

    def look() -> tuple[Doc, list[Finding]]:
        doc = plan_document(form.plan)
        return doc, check(doc, None, run_refs="warning", advice=False)

    doc, found = await apart(look)
    errors = [each for each in found if each.level == "error"]
    if errors:
        raise PlanInvalid(errors)
    details = {"name": name, "document": doc, "source": "the server"}
    person = person_of(request)
    return answer(
        await app_state_of(request).supervisor.send_command("", "save_plan", person.name, details)
    )


@router.delete("/library/{name}", responses=done(documents.LibraryChange))
async def remove(request: Request, name: Name) -> Response:
    """Remove a plan with all its versions. Runs that used it keep their copy."""
    app_state, person = app_state_of(request), person_of(request)
    known = await app_state.cached_readers.read(lambda desk: set(desk.library().plans))
    if name not in known or parse_label(name) is None:
        raise missing(f'the library has no plan "{name[:100]}"')
    return answer(
        await app_state.supervisor.send_command("", "remove_plan", person.name, {"name": name})
    )
