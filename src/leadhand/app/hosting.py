"""Who drives the runs of a log now: a process of ours, or a Temporal server."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from leadhand.app.documents import Driver
from leadhand.errors import UsageError
from leadhand.temporal.cluster import require

if TYPE_CHECKING:
    from leadhand.app.reader import Reader
    from leadhand.core.state import State
    from leadhand.settings import Settings
    from leadhand.temporal.cluster import Cluster

LOOK_S = 2.0
"""A Temporal server is asked no more often than this."""
WORKERS_MAX = 20
"""So many workers, of steps that wait for a machine, are asked about."""


class Hosting:
    """Looks who drives runs; for one that is followed, as often as it is asked."""

    def __init__(self, settings: Settings, reader: Reader) -> None:
        self._settings = settings
        self._reader = reader
        self._client: Any = None
        self._seen = Driver()
        self._due = 0.0
        self.notes: list[str] = []
        """What keeps runs from going on, as far as a Temporal server knows."""

    async def driver(self, state: State | None = None) -> Driver:
        """Who drives this run, or all runs."""
        cluster = self._settings.temporal
        if cluster is None:
            return Driver.of(self._settings.store, self._reader)
        if time.monotonic() >= self._due:
            self._seen = await self._asked(cluster, state)
            self._due = time.monotonic() + LOOK_S
        return self._seen

    async def _asked(self, cluster: Cluster, state: State | None) -> Driver:
        name, prefix = f"temporal {cluster.address}", cluster.ways.prefix
        try:
            require()
        except UsageError as error:
            return self._unsure(name, error)
        from temporalio.service import RPCError

        from leadhand.temporal.client import connect
        from leadhand.temporal.looking import hosted_runs, missing, not_begun

        try:
            if self._client is None:
                self._client = await connect(cluster.address, cluster.namespace)
            run = state.run if state is not None else ""
            runs = await hosted_runs(self._client, prefix, run)
            self.notes = []
            if runs:
                waits = await not_begun(self._client, prefix, run) if run else set()
                self.notes = await missing(self._client, prefix, _workers_of(state, waits))
        except (UsageError, RPCError) as error:
            return self._unsure(name, error)
        return Driver(name, runs=runs)

    def _unsure(self, name: str, error: Exception) -> Driver:
        """The log can be read all the same; that nobody hosts a run would be a guess."""
        words = str(error).partition(" Fix: ")[0].rstrip(".")
        self.notes = [f"who hosts runs is not known: {words}"]
        return Driver(name, every=True)


def _workers_of(state: State | None, steps: set[str]) -> list[str]:
    """The workers that should carry out some steps."""
    known = state.steps if state is not None else {}
    return sorted({known[step].worker for step in steps if step in known})[:WORKERS_MAX]


def looked(
    settings: Settings, reader: Reader, state: State | None = None
) -> tuple[Driver, list[str]]:
    """Who drives this run or all of them, and what keeps them; where no loop runs."""
    hosting = Hosting(settings, reader)
    return asyncio.run(hosting.driver(state)), hosting.notes
