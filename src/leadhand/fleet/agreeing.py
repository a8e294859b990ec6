"""Whether the log, the journal and git tell the same of a fleet. PURE.

The log is the authority for what was meant, git for what has landed. They cannot be written in one
act, so git may be ahead for a moment; whatever else differs is a fault of ours or somebody's hand
in the hub, and is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.fleet.sources import DONE, SECOND, Landing, Sources, attempt_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadhand.fleet.facts import TaskFacts

GRACE = 30 * SECOND
"""Git is ahead of the log for a moment: a commit that is newer is not held against it."""


def disagreements(sources: Sources) -> list[str]:
    """Where the log, the journal and git tell different things."""
    known = {task.name: task for epic in sources.epics for task in epic.tasks.values()}
    landings: dict[str, list[Landing]] = {}
    for each in sources.landings:
        landings.setdefault(f"{each.run}/{each.task}", []).append(each)
    found = [
        f"{name} is on main {len(each)} times" for name, each in landings.items() if len(each) > 1
    ]
    older: dict[str, list[Landing]] = {}
    for each in sources.older:
        older.setdefault(f"{each.run}/{each.task}", []).append(each)
    found += [line for task in known.values() for line in _checked(task, landings, older)]
    for name, (first, *_more) in landings.items():
        task = known.get(name)
        old = first.at < sources.now - GRACE
        if task is None:
            found.append(f"{name} is on main ({first.sha[:12]}), and the log knows no such task")
        elif old and task.status not in (DONE, "running"):
            found.append(f"{name} is on main ({first.sha[:12]}), and the log says {task.status}")
    return found + _unlogged(sources)


def _checked(
    task: TaskFacts,
    landings: Mapping[str, Sequence[Landing]],
    older: Mapping[str, Sequence[Landing]],
) -> list[str]:
    if task.status != DONE or (task.person and not task.commit):
        return []  # a person may have done it elsewhere, and said so
    found = [*landings.get(task.name, ()), *older.get(task.name, ())]
    if not found:
        return [f"{task.name} has succeeded by the log, and is not on main"]
    if task.commit and task.commit not in [each.sha for each in found]:
        return [f"{task.name} is {task.commit[:12]} by the log, and {found[0].sha[:12]} on main"]
    return []


def _unlogged(sources: Sources) -> list[str]:
    """Agents of which the log knows no attempt."""
    known = {
        f"{epic.run}/{task}/{number}" for epic in sources.epics for task, number in epic.attempts
    }
    runs = {epic.run for epic in sources.epics}
    names = {attempt_name(note) for note in sources.notes if note["what"] == "agent"}
    return [
        f"an agent worked on {name}, and the log knows no such attempt"
        for name in sorted(names - known)
        if name.split("/")[0] in runs
    ]
