"""What the fleet's figures are computed from. PURE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.fleet.status.facts import EpicFacts


Doc = dict[str, Any]
SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
WEEK = 7 * DAY
DONE = "succeeded"
REPLACED = "superseded"
"""Others took its place: they are counted, not it."""
OVER = ("succeeded", "failed", "skipped", "cancelled")
PAID = frozenset({"agent ended", "reviewed", "planned", "lost"})
"""Notes of the journal that say what somebody cost."""


class Landing(NamedTuple):
    """A commit on main that a task made."""

    sha: str
    run: str
    task: str
    attempt: int
    at: int
    by: str
    subject: str


class Sources(NamedTuple):
    """Everything that figures are computed from."""

    epics: Sequence[EpicFacts]
    notes: Sequence[Doc]
    landings: Sequence[Landing]
    now: int
    since: int = 0
    """Flows are counted from here on; states are those of now."""
    alive: bool = False
    """Whether a fleet is at work: only then somebody can be at work now."""
    others: int = 0
    """Commits on main that no task made: people's own."""
    older: Sequence[Landing] = ()
    """Those that were there before the hub was made: an earlier fleet's, in the user's history."""


def attempt_name(note: Doc) -> str:
    """Which attempt a note of the journal is about."""
    return f"{note.get('run', '')}/{note.get('task', '')}/{note.get('attempt', 0)}"
