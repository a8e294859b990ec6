"""Real commands for tests: started, watched and looked for in /proc."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ENV = {"PATH": os.environ.get("PATH", os.defpath)}
PYTHON = [sys.executable, "-I", "-S", "-c"]
SLEEP = ["sleep", "1000"]
TEST_S_MAX = 60

# Leaves a daemon by the book (fork, setsid, fork), then goes on for a while itself.
DAEMON = """
import os, sys, time
path, bare, linger_s = sys.argv[1], sys.argv[2] == "bare", float(sys.argv[3])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(path + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(path + ".new", path)
        if bare:
            os.execve("/bin/sleep", ["sleep", "1000"], {})
        time.sleep(1000)
    os._exit(0)
while not os.path.exists(path):
    time.sleep(0.002)
pid = open(path).read()
while bare and open(f"/proc/{pid}/environ", "rb").read():
    time.sleep(0.002)
print("ready", flush=True)
time.sleep(linger_s)
"""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """No test may hang, whatever hangs in it."""

    def too_long(*_):
        raise TimeoutError(f"more than {TEST_S_MAX} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, TEST_S_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def running(pid):
    """There, and not merely unreaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def family(*pids):
    """These processes and all below them."""
    below = [int(word) for pid in pids for word in children_of(pid)]
    return [*pids, *(family(*below) if below else [])]


def children_of(pid):
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


async def until(condition, within_s=2.0):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        await asyncio.sleep(0.005)


async def run(processes, argv, **options):
    process = await processes.spawn(argv, **{"cwd": "/", "env": ENV, **options})
    return await process.wait()


async def start_ready(processes, argv, **options):
    """Started, and past its first words."""
    ready = asyncio.Event()
    options = {"cwd": "/", "env": ENV, "on_output": lambda *_: ready.set(), **options}
    process = await processes.spawn(argv, **options)
    await ready.wait()
    return process


async def start_daemon(processes, path, *, bare=False, linger_s=1000.0):
    argv = [*PYTHON, DAEMON, str(path), "bare" if bare else "plain", str(linger_s)]
    process = await start_ready(processes, argv)
    return process, int(path.read_text())
