"""Details of a run: graph, steps, outputs, revisions, differences, ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response
from msgspec.structs import asdict

from leadhand.app.comparison import (
    DiffDocument,
    compare_revisions,
    compare_runs,
    revision_numbered,
)
from leadhand.app.step_graph import (
    GraphDocument,
    StepDocument,
    graph_document,
    input_of,
    output_of,
    proposed_step,
    step_document,
)
from leadhand.codec.events import decode
from leadhand.core.calendar import iso
from leadhand.core.events import ModelCalled, RevisionProposed
from leadhand.core.hashing import canonical
from leadhand.core.plan.revisions import revisions as all_revisions
from leadhand.core.review.approval import approvals_in_log, digests
from leadhand.core.views.ledger import describe, ledger_of
from leadhand.core.views.model_calls import (
    ModelCallDocument,
    ModelCallPage,
    ModelCallRow,
    model_call_document,
    model_call_rows,
)
from leadhand.core.views.rows import RowsDocument
from leadhand.core.views.run_comparison import RunComparison
from leadhand.errors import UsageError
from leadhand.server import documents
from leadhand.server.app_state import app_state_of, of_run, seen
from leadhand.server.problems import RequestRefused, missing
from leadhand.server.routes.common import PROBLEMS, Cursor, Limit, document

if TYPE_CHECKING:
    from leadhand.core.events import Event
    from leadhand.core.plan.revisions import RevisedPlan
    from leadhand.core.state.model import StepState
    from leadhand.ports import Entry
    from leadhand.server.cached_reader import CachedReader


router = APIRouter(tags=["runs"])
TEXT = {200: {"description": "The output.", "content": {"text/plain": {}}}, **PROBLEMS}
JSON = {200: {"description": "The value.", "content": {"application/json": {}}}, **PROBLEMS}
Number = Annotated[int | None, Query(ge=0, le=1_000_000)]


@router.get("/runs/{run}/graph", responses=document(GraphDocument))
async def graph(request: Request, run: str) -> Response:
    """Return the step graph: steps and dependencies."""
    return await seen(request, of_run(run), lambda desk: graph_document(desk.state(run)))


@router.get("/runs/{run}/rows", responses=document(RowsDocument))
async def rows(
    request: Request,
    run: str,
    after: Annotated[
        int,
        Query(ge=0, le=10**15, description="Only rows that changed after this entry of the log."),
    ] = 0,
) -> Response:
    """Return plan and execution on the same rows: each step as approved, and how it went."""

    def make(desk: CachedReader) -> RowsDocument:
        desk.header(run)
        return desk.rows(run).document(after)

    return await seen(request, of_run(run), make)


@router.get("/runs/{run}/steps/{step}", responses=document(StepDocument))
async def step(request: Request, run: str, step: str) -> Response:
    """Return a step with its attempts, inputs, result and questions."""

    def make(desk: CachedReader) -> StepDocument:
        state = desk.state(run)
        return step_document(desk, state, _step(desk, run, step))

    return await seen(request, of_run(run), make)


@router.get("/runs/{run}/steps/{step}/inputs/{name}", responses=JSON)
async def step_input(request: Request, run: str, step: str, name: str) -> Response:
    """Return the whole value of one input of a step; secrets by name."""

    def look(desk: CachedReader) -> bytes:
        found = _step(desk, run, step)
        try:
            return canonical(input_of(desk, desk.state(run), found, name))
        except LookupError:
            raise missing(f"step {step[:100]} has no value of {name[:100]} yet") from None

    value = await app_state_of(request).cached_readers.read(look)
    return Response(value, 200, None, "application/json")


@router.get("/runs/{run}/model-calls", responses=document(ModelCallPage))
async def model_calls(
    request: Request,
    run: str,
    step: Annotated[
        str | None, Query(max_length=200, description="Only calls of this step's worker.")
    ] = None,
    planner: Annotated[bool, Query(description="Only calls of the planner.")] = False,  # noqa: FBT002
    cursor: Cursor = None,
    limit: Limit = 200,
) -> Response:
    """List the model calls of a run, oldest first: figures, without prompts and answers."""
    after = _after(cursor)

    def make(desk: CachedReader) -> ModelCallPage:
        rows = [
            row
            for row in _model_calls(desk, run)
            if row.seq > after
            and (step is None or row.step == step)
            and not (planner and row.step is not None)
        ]
        more = str(rows[limit - 1].seq) if len(rows) > limit else None
        return ModelCallPage(items=rows[:limit], next=more)

    return await seen(request, of_run(run), make)


@router.get("/runs/{run}/model-calls/{number}", responses=document(ModelCallDocument))
async def model_call(request: Request, run: str, number: int) -> Response:
    """Return a model call with its prompt and its answer, if the log holds them."""

    def make(desk: CachedReader) -> ModelCallDocument:
        row = next((each for each in _model_calls(desk, run) if each.seq == number), None)
        if row is None:
            raise missing(f"run {run} has no model call {number}")
        event = next(event for entry, event in desk.events(run) if entry.seq == number)
        assert isinstance(event, ModelCalled)
        return model_call_document(row, event)

    return await seen(request, of_run(run), make)


def _model_calls(desk: CachedReader, run: str) -> list[ModelCallRow]:
    desk.header(run)
    return model_call_rows((entry.seq, entry.at, event) for entry, event in desk.events(run))


def _step(desk: CachedReader, run: str, step: str) -> StepState:
    desk.header(run)
    state = desk.state(run)
    found = state.steps.get(step) or proposed_step(state, step)
    if found is None:
        raise missing(f"run {run} has no step {step[:100]}")
    return found


@router.get("/runs/{run}/steps/{step}/output", responses=TEXT)
async def output(
    request: Request,
    run: str,
    step: str,
    attempt: Annotated[
        int | None,
        Query(ge=1, le=1_000_000, description="The attempt; the last one by default."),
    ] = None,
) -> Response:
    """Return the output of an attempt of a step; of the last one by default."""
    hosted = app_state_of(request).host.runs.get(run)
    now = await hosted.live(step) if hosted is not None else None
    if now is not None and attempt in (None, now["attempt"]):
        text = now["output"]
        return Response(text.encode("utf-8", "replace"), 200, None, "text/plain; charset=utf-8")

    def look(desk: CachedReader) -> str:
        _step(desk, run, step)
        log = [pair for pair in desk.events(run) if getattr(pair[1], "step", None) == step]
        return output_of(desk, log, attempt)

    text = await app_state_of(request).cached_readers.read(look)
    return Response(text.encode("utf-8", "replace"), 200, None, "text/plain; charset=utf-8")


@router.get("/runs/{run}/revisions", responses=document(documents.RevisionPage))
async def revisions(request: Request, run: str) -> Response:
    """List the revisions of a run's plan."""

    def make(desk: CachedReader) -> documents.RevisionPage:
        return documents.RevisionPage(items=_rows(desk, run), next=None)

    return await seen(request, of_run(run), make)


