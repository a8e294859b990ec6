"""The inbox: open questions to people, and their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from leadhand.app.documents import InboxPage, inbox_page
from leadhand.core.commands import Command
from leadhand.core.review import protected_change
from leadhand.engine.approvals import words_with
from leadhand.errors import Conflict
from leadhand.server import documents
from leadhand.server.app_state import app_state_of, of_database, person_of, seen
from leadhand.server.problems import RequestRefused, missing
from leadhand.server.request_forms import AnswerForm
from leadhand.server.routes.common import Cursor, Limit, Saying, document, done, key_of, said
from leadhand.server.rules import APPROVER, may

if TYPE_CHECKING:
    from leadhand.core.state.model import Now, State
    from leadhand.server.cached_reader import CachedReader

router = APIRouter(tags=["inbox"])


@router.get("/inbox", responses=document(InboxPage))
async def inbox(request: Request, cursor: Cursor = None, limit: Limit = 100) -> Response:
    """List open reviews and questions, oldest first; `total` counts all of them."""

    def make(desk: CachedReader) -> InboxPage:
        try:
            return inbox_page(desk, cursor, limit)
        except ValueError:
            raise RequestRefused(400, "unknown cursor") from None

    return await seen(request, of_database, make)


@router.post("/inbox/{run}/{question}/answer", responses=done(documents.CommandDone))
async def answered(request: Request, run: str, question: str, form: AnswerForm) -> Response:
    """Answer a question. A review is decided at the run's review, bound to what was shown.

    A protected change is decided by approvers: `approve` names the `commit` that was shown.
    """
    app_state, person = app_state_of(request), person_of(request)

    def look(desk: CachedReader) -> str:
        desk.header(run)
        found = desk.state(run).questions.get(question)
        return found.kind if found is not None else ""

    kind = await app_state.cached_readers.read(look)
    if not kind:
        raise missing(f'run {run} has no open question "{question[:100]}"')
    if kind == "review":
        raise RequestRefused(
            403, "a review is decided at /runs/{run}/review, bound to what was shown"
        )
    if kind == protected_change.KIND and not may(person.role, APPROVER):
        raise RequestRefused(403, "deciding about a protected change requires the role approver")
    if kind == "hold" and form.choice == "release" and not may(person.role, APPROVER):
        raise RequestRefused(403, "releasing held steps requires the role approver")
    key = key_of(person)

    def word(state: State, at: Now) -> Command:
        if question not in state.questions or state.questions[question].kind == "review":
            raise Conflict(f'question "{question}" is no longer open')
        details = {
            "id": question,
            "choice": form.choice,
            "text": form.text,
            "data": form.data,
            "approval": words_with(
                state, question, form.choice, person.name, at, key=key, shown=form.commit
            ),
        }
        return Command("answer", person.name, details)

    return await said(request, run, Saying(word), {"question": question})
