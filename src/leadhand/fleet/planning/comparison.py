"""Planners compared on recorded epics: what each would have planned, beside what really changed.

A recorded epic is one that a fleet has landed: its text, the commit of main that it was planned on,
and the files that its commits changed. Each planner is asked for a first wave as it would have been
asked then: same document, map, limits, lint and rounds. Nothing is executed, and main does not
move. What the planner meant is compared with what happened:

    files       of the files that a wave may write, those that the epic changed; and the other way
    overlaps    of the pairs of epics that meant a file in common, those that changed one in common;
                and the other way. Files that only grow (changelogs) do not count

Only epics whose commits are on main are asked again: what failed says nothing about files.
"""

from __future__ import annotations

import time
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from leadhand.app.reader import Reader
from leadhand.core.report import Ask, PlannerView, Propose
from leadhand.errors import UsageError
from leadhand.fleet.boundaries import within
from leadhand.fleet.planning.planner import EpicPlanner, epic_of
from leadhand.fleet.planning.progress import read_notes
from leadhand.fleet.product_log import EPIC, FLEET_DATABASE
from leadhand.fleet.repositories import repository_of
from leadhand.fleet.repository.git import read_log
from leadhand.fleet.repository.hub import MAIN, START, Hub
from leadhand.fleet.status.ladder import CODER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from leadhand.fleet.epics import Epic
    from leadhand.fleet.repository.git import Commit


class RecordedEpic(NamedTuple):
    """An epic that a fleet has landed."""

    run: str
    epic: Epic
    base: str
    """The commit of main that it was planned on: the one before its first commit."""
    changed: frozenset[str]
    """The files that its commits changed."""


class Ratio(msgspec.Struct, frozen=True):
    """How well a prediction fits; None where there is nothing to divide by."""

    hits: int
    predicted: int
    real: int

    @property
    def precision(self) -> float | None:
        """Return the share of what was predicted that is real."""
        return self.hits / self.predicted if self.predicted else None

    @property
    def recall(self) -> float | None:
        """Return the share of what is real that was predicted."""
        return self.hits / self.real if self.real else None


class PlannerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one planner made of all recorded epics."""

    planner: str
    epics: int
    planned: int
    """Epics for which it gave a wave that lint took."""
    asked: int
    """Epics for which it asked a person, or lint took none of its answers."""
    gave_up: int
    tasks: int
    answers: int
    """Its answers in all; those that lint sent back are among them."""
    usable: int
    files: Ratio
    overlaps: Ratio
    cost: float
    seconds: float


async def recorded_epics(folder: Path, most: int) -> list[RecordedEpic]:
    """Return the last landed epics of a fleet's folder, the oldest first.

    Raises:
        UsageError: there is no fleet, or nothing of the main repository has landed.
    """
    if not (folder / FLEET_DATABASE).exists():
        raise UsageError(f"there is no fleet in {folder}. Fix: --folder PATH")
    hub = await Hub.look(folder / "hub")
    commits = await read_log(hub.git, "--first-parent", f"{START}..{MAIN}")
    by_run: dict[str, list[Commit]] = {}
    for each in commits:
        if (run := each.trailers.get("Leadhand-Run")) and each.trailers.get("Leadhand-Task"):
            by_run.setdefault(run, []).append(each)
    reader, found = Reader(folder / FLEET_DATABASE), []
    try:
        known = {header.run for header in reader.runs() if header.run.startswith(EPIC)}
        for run, made in by_run.items():
            if run in known:
                first = min(made, key=lambda each: each.at)
                epic = epic_of(PlannerView(run, "", 1, "", params=reader.state(run).params))
                changed = await changed_by(hub, made)
                found.append((first.at, RecordedEpic(run, epic, first.parents[0], changed)))
    finally:
        reader.store.close_reader()
    if not found:
        raise UsageError(f"no epic of the fleet in {folder} has landed yet: nothing to compare by")
    found.sort(key=lambda each: each[0])
    return [epic for _at, epic in found[-most:]]


async def changed_by(hub: Hub, commits: Iterable[Commit]) -> frozenset[str]:
    """Return the files that commits changed, each against its first parent."""
    changed: set[str] = set()
    for each in commits:
        changed |= set(await hub.changed(each.parents[0], each.sha))
    return frozenset(changed)


class _Meant(NamedTuple):
    files: frozenset[str]
    tasks: int


async def compare_planner(
    name: str,
    folder: Path,
    epics: Sequence[RecordedEpic],
    planner_at: Callable[[Hub], Awaitable[EpicPlanner]],
    spent: Callable[[], float],
    *,
    shared: Collection[str] = (),
    said: Callable[[str], None] = lambda _text: None,
) -> PlannerFigures:
    """Ask a planner for a first wave of each epic, and return how it fits what really changed.

    - `planner_at`: makes the planner for a hub that stands at a commit.
    - `spent`: what the planner's models have cost so far.
    - `shared`: patterns of files that many tasks write; they make no overlap.
    """
    began, cost = time.monotonic(), spent()
    meant: list[_Meant] = []
    asked = gave_up = answers = usable = 0
    for number, each in enumerate(epics, 1):
        hub = await Hub.look(folder / "hub", at=each.base)
        planner = await planner_at(hub)
        epic = msgspec.structs.replace(each.epic, tasks=())
        params = {"epic": msgspec.to_builtins(epic)}
        decision = await planner.decide(PlannerView(each.run, epic.text, 1, "start", params=params))
        notes = read_notes(decision.notes)
        answers, usable = answers + notes.proposals, usable + notes.usable
        asked += isinstance(decision, Ask)
        gave_up += not isinstance(decision, Ask | Propose)
        files = await _files_at(hub, each.base)
        wave = _meant(decision, files) if isinstance(decision, Propose) else _Meant(frozenset(), 0)
        meant.append(wave)
        said(f"{name}: {each.run} ({number} of {len(epics)}): {wave.tasks} tasks")
    return PlannerFigures(
        planner=name,
        epics=len(epics),
        planned=sum(each.tasks > 0 for each in meant),
        asked=asked,
        gave_up=gave_up,
        tasks=sum(each.tasks for each in meant),
        answers=answers,
        usable=usable,
        files=_files_ratio(epics, meant),
        overlaps=_overlaps_ratio(epics, meant, shared),
        cost=spent() - cost,
        seconds=time.monotonic() - began,
    )


async def _files_at(hub: Hub, commit: str) -> list[str]:
    return (await hub.git("ls-tree", "-r", "-z", "--name-only", commit)).names()


def _meant(decision: Propose, files: Sequence[str]) -> _Meant:
    """Return the files that a wave may write: those that are there, and those it names."""
    docs = [step for step in decision.steps if isinstance(step, dict)]
    tasks = [step for step in docs if str(step.get("worker")).partition("@")[0] == CODER]
    own = [step for step in tasks if not repository_of(step)]
    patterns = [str(text) for step in own for text in step["parameters"]["writes"]]
    there = {path for path in files if within(path, patterns)}
    named = {text for text in patterns if not set("*?[") & set(text)}
    return _Meant(frozenset(there | named), len(tasks))


def _files_ratio(epics: Sequence[RecordedEpic], meant: Sequence[_Meant]) -> Ratio:
    hits = sum(len(each.changed & wave.files) for each, wave in zip(epics, meant, strict=True))
    predicted = sum(len(wave.files) for wave in meant)
    return Ratio(hits, predicted, sum(len(each.changed) for each in epics))


def _overlaps_ratio(
    epics: Sequence[RecordedEpic], meant: Sequence[_Meant], shared: Collection[str]
) -> Ratio:
    """Return how many of the pairs of epics with a file in common were foreseen."""
    hits = predicted = real = 0
    for (a, mine), (b, yours) in combinations(zip(epics, meant, strict=True), 2):
        foreseen = any(not within(path, shared) for path in mine.files & yours.files)
        happened = any(not within(path, shared) for path in a.changed & b.changed)
        predicted, real = predicted + foreseen, real + happened
        hits += foreseen and happened
    return Ratio(hits, predicted, real)
