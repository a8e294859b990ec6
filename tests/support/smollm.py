"""SmolLM2, a real language model of 135 million parameters, served on this machine for the tests.

    def test_it_answers(smollm): ...      # smollm is a base address, such as http://127.0.0.1:4711

It speaks OpenAI Chat Completions, and also Anthropic Messages and OpenAI Responses. Its tokens,
its streams, its counts and its constrained decoding are real; its judgement is no better than
chance. Asked with temperature 0 it says the same every time.

The environment is made once, from its lock. The server is one for all workers of a test run:
whoever needs it first starts it, whoever lets go of it last ends it.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.need import need

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-model" / "bin" / "python"
MODEL = "smollm2"

# Together less than the limit after which a test counts as hanging.
SET_UP_SECONDS_MAX = 480
START_SECONDS_MAX = 90
END_SECONDS_MAX = 10


class NoModel(Exception):
    """The model cannot be had here, and why."""


@pytest.fixture(scope="module")
def smollm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the model's server."""
    folder = tmp_path_factory.getbasetemp()
    watched = os.getpid()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        # All workers of a run have folders side by side, and one parent.
        folder, watched = folder.parent, os.getppid()
    try:
        url = hold(folder, watched)
    except NoModel as why:
        need(condition=False, why=f"a real small model: {why}")
        raise
    yield url
    let_go(folder)


def hold(folder: Path, watched: int) -> str:
    """Start the server unless somebody did, and be one of those who need it."""
    lease, failed = folder / "smollm.json", folder / "smollm.failed"
    with _locked(folder):
        if failed.exists():
            raise NoModel(failed.read_text())
        try:
            if not lease.exists():
                _set_up()
                _start(folder, lease, watched)
        except NoModel as why:
            # The others need not wait for the same.
            failed.write_text(str(why))
            raise
        _count(folder, 1)
        return str(json.loads(lease.read_text())["url"])


def let_go(folder: Path) -> None:
    """Need it no more; the last one ends it."""
    lease = folder / "smollm.json"
    with _locked(folder):
        if _count(folder, -1) or not lease.exists():
            return
        known = json.loads(lease.read_text())
        lease.unlink()
        if not within(END_SECONDS_MAX, lambda: not answers(known["url"])):
            os.kill(known["pid"], signal.SIGKILL)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "smollm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _count(folder: Path, change: int) -> int:
    file = folder / "smollm.holders"
    holders = int(file.read_text() if file.exists() else 0) + change
    file.write_text(str(holders))
    return holders


def _set_up() -> None:
    command = [sys.executable, ROOT / "scripts" / "environment.py", "model"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SET_UP_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoModel(f"its environment was not ready in {SET_UP_SECONDS_MAX} s") from None
    if done.returncode:
        raise NoModel(f"its environment cannot be made: {done.stderr.strip()[-500:]}")


def _start(folder: Path, lease: Path, watched: int) -> None:
    log = folder / "smollm.log"
    script = ROOT / "tests" / "support" / "smollm_server.py"
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    # No Popen: whoever ends the server may be another process than the one that started it.
    pid = os.posix_spawn(
        PYTHON,
        [str(PYTHON), str(script), str(lease), str(watched)],
        {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), write, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )

    def ready() -> bool:
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            raise NoModel(f"its server ended: {log.read_text().strip()[-500:]}")
        return lease.exists() and answers(json.loads(lease.read_text())["url"])

    if not within(START_SECONDS_MAX, ready):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise NoModel(f"its server did not answer in {START_SECONDS_MAX} s")


def answers(url: str) -> bool:
    """Whether a server is there and has its model."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    """Whether something holds, sooner or later."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
