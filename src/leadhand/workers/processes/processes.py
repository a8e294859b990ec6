"""Running commands: argument lists in, how they ended and what they printed out. Never a shell.

``Processes`` starts commands and hands back a ``Process`` to wait for or to end. All forking is
done by one supervisor process per host (``supervisor.py``, whose laws stand at its top): when the
host dies in whatever way, it kills all that it started.

Laws
    1. ``wait`` and ``end`` return when every process of the command is gone, daemons included. If
       that cannot be had they raise ``StillAlive`` with the pids.
    2. Should the supervisor die, the outcome of its commands is unknown: ``SupervisorLost``, which
       is raised when they have been seen dead. The next ``spawn`` starts a new supervisor.
    3. The environment is exactly what is given, plus the marker.
    4. Memory is bounded, whatever a command prints (``streams.py``), and the event loop is never
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

import asyncio
import errno
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Self

from leadhand.workers.processes.leftovers import (
    SPAWN,
    ProcessError,
)
from leadhand.workers.processes.streams import OnOutput, Stream
from leadhand.workers.processes.supervision import (
    CommandJob,
    Finished,
    SpawnError,
    StartedProcess,
    Supervision,
)

OUTPUT_BYTES_MAX = 1 << 20


class Process:
    """A command that was started; ``pid``, ``start_time`` and ``boot_id`` name it for all time."""

    def __init__(self, supervision: Supervision, job: CommandJob, started: StartedProcess) -> None:
        self._supervision, self._job = supervision, job
        self.pid = started.pid
        self.start_time = started.start_time
        self.boot_id = started.boot_id

    async def wait(self) -> Finished:
        """Until nothing of it is left. Being cancelled here leaves the command running."""
        return await asyncio.shield(self._job.finished)

    async def end(self, grace_s: float) -> Finished:
        """TERM to its group, KILL to all of it after the grace; returns when it is gone."""
        self._supervision.end(self._job, grace_s)
        return await self.wait()

    def send_signal(self, number: int) -> None:
        """To its whole process group; to nobody once it is over."""
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
        """`strict`: a process whose command cannot be told ends with the first it may be of.

        `hidden` lists what no program with a sandbox may see: the host's database, token, keys.
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
        """What no program with a sandbox may see, as it is there now."""
        return tuple(self._hidden())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Kill what still runs and see it gone; those who wait for it get ``SupervisorLost``."""
        self._closed = True
        if self._supervision is not None:
            await asyncio.shield(self._supervision.lose("it was closed"))

    async def spawn(
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
    ) -> Process:
        """Start a command; a program without a slash is looked for in the PATH of ``env``.

        ``ends`` are descriptors it gets as its stdin and stdout, for whoever wants to talk with it;
        they are closed here, whatever happens.
        If this is cancelled the command is killed, and gone when the cancellation comes through.
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
        near, far = _open_streams(supervision, stdin, ends)
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
        """The present supervisor, or a new one once nothing is left of the last."""
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
    """Bytes in the clothes of a text, whatever the locale on either side."""
    return os.fsencode(value).decode("latin-1")


def _check(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """What the system would cut off or misread, said in words."""
    if not argv or not argv[0]:
        raise SpawnError(errno.EINVAL, "there is no program in the argument list")
    if any("\0" in word for word in (*argv, *env, *env.values())):
        raise SpawnError(errno.EINVAL, f"an argument or variable of {argv[0]!r} holds a NUL")
    if any(not name or "=" in name for name in env):
        raise SpawnError(errno.EINVAL, f"a variable of {argv[0]!r} has no name, or one with '='")


def _open_streams(
    supervision: Supervision, stdin: bytes | None, ends: tuple[int, int] | None
) -> tuple[list[int], list[int]]:
    """Our ends (stdout, stderr) and the command's (stdin, stdout, stderr).

    Given input is a file, not a pipe: nobody has to feed it, and a command may leave it unread.
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
            ours, theirs = os.pipe()
            near.append(ours)
            far.append(theirs)
    except OSError as error:
        supervision.close_all([end for end in (*near, *far) if end >= 0])
        raise SpawnError(error.errno or 0, f"no room for a command: {error.strerror}") from error
    return near, far
