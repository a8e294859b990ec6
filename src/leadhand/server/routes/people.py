"""The people who may sign in: listed for everyone, changed by the owner.

A change is an event of the `$host` stream, durable before the settings file is written, and a line
on the server's standard error. The token is in neither. If the file cannot be written, a second
event says so; after a crash between both, the next start compares them (`put_right`). So the log
never names a role that the file did not have, beyond the next start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Request, Response

from leadhand.core.host_events import PersonChanged
from leadhand.core.review.identity import namesake
from leadhand.core.views.ledger import describe
from leadhand.errors import Conflict, LeadhandError
from leadhand.server import documents
from leadhand.server.accounts import digest_of, new_token
from leadhand.server.app_state import answer, app_state_of, person_of
from leadhand.server.bodies import apart
from leadhand.server.member_file import PROJECT_FILE, add_member, change_role, remove_member
from leadhand.server.problems import RequestRefused, missing
from leadhand.server.request_forms import PersonForm, RoleForm
from leadhand.server.routes.common import done
from leadhand.server.settings import PERSON, is_name, server_of
from leadhand.settings import load_settings
from leadhand.settings.trust import trust_written

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path as FilePath

    from leadhand.server.accounts import Person
    from leadhand.server.app_state import AppState
    from leadhand.server.member_file import FileEdit
    from leadhand.settings import Settings

router = APIRouter(tags=["people"])
Name = Annotated[str, Path(max_length=64)]
OTHERWISE = "it was changed there, or the server ended before it could write a change"


@router.get("/people", responses=done(documents.PeoplePage))
async def people(request: Request) -> Response:
    """List the people who may sign in, with their roles."""
    app_state = app_state_of(request)
    async with app_state.editing:  # a change is told before the settings have it
        found = await apart(app_state.people.everyone)
    return answer(documents.PeoplePage(items=[_row(each) for each in found], next=None))


@router.post("/people", status_code=201, responses=done(documents.PersonAdded, 201))
async def add(request: Request, form: PersonForm) -> Response:
    """Let a person sign in, with a new token that this response shows once. For the owner."""
    app_state, token = app_state_of(request), new_token()
    if not is_name(form.name):
        raise RequestRefused(422, "a name has 1 to 64 characters, no slash, no space at its ends")
    if "\\" in form.name or form.name in (".", ".."):  # no address could remove them
        raise RequestRefused(422, "a name has no backslash and is more than dots")
    async with app_state.editing:
        known = await apart(app_state.people.everyone)
        if any(each.name == form.name for each in known):
            raise Conflict(f"{form.name} may sign in already")
        if namesake(form.name, [each.name for each in known if each.owner]):
            raise Conflict(f"people could take {form.name} for the owner")
        file = await _changed(
            request,
            PersonChanged(form.name, person_of(request).name, form.role),
            lambda settings: add_member(settings, form.name, form.role, digest_of(token)),
        )
    found = documents.PersonAdded(name=form.name, role=form.role, token=token, file=file)
    return answer(found, 201)


@router.put("/people/{name}", responses=done(documents.PersonChange))
async def change(request: Request, name: Name, form: RoleForm) -> Response:
    """Change the role of a person; the token and the sessions stay. For the owner."""
    app_state = app_state_of(request)
    async with app_state.editing:
        await _known(app_state, name)
        file = await _changed(
            request,
            PersonChanged(name, person_of(request).name, form.role),
            lambda settings: change_role(settings, name, form.role),
        )
    return answer(documents.PersonChange(name=name, role=form.role, file=file))


@router.delete("/people/{name}", responses=done(documents.PersonChange))
async def remove(request: Request, name: Name) -> Response:
    """Remove a person: the token no longer counts, and their sessions end. For the owner."""
    app_state = app_state_of(request)
    async with app_state.editing:
        await _known(app_state, name)
        file = await _changed(
            request,
            PersonChanged(name, person_of(request).name),
            lambda settings: remove_member(settings, name),
        )
    return answer(documents.PersonChange(name=name, role=None, file=file))


async def _known(app_state: AppState, name: str) -> None:
    """Raise unless a person of that name is in the settings; the owner is not."""
    for each in await apart(app_state.people.everyone):
        if each.name == name and not each.owner:
            return
        if each.name == name:
            raise Conflict(
                f"{name} is the owner. Fix: remove the token file, and the next start writes a new"
            )
    raise missing(f"no person {name[:80]!r} may sign in")


async def _changed(
    request: Request, event: PersonChanged, prepare: Callable[[Settings], FileEdit]
) -> str:
    """Check a change of a person, record it, and make it; return the changed file."""
    app_state = app_state_of(request)
    root = app_state.settings.root
    edit = await apart(lambda: prepare(load_settings(folder=root)))
    await app_state.host.tell_host(event)
    try:
        try:
            file = await apart(edit.write)
        except Conflict:  # the terminal changed the file in between
            file = await apart(lambda: prepare(load_settings(folder=root)).write())
    except LeadhandError as error:
        role = (await apart(lambda: _roles(root))).get(event.person, "")
        reason = f"the change was not made: {error}"
        await app_state.host.tell_host(PersonChanged(event.person, event.actor, role, reason))
        raise
    if app_state.settings.trust is not None and event.role:
        await apart(lambda: trust_written(root, PERSON, event.person))
    await apart(app_state.people.everyone)
    what = f"may sign in as {event.role}" if event.role else "was removed"
    app_state.supervisor.tell(f"{event.person} {what}, by {event.actor}; see {file}")
    return str(file)


async def put_right(app_state: AppState) -> None:
    """Record where the settings file says otherwise of people than the log, at the start."""
    told = (await app_state.host.look_shared()).people
    if not told:
        return
    roles = await apart(lambda: _roles(app_state.settings.root))
    for person, role in told.items():
        now = roles.get(person, "")
        if now != role:
            event = PersonChanged(person, PROJECT_FILE, now, OTHERWISE)
            await app_state.host.tell_host(event)
            app_state.supervisor.tell(describe(event))


def _roles(root: FilePath) -> dict[str, str]:
    found = server_of(load_settings(folder=root)).people
    return {name: member.role for name, member in found.items()}


def _row(person: Person) -> documents.PersonRow:
    role: documents.Role = person.role  # type: ignore[assignment]
    return documents.PersonRow(
        name=person.name, role=role, owner=person.owner, signs=bool(person.key)
    )
