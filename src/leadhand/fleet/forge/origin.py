"""The issue that a run was begun for, from its log. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core.calendar import from_iso

if TYPE_CHECKING:
    from leadhand.core.state.model import State


def issue_of(state: State) -> dict[str, Any] | None:
    """Return the issue that a run was begun for: host, number, url; None if for none."""
    head = state.started.plan if state.started is not None else {}
    found = head.get("issue")
    whole = isinstance(found, dict) and isinstance(found.get("number"), int)
    return found if whole else None


def issue_written_at(state: State) -> int:
    """Return when the issue of a run was written, in UTC microseconds; 0 if that is not known."""
    try:
        return from_iso(str((issue_of(state) or {}).get("created_at", "")))
    except (ValueError, TypeError):  # none, or one without its zone
        return 0
