"""Services elsewhere that host runs, such as a Temporal server: the port, and its one factory.

A package that provides such a service registers two entry points under one name: a `HostPart`
(leadhand/plugins.py) in the group `leadhand.hosts`, which names its command-line option, and a
`Section` in the group `leadhand.settings`. The section makes a `HostingService` from its table, or
None if processes of ours host the runs.

Only this module asks whether runs are hosted elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from leadhand import plugins
from leadhand.errors import UsageError
from leadhand.settings.sections import section_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from leadhand.app.documents import Driver
    from leadhand.app.reader import Reader
    from leadhand.core.host_events import HostState
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import State
    from leadhand.ports import Host, Store
    from leadhand.settings import Settings
    from leadhand.stores.location import StoreLocation
    from leadhand.stores.log import KeptStore

    Notice = Callable[[str, str, str], None]
    """Called with what happened: its kind, the run, and a text."""

GROUP = "hosts"
TEMPORAL = "temporal"
"""The service named by events of `core/host_events.py` and by an argument of Lead."""


class HostingService(Protocol):
    """A service elsewhere that hosts the runs of a log.

    The log stays where the settings say; the service's engines write it. Every method raises
    `UsageError` if the service cannot be reached as configured, and `Unreachable` if it stops
    answering.
    """

    @property
    def name(self) -> str:
        """Its name in messages: `Temporal`."""

    @property
    def address(self) -> str:
        """Its address: `temporal.example:7233`."""

    @property
    def setting(self) -> str:
        """The setting that names it: `temporal.address`."""

    async def open(self, place: StoreLocation | Store) -> Host:
        """Return the host of the runs of a log. An open store is lent: it is not closed."""

    async def send_command(
        self, place: StoreLocation, run: str, verb: str, actor: str, details: Doc
    ) -> Doc:
        """Send a command to a run, or to all if `run` is empty; in the log on return."""

    async def give_up(self, place: StoreLocation, run: str, actor: str, reason: str) -> None:
        """End the driver of a run; the run can be resumed from its log."""

    async def withdraw(self, place: StoreLocation, run: str, actor: str, reason: str) -> bool:
        """Withdraw a run that no engine has started. Return False if there is none of this id."""

    async def take_back(
        self, place: StoreLocation, actor: str, reason: str, tell: Callable[[str], None]
    ) -> bool:
        """Let processes of ours host the runs of a log again; engines must have ended.

        Return False if they already do. `tell` is called with the outcome for each run.
        """

    def status(self, reader: Reader) -> ServiceStatus:
        """Return the status of the runs of a log."""

    def engine(self, settings: Settings, notice: Notice) -> AbstractAsyncContextManager[Engine]:
        """Serve the runs of a log from this process (planners, the log), until the block ends."""


class ServiceStatus(Protocol):
    """The status of the runs of one log; asked repeatedly for a run that is followed."""

    notes: list[str]
    """Reasons why runs do not continue, as far as the service knows."""

    async def driver(self, state: State | None = None) -> Driver:
        """Return the driver of a run, or of all. Never raises for an unreachable service."""

    async def forks(self, run: str = "") -> dict[str, str]:
        """Return the open runs whose log differs from what the service wrote, with the problem."""


class Engine(Protocol):
    """An engine that this process serves."""

    store: KeptStore
    """The log, which the engine writes."""
    began: int
    """The end of the log before the engine served anything."""


def hosting_service(settings: Settings) -> HostingService | None:
    """Return the service that hosts the runs; None if processes of ours do."""
    for name in plugins.parts(GROUP):
        if (found := settings.sections.get(name)) is not None:
            service: HostingService = found
            return service
    return None


def without_service(settings: Settings) -> Settings:
    """Return the settings with runs hosted by processes of ours."""
    elsewhere = plugins.parts(GROUP)
    own = {name: each for name, each in settings.sections.items() if name not in elsewhere}
    return replace(settings, sections=own)


def temporal_at(given: HostingService | str | None) -> HostingService | None:
    """Return the Temporal server at an address; a service, or None, is returned unchanged."""
    return _named(TEMPORAL, given) if isinstance(given, str) else given


def service_in_log(state: HostState) -> HostingService | None:
    """Return the service that hosts the runs according to a log; None if processes of ours do."""
    return None if state.temporal is None else _named(TEMPORAL, state.temporal.address)


def _named(name: str, address: str) -> HostingService:
    part = plugins.part(GROUP, name)
    section = section_of(name)
    if part is None or section is None:
        raise UsageError(
            f"runs are hosted by {name}, and this installation has no part for it. "
            "Fix: install leadhand with it"
        )
    made: HostingService = section.make({part.load().key: address}, {})
    return made
