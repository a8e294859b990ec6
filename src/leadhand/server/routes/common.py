"""What the routes have in common: their problems in the OpenAPI document, pages, saying things."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Request, Response

from leadhand.app.people import approver_key
from leadhand.server.office import answer, office_of, person_of

if TYPE_CHECKING:
    from leadhand.audit.keys import PrivateKey
    from leadhand.core.plan import Doc
    from leadhand.server.people import Person

_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
PROBLEMS: dict[int | str, Doc] = {
    "4XX": {"description": "Refused; nothing was done.", "content": _PROBLEM},
    "5XX": {"description": "It cannot be done now.", "content": _PROBLEM},
}
UNCHANGED: dict[int | str, Doc] = {304: {"description": "As you know it."}}

Limit = Annotated[int, Query(ge=1, le=500, description="How many, at most.")]
Cursor = Annotated[str | None, Query(max_length=200, description="`next` of the page before.")]


def document(model: Any, description: str = "As it stands.") -> dict[int | str, Doc]:
    """The answers of a route that shows something."""
    return {200: {"model": model, "description": description}, **UNCHANGED, **PROBLEMS}


def done(model: Any, status: int = 200) -> dict[int | str, Doc]:
    """The answers of a route that does something."""
    return {status: {"model": model, "description": "Done, and durable."}, **PROBLEMS}


async def say(request: Request, run: str, verb: str, **details: Any) -> Response:
    """Say something to a run as whoever asks; answered once it is durable."""
    office, person = office_of(request), person_of(request)
    await office.desks.read(lambda desk: desk.header(run))
    told = await office.conductor.say(run, verb, person.name, details)
    return answer(told)


def key_of(person: Person) -> PrivateKey | None:
    """The key that signs for somebody, where the server has it."""
    return approver_key(person.key) if person.key else None
