"""Limits for all processes of an attempt together: how many there are, and their memory.

`setrlimit` limits one process, and the number of processes of a user, which does not hold for
root. So the tree of processes below an agent, or below a command of the gate, is looked at once
a second, and what goes beyond is ended with the whole attempt. It is a look, not a wall: in
between a fast fork bomb can make some thousands more. Processes that leave the tree are counted
where the sandbox has a process namespace of its own (bubblewrap, and Landlock where the kernel
lets this user have one). A fleet that needs a wall runs in a cgroup of its own (`systemd-run
--user -p TasksMax=… -p MemoryMax=…`).
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

LOOK_S = 1.0
PAGE = os.sysconf("SC_PAGE_SIZE")
SHARE = 0.75
"""Of the machine's memory for one attempt."""


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """For an agent, or a command of the gate, with all that it starts; 0 is no limit."""

    processes: int = 2_000
    memory_bytes: int = int(SHARE * os.sysconf("SC_PHYS_PAGES") * PAGE)


class _Table:
    """All processes of the machine: parents and resident memory, read once for all readers."""

    def __init__(self) -> None:
        self._at = 0.0
        self._children: dict[int, list[int]] = {}
        self._pages: dict[int, int] = {}

    def below(self, pid: int) -> tuple[int, int]:
        """Return how many processes there are at and below one, and their resident bytes."""
        if time.monotonic() - self._at >= LOOK_S / 2:
            self._read()
        todo, count, pages = [pid], 0, 0
        seen: set[int] = set()
        while todo:
            each = todo.pop()
            if each in seen:
                continue
            seen.add(each)
            count += each in self._pages
            pages += self._pages.get(each, 0)
            todo += self._children.get(each, ())
        return count, pages * PAGE

    def _read(self) -> None:
        self._at, self._children, self._pages = time.monotonic(), {}, {}
        for name in os.listdir("/proc"):  # noqa: PTH208 - it is looked at often
            if not name.isdigit():
                continue
            try:
                stat = Path("/proc", name, "stat").read_bytes()
            except OSError:
                continue  # it has just ended
            fields = stat[stat.rfind(b")") + 2 :].split()
            pid, parent = int(name), int(fields[1])
            self._pages[pid] = int(fields[21])
            self._children.setdefault(parent, []).append(pid)


_TABLE = _Table()


async def excess(pid: int, limits: TreeLimits) -> str:
    """Wait until a process tree exceeds its limits, and return by what."""
    while True:
        count, memory = await asyncio.to_thread(_TABLE.below, pid)
        if limits.processes and count > limits.processes:
            return f"it has {count} processes, and {limits.processes} are the limit"
        if limits.memory_bytes and memory > limits.memory_bytes:
            most = limits.memory_bytes >> 20
            return f"its processes hold {memory >> 20} MB, and {most} MB are the limit"
        await asyncio.sleep(LOOK_S)