@router.get("/runs/{run}/revisions/{number}", responses=document(documents.RevisionDocument))
async def revision(request: Request, run: str, number: int) -> Response:
    """Return one revision of a run's plan."""

    def make(desk: CachedReader) -> documents.RevisionDocument:
        try:
            found = revision_numbered(_revisions(desk, run), number, run)
        except UsageError as error:
            raise missing(str(error)) from None
        row = next(each for each in _rows(desk, run) if each.hash == found.hash)
        return documents.RevisionDocument(**asdict(row), plan=found.doc, heirs=found.heirs)

    return await seen(request, of_run(run), make)


def _revisions(desk: CachedReader, run: str) -> list[RevisedPlan]:
    desk.header(run)
    return all_revisions(event for _entry, event in desk.events(run))


def _rows(desk: CachedReader, run: str) -> list[documents.RevisionRow]:
    """Return every revision, with the digest of what was shown, and its approvals."""
    log = [(entry.at, event) for entry, event in desk.events(run)]
    shown, given = digests(log), approvals_in_log(log)
    why = {each.hash: each.because for _at, each in log if isinstance(each, RevisionProposed)}
    return [
        documents.RevisionRow(
            number=revision.number,
            hash=revision.hash,
            digest=shown.get(revision.hash, ""),
            author=revision.author,
            status=revision.status,
            because=why.get(revision.hash, ""),
            steps=len(revision.doc.get("steps", ())),
            approvals=[each for each in given if each.revision == revision.number]
            if revision.status != "amended"
            else [],
        )
        for revision in _revisions(desk, run)
    ]


