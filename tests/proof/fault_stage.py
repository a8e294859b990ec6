"""What every fault is played on: a project folder, the real command line, and a world outside.

The oracle asks the world: lines that commands append to a file, requests that reached an endpoint,
commits of a repository, processes that are alive. From Leadhand it takes what a caller gets: exit
codes, open questions, and `leadhand verify --all`. Of the log it reads only what is told about an
episode (strategies, attempts), never what is judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from leadhand.app.reader import Reader
from leadhand.core import events as ev
from leadhand.errors import LeadhandError
from leadhand.testing.endpoint import Endpoint, Reply
from leadhand.testing.endpoint.request import Request
from tests.support.cli import Done, Folder

ACT = """\
grep -qx "$1" effects 2>/dev/null && echo "$1" >> twice
echo "$1" >> effects
"""
SETTINGS = """\
[project]
{workers}
actor = "ann"
[policy]
backoff = "0.1 s"
{policy}
[workers.act]
command = ["/bin/sh", "act.sh", "{{value}}"]
probe = ["grep", "-qx", "{{value}}", "effects"]
effects = ["world"]
risk = "low"
"""


class Episode(NamedTuple):
    """One injection of one fault with one seed, as the oracle saw it."""

    fault: str
    seed: int
    seen: str
    problems: tuple[str, ...]
    """What is wrong with the end state or beyond a bound."""
    claimed: bool
    """Whether Leadhand said that the work has succeeded."""
    right: bool
    """Whether the world is as it should be at the end."""
    people: int
    """Questions to a person that were open, or actions that one had to take."""
    verified: bool
    attempts: int
    recovery_s: float | None
    seconds: float

    @property
    def recovered(self) -> bool:
        """Whether it came right without a person, within bounds, and the log verifies."""
        done = self.claimed and self.right and self.verified
        return done and not self.people and not self.problems

    @property
    def false_success(self) -> bool:
        """Whether success was claimed and the world is not as it should be."""
        return self.claimed and not self.right

    @property
    def escalated(self) -> bool:
        """Whether one person was asked once, nothing was claimed, and nothing is lost."""
        asked = self.people == 1 and not self.claimed
        return asked and self.right and self.verified and not self.problems


class Stage(Folder):
    """A project folder, and what the oracle has found so far."""

    def __init__(self, path: Path, draw: random.Random) -> None:
        super().__init__(path)
        self.draw = draw
        self.problems: list[str] = []
        self.claimed = False
        self.right = False
        self.people = 0
        self.verified: bool | None = None
        self.began: float | None = None
        self.ended: float | None = None
        self.told = ""
        self.store = path / ".leadhand" / "leadhand.db"
        self.write("act.sh", ACT)
        self.settings()

    def settings(self, more: str = "", workers: str = "", policy: str = "") -> None:
        """Write leadhand.toml, and workers.py if there are some."""
        if workers:
            self.write("workers.py", workers)
        named = 'workers = ["workers.py"]' if workers else ""
        text = SETTINGS.format(workers=named, policy=policy)
        self.write("leadhand.toml", f"{text}\n{more}")

    def fault(self) -> None:
        """Remember the moment of the first fault."""
        if self.began is None:
            self.began = time.time()

    def go(self, *args: str, limit_s: float = 180, **env: str) -> Done:
        """Run `leadhand run` to its end, and take down what it claims."""
        return self.settle(self.run("run", *args, "--quiet", timeout_s=limit_s, **env))

    def settle(self, done: Done) -> Done:
        """Take down what a command claims, and what people are asked."""
        self.claimed, self.ended = done.code == 0, time.time()
        self.last = done
        asked = self.run("inbox", "--json")
        self.people += len(asked.doc) if asked.code == 0 else 0
        return done

    def expect(self, holds: object, words: str) -> None:
        """Note a problem unless something holds."""
        if not holds:
            self.problems.append(words)

    def effects(self, *wanted: object) -> None:
        """Judge the world: exactly these effects, each once, in any order."""
        path = self.path / "effects"
        found = Counter(path.read_text().splitlines() if path.exists() else [])
        self.right = found == Counter(map(str, wanted))
        if not self.right:
            self.problems.append(f"effects {dict(found)}, wanted {list(wanted)}")

    def verify(self) -> bool:
        """Ask `leadhand verify --all` about the log."""
        self.verified = self.run("verify", "--all").code == 0
        return self.verified

    def close(self) -> None:
        """Leave no host behind."""
        self.end_host()

    def first_fault(self) -> float | None:
        """Return the moment of the first fault: marked here, or written by a worker."""
        file = self.path / "faults"
        written = [float(word) for word in file.read_text().split()] if file.exists() else []
        marks = [*written, *([self.began] if self.began is not None else [])]
        return min(marks, default=None)

    def log(self) -> tuple[list[str], int]:
        """Return the strategies that were decided, and how many attempts began."""
        strategies: list[str] = []
        attempts = 0
        with contextlib.suppress(LeadhandError):
            reader = Reader(self.store)
            try:
                for row in reader.runs():
                    for _entry, event in reader.events(row.run):
                        attempts += isinstance(event, ev.AttemptStarted)
                        if isinstance(event, ev.RecoveryDecided):
                            strategies.append(event.strategy)
            finally:
                reader.store.close_reader()
        return strategies, attempts


def shortly(words: list[str]) -> str:
    """Return words with their repetitions counted: `retry ×2, reroute`."""
    found: list[list[Any]] = []
    for word in words:
        if found and found[-1][0] == word:
            found[-1][1] += 1
        else:
            found.append([word, 1])
    return ", ".join(word if count == 1 else f"{word} ×{count}" for word, count in found)


def episode(
    fault: str, seed: int, path: Path, play: Callable[[Stage], None], *, tries: int = 1
) -> Episode:
    """Play one fault with one seed; an error of the play itself is a problem of the episode."""
    stage = Stage(path, random.Random(f"{fault} {seed}"))
    began = time.monotonic()
    try:
        play(stage)
        if stage.verified is None:
            stage.verify()
    except Exception as error:  # the campaign goes on, and the episode has failed
        stage.problems.append(f"{type(error).__name__}: {str(error)[:300]}")
    finally:
        stage.close()
    strategies, attempts = stage.log()
    first = stage.first_fault()
    taken = stage.ended - first if first is not None and stage.ended is not None else None
    return Episode(
        fault=fault,
        seed=seed,
        seen="; ".join(filter(None, (shortly(strategies), stage.told))),
        problems=tuple(stage.problems),
        claimed=stage.claimed,
        right=stage.right,
        people=stage.people,
        verified=bool(stage.verified),
        attempts=attempts,
        recovery_s=None if taken is None else round(max(0.0, taken), 3),
        seconds=round(time.monotonic() - began, 2),
    )


class Model:
    """A scripted endpoint in a thread, which remembers when it was asked."""

    def __init__(self, answer: Callable[[Request, int], Reply]) -> None:
        self._answer = answer
        self.times: list[float] = []
        self.bodies: list[Any] = []
        self.url = ""
        self._over: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        ready = threading.Event()

        def reply(request: Request) -> Reply:
            self.times.append(time.time())
            self.bodies.append(request.body)
            return self._answer(request, len(self.times))

        async def serve() -> None:
            self._over, self._loop = asyncio.Event(), asyncio.get_running_loop()
            async with Endpoint(reply) as endpoint:
                self.url = endpoint.url
                ready.set()
                await self._over.wait()

        self._thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        self._thread.start()
        ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(30)


@contextlib.contextmanager
def killed_at(stage: Stage, condition: Callable[[], Any], what: str, *args: str) -> Iterator[None]:
    """Start a command and kill its process once a condition holds; then the body goes on."""
    with stage.start(*args) as child:
        stage.until(condition, what)
        stage.fault()
        child.kill()
        child.wait()
        yield
