"""Shared parts of the routes: problems in the OpenAPI document, pages, commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Request, Response

from leadhand.app.approvals import approver_key
from leadhand.core.views.run import run_status
from leadhand.server.app_state import answer, app_state_of, person_of
from leadhand.server.documents import CommandDone
from leadhand.server.openapi import PROBLEM, answered

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.audit.keys import PrivateKey
    from leadhand.core.commands import Command
    from leadhand.core.decide.effects import Move
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import Now, State
    from leadhand.server.accounts import Person

PROBLEMS: dict[int | str, Doc] = {
    "4XX": {"description": "Refused; nothing was done.", "content": PROBLEM},
    "5XX": {"description": "It cannot be done now.", "content": PROBLEM},
}
UNCHANGED: dict[int | str, Doc] = {304: {"description": "As you know it."}}

Limit = Annotated[int, Query(ge=1, le=500, description="How many, at most.")]
Cursor = Annotated[str | None, Query(max_length=200, description="`next` of the page before.")]


def document(model: type[Any]) -> dict[int | str, Doc]:
    """Return the responses of a route that shows a `model`."""
    return {200: answered(model, "As it stands."), **UNCHANGED, **PROBLEMS}


def done(model: type[Any], status: int = 200) -> dict[int | str, Doc]:
    """Return the responses of a route that does something and returns a `model`."""
    return {status: answered(model, "Done, and durable."), **PROBLEMS}


async def send_command(request: Request, run: str, verb: str, **details: Any) -> Response:
    """Send a command to a run as the signed-in person; answer once it is durable."""
    app_state, person = app_state_of(request), person_of(request)
    await app_state.cached_readers.read(lambda desk: desk.header(run))
    told = await app_state.supervisor.send_command(run, verb, person.name, details)
    return answer(told)


@dataclass(frozen=True)
class Saying:
    """A command that is made from the state of the run: here, or where the run is hosted."""

    word: Callable[[State, Now], Command]

    def __call__(self, state: State, now: Now) -> Move:
        return self.word(state, now)(state, now)


async def said(request: Request, run: str, saying: Saying, told: Doc | None = None) -> Response:
    """Send a command that depends on the state of the run; answer once it is durable."""
    app_state = app_state_of(request)
    await app_state.cached_readers.read(lambda desk: desk.header(run))
    hosted = await app_state.supervisor.find(run)
    await app_state.supervisor.update_workers(hosted)
    await hosted.submit_and_wait(saying)
    await app_state.supervisor.drive(hosted)
    return answer(CommandDone(run=run, status=run_status(hosted.state), **(told or {})))


def key_of(person: Person) -> PrivateKey | None:
    """Return the key that signs for a person, if the server has it."""
    return approver_key(person.key) if person.key else None
