"""The history of the library's plans: computed from the runs that used them."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from leadhand.app.reader import summary_of
from leadhand.core import events as ev
from leadhand.core.calendar import iso
from leadhand.errors import StoreError

if TYPE_CHECKING:
    from leadhand.app.reader import Reader
    from leadhand.core.library import SavedPlan
    from leadhand.core.plan.model import Doc
    from leadhand.ports import RunHeader


class LibraryUse(NamedTuple):
    """One run of a plan of the library."""

    run: str
    name: str
    version: int
    status: str
    started: int
    took_s: float


def uses(reader: Reader) -> list[LibraryUse]:
    """Return every run started from the library, oldest first, without opening its log."""
    return [use for header in reader.runs() if (use := _use(header)) is not None]


def _use(header: RunHeader) -> LibraryUse | None:
    told = summary_of(header)
    label = told.library or "" if told else ""
    name, _, version = label.rpartition("@")
    if told is None or not name or not version.isdigit():
        return None
    took = (header.updated - header.created) / 1e6
    return LibraryUse(header.run, name, int(version), told.status, header.created, took)


def recoveries(reader: Reader, run: str) -> Counter[str]:
    """Return how often each recovery strategy was used in a run."""
    try:
        log = reader.events(run)
    except StoreError:  # damaged: `leadhand verify` reports it
        return Counter()
    return Counter(event.strategy for _, event in log if isinstance(event, ev.RecoveryDecided))


def record(found: list[LibraryUse]) -> Doc:
    """Return totals of some uses: their number, outcomes and durations."""
    ended = [use.took_s for use in found if use.status == "succeeded"]
    return {
        "uses": len(found),
        "outcomes": dict(Counter(use.status for use in found)),
        "median_s": round(median(ended), 3) if ended else None,
        "last_used": max((use.started for use in found), default=None),
    }


def saved_row(saved: SavedPlan) -> Doc:
    """Return a plan of the library as a row of its lists."""
    goal = saved.document.get("goal", "")
    return {
        "name": saved.name,
        "version": saved.version,
        "hash": saved.hash,
        "saved": saved.at,
        "by": saved.actor,
        "from": saved.source,
        "goal": goal.get("text", "") if isinstance(goal, dict) else goal,
        "params": list(saved.document.get("params", {})),
        "steps": len(saved.document.get("steps", ())),
    }


def timed_saved(row: Doc) -> Doc:
    """Return the row with ISO 8601 times."""
    return row | {key: iso(row[key]) for key in ("saved", "last_used") if row.get(key)}


def history_rows(reader: Reader, versions: list[SavedPlan], used: list[LibraryUse]) -> list[Doc]:
    """Return the history of each version."""
    found = []
    for saved in versions:
        mine = [use for use in used if use.version == saved.version]
        answers: Counter[str] = sum((recoveries(reader, use.run) for use in mine), Counter())
        told = record(mine)
        if told["last_used"]:
            told["last_used"] = iso(told["last_used"])
        found.append(
            {
                "version": saved.version,
                "hash": saved.hash,
                "saved": iso(saved.at),
                "by": saved.actor,
                "from": saved.source,
                **told,
                "recoveries": dict(answers),
                "runs": [use.run for use in mine],
            }
        )
    return found
