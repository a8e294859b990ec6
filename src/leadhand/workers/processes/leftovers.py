"""Leftover processes of an earlier host: found by marker or record, killed, seen dead.

The supervisor makes leftovers unlikely: it kills its commands when the host dies, and they die
when it does. This is for the day on which both were killed at once. A process is identified in one
of two ways, never by its pid alone, since pids are used again:

* by **marker**: ``LEADHAND_SPAWN=<database id>:...`` in its environment as of its last exec, or
  being a descendant of such a process, or of a supervisor (``LEADHAND_SUPERVISOR=<database id>:``);
* by **record**: pid, start time (field 22 of /proc/PID/stat, in ticks since boot) and boot id.

Supervisors go last: as long as one lives, its strays are its descendants and so are found, however
well they hide their marker. It goes all the same, lest it serve one more request of the dead host.

Limits: a daemon that emptied its environment *and* lost its supervisor cannot be told from any
other process; only a sandbox with a process namespace closes that gap. Another user's processes are
not looked for. Without /proc (macOS) nothing is found by marker, and ``alive`` can only tell that
the pid is in use.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

SPAWN, SUPERVISE = "LEADHAND_SPAWN", "LEADHAND_SUPERVISOR"
GONE_S_MAX = 10.0
PROC = Path("/proc/self").is_dir()


class ProcessError(Exception):
    """A command could not be started, followed or ended."""


class StillAlive(ProcessError):
    """Processes that were to be killed and did not go."""

    def __init__(self, pids: Iterable[int]) -> None:
        self.pids = tuple(sorted(pids))
        super().__init__(f"to be killed but still alive: {', '.join(map(str, self.pids))}")


@dataclass(frozen=True, slots=True)
class _Seen:
    """One line of /proc: a process that runs, as opposed to one that is only not reaped yet."""

    pid: int
    parent: int
    group: int
    start_time: int


def alive(pid: int, start_time: int, boot_id: str) -> bool:
    """Return whether that very process still runs; without /proc, whether its pid is in use."""
    if not PROC:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            return True
        return False
    seen = _look(pid)
    return seen is not None and seen.start_time == start_time and _boot_id() == boot_id


def own_start() -> tuple[int, str]:
    """Return this process's start time and the machine's boot id; 0 and "" without /proc."""
    seen = _look(os.getpid()) if PROC else None
    return (seen.start_time, _boot_id()) if seen is not None else (0, "")


async def kill_leftovers(marker_prefix: str) -> int:
    """Kill all commands, and supervisors, of the host with this database id; how many processes.

    For a host that starts, before its first ``spawn``: its own commands carry the same prefix.
    """
    if not marker_prefix:
        raise ValueError("an empty prefix would mean everyone's processes")
    if not await asyncio.to_thread(_any_marked, marker_prefix):
        return 0
    count = await _until_gone(lambda: _marked(SPAWN, marker_prefix))
    await _until_gone(lambda: _marked(SUPERVISE, marker_prefix, below=False))
    return count + await _until_gone(lambda: _marked(SPAWN, marker_prefix))


async def _until_gone(find: Callable[[], list[_Seen]]) -> int:
    """Kill until nothing is found. A search takes milliseconds, so it runs in a thread."""

    def kill_found() -> set[tuple[int, int]]:
        found = find()
        for seen in found:
            _kill(seen)
        return {(seen.pid, seen.start_time) for seen in found}

    killed: set[tuple[int, int]] = set()
    deadline = time.monotonic() + GONE_S_MAX
    while found := await asyncio.to_thread(kill_found):
        killed |= found
        if time.monotonic() > deadline:
            raise StillAlive(pid for pid, _ in found)
        await asyncio.sleep(0.005)
    return len(killed)


def _marked(name: str, prefix: str, *, below: bool = True) -> list[_Seen]:
    """Processes that carry the marker, and all below them and below the supervisors."""
    everyone = _everyone()
    own, pid = set(), os.getpid()
    while pid in everyone:  # never this process, nor its ancestors
        own.add(pid)
        pid = everyone[pid].parent
    chosen = {pid for pid in everyone if _carries(pid, name, prefix)} - own
    if not below:
        return [everyone[pid] for pid in chosen]
    children: dict[int, list[int]] = {}
    for seen in everyone.values():
        children.setdefault(seen.parent, []).append(seen.pid)
    todo = [*chosen, *({pid for pid in everyone if _carries(pid, SUPERVISE, prefix)} - own)]
    while todo:
        fresh = set(children.get(todo.pop(), ())) - chosen - own
        chosen |= fresh
        todo += fresh
    return [everyone[pid] for pid in chosen]


def _any_marked(prefix: str) -> bool:
    """Return whether there is anything to kill: most earlier hosts ended in order."""
    return any(_carries(pid, SPAWN, prefix) or _carries(pid, SUPERVISE, prefix) for pid in _pids())


def _carries(pid: int, name: str, prefix: str) -> bool:
    try:
        if Path(f"/proc/{pid}").stat().st_uid != os.geteuid():
            return False
        environ = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
        return os.fsencode(f"\0{name}={prefix}:") in environ
    except OSError:
        return False


def _kill(seen: _Seen) -> None:
    """Opened first and looked at afterwards, a pidfd cannot mean another process."""
    pin = -1
    with contextlib.suppress(OSError):  # an old kernel has none, nor has a process that is gone
        pin = os.pidfd_open(seen.pid)
    try:
        now = _look(seen.pid)
        if now is None or now.start_time != seen.start_time:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if pin >= 0:
                signal.pidfd_send_signal(pin, signal.SIGKILL)
            else:
                os.kill(seen.pid, signal.SIGKILL)
    finally:
        if pin >= 0:
            os.close(pin)


def _pids() -> list[int]:
    names = [path.name for path in Path("/proc").iterdir()] if PROC else []
    return [int(name) for name in names if name.isdigit()]


def _everyone() -> dict[int, _Seen]:
    return {pid: seen for pid in _pids() if (seen := _look(pid)) is not None}


def _look(pid: int) -> _Seen | None:
    """Field numbers as in proc(5), counted from the third: the second may hold anything."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    state, parent, group, threads, start_time = (fields[number - 3] for number in (3, 4, 5, 20, 22))
    if state in b"ZX" and int(threads) <= 1:
        return None
    return _Seen(pid, int(parent), int(group), int(start_time))


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
