"""Running commands: argument lists in, exit status and output back. Never a shell.

``Processes`` starts commands and hands back a ``Process`` to wait for or to end. All forking is
done by one supervisor process per host (``supervisor.py``, whose laws stand at its top): when the
host dies in whatever way, it kills all that it started.

Laws
    1. ``wait`` and ``end`` return when every process of the command is gone, daemons included. If
       that cannot be had they raise ``StillAlive`` with the pids.
    2. Should the supervisor die, the outcome of its commands is unknown: ``SupervisorLost``, which
       is raised when they have been seen dead. The next ``spawn`` starts a new supervisor.
    3. The environment is exactly what is given, plus the marker.
    4. Memory is bounded, whatever a command prints (``Stream``), and the event loop is never
       blocked: pipes and socket do not block, /proc is searched in a thread. There is no thread
       per command.

Three safeguards, since any one process can be killed: the supervisor (the host dies), the death
signal on each command (the supervisor dies), and the marker
``LEADHAND_SPAWN=<database id>:<nonce>:<number>`` that every process of a command inherits, by which
``kill_leftovers`` finds after a restart what is left when both died.

Limits: umask, resource limits and the like are those the host had when its supervisor started. A
program that changes its user on exec loses the death signal. Without /proc (macOS) start_time is 0
and boot_id empty, and daemons are not found (``supervisor.py``, ``leftovers.py``).
"""

import array
import asyncio
import errno
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Self

from leadhand.workers.processes.leftovers import (
    SPAWN,
    SUPERVISE,
    ProcessError,
    StillAlive,
    kill_leftovers,
)

# Streams of a command: read at full speed, in bounded memory.
#
# Of each stream the first quarter and the last three quarters of its limit are kept (an error is
# mostly at the end, what was asked at the beginning); the rest is read, counted and dropped. A pipe
# is never left unread, since a command that cannot write would stand still. All streams of a host
# share one buffer to read into, so an idle command costs no buffer.


READ_BYTES = 256 << 10
DRAIN_READS_MAX = 64

OnOutput = Callable[[str, bytes], None]
"""Gets "stdout" or "stderr" and each chunk as it arrives; once it fails it is not called again."""


@dataclass(frozen=True, slots=True)
class Captured:
    """The kept part of a stream: its first ``head`` bytes and, after a gap if any, its last."""

    data: bytes
    total: int
    truncated: bool
    head: int


class Stream:
    """The reading end of one pipe, read by the running event loop."""

    def __init__(
        self, name: str, fd: int, limit: int, on_output: OnOutput | None, buffer: bytearray
    ) -> None:
        self._name, self._fd, self._limit = name, fd, limit
        self._on_output, self._buffer = on_output, buffer
        self._head, self._tail, self._total = bytearray(), bytearray(), 0
        self._tail_max = limit - limit // 4
        self._loop = asyncio.get_running_loop()
        if fd >= 0:  # else the caller reads the stream itself
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self.read)

    def read(self) -> bool:
        """Read what is there now; return False if nothing is."""
        try:
            count = os.readv(self._fd, [self._buffer])
        except BlockingIOError:
            return False
        if count == 0:
            self.close()
            return False
        chunk = memoryview(self._buffer)[:count]
        self._keep(chunk)
        if self._on_output is not None:
            try:
                self._on_output(self._name, bytes(chunk))
            except Exception as error:  # noqa: BLE001 — a stranger's code, not the command's fault
                self._on_output = None
                context = {"message": "on_output failed and is dropped", "exception": error}
                self._loop.call_exception_handler(context)
        return True

    def _keep(self, chunk: memoryview) -> None:
        self._total += len(chunk)
        room = self._limit // 4 - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[max(room, len(chunk) - self._tail_max) :]
        if len(self._tail) > 2 * self._tail_max:
            del self._tail[: len(self._tail) - self._tail_max]

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def finish(self) -> Captured:
        """Empty the pipe without waiting: its writers are dead, or are no part of the command."""
        for _ in range(DRAIN_READS_MAX):
            if self._fd < 0 or not self.read():
                break
        self.close()
        tail = self._tail[max(0, len(self._tail) - self._tail_max) :]
        data = bytes(self._head + tail)
        return Captured(data, self._total, self._total > self._limit, len(self._head))


