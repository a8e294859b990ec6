"""Commands that begin where importing has ended.

Most of what a short command costs is the import of its modules, and the suite starts thousands
of commands. One process per tester imports them once and forks for every command: a process of
its own, with its own folder, environment and pipes, that ends as the interpreter ends. Nothing
of a test's runs before the fork, and there is one thread. Whatever is about the start itself
(options of Python, the environment it reads, what is imported) starts cold instead.
"""

import atexit
import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[2] / "src"
COMMANDS = ("inbox", "lint", "logs", "ls", "plan", "resume", "review", "rollback")
COMMANDS += ("run", "show", "verify", "watch")
READY = ("leadhand", "leadhand.cli.main", *(f"leadhand.cli.commands.{name}" for name in COMMANDS))
MESSAGE_BYTES_MAX = 1 << 18
COLD = ("PYTHON", "LC_", "LANG", "TZ")
"""What begins like one of these is read when Python starts."""

_servers: dict[int, socket.socket] = {}
_lock = threading.Lock()


def warm(env: dict[str, str]) -> bool:
    """Whether a command with these changes of the environment may begin from the fork."""
    return not any(name.startswith(COLD) for name in env)


def run(
    module: str,
    args: list[str],
    *,
    cwd: Path,
    env: dict[str, str],
    text: str | None = None,
    timeout_s: float = 180,
) -> tuple[int, str, str]:
    """Run a module to its end: its code (negative: the signal), what it wrote, and its errors."""
    wants = {"module": module, "args": args, "cwd": str(cwd), "env": env}
    pipes = [os.pipe() for _ in range(4)]
    (stdin, to), (out, stdout), (err, stderr), (fate, told) = pipes
    with _lock:
        socket.send_fds(_server(), [json.dumps(wants).encode()], [stdin, stdout, stderr, told])
    for fd in (stdin, stdout, stderr, told):
        os.close(fd)
    wrote: dict[int, str] = {}
    readers = [threading.Thread(target=_read, args=(fd, wrote), daemon=True) for fd in (out, err)]
    readers.append(threading.Thread(target=_write, args=(to, text or ""), daemon=True))
    for thread in readers:
        thread.start()
    with os.fdopen(fate, "rb", buffering=0) as story:
        pid, until = int(story.readline()), time.monotonic() + timeout_s
        for thread in readers:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired([module, *args], timeout_s)
        code = int(story.readline())
    return code, wrote[out], wrote[err]


def _read(fd: int, into: dict[int, str]) -> None:
    with os.fdopen(fd) as file:
        into[fd] = file.read()


def _write(fd: int, text: str) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(fd, "w") as file:
        file.write(text)


def _server() -> socket.socket:
    if (found := _servers.get(os.getpid())) is None:
        found, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        child = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=SOURCE,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()
        _servers[os.getpid()] = found
        atexit.register(lambda: (found.close(), child.wait()))
    return found


# --- in the process that forks ---


def serve(channel: socket.socket) -> dict[str, Any] | None:
    """Fork for each request; returns in the fork with what is wanted, else when nobody asks."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
    while True:
        data, fds, _flags, _from = socket.recv_fds(channel, MESSAGE_BYTES_MAX, 4)
        if not data:
            return None
        if os.fork() == 0:
            break
        for fd in fds:
            os.close(fd)
    channel.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        _wait(pid, fds)
    for at, fd in enumerate(fds[:3]):
        os.dup2(fd, at)
    os.closerange(3, 256)
    wants: dict[str, Any] = json.loads(data)
    return wants


def _wait(pid: int, fds: list[int]) -> None:
    """Say who the command is and how it ended, and be gone."""
    *theirs, told = fds
    for fd in (*theirs, 1, 2):
        os.close(fd)
    os.write(told, f"{pid}\n".encode())
    _pid, status = os.waitpid(pid, 0)
    os.write(told, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def become(module: str, args: list[str], cwd: str, env: dict[str, str]) -> None:
    """Be that command from here on."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:] = [*env.get("PYTHONPATH", "").split(os.pathsep), *sys.path[1:]]
    tempfile.tempdir = None
    time.tzset()
    sys.argv = [module, *args]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    for name in READY:
        importlib.import_module(name)
    if (wanted := serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        become(**wanted)
