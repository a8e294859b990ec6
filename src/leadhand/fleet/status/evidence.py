"""Evidence for a fleet's figures, read from its folder by the fleet or by another process.

    fleet.db      the log of the runs
    journal       what the log does not know
    hub           what is on main
    live.json     who is at work this second, written by the fleet while it is alive

The figures are `fleet/status/figures.py`'s. Here is only the reading: what has not changed is not
read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.app.reader import Reader
from leadhand.app.store_factory import host_info
from leadhand.core.calendar import iso
from leadhand.core.state.evolve import evolve_all
from leadhand.core.state.model import State
from leadhand.core.views.run import run_status
from leadhand.errors import UsageError
from leadhand.fleet.planning.record import planned_epic, planning_record
from leadhand.fleet.product_log import EPIC, FLEET_DATABASE
from leadhand.fleet.repositories import hub_folders, repository_folder, repository_of
from leadhand.fleet.repository.git import Commit, Git, read_log
from leadhand.fleet.repository.hub import MAIN, OLDER_MAX, START
from leadhand.fleet.repository.user_repository import USER
from leadhand.fleet.status import journal
from leadhand.fleet.status.board import board, series
from leadhand.fleet.status.delivery import delivery, history_since
from leadhand.fleet.status.figures import (
    DONE,
    SECOND,
    EpicFacts,
    Landing,
    Sources,
    begun_in,
    facts_of,
    figures,
    spent_in,
    waited_of,
)
from leadhand.fleet.status.rework import read_changes
from leadhand.fleet.status.task_detail import attempts_of, change_of, commit_of, planned_of
from leadhand.fleet.usage_limits import UsageLimits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from leadhand.core.events import Event
    from leadhand.fleet.planning.record import PlannedEpic
    from leadhand.fleet.status.rework import MainChange

Doc = dict[str, Any]
LIVE = "live.json"
FLAKY_SHOWN = 50
STALE_S = 30.0
"""What a fleet said longer ago than this is not shown as if it were now."""


class Evidence:
    """Reads one fleet's folder, again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._facts: dict[str, tuple[int, EpicFacts]] = {}
        self._logs: dict[str, _Log] = {}
        self._planned: dict[str, PlannedEpic] = {}
        self._notes = journal.Tail(folder)
        self._reading = asyncio.Lock()
        self._commits: dict[str, tuple[str, list[Commit]]] = {}
        """By repository: where its main was, and the commits on it."""
        self._older: list[Landing] | None = None
        self._sources = Sources([], [], [], 0)

    async def document(self, since_s: float = 0.0, live: Doc | None = None) -> Doc:
        """Return all figures and the present state; rates of the last `since_s` seconds.

        `live` is the report of the fleet, where it is at work in this process.
        """
        async with self._reading:
            return await self._document(since_s, live)

    async def report(self, since_s: float) -> Doc:
        """Return the same with the figures of delivery, which need the history of main."""
        async with self._reading:
            doc = await self._document(since_s, None)
            sources = self._sources
            changes = await self._changes(history_since(sources))
            found = await asyncio.to_thread(delivery, sources, changes)
            planned = planning_record(self._planned.values())
        made = {"delivery": found, "planning": planned}
        return {**doc, **msgspec.to_builtins(made)}

    async def _changes(self, since: int) -> list[MainChange] | None:
        """Return the changes of main and of the user's branch; None if git cannot tell them."""
        git = self._git()
        if git is None:
            return None
        refs = [
            ref
            for ref in (MAIN, USER)
            if (await git("rev-parse", "-q", "--verify", ref, codes=(0, 1))).text
        ]
        return await read_changes(git, since, *refs)

    def _git(self) -> Git | None:
        hub = self.folder / "hub"
        return Git(hub / "hub.git", hub / "gitconfig") if (hub / "hub.git").is_dir() else None

    async def _document(self, since_s: float, live: Doc | None) -> Doc:
        if not (self.folder / FLEET_DATABASE).exists():
            raise UsageError(
                f"there is no fleet in {self.folder}. Fix: leadhand fleet start --repo PATH"
            )
        live = live or await asyncio.to_thread(live_of, self.folder)
        epics = await asyncio.to_thread(self._epics)
        notes = await asyncio.to_thread(self._notes.read)
        commits = await self._on_main()
        landings = [
            _landing(each, name)
            for name, own in commits.items()
            for each in own
            if each.trailers.get("Leadhand-Task")
        ]
        if len(commits) > 1:
            landings.sort(key=lambda each: each.at)
        now = time.time_ns() // 1000
        self._sources = sources = Sources(
            epics=epics,
            notes=notes,
            landings=landings,
            now=now,
            since=now - round(since_s * SECOND) if since_s else 0,
            alive=live is not None,
            others=sum(map(len, commits.values())) - len(landings),
            older=await self._before(epics, landings),
        )
        flaky = await asyncio.to_thread(flaky_tests, self.folder)
        found = await asyncio.to_thread(_figures, sources, live)
        if live is not None:  # the fleet itself knows best; notes of it come a little later
            found["agents"]["now"] = len(live["agents"])
        limits = live["limits"] if live is not None else kept_limits(self.folder)
        about = {"flaky": flaky, "limits": limits, "live": live, "folder": str(self.folder)}
        return {**found, **about}

    async def task(self, run: str, task: str, live: Doc | None) -> Doc:
        """Return one task in detail. Raise `UsageError` if there is none."""
        async with self._reading:
            epics = {epic.run: epic for epic in await asyncio.to_thread(self._epics)}
            found = epics[run].tasks.get(task) if run in epics else None
            if found is None:
                raise UsageError(f"there is no task {run}/{task}")
            log = await asyncio.to_thread(self._log, run)
            notes = await asyncio.to_thread(self._notes.read)
        step = log.state.steps[task]
        hub = repository_folder(self.folder, repository_of(step.doc)) / "hub"
        git = Git(hub / "hub.git", hub / "gitconfig")
        now = time.time_ns() // 1000
        shown = board(Sources([epics[run]], notes, [], now), live, only=task)["cards"]
        change = await change_of(git, run, task, found.commit, found.attempts)
        return {
            "epic": epics[run].title,
            "status": found.status,
            "card": shown[0] if shown else None,
            "planned": planned_of(step),
            "attempts": attempts_of(log.events, task, waited_of(found, begun_in(notes), notes)),
            "change": change,
            "commit": await commit_of(git, found.commit, live) if found.commit else None,
            "cost": round(found.cost, 6),
            "why": found.why,
        }

    def _log(self, run: str) -> _Log:
        """Return the log of an epic; one that has ended is read again."""
        if (known := self._logs.get(run)) is not None:
            return known
        reader, log = Reader(self.folder / FLEET_DATABASE), _Log()
        try:
            log.take(reader, run)
            return log
        finally:
            reader.store.close_reader()

    def _epics(self) -> list[EpicFacts]:
        reader = Reader(self.folder / FLEET_DATABASE)
        try:
            found = []
            for header in reader.runs():
                if not header.run.startswith(EPIC):
                    continue
                seq, facts = self._facts.get(header.run, (-1, None))
                if facts is None or seq != header.seq:
                    facts, seq = self._fold(reader, header.run)
                    self._facts[header.run] = (seq, facts)
                found.append(facts)
            return found
        finally:
            reader.store.close_reader()

    def _fold(self, reader: Reader, run: str) -> tuple[EpicFacts, int]:
        """Return the facts of an epic, and how far they go; only what is new is read.

        The log of an epic that has ended is not kept.
        """
        log = self._logs.setdefault(run, _Log())
        log.take(reader, run)
        if log.state.ended is not None:
            self._logs.pop(run)
        self._planned[run] = planned_epic(log.state)
        return facts_of(log.state, log.events), log.seq

    async def _on_main(self) -> dict[str, list[Commit]]:
        """Return what has landed, by repository."""
        for name, hub in hub_folders(self.folder).items():
            git = Git(hub / "hub.git", hub / "gitconfig")
            main = (await git("rev-parse", MAIN)).text
            if main != self._commits.get(name, ("",))[0]:
                commits = await read_log(git, "--first-parent", f"{START}..{MAIN}")
                self._commits[name] = (main, commits)
        return {name: commits for name, (_main, commits) in self._commits.items()}

    async def _before(self, epics: Sequence[EpicFacts], landings: list[Landing]) -> list[Landing]:
        """Return what was on main before the hub was made, read once, and only if it matters.

        A fleet whose folder was lost finds its own commits there, and takes its tasks as done.
        """
        here = {(each.run, each.task) for each in landings}
        done = [task for epic in epics for task in epic.tasks.values() if task.status == DONE]
        if all((task.run, task.task) in here for task in done):
            return []
        if self._older is None:
            self._older = []
            for name, hub in hub_folders(self.folder).items():
                git = Git(hub / "hub.git", hub / "gitconfig")
                for each in await read_log(git, "--max-count", str(OLDER_MAX), START):
                    if "Leadhand-Task" in each.trailers:
                        self._older.append(_landing(each, name))
        return self._older


