"""Statistics of the ladder: the rungs that each line of tasks took, from its log. PURE.

    first ─► same conversation ─► fresh ─► stronger ─► split ─► replan ─► asked (a dead letter)

The agents' rungs are counted from attempts, the planner's from the notes that stand in the log with
each of its decisions. A line is a task and whatever took its place.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterable


CODER = "coder"
"""The worker whose steps are tasks of a fleet; behind an @ follows the rung or tier."""
RUNGS = ("first", "same_conversation", "fresh", "stronger", "split", "replan", "asked")
PLANNERS = ("split", "replan", "drift", "answered", "again", "asked")

Doc = dict[str, Any]


def ladder(events: Iterable[ev.Event]) -> list[Doc]:
    """Return a row for each line of tasks, in the order in which they began."""
    workers: dict[str, str] = {}
    counts: dict[str, Counter[str]] = {}
    notes: Doc = {}
    for event in events:
        match event:
            case ev.AttemptStarted() if event.worker.partition("@")[0] == CODER:
                counts.setdefault(event.step, Counter())["attempts"] += 1
                before, workers[event.step] = workers.get(event.step, ""), event.worker
                counts[event.step][_rung(before, event.worker)] += 1
            case ev.AttemptReported() if event.step in counts and _same(event):
                row = counts[event.step]
                row["same_conversation"] += 1
                row["fresh"] -= 1
            case ev.QuestionAsked() if event.step in counts:
                counts[event.step]["asked"] += 1
            case ev.PlannerAnswered() if isinstance(event.decision.get("notes"), dict):
                notes = event.decision["notes"]
            case _:
                pass
    return _lines(counts, notes)


def roots(events: Iterable[ev.Event]) -> dict[str, str]:
    """For each task that took another's place the first of its line."""
    found: dict[str, str] = {}
    replaced: dict[str, str] = {}
    for event in events:
        if isinstance(event, ev.PlannerAnswered) and isinstance(event.decision.get("notes"), dict):
            known = event.decision["notes"].get("roots") or {}
            found = {str(task): str(root) for task, root in known.items()}
        elif isinstance(event, ev.RevisionProposed):
            for step in event.add:
                if step.get("supersedes"):
                    replaced[str(step["id"])] = str(step["supersedes"])
    for task, older in replaced.items():
        first = older
        while first in replaced:
            first = replaced[first]
        found.setdefault(task, found.get(first, first))
    return found


def totals(rows: Iterable[Doc]) -> Doc:
    """Return how often each rung was reached."""
    found: Counter[str] = Counter(dict.fromkeys(RUNGS, 0))
    for row in rows:
        found.update({name: row.get(name, 0) for name in RUNGS})
    return dict(found)


def _rung(before: str, worker: str) -> str:
    if not before:
        return "first"
    return "fresh" if worker in (before, f"{CODER}@fresh") else "stronger"


def _same(event: ev.AttemptReported) -> bool:
    """Return whether an attempt went on with a conversation, as its report says."""
    details = event.data if event.met else (event.failure or {}).get("details")
    return isinstance(details, dict) and details.get("conversation") == "same"


def _lines(counts: dict[str, Counter[str]], notes: Doc) -> list[Doc]:
    roots, planned = notes.get("roots") or {}, notes.get("rungs") or {}
    rows: dict[str, Counter[str]] = {}
    for task, row in counts.items():
        rows.setdefault(str(roots.get(task, task)), Counter()).update(row)
    for root, more in planned.items():
        known = {name: int(more[name]) for name in PLANNERS if name in more}
        rows.setdefault(root, Counter()).update(known)
    return [{"task": root, **{k: n for k, n in row.items() if n}} for root, row in rows.items()]


MAIN_REPOSITORY = "main"
"""The name of the main repository, for people; in a plan it has none."""
