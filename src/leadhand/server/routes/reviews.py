"""Reviews: the pending revision, and the decision about it by the signed-in person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from leadhand.app.approvals import ends, revision_of
from leadhand.app.step_graph import others_for
from leadhand.codec.edits import typed_value
from leadhand.core.commands import Command
from leadhand.core.plan.amend import edit
from leadhand.core.plan.diff import differences
from leadhand.core.plan.revisions import held_by, plan_of
from leadhand.core.review.approval import binding
from leadhand.core.review.decisions import calendar_instants
from leadhand.core.review.step_form import StepForm, step_form
from leadhand.core.review.view import (
    ReviewDocument,
    amended_assessment,
    amended_starts,
    review_document,
)
from leadhand.core.state.model import REPLACEABLE
from leadhand.core.views.run import run_status
from leadhand.engine.approvals import approval_words
from leadhand.errors import Conflict, PlanInvalid, UsageError
from leadhand.server import documents
from leadhand.server.app_state import answer, app_state_of, now, of_run, person_of, seen
from leadhand.server.bodies import apart
from leadhand.server.problems import missing
from leadhand.server.request_forms import (
    AmendForm,
    ApproveForm,
    ChangesForm,
    PlanEdit,
    ReassignForm,
    RejectForm,
    plan_document,
)
from leadhand.server.routes.common import Saying, document, done, key_of, said

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.plan.diff import ChangeRow
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import Now, State
    from leadhand.server.cached_reader import CachedReader

router = APIRouter(tags=["reviews"])


@router.get("/runs/{run}/review", responses=document(ReviewDocument))
async def review(request: Request, run: str) -> Response:
    """Return the revision under review, its plan digest, and given and missing approvals."""

    def make(desk: CachedReader) -> ReviewDocument:
        return review_document(desk.state(run), now())

    return await seen(request, _version(run), make)


@router.get("/runs/{run}/review/steps/{step}", responses=document(StepForm))
async def fields(request: Request, run: str, step: str) -> Response:
    """Return the fields of a step that an amendment can change, typed by its worker's schema."""

    def make(desk: CachedReader) -> StepForm:
        state = desk.state(run)
        plan, _heirs = plan_of(state)
        docs = {str(each["id"]): each for each in plan.get("steps", ())}
        if step not in docs:
            raise missing(f"the plan of run {run} has no step {step[:100]}")
        others = [each for each in docs if each != step]
        return step_form(docs[step], others, state.catalog, state.policy.timeout_s)

    return await seen(request, of_run(run), make)


@router.post("/runs/{run}/review/approve", responses=done(documents.CommandDone))
async def approve(request: Request, run: str, form: ApproveForm) -> Response:
    """Approve exactly the revision that was shown."""
    person = person_of(request)
    key = key_of(person)

    def word(state: State, at: Now) -> Command:
        until = ends(form.expires_s, at.latest)
        words = approval_words(state, person.name, at, expires=until, key=key, shown=form.digest)
        details = {
            "id": waiting(state, form.digest),
            "choice": "approve",
            "text": form.reason,
            "approval": words,
        }
        return Command("answer", person.name, details)

    return await said(request, run, Saying(word))


@router.post("/runs/{run}/review/reject", responses=done(documents.CommandDone))
async def reject(request: Request, run: str, form: RejectForm) -> Response:
    """Reject the revision that was shown; the run ends."""
    return await _answered(request, run, form.digest, "reject", form.reason)


@router.post("/runs/{run}/review/request_changes", responses=done(documents.CommandDone))
async def request_changes(request: Request, run: str, form: ChangesForm) -> Response:
    """Request changes of the revision that was shown; the planner proposes a new one."""
    if not form.text.strip() and not form.comments:
        raise UsageError("say which changes are wanted: `text`, or `comments`")
    comments = [{"step": each.step, "text": each.text} for each in form.comments]
    return await _answered(request, run, form.digest, "request_changes", form.text, comments)


@router.post("/runs/{run}/review/amend", responses=done(documents.CommandDone))
async def amend(request: Request, run: str, form: AmendForm) -> Response:
    """Amend steps that have not started; the result is a new revision."""
    person, whole = person_of(request), await _whole(form)
    told: Doc = {}

    def word(state: State, _at: Now) -> Command:
        waiting(state, form.digest)
        after, changes = _amended(state, form, whole)
        told["changes"] = changes
        revision = {**revision_of(state, after), "because": form.reason}
        return Command("amend", person.name, {"revision": revision})

    return await said(request, run, Saying(word), told)


