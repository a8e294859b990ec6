"""Standing in line is no try: attempts that were lost before an agent had begun. PURE.

The log says that an attempt has begun when its task is handed to the fleet, which may let it wait
for paths or a place. Only the journal knows whether an agent ever worked on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.fleet.sources import Doc, attempt_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadhand.fleet.facts import TaskFacts


def begun_in(notes: Iterable[Doc]) -> set[str]:
    """Attempts for which an agent's process was started."""
    return {attempt_name(note) for note in notes if note["what"] == "agent"}


def waited_of(task: TaskFacts, begun: set[str], notes: Sequence[Doc]) -> dict[int, int]:
    """Attempts that were lost while the task stood in line, and when: no agent had begun."""
    known = notes[0]["at"] if notes else None
    return {
        attempt: at
        for attempt, at in task.lost.items()
        if known is not None and at >= known and f"{task.name}/{attempt}" not in begun
    }


def failures_of(task: TaskFacts, begun: set[str], notes: Sequence[Doc]) -> list[tuple[int, str]]:
    """Those of agents: a fleet that ended while the task stood in line is none."""
    waited = set(waited_of(task, begun, notes).values())
    return [each for each in task.failures if each[0] not in waited]
