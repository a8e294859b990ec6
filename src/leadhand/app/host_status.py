"""The driver of a log's runs: a process of ours, or a service elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from leadhand.app.documents import Driver
from leadhand.app.hosting_service import hosting_service

if TYPE_CHECKING:
    from leadhand.app.hosting_service import ServiceStatus
    from leadhand.app.reader import Reader
    from leadhand.core.state.model import State
    from leadhand.settings import Settings


class LocalStatus:
    """The driver of runs, as far as the log and this machine know."""

    def __init__(self, settings: Settings, reader: Reader) -> None:
        self._settings = settings
        self._reader = reader
        self.notes: list[str] = []
        """Reasons why runs do not continue."""

    async def driver(self, _state: State | None = None) -> Driver:
        """Return the process that hosts the runs, or the server that the log names."""
        there = self._reader.host_state().temporal
        if there is None:
            return Driver.of(self._settings.store, self._reader)
        note = f"runs here are hosted by Temporal at {there.address}, which was not asked."
        fix = f"Fix: give --temporal {there.address}, or set [temporal] address"
        self.notes = [f"{note} {fix}"]
        return Driver(f"temporal {there.address}", every=True)

    async def forks(self, _run: str = "") -> dict[str, str]:
        """Return none: a host here is the only writer of the log."""
        return {}


def host_status(settings: Settings, reader: Reader) -> ServiceStatus:
    """Return the status of the host of a log's runs."""
    service = hosting_service(settings)
    return LocalStatus(settings, reader) if service is None else service.status(reader)


def observe_host(
    settings: Settings, reader: Reader, state: State | None = None
) -> tuple[Driver, list[str]]:
    """Return the driver of this run or of all, and notes; for callers without an event loop."""
    status = host_status(settings, reader)
    return asyncio.run(status.driver(state)), status.notes
