"""Fields of a plan that are recorded but have no effect yet.

Separate from the other checks, since these findings never keep a plan from running: `lint` shows
them to people, and they must not use up the room for errors. Any document is accepted, well formed
or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.lint.findings import Finding, Findings

if TYPE_CHECKING:
    from leadhand.core.plan.model import Json


PLAN_FIELDS = ("mode",)
_MESSAGE = "it has no effect in a plan that names no planner"


def later(doc: Json) -> list[Finding]:
    """Return a warning for each field of a plan that has no effect yet."""
    if not isinstance(doc, dict):
        return []
    out = Findings()
    planned = bool(doc.get("planner"))
    for field in PLAN_FIELDS:
        if field in doc and not planned:
            _tell(out, field, _MESSAGE)
    if doc.get("final") is False and not planned:
        message = f"{_MESSAGE}: nobody adds to a document, and its run fails at the end"
        _tell(out, "final", message, "Take it out, or name a planner.")
    return out.done()


def _tell(out: Findings, place: str, message: str, fix: str = "") -> None:
    out.add("field-later", place, message, fix)
