"""What workers need of the machine they run on: processes that die with their host.

The engine sees this through the `Machine` port: it clears what an earlier host left behind,
gives the workers the means to start programs, and ends all of it on closing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.workers.capture import install_capture
from leadhand.workers.leftovers import kill_leftovers
from leadhand.workers.processes import Processes

if TYPE_CHECKING:
    from leadhand.ports import Workers
    from leadhand.workers.registry import Registry
    from leadhand.workers.threads import Threads


class LocalMachine:
    """This machine, for the host of one database."""

    def __init__(self, database_id: str) -> None:
        self._database_id = database_id
        self._processes = Processes(database_id)
        self._threads: set[Threads] = set()
        self._registries: list[Registry] = []

    async def clear(self) -> None:
        """No command of an earlier host may live on beside its retry: kill it and see it dead."""
        await kill_leftovers(self._database_id)

    def attach(self, workers: Workers) -> None:
        """Let workers start programs, and keep what functions print out of our own output."""
        install_capture()
        registry: Registry = workers  # type: ignore[assignment]
        registry.attach(self._processes)
        self._threads.add(registry.threads)
        if registry not in self._registries:
            self._registries.append(registry)

    def held(self) -> int:
        """Threads that were told to stop and still run."""
        return sum(threads.abandoned for threads in self._threads)

    async def close(self) -> None:
        """End everything that was started here, and let workers hang up first."""
        for registry in self._registries:
            await registry.detach()
        await self._processes.close()
