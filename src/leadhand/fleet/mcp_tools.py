"""The fleet's tool for agents over MCP: submit an epic."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.mcp.runs import Workplace
    from leadhand.mcp.server import Call, Tool


class EpicArguments(Struct, forbid_unknown_fields=True):
    """An epic for the coding fleet."""

    text: Annotated[str, Meta(min_length=1, max_length=1 << 20)]
    """The epic in Markdown: a title, what is wanted, and perhaps its tasks."""
    name: Annotated[str, Meta(max_length=200)] = ""
    """The name of its file; by default its title."""
    priority: Annotated[int, Meta(ge=-1000, le=1000)] | None = None
    """Higher priorities are started first."""


def tools(place: Workplace) -> list[Tool]:
    """Return the tools of the fleet."""
    from leadhand.mcp.server import OPERATOR, Tool

    async def submit_epic(_call: Call, given: EpicArguments) -> Any:
        return await asyncio.to_thread(_submit, place, given)

    return [
        Tool(
            name="submit_epic",
            title="Submit an epic",
            description="Hand an epic in Markdown to the coding fleet of this project, whether or "
            "not it is running. The same epic again is not done twice. What the fleet may merge "
            "is decided by its gate and by people.",
            arguments=EpicArguments,
            run=submit_epic,
            role=OPERATOR,
            hints={"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
        )
    ]


def _submit(place: Workplace, given: EpicArguments) -> dict[str, Any]:
    from leadhand.fleet.configuration import epics_folder, fleet_folder
    from leadhand.fleet.epic_folder import submit_text
    from leadhand.fleet.settings import fleet_of
    from leadhand.fleet.status.evidence import live_of, status_of
    from leadhand.settings.folders import make_store_folder

    settings = place.settings()
    fleet = fleet_of(settings)
    if not fleet.coders:
        raise UsageError("this project has no fleet. Fix: leadhand fleet init")
    make_store_folder(fleet_folder(settings))
    begun = partial(status_of, fleet_folder(settings))
    run, epic, _file = submit_text(
        epics_folder(settings),
        given.text,
        given.name,
        given.priority,
        begun,
        planner=bool(fleet.planner),
    )
    return {
        "run": run,
        "title": epic.title,
        "tasks": len(epic.tasks),
        "priority": epic.priority,
        "fleet": live_of(fleet_folder(settings)) is not None,
        "known": begun(run) or None,
    }
