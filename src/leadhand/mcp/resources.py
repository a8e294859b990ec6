"""Runs and plans by address, so that a client can attach them to a conversation."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

import msgspec
from mcp import types

from leadhand.app.documents import Driver, run_rows, shown_document
from leadhand.app.library_history import library_rows
from leadhand.core.plan.revisions import plan_of
from leadhand.engine.library_store import find
from leadhand.errors import UsageError
from leadhand.mcp.server import Resources
from leadhand.ports import RunQuery
from leadhand.stores.location import there

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.app.reader import Reader
    from leadhand.core.plan.model import Doc
    from leadhand.mcp.runs import Workplace
    from leadhand.mcp.server import Call

LISTED = 50
JSON = "application/json"
ADDRESS = re.compile(r"leadhand://(runs|library)/([^/]+)(/plan)?")
TEMPLATES = [
    types.ResourceTemplate(
        uri_template="leadhand://runs/{run}",
        name="run",
        title="A run",
        description="How a run stands or ended: steps, result, cost, what it waits for.",
        mime_type=JSON,
    ),
    types.ResourceTemplate(
        uri_template="leadhand://runs/{run}/plan",
        name="plan of a run",
        title="The plan of a run",
        description="The plan of a run, with what waits for approval.",
        mime_type=JSON,
    ),
    types.ResourceTemplate(
        uri_template="leadhand://library/{name}",
        name="plan of the library",
        title="A saved plan",
        description="A plan of the library, NAME or NAME@VERSION.",
        mime_type=JSON,
    ),
]


def resources_of(place: Workplace) -> Resources:
    """Return the resources of a project."""

    async def listed(_call: Call, cursor: str | None) -> types.ListResourcesResult:
        if cursor is not None and len(cursor) > 200:
            raise ValueError("this cursor is of no page that was given out")
        settings = await asyncio.to_thread(place.settings)
        if not there(settings.store):
            return types.ListResourcesResult(resources=[])

        def look(reader: Reader) -> types.ListResourcesResult:
            driver = Driver.of(settings.store, reader)
            rows, further = run_rows(reader, driver, RunQuery(limit=LISTED, cursor=cursor or ""))
            found = [
                _listed(f"runs/{row.run}", row.run, f"{row.goal} ({row.status})") for row in rows
            ]
            if cursor is None:
                found += [
                    _listed(f"library/{row.name}", row.name, "a saved plan")
                    for row in library_rows(reader)
                ]
            return types.ListResourcesResult(resources=found, next_cursor=further)

        page: types.ListResourcesResult = await place.look(look)
        return page

    async def read(_call: Call, uri: str) -> types.ReadResourceResult:
        match = ADDRESS.fullmatch(uri)
        if match is None or (match[1] == "library" and match[3]):
            raise LookupError(uri)
        settings = await asyncio.to_thread(place.settings)
        if not there(settings.store):
            raise LookupError(uri)

        def look(reader: Reader) -> Doc:
            if match[1] == "library":
                return find(reader.store, match[2]).document
            if reader.store.header(match[2]) is None:
                raise LookupError(uri)
            state = reader.state(match[2])
            if match[3]:
                return plan_of(state)[0]
            driver = Driver.of(settings.store, reader)
            doc: Doc = msgspec.to_builtins(shown_document(reader, state, driver))
            return doc

        try:
            doc = await place.look(look)
        except UsageError:
            raise LookupError(uri) from None
        text = json.dumps(doc, ensure_ascii=False, indent=1)
        held = types.TextResourceContents(uri=uri, mime_type=JSON, text=text)
        return types.ReadResourceResult(contents=[held])

    return Resources(list=listed, templates=TEMPLATES, read=read)


def _listed(path: str, name: str, text: str) -> types.Resource:
    return types.Resource(
        uri=f"leadhand://{path}", name=name, description=text[:500], mime_type=JSON
    )


async def complete(place: Workplace, name: str, begins: str) -> Sequence[str]:
    """Return the runs or saved plans whose name begins so."""
    settings = await asyncio.to_thread(place.settings)
    if not there(settings.store):
        return []

    def look(reader: Reader) -> list[str]:
        if name == "run":
            return sorted(reader.store.runs_by_prefix(begins)) if begins else []
        return [row.name for row in library_rows(reader) if row.name.startswith(begins)]

    found: list[str] = await place.look(look)
    return found