@router.get("/runs/{run}/diff", responses=document(DiffDocument))
async def diff(
    request: Request,
    run: str,
    start: Annotated[
        Number, Query(alias="from", description="The old revision; the one before `to` by default.")
    ] = None,
    to: Annotated[Number, Query(description="The new revision; the last one by default.")] = None,
) -> Response:
    """Return the semantic differences between two revisions; 0 is the empty plan."""

    def make(desk: CachedReader) -> DiffDocument:
        desk.header(run)
        return compare_revisions(desk, run, start, to).document()

    return await seen(request, of_run(run), make)


@router.get("/runs/{run}/compare/{other}", responses=document(RunComparison))
async def compare(request: Request, run: str, other: str) -> Response:
    """Compare two runs: outcome, inputs, plan, and every step with attempts, time and cost."""

    def make(desk: CachedReader) -> RunComparison:
        desk.header(run)
        desk.header(other)
        return compare_runs(desk, run, other)

    one, two = of_run(run), of_run(other)
    return await seen(request, lambda desk: f"{one(desk)} {two(desk)}", make)


@router.get("/runs/{run}/ledger", responses=document(documents.LedgerPage))
async def ledger(
    request: Request,
    run: str,
    kind: Annotated[
        Literal["intent", "execution", "all"], Query(description="Only entries of this ledger.")
    ] = "all",
    cursor: Cursor = None,
    limit: Limit = 200,
) -> Response:
    """Return the event log of a run, oldest first: intent, execution or both."""
    after = _after(cursor)

    def make(desk: CachedReader) -> documents.LedgerPage:
        desk.header(run)
        found: list[documents.LedgerRow] = []
        for entry in desk.entries(run, after):
            if len(found) == limit:
                return documents.LedgerPage(items=found, next=str(found[-1].seq))
            event = decode(entry.version, entry.body)
            book = ledger_of(event)
            if kind in ("all", book):
                found.append(_line(entry, event))
        return documents.LedgerPage(items=found, next=None)

    return await seen(request, of_run(run), make)


@router.get("/runs/{run}/ledger/{seq}", responses=document(documents.LedgerEntry))
async def ledger_entry(request: Request, run: str, seq: int) -> Response:
    """Return one entry of the event log with its whole event."""

    def make(desk: CachedReader) -> documents.LedgerEntry:
        last = desk.header(run).seq
        if not 1 <= seq <= last:
            raise missing(f"the log of run {run} has no entry {str(seq)[:20]}")
        entry = next(iter(desk.entries(run, seq - 1)))
        line = _line(entry, decode(entry.version, entry.body))
        body = msgspec.json.decode(entry.body)
        return documents.LedgerEntry(**asdict(line), hash=entry.hash.hex(), event=body)

    return await seen(request, of_run(run), make)


def _line(entry: Entry, event: Event) -> documents.LedgerRow:
    return documents.LedgerRow(
        seq=entry.seq,
        at=iso(entry.at),
        type=type(event).__name__,
        ledger=ledger_of(event),
        text=describe(event),
        step=getattr(event, "step", None) or None,
    )


def _after(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 15:
        raise RequestRefused(400, "this cursor is of no page that was given out")
    return int(cursor)