# One supervisor as the host sees it: its process, the socket to it, and its jobs.
#
# A ``Supervision`` lives from the start of a supervisor to its burial and is never used again; what
# comes after it is another one. Losing the supervisor, for whatever reason, has one path
# (``lose``): hang up (a living supervisor kills everything then), see it dead, kill by marker what
# its commands may have left, and only then tell those who wait. So nothing lives on beside a retry.
#
# Wire: frames of a 4-byte big-endian length and JSON; texts carry bytes as latin-1.
#     out  {op: spawn, id, argv, cwd, env, marker} with three descriptors (stdin, stdout, stderr)
#          {op: signal, id, sig}      {op: end, id, grace_s}
#     in   {id, pid, start_time, boot_id}   or   {id, error: fork|setup|cwd|program, errno}
#          {id, exit: code or -signal, survivors: [pid]}
#
# Errors
#     ProcessError
#     ├── SpawnError       the command was not started; errno says why
#     ├── SupervisorLost   it may have run, and does no more
#     └── StillAlive       processes that could not be killed


PROGRAM = Path(__file__).with_name("supervisor.py")
KEPT_ENV = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", SPAWN)
"""What the supervisor itself inherits: what Python may need to start, and an outer marker."""
REQUEST_BYTES_MAX = 16 << 20
LEAVE_S_MAX = 35.0
STAGES = {"fork": "cannot fork for", "cwd": "cannot enter the working directory of"}


class SpawnError(ProcessError):
    """The command was not started: no such program, not executable, no such directory, no room."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(number, message)
        self.errno, self.message = number, message

    def __str__(self) -> str:
        return self.message


class SupervisorLost(ProcessError):
    """The supervisor is gone; its commands were killed, how far they had come is unknown."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended: by an exit code or by a signal, never both."""

    exit_code: int | None
    signal: int | None
    stdout: Captured
    stderr: Captured


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """The name of a process for all time: a pid alone is used again."""

    pid: int
    start_time: int
    boot_id: str


class CommandJob:
    """One command as the host knows it: its two streams and the two answers to come."""

    def __init__(self, number: int, program: str, stdout: Stream, stderr: Stream) -> None:
        self.number, self.program = number, program
        self.stdout, self.stderr = stdout, stderr
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[StartedProcess] = loop.create_future()
        self.finished: asyncio.Future[Finished] = loop.create_future()
        for future in (self.started, self.finished):  # no caller has to await either
            future.add_done_callback(lambda done: done.cancelled() or done.exception())

    def hear(self, message: dict[str, Any]) -> None:
        if "pid" in message:
            started = StartedProcess(message["pid"], message["start_time"], message["boot_id"])
            self.started.set_result(started)
        elif "error" in message:
            number, stage = message["errno"], STAGES.get(message["error"], "cannot run")
            self.fail(SpawnError(number, f"{stage} {self.program!r}: {os.strerror(number)}"))
        elif message["survivors"]:
            self.fail(StillAlive(message["survivors"]))
        else:
            code = message["exit"]
            exit_code, number = (code, None) if code >= 0 else (None, -code)
            stdout, stderr = self.stdout.finish(), self.stderr.finish()
            self.finished.set_result(Finished(exit_code, number, stdout, stderr))

    def fail(self, error: ProcessError) -> None:
        self.stdout.close()
        self.stderr.close()
        for future in (self.started, self.finished):
            if not future.done():
                future.set_exception(error)