class _Log:
    """The log of one epic as far as it was read, and the state that it folds to."""

    def __init__(self) -> None:
        self.seq = 0
        self.state = State()
        self.events: list[tuple[int, Event]] = []

    def take(self, reader: Reader, run: str) -> None:
        """Read what is new."""
        if found := reader.events(run, self.seq):
            self.seq = found[-1][0].seq
            fresh = [(entry.at, event) for entry, event in found]
            self.events += fresh
            evolve_all(self.state, fresh)


def _figures(sources: Sources, live: Doc | None) -> Doc:
    shown = {"board": board(sources, live), "series": series(sources, spent_in(sources))}
    return {**figures(sources), **shown}


def kept_limits(folder: Path) -> list[Doc]:
    """Return the usage limits that a fleet will meet when it is started again."""
    return [limit.told_as(None) for limit in UsageLimits(folder).standing()]


def flaky_tests(folder: Path) -> list[Doc]:
    """Tests that were red and then tried again, by the gates' own records; the worst first."""
    found: dict[str, Doc] = {}
    lines: list[tuple[str, str]] = []
    for name, hub in {"": folder / "hub", **hub_folders(folder)}.items():
        with contextlib.suppress(OSError):
            text = (hub / "flakes.jsonl").read_text(errors="replace")
            lines += [(f"{name}: " if name else "", line) for line in text.splitlines()]
    for where, line in lines:
        try:
            seen = json.loads(line)
            test = f"{where}{seen['name']}"
            row = found.setdefault(test, {"name": test, "times": 0})
            row |= {"times": row["times"] + 1, "last": iso(int(seen["at"]) * SECOND)}
        except (ArithmeticError, LookupError, OSError, RecursionError, TypeError, ValueError):
            continue  # a line that was cut off
    return sorted(found.values(), key=lambda row: -row["times"])[:FLAKY_SHOWN]


