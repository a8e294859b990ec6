"""The driver of a log's runs, as a Temporal server knows it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from leadhand.app.documents import Driver
from leadhand.errors import UsageError
from leadhand.temporal.cluster import own_names, require

if TYPE_CHECKING:
    from leadhand.app.reader import Reader
    from leadhand.core.state.model import State
    from leadhand.temporal.cluster import Cluster


LOOK_S = 2.0
"""The minimum interval of queries to a Temporal server."""
PARKED_MAX = 20
"""The number of runs queried for their position when all are listed: each may be replayed."""
WORKERS_MAX = 20
"""The number of workers queried, of steps that wait for a machine."""


class TemporalStatus:
    """The status of runs; for a followed run, queried repeatedly."""

    def __init__(self, cluster: Cluster, reader: Reader) -> None:
        self._cluster = cluster
        self._reader = reader
        self._client: Any = None
        self._seen = Driver()
        self._due = 0.0
        self.notes: list[str] = []
        """Reasons why runs do not continue, as far as the server knows."""

    async def driver(self, state: State | None = None) -> Driver:
        """Return the driver of this run, or of all runs."""
        if time.monotonic() >= self._due:
            self._seen = await self._asked(state)
            self._due = time.monotonic() + LOOK_S
        return self._seen

    async def _asked(self, state: State | None) -> Driver:
        name, prefix = f"temporal {self._cluster.address}", self._prefix()
        try:
            require()
        except UsageError as error:
            return self._unsure(name, error)
        from temporalio.service import RPCError

        from leadhand.temporal.cluster_status import hosted_runs, missing, not_begun
        from leadhand.temporal.host import connect

        try:
            if self._client is None:
                self._client = await connect(self._cluster)
            run = state.run if state is not None else ""
            ends = self._ends(run)
            runs = await hosted_runs(self._client, prefix, run)
            self.notes = []
            if runs:
                waits = await not_begun(self._client, prefix, run) if run else set()
                self.notes = await missing(self._client, prefix, _workers_of(state, waits))
            if not self.notes:
                self.notes = await self._parked(prefix, {r: ends[r] for r in runs if r in ends})
        except (UsageError, RPCError) as error:
            return self._unsure(name, error)
        return Driver(name, runs=runs)

    def _prefix(self) -> str:
        """Return the prefix of this log's queues and workflows."""
        return own_names(self._cluster, self._reader.store).ways.prefix

    def _ends(self, run: str) -> dict[str, tuple[int, str]]:
        """Return the ends of the logs of runs: read before their workflows are queried."""
        headers = [self._reader.store.header(run)] if run else self._reader.open_runs()
        return {each.run: (each.seq, each.hash.hex()) for each in headers if each is not None}

    async def _parked(self, prefix: str, ends: dict[str, tuple[int, str]]) -> list[str]:
        """Return runs whose log differs from their workflow's: they accept no command and stop."""
        from leadhand.temporal.cluster_status import parked_runs, way_out

        some = {run: ends[run] for run in sorted(ends)[-PARKED_MAX:]}
        found = await parked_runs(self._client, prefix, some)
        return [f"run {run} is parked: {why}. {way_out(run)}" for run, why in found.items()]

    async def forks(self, run: str = "") -> dict[str, str]:
        """Return the open runs whose log differs from what their workflow wrote, and the problem.

        Raise `UsageError` or `Unreachable` if the server cannot tell.
        """
        require()
        from temporalio.service import RPCError

        from leadhand.temporal.cluster_status import hosted_runs, parked_runs
        from leadhand.temporal.host import connect
        from leadhand.temporal.run import unanswered

        prefix, ends = self._prefix(), self._ends(run)
        try:
            client = await connect(self._cluster)
            runs = await hosted_runs(client, prefix, run)
            return await parked_runs(
                client, prefix, {r: ends[r] for r in sorted(runs) if r in ends}
            )
        except RPCError as error:
            raise unanswered(error) from None

    def _unsure(self, name: str, error: Exception) -> Driver:
        """Return an unknown driver: it would be a guess that a run has no host."""
        words = str(error).partition(" Fix: ")[0].rstrip(".")
        self.notes = [f"the hosts of runs are unknown: {words}"]
        return Driver(name, every=True)


def _workers_of(state: State | None, steps: set[str]) -> list[str]:
    """Return the workers that should carry out some steps."""
    known = state.steps if state is not None else {}
    return sorted({known[step].worker for step in steps if step in known})[:WORKERS_MAX]
