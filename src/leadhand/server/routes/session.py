"""Signing in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from leadhand.core.calendar import iso
from leadhand.server import documents
from leadhand.server.accounts import COOKIE, SESSION_S
from leadhand.server.app_state import answer, app_state_of, person_of
from leadhand.server.request_forms import SignIn
from leadhand.server.routes.common import PROBLEMS, done

if TYPE_CHECKING:
    from leadhand.server.accounts import Person
    from leadhand.server.app_state import AppState

router = APIRouter(tags=["session"])


@router.post("/session", responses=done(documents.SessionDocument))
async def sign_in(request: Request, form: SignIn) -> Response:
    """Sign in with a token: the answer sets a cookie for this browser."""
    office = app_state_of(request)
    assert office.gate is not None
    person = office.gate.sign_in(form.token, request.scope)
    cookie, ends = office.people.sign_in(person)
    found = answer(await _document(office, person, ends))
    found.set_cookie(
        COOKIE,
        cookie,
        max_age=SESSION_S,
        path="/",
        secure=office.secure,
        httponly=True,
        samesite="strict",
    )
    return found


@router.get("/session", responses=done(documents.SessionDocument))
async def who(request: Request) -> Response:
    """Who is signed in."""
    office = app_state_of(request)
    found = None
    if "authorization" not in request.headers:
        found = office.people.by_session(request.cookies.get(COOKIE, ""))
    return answer(await _document(office, person_of(request), found[1] if found else None))


@router.delete("/session", status_code=204, responses=PROBLEMS)
async def sign_out(request: Request) -> Response:
    """Sign out."""
    app_state_of(request).people.sign_out(request.cookies.get(COOKIE, ""))
    gone = Response(None, 204)
    gone.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return gone


async def _document(
    office: AppState, person: Person, ends: int | None
) -> documents.SessionDocument:
    shared = await office.conductor.shared()
    role: Any = person.role
    return documents.SessionDocument(
        person=person.name,
        role=role,
        expires=iso(ends * 1_000_000) if ends is not None else None,
        version=office.version,
        store=str(office.settings.store),
        stopped=shared.stopped,
        stopped_by=shared.stopped_by,
    )
