"""Services elsewhere that host runs, such as a Temporal server: the port, and its one factory.

A package that brings such a service registers two entry points under one name: a `HostPart`
(leadhand/plugins.py) in the group `leadhand.hosts`, which names its option of the command line, and
a `Section` in the group `leadhand.settings`. What the section makes of its table is a
`HostingService`, or None where processes of ours host the runs.

Whether runs are hosted elsewhere is asked here and nowhere else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from leadhand import plugins
from leadhand.errors import UsageError
from leadhand.settings.sections import section_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from leadhand.app.documents import Driver
    from leadhand.app.reader import Reader
    from leadhand.core.host import HostState
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import State
    from leadhand.ports import Store
    from leadhand.settings import Settings
    from leadhand.stores.location import Place
    from leadhand.stores.log import KeptStore

    Notice = Callable[[str, str, str], None]
    """Told what happened: its kind, the run, and a text."""

GROUP = "hosts"
TEMPORAL = "temporal"
"""The service that events of `core/host.py` and an argument of Lead name."""


class HostingService(Protocol):
    """A service elsewhere that hosts the runs of a log.

    The log stays where the settings say; the service's engines write it. Every method raises
    UsageError when the service cannot be reached as configured, and Unreachable when it stops
    answering.
    """

    @property
    def name(self) -> str:
        """What messages call it: `Temporal`."""

    @property
    def address(self) -> str:
        """Where it is reached: `temporal.example:7233`."""

    @property
    def setting(self) -> str:
        """The setting that names it: `temporal.address`."""

    async def open(self, place: Place | Store) -> Any:
        """Return the host of the runs of a log. An open store is lent: it is not closed."""

    async def say(self, place: Place, run: str, verb: str, actor: str, details: Doc) -> Doc:
        """Send a command to a run, or to all when `run` is empty; in the log when it returns."""

    async def give_up(self, place: Place, run: str, actor: str, reason: str) -> None:
        """End what drives a run; its log is what counts, and it can be taken up from there."""

    async def withdraw(self, place: Place, run: str, actor: str, reason: str) -> bool:
        """Take back a run that no engine has begun. Return False when there is none of this id."""

    async def take_back(
        self, place: Place, actor: str, reason: str, tell: Callable[[str], None]
    ) -> bool:
        """Let processes of ours host the runs of a log again; engines must have ended.

        Return False when they do already. `tell` hears what became of each run.
        """

    def status(self, reader: Reader) -> ServiceStatus:
        """Return what knows who drives the runs of a log."""

    def engine(self, settings: Settings, notice: Notice) -> AbstractAsyncContextManager[Engine]:
        """Serve the runs of a log from this process (planners, the log), until the block ends."""


class ServiceStatus(Protocol):
    """Looks who drives the runs of one log; asked again and again for a run that is followed."""

    notes: list[str]
    """What keeps runs from going on, as far as the service knows."""

    async def driver(self, state: State | None = None) -> Driver:
        """Return who drives a run, or all of them. Never raises for a service that is away."""

    async def forks(self, run: str = "") -> dict[str, str]:
        """Return the open runs whose log is not what the service wrote, and what is wrong."""


class Engine(Protocol):
    """An engine that this process serves."""

    store: KeptStore
    """The log, which the engine writes."""
    began: int
    """Where the log ended before the engine served anything."""


def hosting_service(settings: Settings) -> HostingService | None:
    """Return the service that hosts the runs; None where processes of ours do."""
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
    """Return the Temporal server at an address; a service, or None, as it is."""
    return _named(TEMPORAL, given) if isinstance(given, str) else given


def service_in_log(state: HostState) -> HostingService | None:
    """Return the service that a log says hosts its runs; None where processes of ours do."""
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
