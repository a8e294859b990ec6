"""Runs as tasks: a handle that survives the client's end, since a run does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mcp import types
from mcp.shared.exceptions import MCPError

from leadhand.app.commands import send_command
from leadhand.core.calendar import iso
from leadhand.core.views.run import ENDED, run_status
from leadhand.errors import LeadhandError, UsageError
from leadhand.mcp import pauses
from leadhand.mcp.server import result_of
from leadhand.mcp.tasks import Task
from leadhand.mcp.tools import report, summary_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import State
    from leadhand.mcp.runs import Workplace
    from leadhand.mcp.server import Call


class RunTasks:
    """Every run is a task under its own id."""

    def __init__(self, place: Workplace) -> None:
        self._place = place
        self._heard: set[str] = set()
        """What a client's user has answered: not to be asked again."""

    async def get(self, call: Call, ident: str) -> Task:
        """Return a run as a task; a run that nothing drives is resumed, if the caller may act."""
        state = await self._state(ident)
        if call.caller.may_act:
            await self._place.take_up(ident)
        status = run_status(state)
        more: Doc = {
            "id": ident,
            "created": iso(state.started_at),
            "updated": iso(state.last_at),
            "message": summary_line(state),
        }
        if status == "cancelled":
            return Task(status="cancelled", **more)
        if status in ENDED:
            done = result_of(await report(self._place, call, state))
            return Task(status="completed", result=done, **more)
        asked = await asyncio.to_thread(pauses.inquiry_of, self._place, call, state)
        if asked is None or asked.key in self._heard:
            waits = pauses.pauses_of(state, self._place.settings(), call.caller.actor)
            if waits:
                more["message"] = f"{waits[0].title}. A person decides: {waits[0].for_person}"
            return Task(status="working", **more)
        requests = {asked.key: types.ElicitRequest(params=asked.params)}
        return Task(status="input_required", requests=requests, **more)

    async def update(self, call: Call, ident: str, responses: Mapping[str, Any]) -> None:
        """Take the answer of the client's user to what the run waits for."""
        state = await self._state(ident)
        asked = await asyncio.to_thread(pauses.inquiry_of, self._place, call, state)
        if asked is None or asked.key not in responses:
            return
        try:
            answer = types.ElicitResult.model_validate(responses[asked.key])
            if answer.action == "accept":
                content = dict(answer.content or {})
                await pauses.take_answer(self._place, call, asked, content)
        except ValueError as error:
            raise MCPError(types.INVALID_PARAMS, f"no answer to a form: {error}") from None
        except LeadhandError as error:
            raise MCPError(types.INVALID_REQUEST, str(error)) from None
        self._heard.add(asked.key)

    async def cancel(self, call: Call, ident: str) -> None:
        """Cancel a run that the same agent has started, if it has not ended."""
        state = await self._state(ident)
        if run_status(state) in ENDED:
            return
        settings = self._place.settings()
        try:
            await send_command(
                settings.store,
                ident,
                "cancel",
                actor=call.caller.actor,
                anchoring=settings.anchoring,
                reason="the task was cancelled",
            )
        except LeadhandError as error:
            raise MCPError(types.INVALID_REQUEST, str(error)) from None
        await self._place.take_up(ident)

    async def _state(self, ident: str) -> State:
        try:
            state = await self._place.state(ident)
        except UsageError:
            raise LookupError(ident) from None
        if state.run != ident:
            raise LookupError(ident)
        return state
