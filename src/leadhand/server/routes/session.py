"""Signing in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

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
    """Sign in with a token; the response sets a session cookie."""
    app_state = app_state_of(request)
    assert app_state.gate is not None
    person = app_state.gate.sign_in(form.token, request.scope)
    cookie, ends = app_state.people.sign_in(person)
    found = answer(await _document(app_state, person, ends))
    found.set_cookie(
        app_state.people.cookie,
        cookie,
        max_age=SESSION_S,
        path="/",
        secure=app_state.secure or _is_public(request, app_state.links.address),
        httponly=True,
        samesite="strict",
    )
    return found


def _is_public(request: Request, address: str) -> bool:
    """Return whether a request came to the public address, where a proxy speaks TLS for us."""
    public = urlsplit(address)
    return public.scheme == "https" and request.headers.get("host", "") == public.netloc


@router.get("/session", responses=done(documents.SessionDocument))
async def who(request: Request) -> Response:
    """Return the signed-in person."""
    app_state, person, ends = app_state_of(request), person_of(request), None
    async with app_state.editing:  # a change of people is told before the settings have it
        found = None
        if "authorization" not in request.headers:
            found = app_state.people.by_session(_given(request, app_state))
    if found is not None:
        person, ends = found
    return answer(await _document(app_state, person, ends))


@router.delete("/session", status_code=204, responses=PROBLEMS)
async def sign_out(request: Request) -> Response:
    """Sign out."""
    app_state = app_state_of(request)
    app_state.people.sign_out(_given(request, app_state))
    gone = Response(None, 204)
    gone.delete_cookie(app_state.people.cookie, path="/", httponly=True, samesite="strict")
    return gone


def _given(request: Request, app_state: AppState) -> str:
    """Return the cookie by which a request was let in."""
    return request.cookies.get(app_state.people.cookie) or request.cookies.get(COOKIE, "")


async def _document(
    app_state: AppState, person: Person, ends: int | None
) -> documents.SessionDocument:
    shared = await app_state.supervisor.shared()
    role: Any = person.role
    return documents.SessionDocument(
        person=person.name,
        role=role,
        owner=person.owner,
        expires=iso(ends * 1_000_000) if ends is not None else None,
        version=app_state.version,
        store=str(app_state.settings.store),
        project=app_state.settings.name or app_state.settings.root.name,
        environment=app_state.settings.environment,
        stopped=shared.stopped,
        stopped_by=shared.stopped_by,
    )
