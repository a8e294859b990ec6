"""The real command line in a process of its own, away from the settings of whoever tests."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import warm

SOURCE = Path(__file__).resolve().parents[2] / "src"
PROGRAM = [sys.executable, "-P", "-m", "leadhand.cli"]

WORKERS = '''\
"""Workers for tests of the command line."""

import asyncio
import subprocess
from pathlib import Path

from leadhand import Context, Permanent, worker

HERE = Path(__file__).parent


@worker(name="say")
async def say(text: str = "hello") -> str:
    return text


@worker(name="loud")
def loud() -> dict[str, int]:
    print("noise of a worker")
    subprocess.run(["sh", "-c", "echo noise of a child; echo more >&2"], check=True)
    return {"answer": 42}


@worker(name="nap", idempotent=True)
async def nap(seconds: float = 0.5) -> float:
    with (HERE / "naps.txt").open("a") as file:
        file.write("nap\\n")
    await asyncio.sleep(seconds)
    return seconds


@worker(name="once")
async def once(seconds: float = 0.0) -> str:
    with (HERE / "once.txt").open("a") as file:
        file.write("once\\n")
    await asyncio.sleep(seconds)
    return "done"


@worker(name="broken")
async def broken(message: str = "it is broken") -> None:
    raise Permanent(message)


@worker(name="unspeakable")
async def unspeakable() -> object:
    return {1, 2, 3}


@worker(name="danger", risk="high")
async def danger() -> str:
    return "survived"


@worker(name="tests", checks={"all_pass": lambda data: data["failed"] == 0})
async def tests(failed: int = 0) -> dict[str, int]:
    return {"failed": failed}


@worker(name="big")
async def big(size: int) -> str:
    return "x" * size
'''


@dataclass
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def doc(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    def __str__(self) -> str:
        return f"exit {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The test's environment without anything that would configure Leadhand."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LEADHAND_")}
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "PYTHONDONTWRITEBYTECODE"):
        kept.pop(name, None)
    home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".config")}
    home |= {"XDG_STATE_HOME": str(folder / ".state"), "LEADHAND_TRUST": str(folder.resolve())}
    return {**kept, **home, "PYTHONPATH": str(SOURCE), "COLUMNS": "100", **more}


class Folder:
    """A project folder with commands to run in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, content: str | dict[str, Any]) -> Path:
        """A file in the folder; a document is written as JSON."""
        text = content if isinstance(content, str) else json.dumps(content)
        (self.path / name).write_text(text)
        return self.path / name

    def plan(self, *steps: dict[str, Any], name: str = "plan.json", **more: Any) -> str:
        """A plan in a file; gives back its name."""
        self.write(name, {"goal": "a test", "steps": list(steps), **more})
        return name

    def run(self, *args: str, text: str | None = None, timeout_s: float = 180, **env: str) -> Done:
        """Run one command to its end."""
        if warm.warm(env):
            given = {"cwd": self.path, "env": environment(self.path, **env), "text": text}
            return Done(*warm.run("leadhand.cli", [*args], **given, timeout_s=timeout_s))
        done = subprocess.run(
            [*PROGRAM, *args],
            cwd=self.path,
            env=environment(self.path, **env),
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def start(self, *args: str, **env: str) -> Iterator[warm.Started | subprocess.Popen[str]]:
        """Start a command; it is killed if it is still there at the end."""
        child = begin(self.path, *args, **env)
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()
            child.communicate()

    def end_host(self) -> None:
        """Kill the host that holds the project's database, if one of this folder still does."""
        with suppress(OSError, ValueError):
            pid = json.loads((self.path / ".leadhand" / "leadhand.db.lock").read_text())["pid"]
            if pid != os.getpid() and Path(f"/proc/{pid}/cwd").samefile(self.path):
                os.kill(pid, signal.SIGKILL)

    def latest(self) -> dict[str, Any]:
        """The latest run, as `ls --json` knows it."""
        return self.run("ls", "--json").doc[0]

    def until(self, condition: Callable[[], Any], what: str, limit_s: float = 120) -> Any:
        """Wait for something to become true."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            if found := condition():
                return found
            time.sleep(0.05)
        raise AssertionError(f"waited {limit_s}s for {what}")

    def lines(self, name: str) -> int:
        """How many lines a file has; none when it is not there."""
        path = self.path / name
        return len(path.read_text().splitlines()) if path.exists() else 0


def begin(
    folder: Path, *args: str, stderr: int | None = None, **env: str
) -> warm.Started | subprocess.Popen[str]:
    """Start a command and leave it running, its errors in a pipe or in an open file."""
    if warm.warm(env):
        known = environment(folder, **env)
        return warm.Started("leadhand.cli", [*args], cwd=folder, env=known, stderr=stderr)
    return subprocess.Popen(
        [*PROGRAM, *args],
        cwd=folder,
        env=environment(folder, **env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if stderr is None else stderr,
        text=True,
    )


def finished(child: warm.Started | subprocess.Popen[str], timeout_s: float = 180) -> Done:
    """Wait for a started command."""
    out, err = child.communicate(timeout=timeout_s)
    return Done(child.returncode, out, err)