class Supervision:
    """A running supervisor. Made inside the event loop that is to hear it."""

    def __init__(self, marker_prefix: str) -> None:
        self.token = f"{marker_prefix}:{secrets.token_hex(6)}"
        """The start of every marker of its commands."""
        self.lost: asyncio.Task[None] | None = None
        """Once it is given up: its burial."""
        self.null = os.open(os.devnull, os.O_RDONLY)
        self.buffer = bytearray(READ_BYTES)
        self._jobs: dict[int, CommandJob] = {}
        self._inbox = bytearray()
        self._outbox: deque[tuple[memoryview, list[int]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        kept = {name: os.environ[name] for name in KEPT_ENV if name in os.environ}
        with theirs:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", PROGRAM, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd="/",
                env={**kept, SUPERVISE: f"{self.token}:"},
            )
        self._socket.settimeout(0)
        self._loop.add_reader(self._socket, self._receive)

    def start(self, job: CommandJob, request: dict[str, Any], descriptors: Sequence[int]) -> None:
        """Queue a spawn; the descriptors are ours to close from here on."""
        frame = _frame({"op": "spawn", "id": job.number, **request})
        if len(frame) > REQUEST_BYTES_MAX:
            self.close_all(descriptors)
            job.fail(SpawnError(errno.E2BIG, f"{len(frame)} bytes to start {job.program!r} with"))
            return
        self._jobs[job.number] = job
        self._send(frame, descriptors)

    def end(self, job: CommandJob, grace_s: float) -> None:
        self._send(_frame({"op": "end", "id": job.number, "grace_s": grace_s}))

    def signal(self, job: CommandJob, number: int) -> None:
        self._send(_frame({"op": "signal", "id": job.number, "sig": number}))

    def _send(self, frame: bytes, descriptors: Sequence[int] = ()) -> None:
        if self.lost is not None:
            self.close_all(descriptors)
            return
        self._outbox.append((memoryview(frame), list(descriptors)))
        if len(self._outbox) == 1:
            self._flush()

    def _flush(self) -> None:
        while self._outbox and self.lost is None:
            data, descriptors = self._outbox[0]
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
            try:
                sent = self._socket.sendmsg([data], [rights] if descriptors else [])
            except BlockingIOError:
                self._loop.add_writer(self._socket, self._flush)
                return
            except OSError as error:
                if error.errno == errno.ETOOMANYREFS:  # too many descriptors under way at once
                    self._loop.call_later(0.01, self._flush)
                else:
                    self.lose("its socket is broken")
                return
            self.close_all(descriptors)
            self._outbox.popleft()
            if sent < len(data):
                self._outbox.appendleft((data[sent:], []))
        if self.lost is None:
            self._loop.remove_writer(self._socket)

    def _receive(self) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.lose("it died")
            return
        self._inbox += data
        while len(self._inbox) >= (end := 4 + int.from_bytes(self._inbox[:4], "big")):
            message = json.loads(self._inbox[4:end])
            del self._inbox[:end]
            job = self._jobs[message["id"]]
            if "pid" not in message:
                del self._jobs[message["id"]]
            job.hear(message)

    def lose(self, reason: str) -> asyncio.Task[None]:
        """Hang up and bury it; the burial is to be waited for."""
        if self.lost is None:
            self.lost = self._loop.create_task(self._bury(reason))
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            for _, descriptors in self._outbox:
                self.close_all(descriptors)
            self._outbox.clear()
        return self.lost

    async def _bury(self, reason: str) -> None:
        deadline = time.monotonic() + LEAVE_S_MAX
        while self._supervisor.poll() is None:
            if time.monotonic() > deadline:
                self._supervisor.kill()
            await asyncio.sleep(0.002)
        try:
            await kill_leftovers(self.token)
        except StillAlive as error:
            reason = f"{reason}; {error}"
        finally:
            os.close(self.null)
            for job in self._jobs.values():
                job.fail(SupervisorLost(f"lost the supervisor of {job.program!r}: {reason}"))
            self._jobs.clear()

    def close_all(self, descriptors: Sequence[int]) -> None:
        for fd in descriptors:
            if fd != self.null:
                os.close(fd)


def _frame(message: dict[str, Any]) -> bytes:
    body = json.dumps(message).encode()
    return len(body).to_bytes(4, "big") + body


OUTPUT_BYTES_MAX = 1 << 20


class Process:
    """A command that was started; ``pid``, ``start_time`` and ``boot_id`` name it for all time."""

    def __init__(self, supervision: Supervision, job: CommandJob, started: StartedProcess) -> None:
        self._supervision, self._job = supervision, job
        self.pid = started.pid
        self.start_time = started.start_time
        self.boot_id = started.boot_id

    async def wait(self) -> Finished:
        """Wait until nothing of it is left. Cancelling the wait leaves the command running."""
        return await asyncio.shield(self._job.finished)

    async def end(self, grace_s: float) -> Finished:
        """TERM to its group, KILL to all of it after the grace; returns when it is gone."""
        self._supervision.end(self._job, grace_s)
        return await self.wait()

    def send_signal(self, number: int) -> None:
        """Send a signal to its whole process group; to none once it is over."""
        self._supervision.signal(self._job, int(number))


class Processes:
    """The commands of one host, whose database id is the prefix of their markers."""

    def __init__(
        self,
        marker_prefix: str,
        *,
        strict: bool = False,
        hidden: Callable[[], Sequence[Path]] = tuple,
    ) -> None:
        """Take the marker's prefix; `hidden` lists the files that sandboxed programs may not see.

        `strict`: a process that may belong to several commands ends with the first of them.
        """
        if not marker_prefix or "\0" in marker_prefix:
            raise ValueError("the marker prefix is empty or holds a NUL")
        self._prefix, self._strict = marker_prefix, strict
        self._hidden = hidden
        self._supervision: Supervision | None = None
        self._count = 0
        self._closed = False

    @property
    def hidden(self) -> tuple[Path, ...]:
        """Return the existing files that no program with a sandbox may see."""
        return tuple(self._hidden())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Kill what still runs and see it gone; waiting callers get ``SupervisorLost``."""
        self._closed = True
        if self._supervision is not None:
            await asyncio.shield(self._supervision.lose("it was closed"))

    async def spawn(  # noqa: PLR0913 - all that a command is started with
        self,
        argv: Sequence[str],
        *,
        cwd: str | os.PathLike[str],
        env: Mapping[str, str],
        stdin: bytes | None = None,
        ends: tuple[int, int] | None = None,
        stdout_limit: int = OUTPUT_BYTES_MAX,
        stderr_limit: int = OUTPUT_BYTES_MAX,
        on_output: OnOutput | None = None,
        private: bool = False,
    ) -> Process:
        """Start a command; a program without a slash is looked for in the PATH of ``env``.

        ``ends`` are descriptors for its stdin and stdout, for a caller that talks with it; they are
        closed here in any case. With ``private`` its stdout is a socket: unlike a pipe, no other
        process can open it by its path in /proc. If this is cancelled the command is killed, and
        gone when the cancellation comes through.
        """
        try:
            _check(argv, env)
            supervision = await self._supervised()
        except BaseException:
            for end in ends or ():
                os.close(end)
            raise
        self._count += 1
        marker = f"{supervision.token}:{self._count}"
        request = {
            "argv": [_text(word) for word in argv],
            "cwd": _text(Path.cwd() / cwd),
            "env": {_text(k): _text(v) for k, v in {**env, SPAWN: marker}.items()},
            "marker": _text(marker),
            "strict": self._strict,
        }
        near, far = _open_streams(supervision, stdin, ends, private=private)
        stdout = Stream("stdout", near[0], stdout_limit, on_output, supervision.buffer)
        stderr = Stream("stderr", near[1], stderr_limit, on_output, supervision.buffer)
        job = CommandJob(self._count, argv[0], stdout, stderr)
        supervision.start(job, request, far)
        try:
            started = await asyncio.shield(job.started)
        except asyncio.CancelledError:
            supervision.end(job, 0)
            await asyncio.wait([job.finished])
            raise
        return Process(supervision, job, started)

    async def _supervised(self) -> Supervision:
        """Return the present supervisor, or a new one once nothing is left of the last."""
        while not self._closed:
            present = self._supervision
            if present is None:
                self._supervision = Supervision(self._prefix)
            elif present.lost is None:
                return present
            else:
                await asyncio.shield(present.lost)
                if self._supervision is present:
                    self._supervision = None
        raise ProcessError("no command is started any more: closed")


def _text(value: str | os.PathLike[str]) -> str:
    """Return bytes as a text, independent of the locale on either side."""
    return os.fsencode(value).decode("latin-1")


def _check(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Raise for arguments and variables that the system would cut off or misread."""
    if not argv or not argv[0]:
        raise SpawnError(errno.EINVAL, "there is no program in the argument list")
    if any("\0" in word for word in (*argv, *env, *env.values())):
        raise SpawnError(errno.EINVAL, f"an argument or variable of {argv[0]!r} holds a NUL")
    if any(not name or "=" in name for name in env):
        raise SpawnError(errno.EINVAL, f"a variable of {argv[0]!r} has no name, or one with '='")


def _open_streams(
    supervision: Supervision,
    stdin: bytes | None,
    ends: tuple[int, int] | None,
    *,
    private: bool = False,
) -> tuple[list[int], list[int]]:
    """Return our ends (stdout, stderr) and the command's (stdin, stdout, stderr).

    Given input is a file, not a pipe: no task has to feed it, and a command may leave it unread.
    """
    near: list[int] = [] if ends is None else [-1]
    far: list[int] = [supervision.null] if ends is None else [*ends]
    try:
        if stdin is not None:
            memory = hasattr(os, "memfd_create")
            with os.fdopen(os.memfd_create("stdin"), "w+b") if memory else TemporaryFile() as file:
                file.write(stdin)
                file.seek(0)
                far[0] = os.dup(file.fileno())
        while len(near) < 2:
            ours, theirs = _socket_ends() if private and not near else os.pipe()
            near.append(ours)
            far.append(theirs)
    except OSError as error:
        supervision.close_all([end for end in (*near, *far) if end >= 0])
        raise SpawnError(error.errno or 0, f"no room for a command: {error.strerror}") from error
    return near, far


def _socket_ends() -> tuple[int, int]:
    """Return a stream from the second descriptor to the first that has no path to be opened by."""
    ours, theirs = socket.socketpair()
    ours.shutdown(socket.SHUT_WR)
    return ours.detach(), theirs.detach()
