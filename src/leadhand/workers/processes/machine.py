"""The local machine for workers: processes that die with their host.

The engine sees this through the `Machine` port: it clears what an earlier host left behind,
gives the workers the means to start programs, and ends all of it on closing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from leadhand.core.events import GuestProcess
from leadhand.workers.processes.capture import install_capture
from leadhand.workers.processes.leftovers import alive, kill_leftovers, own_start
from leadhand.workers.processes.runner import Processes

if TYPE_CHECKING:
    from leadhand.ports import Workers
    from leadhand.workers.functions.threads import Threads
    from leadhand.workers.registry import Registry


def this_process() -> GuestProcess:
    """Return this process as the log of a run names it."""
    start_time, boot_id = own_start()
    return GuestProcess(os.getpid(), start_time, boot_id, str(Path.cwd()), sys.executable)


def is_alive(process: GuestProcess) -> bool:
    """Return whether a process that a log names is still there."""
    return alive(process.pid, process.start_time, process.boot_id)


def mark_of(database_id: str, process: GuestProcess) -> str:
    """Return the marker of programs that a run's own process starts."""
    return f"{database_id}.{process.pid}-{process.start_time}"


class LocalMachine:
    """This machine, for the host of one database."""

    def __init__(
        self,
        database_id: str,
        own: GuestProcess | None = None,
        *,
        hidden: Callable[[], Sequence[Path]] = tuple,
    ) -> None:
        """Take the database id; `own` is this process if it drives a run beside the host.

        Programs it starts are then marked as its own, and stay when another process becomes the
        host. `hidden` lists the files that no program with a sandbox may see; it is called at every
        start.
        """
        self._base = database_id
        self._database_id = database_id if own is None else mark_of(database_id, own)
        self._own_hidden = hidden
        self._processes = Processes(self._database_id, hidden=self._hidden)
        self._threads: set[Threads] = set()
        self._registries: list[Registry] = []

    async def clear(self) -> None:
        """Kill commands of earlier hosts and see them dead: none may live on beside its retry."""
        await kill_leftovers(self._database_id)

    async def end(self, process: GuestProcess) -> None:
        """Kill the programs that a run's own process started, which is gone."""
        if not is_alive(process):
            await kill_leftovers(mark_of(self._base, process))

    def attach(self, workers: Workers) -> None:
        """Let workers start programs, and keep the output of functions out of our own."""
        install_capture()
        registry: Registry = workers  # type: ignore[assignment]
        registry.attach(self._processes)
        self._threads.add(registry.threads)
        if registry not in self._registries:
            self._registries.append(registry)

    def _hidden(self) -> list[Path]:
        """Return the files that the host and the settings of its workers hide."""
        return [*self._own_hidden(), *(path for each in self._registries for path in each.hidden)]

    def held(self) -> int:
        """Threads that were told to stop and still run."""
        return sum(threads.abandoned for threads in self._threads)

    async def close(self) -> None:
        """End everything that was started here, and let workers hang up first."""
        for registry in self._registries:
            await registry.detach()
        await self._processes.close()
