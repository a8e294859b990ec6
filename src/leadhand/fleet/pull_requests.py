"""Results for the user's repository: a branch that follows main, a pull request per epic.

The branch is given by a fetch in the user's repository (`fleet/repository/user_repository.py`):
nothing else of it is touched. A pull request is made by a command of the user's own, once for each
epic that succeeded, when the branch holds all of it. Each has a branch of its own (`branch_of`),
which stays where main was then: a code host makes one pull request of a branch.

    pull_request = ["gh", "pr", "create", "--head", "{branch}", "--title", "{title}",
                    "--body-file", "{body_file}"]

It is run in the user's repository with the user's own environment, since it needs what agents must
never have. Words of agents and planners reach it in the body's file, or as one argument. What was
made is written down, so that a restart makes none twice; epics that ended before the command was
configured get none. A command that fails is tried again, later and later.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING, Any

from leadhand.errors import LeadhandError
from leadhand.models.secret_patterns import scrub
from leadhand.workers.processes.leftovers import ProcessError
from leadhand.workers.processes.runner import SpawnError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from leadhand.core.state.model import State
    from leadhand.fleet.repository.hub import Hub
    from leadhand.workers.processes.runner import Processes


Doc = dict[str, Any]
BRANCH = "the branch of results"
RECORD = "the record of pull requests"
PLACES = ("base", "body_file", "branch", "commit", "repo", "run", "title")
TIME_S = 600.0
PAUSE_S = 30.0
PAUSES_MAX = 6
SAID_CHARS = 500
TITLE_CHARS = 200
COMMITS_SHOWN = 200


class Results:
    """Gives landed work to the user: a branch, and pull requests."""

    def __init__(
        self,
        hub: Hub,
        branch: str,
        command: Sequence[str],
        processes: Processes,
        folder: Path,
        note: Callable[..., None],
    ) -> None:
        self._hub, self.branch, self._command = hub, branch, tuple(command)
        self._processes, self._folder, self._note = processes, folder, note
        self._published, self._lock, self._offering = "", asyncio.Lock(), asyncio.Lock()
        self._path = folder / "pulls.json"
        self._made: dict[str, str] | None = None
        self._unwritten = False
        self._again: dict[str, tuple[int, float]] = {}
        self.refused: dict[str, str] = {}
        """What could not be given, and why."""

    async def give(self, ended: Callable[[], Iterable[State]]) -> None:
        """Bring the branch up to main, and make the pull requests that are due, one by one.

        A command may take its time: the branch can be given meanwhile.
        """
        async with self._offering:
            over = list(ended())  # before main is looked at: what ends meanwhile may not be on it
            if not await self.give_branch() or (made := self._made) is None:
                return
            for state in (each for each in over if each.run not in made):
                if not self._recorded():
                    return  # without the record of what was made, the next might be a second one
                await self._offer(state, made)
            self._recorded()

    async def give_branch(self) -> bool:
        """Bring the branch up to main, and no more; whether it is there."""
        async with self._lock:
            try:
                if self.branch and self._hub.main() != self._published:
                    self._published = await self._hub.publish(self.branch)
            except LeadhandError as error:  # the next look tries again
                self.refused[BRANCH] = str(error)
                return False
            self.refused.pop(BRANCH, None)
            return True

    # --- pull requests ---

    def begin(self, ended: Iterable[str]) -> None:
        """Read the record of pull requests; without one, epics that have ended already get none."""
        if not self._command:
            return
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            self._made = {str(run): str(said) for run, said in found.items()}
        except FileNotFoundError:
            self._made, self._unwritten = dict.fromkeys(ended, ""), True
            self._recorded()
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            fix = "Fix: mend it, or remove it; then epics that ended get no pull request"
            raise LeadhandError(f"{self._path}: cannot be read ({error}). {fix}") from None

    async def _offer(self, state: State, made: dict[str, str]) -> None:
        run = state.run
        tries, due = self._again.get(run, (0, 0.0))
        if time.monotonic() < due:
            return
        code, said = await self._run(state)
        self._note("pull request", run=run, code=code, said=said)
        name = f"the pull request of {run}"
        if code == 0:
            made[run], self._unwritten = said, True
            self.refused.pop(name, None)
            return
        pause = PAUSE_S * 2 ** min(tries, PAUSES_MAX)
        self._again[run] = (tries + 1, time.monotonic() + pause)
        self.refused[name] = f"{self._command[0]} ended with {code}: {said}"

    async def _run(self, state: State) -> tuple[int, str]:
        body, user = self._folder / "pulls" / f"{state.run}.md", self._hub.user
        branch = branch_of(self.branch, state.run)
        try:
            commit = await self._hub.publish(branch)
        except LeadhandError as error:
            return 128, f"its branch {branch} cannot be given: {error}"
        places = {
            "base": user.ref.removeprefix("refs/heads/"),
            "body_file": str(body),
            "branch": branch,
            "commit": commit,
            "repo": str(user.repo),
            "run": state.run,
            "title": title_of(state),
        }
        argv = [fill(word, places) for word in self._command]
        try:
            body.parent.mkdir(mode=0o700, exist_ok=True)
            body.write_text(body_of(state), encoding="utf-8")
            process = await self._processes.spawn(argv, cwd=user.repo, env=dict(os.environ))
        except (SpawnError, ProcessError, OSError) as error:
            return 127, str(error)
        try:
            async with asyncio.timeout(TIME_S):
                done = await process.wait()
        except TimeoutError:
            await process.end(2.0)
            return -1, f"not done after {TIME_S:g} s"
        except asyncio.CancelledError:
            await asyncio.shield(process.end(0))
            raise
        code = done.exit_code if done.exit_code is not None else 128 + (done.signal or 0)
        text = (done.stdout.data if code == 0 else done.stderr.data or done.stdout.data).decode(
            "utf-8", "backslashreplace"
        )
        return code, scrub(text.strip().rpartition("\n")[2])[-SAID_CHARS:]

    def _recorded(self) -> bool:
        """Return whether the record is on disk, after trying to write it."""
        if not self._unwritten:
            return True
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(self._made), encoding="utf-8")
            fresh.replace(self._path)
        except OSError as error:
            self.refused[RECORD] = f"{error}; no more are made until it can be written"
            return False
        self._unwritten = False
        self.refused.pop(RECORD, None)
        return True


def fill(word: str, places: Mapping[str, str]) -> str:
    """Return a word of the command with its placeholders filled.

    Raise `ValueError` for an unknown one.
    """
    try:
        return word.format_map(places)
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        known = ", ".join(PLACES)
        raise ValueError(
            f"has {word!r}, in which nothing fills {error}; there are {known}"
        ) from None


def branch_of(published: str, run: str) -> str:
    """Return the branch of an epic's pull request, beside the one that is published."""
    return f"{published}-{run}"


def title_of(state: State) -> str:
    """Return the epic's title, in one line that no program takes for an option."""
    goal: Any = state.started.goal if state.started is not None else ""
    text = str(goal.get("text", "")) if isinstance(goal, dict) else str(goal)
    return " ".join(text.split()).lstrip("- ")[:TITLE_CHARS] or state.run


def body_of(state: State) -> str:
    """Return the result of the epic as text for people."""
    found = state.ended.result if state.ended is not None else None
    result: Doc = found if isinstance(found, dict) else {}
    parts = [str(result.get("summary") or title_of(state))]
    if result.get("changelog"):
        parts.append(f"Changelog: {result['changelog']}")
    commits = list(result.get("commits") or ())[-COMMITS_SHOWN:]
    if commits:
        rows = [f"- {str(each.get('sha', ''))[:12]} {each.get('task', '')}" for each in commits]
        parts.append("Each passed the gate before it landed:\n\n" + "\n".join(rows))
    parts.append(f"Leadhand-Run: {state.run}")
    return scrub("\n\n".join(parts)) + "\n"