def _landing(commit: Commit, repository: str = "") -> Landing:
    said = commit.trailers
    attempt = said.get("Leadhand-Attempt", "0")
    return Landing(
        sha=commit.sha,
        run=said.get("Leadhand-Run", ""),
        task=said["Leadhand-Task"],
        attempt=int(attempt) if attempt.isdigit() else 0,
        at=commit.at * SECOND,
        by=said.get("Assisted-by", ""),
        subject=commit.subject,
        repository=repository,
    )


def live_of(folder: Path) -> Doc | None:
    """Return the last report of the fleet that is at work; None if none is."""
    try:
        found = json.loads((folder / LIVE).read_text(encoding="utf-8"))
        fresh = time.time() - float(found["at"]) < STALE_S
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    holder = host_info(folder / FLEET_DATABASE) if fresh else None
    return found if holder is not None and holder.get("pid") == found.get("pid") else None


def status_of(folder: Path, run: str) -> str:
    """Return the status of an epic; empty if it has not begun."""
    if not (folder / FLEET_DATABASE).exists():
        return ""
    reader = Reader(folder / FLEET_DATABASE)
    try:
        known = reader.store.header(run) is not None
        return run_status(reader.state(run)) if known else ""
    finally:
        reader.store.close_reader()


def left_behind(folder: Path) -> list[Doc]:
    """Return agents that were at work when their fleet was killed, with their cost."""
    try:
        found = json.loads((folder / LIVE).read_text(encoding="utf-8"))
        names = ("run", "task", "attempt", "coder", "cost")
        lost = [{name: each[name] for name in names} for each in found["agents"]]
        (folder / LIVE).unlink()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    return [each for each in lost if journal.is_sum(each["cost"])]


def write_live(folder: Path, doc: Doc) -> None:
    """Write the present state, whole or not at all."""
    fresh = folder / f".{LIVE}.{os.getpid()}"
    fresh.write_text(json.dumps(doc), encoding="utf-8")
    fresh.replace(folder / LIVE)
