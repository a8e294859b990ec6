"""Tasks that a person has taken over from their agents, and gives back.

    taken ─► given to main ─► landed: the person's commits passed guard, gate and train
      ▲ │         └─ refused, or sent back by a reviewer: taken again, with the reason
      │ └──► given to an agent, which goes on and is told the person's message

Each is one file in the fleet's folder, on the disk before it is confirmed, so a fleet that is
killed knows it still. The attempt of a task waits meanwhile: no try is used up, and paths and place
are free for others. A person's commits come as a bundle of git beside the file, so that nothing
depends on the folder they were made in.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from leadhand.core.calendar import iso
from leadhand.errors import Conflict
from leadhand.stores.sqlite.connection import sync_folder

if TYPE_CHECKING:
    from pathlib import Path


FOLDER = "taken"
AGENT, MAIN, ASKED = "agent", "main", "asked"
SENT_BACK = "a protected change was not approved, or sent back: see the answer, and give it again"
REFUSED_CHARS = 4_000


class TakenTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task in a person's hands."""

    run: str
    task: str
    by: str
    at: str
    """When it was taken, in ISO 8601."""
    ready: bool = False
    """Whether the agent has ended and its work is saved."""
    base: str = ""
    """The commit of main that the agent began with."""
    work: str = ""
    """The commit with the agent's work; empty: there is none."""
    coder: str = ""
    session: str = ""
    """The agent's conversation."""
    home: str = ""
    """The agent's private home, which holds the conversation."""
    given: str = ""
    """Whom it was given to: `main` or `agent`; `asked`: an approver must see the person's commits;
    empty: the person has it."""
    head: str = ""
    """The last of the person's commits."""
    author: str = ""
    message: str = ""
    refused: str = ""
    """Why the person's commits could not land, when they were given last."""
    repository: str = ""
    """The repository of the task; empty: the main one."""

    @property
    def name(self) -> str:
        """Return the task as RUN/TASK."""
        return f"{self.run}/{self.task}"


class TakenOver(Exception):
    """A person took the task: its agent was ended, or has not begun."""

    def __init__(self, session: str = "", cost: float = 0.0) -> None:
        super().__init__("a person took the task over")
        self.session, self.cost = session, cost


class TakenTasks:
    """The tasks that people have taken; `folder` is the fleet's own, None: none is kept."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder / FOLDER if folder is not None else None
        self._tasks = {each.name: each for each in read_taken(folder)} if folder else {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def of(self, run: str, task: str) -> TakenTask | None:
        """Return how a task is taken; None if it is not."""
        return self._tasks.get(f"{run}/{task}")

    def all(self) -> list[TakenTask]:
        """Return all tasks that are taken."""
        return list(self._tasks.values())

    def take(
        self, run: str, task: str, by: str, *, ready: bool, base: str = "", repository: str = ""
    ) -> TakenTask:
        """Record that a person takes a task. Raise `Conflict` if another one has it."""
        before = self.of(run, task)
        if before is not None and before.by != by:
            raise Conflict(f"{before.name} is taken by {before.by} since {before.at}")
        if before is not None and not before.given:
            return before
        at = iso(time.time_ns() // 1000)
        made = TakenTask(run=run, task=task, by=by, at=at, ready=ready, base=base)
        return self.put(msgspec.structs.replace(made, repository=repository))

    def change(self, run: str, task: str, **more: Any) -> TakenTask:
        """Record something more of a task that is taken."""
        found = self.of(run, task)
        if found is None:
            raise Conflict(f"{run}/{task} is not taken. Fix: leadhand fleet take {task}")
        return self.put(msgspec.structs.replace(found, **more))

    def put(self, taken: TakenTask) -> TakenTask:
        """Write it; return once it is on the disk."""
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            path = file_of(self._folder.parent, taken.run, taken.task)
            fresh = path.with_suffix(".new")
            with fresh.open("wb") as file:
                file.write(msgspec.json.encode(taken))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
            sync_folder(self._folder)
        self._tasks[taken.name] = taken
        self._wake(taken.name)
        return taken

    def release(self, run: str, task: str) -> None:
        """Forget that a task is taken: it has landed, or an agent goes on with it."""
        name = f"{run}/{task}"
        if self._tasks.pop(name, None) is not None and self._folder is not None:
            path = file_of(self._folder.parent, run, task)
            for each in (path, path.with_suffix(".bundle")):
                with contextlib.suppress(FileNotFoundError):
                    each.unlink()
            sync_folder(self._folder)
        self._wake(name)

    def bundle_of(self, taken: TakenTask) -> Path | None:
        """Return the file with the person's commits."""
        if self._folder is None:
            return None
        return file_of(self._folder.parent, taken.run, taken.task).with_suffix(".bundle")

    def changed(self, run: str, task: str) -> asyncio.Future[None]:
        """Return a future that ends with the next change of how a task is taken."""
        made = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(f"{run}/{task}", set())
        waiting.add(made)
        made.add_done_callback(waiting.discard)
        return made

    def _wake(self, name: str) -> None:
        for each in list(self._waiting.pop(name, ())):
            if not each.done():
                each.set_result(None)


def file_of(folder: Path, run: str, task: str) -> Path:
    """Return the file of a taken task in a fleet's folder."""
    return folder / FOLDER / f"{quote(run, safe='')}%2F{quote(task, safe='')}.json"


def read_taken(folder: Path) -> list[TakenTask]:
    """Return the tasks of a fleet's folder that are taken, oldest first."""
    found = []
    for path in (folder / FOLDER).glob("*.json"):
        with contextlib.suppress(OSError, msgspec.MsgspecError, json.JSONDecodeError):
            found.append(msgspec.json.decode(path.read_bytes(), type=TakenTask))
    return sorted(found, key=lambda each: each.at)