@router.post("/runs/{run}/review/preview", responses=done(documents.AmendPreview))
async def preview(request: Request, run: str, form: AmendForm) -> Response:
    """Return what an amendment would change, and what is found of the result. Nothing changes."""
    person, whole = person_of(request), await _whole(form)

    def make(desk: CachedReader) -> documents.AmendPreview:
        desk.header(run)
        state = desk.state(run)
        waiting(state, form.digest)
        after, changes = _amended(state, form, whole)
        if not changes:
            raise UsageError("the plan is the same as before, so there is nothing to amend")
        revision = revision_of(state, after)
        try:
            Command("amend", person.name, {"revision": revision})(state, now())
        except PlanInvalid as problem:
            errors = [str(each) for each in problem.findings]
            return documents.AmendPreview(
                changes=changes, errors=errors, summary="", starts=[], findings=[]
            )
        known = amended_assessment(state, revision["steps"], after)
        return documents.AmendPreview(
            changes=changes,
            errors=[],
            summary=known.summary,
            starts=amended_starts(state, revision["steps"], now()),
            findings=known.findings,
        )

    return answer(await app_state_of(request).cached_readers.read(make))


async def _whole(form: AmendForm) -> Doc | None:
    """Return the plan of an amendment that is a whole plan, or None."""
    if (form.plan is None) == (not form.set and not form.unset):
        raise UsageError("give either `set` and `unset`, or `plan`")
    return None if form.plan is None else await apart(plan_document, form.plan, "the amended plan")


def _amended(state: State, form: AmendForm, whole: Doc | None) -> tuple[Doc, list[ChangeRow]]:
    """Return the plan after an amendment, and the differences to the plan as it is."""
    before, heirs = plan_of(state)

    def value(each: PlanEdit) -> Any:
        if each.text is None:
            return each.value
        return lambda plan: typed_value(plan, each.path, each.text or "", heirs, state.catalog)

    sets = [(each.path, value(each)) for each in form.set]
    after = edit(whole if whole is not None else before, sets, form.unset, heirs=heirs)
    changes = differences(before, after, heirs, held_by(state))
    return after, [each.document() for each in changes]


@router.post("/runs/{run}/steps/{step}/reassign", responses=done(documents.CommandDone))
async def reassign(request: Request, run: str, step: str, form: ReassignForm) -> Response:
    """Reassign a step that is not running to another worker; the result is a new revision."""
    person, told = person_of(request), dict[str, Any]()

    def word(state: State, _at: Now) -> Command:
        found = state.steps.get(step)
        if found is None:
            raise missing(f"run {run} has no step {step[:100]}")
        if state.ended is not None or found.status not in REPLACEABLE:
            what = run_status(state) if state.ended is not None else found.status
            raise Conflict(f"step {step} cannot be reassigned: it is {what}")
        others = others_for(state, found)
        if form.worker not in others:
            named = ", ".join(others) or "none"
            raise UsageError(f"worker {form.worker} cannot do step {step}; available: {named}")
        before, heirs = plan_of(state)
        sets: list[tuple[str, Any]] = [(f'steps["{step}"].worker', form.worker)]
        if form.worker in (spare := found.doc.get("alternatives", ())):
            left = [each for each in spare if each != form.worker]
            sets.append((f'steps["{step}"].alternatives', left))
        revision = revision_of(state, edit(before, sets, heirs=heirs))
        told["step"] = next((str(each["id"]) for each in revision["steps"]), step)
        because = form.reason or f"{form.worker} is to do it"
        return Command("amend", person.name, {"revision": {**revision, "because": because}})

    return await said(request, run, Saying(word), told)


def _version(run: str) -> Callable[[CachedReader], str]:
    """Return a version function for a review: its start times and its expiry follow the clock."""
    changed = of_run(run)

    def version(desk: CachedReader) -> str:
        seq = changed(desk)
        at, state = now(), desk.state(run)
        steps = state.pending.add if state.pending is not None else []
        timed = bool(state.policy.approval_s) or bool(calendar_instants(steps, at))
        return f"{seq} {at.latest if timed else 0}"

    return version


def waiting(state: State, shown: str) -> str:
    """Return the question of the pending review. Raise `Conflict` if it is not what was shown."""
    revision = state.pending
    question = f"review-{revision.number}" if revision else ""
    if revision is None or question not in state.questions:
        raise Conflict(f"run {state.run} has no open review")
    if binding(state, revision, 0) != shown:
        raise Conflict(
            "what waits is not what was shown. Fix: look at it again with "
            f"`leadhand review {state.run}`"
        )
    return question


async def _answered(
    request: Request,
    run: str,
    shown: str,
    choice: str,
    text: str,
    comments: list[Doc] | None = None,
) -> Response:
    person = person_of(request)

    def word(state: State, _at: Now) -> Command:
        details: Doc = {"id": waiting(state, shown), "choice": choice, "text": text}
        if comments:
            details["data"] = {"comments": comments}
        return Command("answer", person.name, details)

    return await said(request, run, Saying(word))
