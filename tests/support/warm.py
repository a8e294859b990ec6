"""Commands that begin where importing has ended.

Most of what a short command costs is the import of its modules, and the suite starts thousands
of commands. One process per tester imports them once and forks for every command: a process of
its own, with its own folder, environment and pipes, that ends as the interpreter ends. Nothing
of a test's runs before the fork, and there is one thread. Whatever is about the start itself
(options of Python, the environment it reads, what is imported) starts cold instead.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, TextIO

SOURCE = Path(__file__).resolve().parents[2] / "src"
PACKAGES = ("app", "audit", "cli", "codec", "core", "engine", "fleet", "models", "planners")
PACKAGES += ("connect",)
PACKAGES += ("server", "settings", "stores", "workers")
"""What commands import, all of it; `temporal` starts threads."""
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
    child = Started(module, args, cwd=cwd, env=env, text=text)
    try:
        out, err = child.communicate(timeout_s)
    finally:
        child.kill()
    return child.wait(), out, err


class Started:
    """A command that runs, with the part of `subprocess.Popen` that tests use.

    Args:
        module: the module, or the path of a script, that is run as `__main__` with `args`.
        text: what it reads on stdin; nothing when absent.
        stderr: a descriptor for its errors instead of a pipe.
    """

    def __init__(
        self,
        module: str,
        args: list[str],
        *,
        cwd: Path,
        env: dict[str, str],
        text: str | None = None,
        stderr: int | None = None,
    ) -> None:
        self.args = [module, *args]
        self.returncode: int | None = None
        wants = {"module": module, "args": args, "cwd": str(cwd), "env": env}
        (stdin, to), (out, stdout), (fate, told) = (os.pipe() for _ in range(3))
        err, errors = os.pipe() if stderr is None else (None, os.dup(stderr))
        with _lock:
            fds = [stdin, stdout, errors, told]
            socket.send_fds(_server(), [json.dumps(wants).encode()], fds)
        for fd in fds:
            os.close(fd)
        self.stdout = os.fdopen(out)
        self.stderr = None if err is None else os.fdopen(err)
        self._fate = os.fdopen(fate, "rb", buffering=0)
        self._writer = threading.Thread(target=_write, args=(to, text or ""), daemon=True)
        self._writer.start()
        self.pid = int(self._fate.readline())

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended; TimeoutExpired after so many seconds."""
        if (code := self._ended(timeout)) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._fate], [], [], timeout)[0]:
            with self._fate:
                self.returncode = int(self._fate.readline())
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return what it wrote and its errors, once it has ended."""
        until = None if timeout is None else time.monotonic() + timeout
        wrote: dict[str, str] = {}
        files = {"out": self.stdout, "err": self.stderr}
        readers = [
            threading.Thread(target=_read, args=(file, name, wrote), daemon=True)
            for name, file in files.items()
            if file is not None and not file.closed
        ]
        for thread in readers:
            thread.start()
        for thread in (*readers, self._writer):
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
            if thread.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(None if until is None else max(0.0, until - time.monotonic()))
        return wrote.get("out", ""), wrote.get("err", "")


def _read(file: TextIO, name: str, into: dict[str, str]) -> None:
    with file:
        into[name] = file.read()


def _write(fd: int, text: str) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(fd, "w") as file:
        file.write(text)


def _server() -> socket.socket:
    if (found := _servers.get(os.getpid())) is None:
        found, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        child = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=SOURCE.parent,
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


def prepare() -> None:
    """Import what commands may need, and keep it out of collections, which would copy it."""
    for package in PACKAGES:
        found = importlib.import_module(f"leadhand.{package}")
        paths = getattr(found, "__path__", ())
        for module in pkgutil.walk_packages(paths, f"leadhand.{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    gc.freeze()


def become(module: str, args: list[str], cwd: str, env: dict[str, str]) -> None:
    """Be that command from here on."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:] = [*env.get("PYTHONPATH", "").split(os.pathsep), *sys.path[1:]]
    tempfile.tempdir = None
    time.tzset()
    sys.argv = [module, *args]
    if module.endswith(".py"):
        sys.path.insert(0, str(Path(module).parent))
        runpy.run_path(module, run_name="__main__")
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    prepare()
    if (wanted := serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        become(**wanted)
