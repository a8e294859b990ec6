"""Whoever holds the trial: starts the engine, does what agents ask for, and watches.

An agent cannot kill the engine or fill the disk from inside its sandbox. It asks by a file in its
slot, which is all it can write, and here it is done: SIGKILL to the engine, which is then started
again; a limit on the size of files for the engine's process, which then cannot write; a commit on
the user's branch by somebody who is no agent. The answer is a file beside the question.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from leadhand.errors import LeadhandError
from leadhand.fleet.repository.git import Git, GitFailed
from leadhand.fleet.trial.scenario import git_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leadhand.fleet.trial.scenario import Places


LOOK_S = 0.1
FULL_S = 1.5
"""How long the disk is full."""
PATIENCE_S = 20.0
"""An engine that stops rather than guess what was written does so within this time after."""
TAKEN_S = 240.0
"""How long a person's commit may take to be on main, behind everybody else's."""
LINE_BYTES = 16 << 20
DEATHS_MAX = 3

Told = dict[str, Any]


class Desk:
    """Runs one trial to its end."""

    def __init__(self, places: Places, told: Callable[[Told], None] | None) -> None:
        self._places, self._told = places, told
        self._engine: asyncio.subprocess.Process | None = None
        self._blow, self._pen = asyncio.Lock(), asyncio.Lock()
        self._wanted = False
        self._seen: dict[Path, int] = {}
        self._struck, self._full_until = 0, 0.0
        self.asked: set[tuple[str, int]] = set()
        """Attempts that wanted something done, and when it was done were in the middle of it."""
        self.void: set[tuple[str, int]] = set()
        """Attempts for which it could not be done in time, so that nothing went wrong."""
        self.fulls = 0
        self.words: deque[str] = deque(maxlen=100)
        """The last that the engine said on standard error."""
        self.memory: list[float] = []
        """Of the engine, in MB, each second."""

    async def run(self) -> float:
        """Until the engine says that all is done; how long it took."""
        began = time.monotonic()
        looking = asyncio.get_running_loop().create_task(self._look())
        try:
            await self._lives()
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            if self._engine is not None and self._engine.returncode is None:
                self._engine.kill()
                await self._engine.wait()
        return time.monotonic() - began

    async def _lives(self) -> None:
        deaths = 0
        while True:
            # Not to a file: its disk may be full just when it has something to say.
            pipe = asyncio.subprocess.PIPE
            self._engine = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "leadhand.fleet.trial.engine", str(self._places.root),
                stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, limit=LINE_BYTES,
            )  # fmt: skip
            await asyncio.gather(self._listen(self._engine), self._hear(self._engine))
            code = await self._engine.wait()
            if code == 0:
                return
            expected = self._wanted or time.monotonic() < self._full_until
            deaths, self._wanted = 0 if expected else deaths + 1, False
            if deaths > DEATHS_MAX:
                words = "".join(self.words)
                raise LeadhandError(f"the engine of the trial ends by itself ({code}):\n{words}")

    async def _listen(self, engine: asyncio.subprocess.Process) -> None:
        if engine.stdout is None:
            return
        async for line in engine.stdout:
            with contextlib.suppress(ValueError):
                status = json.loads(line)
                self.memory.append(_memory_mb(engine.pid))
                if self._told is not None:
                    self._told(status)

    async def _hear(self, engine: asyncio.subprocess.Process) -> None:
        if engine.stderr is not None:
            async for line in engine.stderr:
                self.words.append(line.decode(errors="replace"))

    # --- what agents ask for ---------------------------------------------------------------

    async def _look(self) -> None:
        doing: set[asyncio.Task[None]] = set()
        while True:
            for asked in self._places.fleet.glob("slots/*/.git/deed.json"):
                with contextlib.suppress(OSError, ValueError):
                    when = asked.stat().st_mtime_ns
                    if self._seen.get(asked) == when:
                        continue
                    wanted = json.loads(asked.read_text())
                    self._seen[asked] = when
                    task = asyncio.create_task(self._do(asked, wanted, when))
                    doing.add(task)
                    task.add_done_callback(doing.discard)
            await asyncio.sleep(LOOK_S)

    async def _do(self, asked: Path, wanted: dict[str, Any], when: int) -> None:
        attempt = (wanted["task"], wanted["attempt"])
        self.asked.add(attempt)
        if wanted["deed"] == "engine killed":
            await self._kill(when)
        elif wanted["deed"] == "disk full":
            await self._fill_disk()
        elif not await self._commit(*attempt):
            self.void.add(attempt)
        with contextlib.suppress(OSError):
            asked.with_name("deed.done").touch()

    async def _kill(self, when: int) -> None:
        async with self._blow:
            if when < self._struck or self._engine is None:
                return  # an earlier blow was this one's too
            engine, self._wanted, self._struck = self._engine, True, time.time_ns()
            with contextlib.suppress(ProcessLookupError):
                engine.send_signal(signal.SIGKILL)
            await engine.wait()

    async def _fill_disk(self) -> None:
        async with self._blow:
            engine = self._engine
            if engine is None or engine.returncode is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                self.fulls += 1
                self._full_until = time.monotonic() + FULL_S + PATIENCE_S
                before = resource.prlimit(engine.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(engine.pid, resource.RLIMIT_FSIZE, (0, before[1]))
                await asyncio.sleep(FULL_S)
                resource.prlimit(engine.pid, resource.RLIMIT_FSIZE, before)

    async def _commit(self, task: str, attempt: int) -> bool:
        """Somebody writes the file that the task is about; whether it came to main in time."""
        async with self._pen:
            sha = await self._written(task, attempt)
        hub = Git(self._places.fleet / "hub" / "hub.git", self._places.root / "gitconfig")
        until = time.monotonic() + TAKEN_S
        while time.monotonic() < until:
            with contextlib.suppress(GitFailed):
                said = await hub("merge-base", "--is-ancestor", sha, "main", codes=(0, 1, 128))
                if said.code == 0:
                    return True
            await asyncio.sleep(LOOK_S * 3)
        return False

    async def _written(self, task: str, attempt: int) -> str:
        git = git_of(self._places)
        text = f'"""By a person, for {task}, in spite of attempt {attempt}."""\n'.encode()
        blob = (await git("hash-object", "-w", "--stdin", stdin=text)).text
        index = self._places.root / "pen"
        await git("read-tree", "main", index=index)
        entry = f"100644,{blob},modules/{task}.py"
        await git("update-index", "--add", "--cacheinfo", entry, index=index)
        tree = (await git("write-tree", index=index)).text
        words = f"Somebody writes {task} too"
        sha = (await git("commit-tree", tree, "-p", "main", "-m", words)).text
        await git("update-ref", "refs/heads/main", sha)
        return sha


def _memory_mb(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123 - not a user's
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, ValueError, IndexError):
        return 0.0
