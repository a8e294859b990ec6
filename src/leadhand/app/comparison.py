"""Two plans, two revisions of a run, or two runs, compared by meaning."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from leadhand.core import events as ev
from leadhand.core.plan.diff import Change, ChangeRow, differences, lines
from leadhand.core.plan.revisions import revisions, standalone
from leadhand.core.views.run import run_status
from leadhand.core.views.run_comparison import (
    STEPS_SHOWN,
    RunComparison,
    compared_inputs,
    compared_run,
    compared_steps,
)
from leadhand.engine.results import result_of
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.app.reader import Reader
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.plan.revisions import RevisedPlan


RESULT_CHARS = 2000
"""How much of a result a comparison shows."""


class DiffDocument(Struct, kw_only=True):
    """The differences of two plans, by meaning, as `leadhand diff --json`."""

    old: str
    """The name of the old plan or revision."""
    new: str
    """The name of the new plan or revision."""
    equal: bool
    """Whether both plans mean the same."""
    changes: list[ChangeRow]
    """The differences, one by one."""
    difference: list[str]
    """The same differences as lines of text."""


class Compared(NamedTuple):
    """Two plans, under the names that people gave them."""

    old: str
    new: str
    changes: list[Change]

    def document(self) -> DiffDocument:
        """Return the comparison in the form that `diff --json` prints."""
        return DiffDocument(
            old=self.old,
            new=self.new,
            equal=not self.changes,
            changes=[change.document() for change in self.changes],
            difference=[f"{line.mark} {line.text}" for line in lines(self.changes)],
        )


def compare_revisions(reader: Reader, run: str, start: int | None, end: int | None) -> Compared:
    """Compare two revisions of a run: the last two by default; 0 is the empty plan."""
    return compare_in_log([event for _entry, event in reader.events(run)], run, start, end)


def compare_in_log(
    events: list[ev.Event], run: str, start: int | None = None, end: int | None = None
) -> Compared:
    """Compare two revisions of a run in its log, as `compare_revisions` does."""
    found = revisions(events)
    if end is None and start is None and len(found) < 2:
        has = "one revision" if found else "no revision"
        raise UsageError(
            f"run {run} has {has}, so there is nothing to compare. "
            "Fix: --from 0 shows all that is in the first."
        )
    new = found[-1] if end is None and found else revision_numbered(found, end or 1, run)
    if start is None:
        place = found.index(new)
        old = found[place - 1] if place else None
    else:
        old = revision_numbered(found, start, run) if start else None
    empty: Doc = {**new.doc, "steps": []}
    held = _held(events, new.hash)
    changes = differences(old.doc if old else empty, new.doc, new.heirs, held if old else {})
    return Compared(_name(run, old), _name(run, new), changes)


def compare_runs(reader: Reader, a: str, b: str) -> RunComparison:
    """Compare two runs: their outcome, inputs, plans and steps."""
    one, other = reader.state(a), reader.state(b)
    changes = differences(_plan(reader, a), _plan(reader, b))
    steps = compared_steps(one, other)
    results = [
        result_of(reader.store, each) if run_status(each) == "succeeded" else None
        for each in (one, other)
    ]
    both = run_status(one) == run_status(other) == "succeeded"
    return RunComparison(
        a=replace(compared_run(one), result=_shown(results[0])),
        b=replace(compared_run(other), result=_shown(results[1])),
        same_result=results[0] == results[1] if both else None,
        inputs=compared_inputs(one, other),
        changes=[change.document() for change in changes],
        difference=[f"{line.mark} {line.text}" for line in lines(changes)],
        steps=steps[:STEPS_SHOWN],
        steps_total=len(steps),
        steps_different=sum(step.differs for step in steps),
    )


def _shown(result: Json) -> Json:
    """Return a result as a comparison shows it: a large one is cut."""
    text = json.dumps(result, ensure_ascii=False)
    return result if len(text) <= RESULT_CHARS else f"{text[:RESULT_CHARS]}…"


def _plan(reader: Reader, run: str) -> Doc:
    """Return the plan of a run that was last accepted, or proposed, under its original names."""
    found = revisions(event for _entry, event in reader.events(run))
    accepted = [each for each in found if each.status == "approved"] or found
    if not accepted:
        return {"steps": []}
    return standalone(accepted[-1].doc, accepted[-1].heirs, {})


def _held(events: Iterable[ev.Event], revision: str) -> dict[str, str]:
    """Return the steps held when a revision was proposed, each with the actor of the hold."""
    found: dict[str, str] = {}
    for event in events:
        match event:
            case ev.StepsHeld():
                found |= dict.fromkeys(event.steps, event.actor)
            case ev.StepsReleased():
                found = {name: by for name, by in found.items() if name not in event.steps}
            case ev.RevisionProposed() if event.hash == revision:
                break
            case _:
                pass
    return found


def revision_numbered(found: list[RevisedPlan], number: int, run: str) -> RevisedPlan:
    """Return the revision with a number; the last of several that were rejected in turn."""
    for each in reversed(found):
        if each.number == number:
            return each
    last = f"its last is {found[-1].number}" if found else "it has none"
    raise UsageError(f"run {run} has no revision {number}; {last}")


def _name(run: str, revision: RevisedPlan | None) -> str:
    return f"{run} revision {revision.number if revision else 0}"
