"""Changes that are done and could not be brought to main, for trouble of the machine.

They are kept under a name in the hub, and the failure of their attempt says where. The next attempt
goes on with the change as it is: nobody is paid for it twice.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.errors import LeadhandError
from leadhand.fleet.hub import ref_of
from leadhand.fleet.tasks import Left

if TYPE_CHECKING:
    from leadhand.fleet.coder.base import Assignment
    from leadhand.fleet.hub import Hub
    from leadhand.ports import Context

KEY = "finished"


class Finished(NamedTuple):
    """A change that waits to be landed, and what was known of the attempt that made it."""

    left: Left
    handoff: dict[str, Any]


async def put_off(hub: Hub, assignment: Assignment, left: Left) -> dict[str, Any]:
    """Keep a change for the next attempt: where, for the report; nothing when it cannot be."""
    ref = ref_of("task", assignment.run, assignment.task, assignment.attempt)
    with suppress(OSError, LeadhandError):
        await hub.submit(ref, left.head)
        return {KEY: {"ref": ref, "base": left.base}}
    return {}


async def finished(hub: Hub, context: Context) -> Finished | None:
    """The change that the last attempt could not bring to main, unless a person said more."""
    last = context.failures[-1].details if context.failures else None
    found = last.get(KEY) if isinstance(last, dict) else None
    if not isinstance(found, dict) or not isinstance(last, dict):
        return None
    if context.answers and (context.answers[-1].get("text") or context.answers[-1].get("data")):
        return None
    ref, base = str(found.get("ref", "")), str(found.get("base", ""))
    head = (await hub.kept(ref)).get(ref, "") if ref else ""
    handoff = {key: value for key, value in last.items() if key != KEY}
    return Finished(Left(base, head), handoff) if head and base else None
