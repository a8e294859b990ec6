"""What an epic came to: a summary, a changelog entry and the evidence, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.fleet.planning.steps import ladder

if TYPE_CHECKING:
    from leadhand.core.report import PlannerView
    from leadhand.fleet.epics import Epic
    from leadhand.fleet.planning.progress import EpicNotes, EpicProgress
    from leadhand.fleet.repository.hub import Hub


COMMITS_TOLD = 500


def entry_of(epic: Epic, notes: EpicNotes) -> str:
    """The entry for the changelog: the planner's words, else the epic's own title."""
    return (notes.done or {}).get("changelog", "").strip() or epic.title


async def result_of(
    hub: Hub, view: PlannerView, epic: Epic, notes: EpicNotes, stand: EpicProgress
) -> dict[str, Any]:
    """The result of the run. Commits are those that git has, by their trailers."""
    own = [c for c in await hub.commits() if c.trailers.get("Leadhand-Run") == view.run]
    tasks = len(stand.landed)
    check = stand.check
    words = (notes.done or {}).get("summary", "").strip()
    data = check.data if check is not None and isinstance(check.data, dict) else {}
    return {
        "achieved": True,
        "summary": words or f"{epic.title}: {tasks} tasks landed in {notes.waves} waves.",
        "changelog": entry_of(epic, notes),
        "commits": [
            {"sha": commit.sha, "task": commit.trailers.get("Leadhand-Task", "")}
            for commit in own[-COMMITS_TOLD:]
        ],
        "waves": notes.waves,
        "tasks": tasks,
        "dropped": list(notes.dropped),
        "acceptance": {
            "commit": data.get("commit", ""),
            "commands": [list(argv) for argv in epic.acceptance],
            "looks": len(stand.checks),
        },
        "ladder": ladder(stand, notes, _same_conversation(view)),
    }


def _same_conversation(view: PlannerView) -> dict[str, int]:
    """For each task how many attempts went on with a conversation, as far as they failed."""
    found: dict[str, int] = {}
    for each in view.failed_attempts:
        details = each.failure.details
        if isinstance(details, dict) and details.get("conversation") == "same":
            found[each.step] = found.get(each.step, 0) + 1
    return found
