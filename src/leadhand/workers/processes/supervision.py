"""One supervisor seen from the host: its process, the socket to it, the jobs it has been given.

A ``Supervision`` lives from the start of a supervisor to its burial and is never used again; what
comes after it is another one. Losing the supervisor, for whatever reason, has one path (``lose``):
hang up (a living supervisor kills everything then), see it dead, kill by marker what its commands
may have left, and only then tell those who wait. So nothing lives on beside a retry.

Wire: frames of a 4-byte big-endian length and JSON; texts carry bytes as latin-1.
    out  {op: spawn, id, argv, cwd, env, marker} with three descriptors (stdin, stdout, stderr)
         {op: signal, id, sig}      {op: end, id, grace_s}
    in   {id, pid, start_time, boot_id}   or   {id, error: fork|setup|cwd|program, errno}
         {id, exit: code or -signal, survivors: [pid]}

Errors
    ProcessError
    ├── SpawnError       the command was not started; errno says why
    ├── SupervisorLost   it may have run, and does no more
    └── StillAlive       processes that could not be killed
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadhand.workers.processes.leftovers import (
    SPAWN,
    SUPERVISE,
    ProcessError,
    StillAlive,
    kill_leftovers,
)
from leadhand.workers.processes.streams import READ_BYTES, Captured, Stream

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
    """What the host knows of one command: its two streams and the two answers to come."""

    def __init__(self, number: int, program: str, stdout: Stream, stderr: Stream) -> None:
        self.number, self.program = number, program
        self.stdout, self.stderr = stdout, stderr
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[StartedProcess] = loop.create_future()
        self.finished: asyncio.Future[Finished] = loop.create_future()
        for future in (self.started, self.finished):  # nobody has to wait for either
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
