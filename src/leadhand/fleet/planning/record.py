"""The record of planning: how the tasks that were planned went, counted from the log. Pure.

The size of a task is the number of paths it may write, known before anybody starts. The record goes
into the planner's next prompt, into the lint of its next wave and into `leadhand fleet report`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.core.paths import parts
from leadhand.fleet.status.ladder import CODER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadhand.core.state.model import State, StepState

AREAS_TOLD = 30
SIZES = ((1, "1 path"), (3, "2-3 paths"), (7, "4-7 paths"), (1 << 30, "8 or more paths"))
SAMPLE_LEAST = 5
"""Tasks of a size before anything is concluded from them."""
RATE_LOW = 0.5
"""A first-pass rate below this speaks against a size."""
RATE_GAIN = 0.2
"""How much better smaller tasks must have done."""


class FinishedTask(NamedTuple):
    """A task that is over."""

    paths: int
    attempts: int
    landed: bool
    writes: tuple[str, ...] = ()
    conflicts: int = 0
    """Changes that came back because they were in conflict with main."""
    handbacks: int = 0
    """Attempts that came back with a question."""

    @property
    def first_pass(self) -> bool:
        """Return whether it landed with its first attempt."""
        return self.landed and self.attempts == 1


class PlannedEpic(NamedTuple):
    """What came of the plans of one epic."""

    tasks: Sequence[FinishedTask]
    rungs: Counter[str]
    """How often the planner split, replanned, answered and so on: see `EpicNotes.rungs`."""
    proposals: int = 0
    usable: int = 0


class SizeRecord(msgspec.Struct):
    """How tasks of one size went."""

    size: str
    tasks: int = 0
    landed: int = 0
    first_pass: int = 0


class AreaRecord(msgspec.Struct):
    """How tasks went that write below one folder, two levels deep."""

    area: str
    tasks: int = 0
    landed: int = 0
    first_pass: int = 0
    conflicts: int = 0
    handbacks: int = 0
    sizes: dict[str, tuple[int, int]] = {}
    """By size: how many landed with the first attempt, of how many tasks."""


class PlanningRecord(msgspec.Struct):
    """What planners did well or badly, over all epics of a fleet."""

    tasks: int = 0
    """Tasks that are over."""
    landed: int = 0
    first_pass: int = 0
    conflicts: int = 0
    handbacks: int = 0
    split: int = 0
    """Tasks that failed and were split."""
    replanned: int = 0
    """Tasks that failed and were planned in another way."""
    overtaken: int = 0
    """Tasks whose files others changed before an agent began."""
    people: int = 0
    """Tasks that a person was asked about."""
    proposals: int = 0
    """Answers of planners."""
    refused: int = 0
    """Answers that lint sent back."""
    sizes: list[SizeRecord] = []
    areas: list[AreaRecord] = []

    def counts(self) -> dict[str, int]:
        """Return the totals without the tables; empty before the first task is over."""
        found = msgspec.to_builtins(self)
        totals = {name: value for name, value in found.items() if isinstance(value, int)}
        return totals if self.tasks or self.proposals else {}


def planned_epic(state: State) -> PlannedEpic:
    """Return what came of the plans of a run."""
    notes: Any = state.planner.notes
    notes = notes if isinstance(notes, dict) else {}
    rungs: Counter[str] = Counter()
    for row in (notes.get("rungs") or {}).values():
        rungs.update({str(name): int(number) for name, number in row.items()})
    answers = int(notes.get("proposals") or 0), int(notes.get("usable") or 0)
    return PlannedEpic(finished_tasks(state), rungs, *answers)


def finished_tasks(state: State) -> list[FinishedTask]:
    """Return the tasks of a run that are over."""
    return [
        FinishedTask(
            len(step.doc.get("writes") or ()),
            _tries(step),
            step.status == "succeeded",
            tuple(step.doc.get("writes") or ()),
            _conflicts(step),
            sum(failure.get("class") == "needs_info" for failure in step.failures),
        )
        for step in state.steps.values()
        if step.worker.partition("@")[0] == CODER
        and (step.status in ("succeeded", "failed") or (step.superseded_by and step.failures))
    ]


def _tries(step: StepState) -> int:
    """Return the number of attempts, without those whose host was killed."""
    cut = [f for f in step.failures if f.get("class") == "lost" and not f.get("details")]
    return step.attempts - len(cut)


def _conflicts(step: StepState) -> int:
    """Return how many changes came back from the train in conflict with main.

    Those that an agent settled within its attempt are no failures: its report counts them.
    """
    details = (failure.get("details") for failure in step.failures)
    failed = sum(isinstance(each, dict) and bool(each.get("conflict")) for each in details)
    settled = step.data.get("conflicts", 0) if isinstance(step.data, dict) else 0
    return failed + (settled if isinstance(settled, int) else 0)


def planning_record(epics: Iterable[PlannedEpic]) -> PlanningRecord:
    """Return the record over all epics."""
    known = list(epics)
    tasks = [task for epic in known for task in epic.tasks]
    rungs = sum((epic.rungs for epic in known), Counter[str]())
    return PlanningRecord(
        tasks=len(tasks),
        landed=sum(task.landed for task in tasks),
        first_pass=sum(task.first_pass for task in tasks),
        conflicts=sum(task.conflicts for task in tasks),
        handbacks=sum(task.handbacks for task in tasks),
        split=rungs["split"],
        replanned=rungs["replan"],
        overtaken=rungs["drift"],
        people=rungs["asked"],
        proposals=sum(epic.proposals for epic in known),
        refused=sum(epic.proposals - epic.usable for epic in known),
        sizes=by_size(tasks),
        areas=by_area(tasks),
    )


def by_size(tasks: Iterable[FinishedTask]) -> list[SizeRecord]:
    """Return success by size; sizes without tasks are left out."""
    rows: dict[str, SizeRecord] = {}
    for task in tasks:
        row = rows.setdefault(size_of(task.paths), SizeRecord(size_of(task.paths)))
        row.tasks += 1
        row.landed += task.landed
        row.first_pass += task.first_pass
    order = [words for _, words in SIZES]
    return sorted(rows.values(), key=lambda row: order.index(row.size))


def by_area(tasks: Iterable[FinishedTask]) -> list[AreaRecord]:
    """Return success, conflicts and questions by the folder that tasks write."""
    rows: dict[str, AreaRecord] = {}
    for task in tasks:
        for area in areas_of(task.writes):
            row = rows.setdefault(area, AreaRecord(area, sizes={}))
            row.tasks += 1
            row.landed += task.landed
            row.first_pass += task.first_pass
            row.conflicts += task.conflicts
            row.handbacks += task.handbacks
            passed, number = row.sizes.get(size_of(task.paths), (0, 0))
            row.sizes[size_of(task.paths)] = passed + task.first_pass, number + 1
    order = sorted(rows.values(), key=lambda row: (-row.tasks, row.area))
    return order[:AREAS_TOLD]


def size_of(paths: int) -> str:
    """Return the size of a task that may write so many paths."""
    return next(words for most, words in SIZES if paths <= most)


def areas_of(writes: Iterable[str]) -> list[str]:
    """Return the folders that paths lie in, two levels deep."""
    return sorted({_area(path) for path in writes})


def _area(path: str) -> str:
    folders = parts(path) if path.endswith("/") else parts(path)[:-1]
    plain = "/".join(folders[:2])
    return plain.encode("utf-8", "backslashreplace").decode() or "."


def too_large(record: PlanningRecord, writes: Sequence[str]) -> str:
    """Return why a task is too large by history; empty if that does not say so.

    Tasks of its size rarely landed at the first attempt, and smaller ones did clearly better. The
    folder that it writes counts where enough tasks of it are known, else all of the fleet.
    """
    size = size_of(len(writes))
    areas = {row.area: row.sizes for row in record.areas}
    everywhere = {row.size: (row.first_pass, row.tasks) for row in record.sizes}
    places = [(f" in {area}", areas[area]) for area in areas_of(writes) if area in areas]
    for where, sizes in [*places, ("", everywhere)]:
        passed, number = sizes.get(size, (0, 0))
        if number < SAMPLE_LEAST:
            continue
        if passed / number >= RATE_LOW:
            return ""
        better = _better(sizes, size, passed / number)
        if better:
            return (
                f"{passed} of {number} tasks with {size}{where} landed at the first try, {better}"
            )
    return ""


def _better(sizes: dict[str, tuple[int, int]], size: str, rate: float) -> str:
    """Return the smaller size that did best, in words; empty if none did clearly better."""
    order = [words for _, words in SIZES]
    smaller = [each for each in order[: order.index(size)] if each in sizes]
    rows = [(sizes[each][0] / sizes[each][1], each) for each in smaller if sizes[each][1]]
    rows = [row for row in rows if sizes[row[1]][1] >= SAMPLE_LEAST and row[0] >= rate + RATE_GAIN]
    if not rows:
        return ""
    best = max(rows)[1]
    return f"against {sizes[best][0]} of {sizes[best][1]} with {best}"
