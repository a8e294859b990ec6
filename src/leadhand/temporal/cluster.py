"""A Temporal server that hosts runs when one machine is not enough, as in the settings.

`Cluster` is the `HostingService` (app/hosting_service.py) for the rest of Leadhand. Nothing of
Temporal is imported before it is contacted: reading settings needs none of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec.structs import replace

from leadhand.app.store_factory import host_state
from leadhand.errors import UsageError
from leadhand.temporal.messages import HostingOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from leadhand.app.hosting_service import HostingService, Notice
    from leadhand.app.reader import Reader
    from leadhand.core.plan.model import Doc
    from leadhand.ports import Store
    from leadhand.settings import Settings
    from leadhand.stores.location import StoreLocation
    from leadhand.stores.log import Log
    from leadhand.temporal.host import TemporalHost
    from leadhand.temporal.host_status import TemporalStatus
    from leadhand.temporal.service import RunningService

NAMESPACE = "default"
NAME_DIGITS = 12
"""The digits of a log's own id in the names of its queues and workflows."""
MISSING = "Temporal is not installed here. Fix: pip install 'leadhand[temporal]'"


class Cluster(msgspec.Struct, frozen=True):
    """A Temporal server, and how runs are hosted on it."""

    address: str
    namespace: str = NAMESPACE
    ways: HostingOptions = HostingOptions()
    tls: bool = False
    ca: str = ""
    """The file with the CA certificate that the server's is checked against; else the system's."""
    cert: str = ""
    key: str = ""
    """The files with the certificate and key of this side (mTLS)."""
    api_key: str = ""
    """The name of the environment variable with the API key of an account."""

    name: ClassVar[str] = "Temporal"
    setting: ClassVar[str] = "temporal.address"

    async def open(self, place: StoreLocation | Store) -> TemporalHost:
        """Return the host of the runs of a log. An open store is lent: it is not closed."""
        from leadhand.temporal.host_factory import open_host

        return await open_host(self, place)

    async def send_command(
        self, place: StoreLocation, run: str, verb: str, actor: str, details: Doc
    ) -> Doc:
        """Send a command to a run, or to all if `run` is empty; in the log on return."""
        host = await self.open(place)
        try:
            return await host.send_command(run, verb, actor, details)
        finally:
            await host.close()

    async def give_up(self, place: StoreLocation, run: str, actor: str, reason: str) -> None:
        """End the workflow of a run, regardless of its pending work: the log is the authority."""
        host = await self.open(place)
        try:
            await host.give_up(run, f"given up by {actor}: {reason}")
        finally:
            await host.close()

    async def withdraw(self, place: StoreLocation, run: str, actor: str, reason: str) -> bool:
        """Withdraw a run that waits for an engine. Return False if there is none of this id."""
        host = await self.open(place)
        try:
            why = f"withdrawn by {actor}" + (f": {reason}" if reason else "")
            return await host.withdraw(run, why)
        finally:
            await host.close()

    async def take_back(
        self, place: StoreLocation, actor: str, reason: str, tell: Callable[[str], None]
    ) -> bool:
        """Let processes of ours host the runs of a log again. Return False if they already do."""
        from leadhand.temporal.take_back import take_back

        return await take_back(place, self, actor, reason, tell)

    def status(self, reader: Reader) -> TemporalStatus:
        """Return the status of the runs of a log."""
        from leadhand.temporal.host_status import TemporalStatus

        return TemporalStatus(self, reader)

    def engine(
        self, settings: Settings, notice: Notice
    ) -> AbstractAsyncContextManager[RunningService]:
        """Serve runs from this process, and no steps, until the block ends."""
        from leadhand.temporal.service import ServiceOptions, running_service

        options = ServiceOptions(
            settings=settings, cluster=self, steps=False, engine=True, notice=notice
        )
        return running_service(options)


def own_names(cluster: Cluster, log: Store | Log) -> Cluster:
    """Return the server with names that are this log's own: `PREFIX.LOG`.

    An engine serves, and a command starts, only runs with its own log's name, so that no run lands
    in the log of another project with the same prefix. A log that records its full names keeps
    them.
    """
    there, prefix = host_state(log).temporal, cluster.ways.prefix
    own = f".{log.database_id[:NAME_DIGITS]}"
    if prefix.endswith(own) or (there is not None and there.prefix == prefix):
        return cluster
    return replace(cluster, ways=replace(cluster.ways, prefix=prefix + own))


def security_of(cluster: Cluster) -> dict[str, Any]:
    """Return the client's security options. Raise `UsageError`, which names what is missing."""
    if bool(cluster.cert) != bool(cluster.key):
        raise UsageError("[temporal] cert and key go together")
    found: dict[str, Any] = {}
    if cluster.api_key:
        found["api_key"] = os.environ.get(cluster.api_key, "")
        if not found["api_key"]:
            raise UsageError(
                f"[temporal] api_key names the environment variable {cluster.api_key}, and it is "
                "not set. Fix: set it where Leadhand runs"
            )
    files = {
        "server_root_ca_cert": ("ca", cluster.ca),
        "client_cert": ("cert", cluster.cert),
        "client_private_key": ("key", cluster.key),
    }
    read = {name: _content(key, file) for name, (key, file) in files.items() if file}
    if read:
        found["tls"] = read
    elif cluster.tls or cluster.api_key:
        found["tls"] = True
    return found


def _content(key: str, file: str) -> bytes:
    try:
        return Path(file).expanduser().read_bytes()
    except OSError as error:
        raise UsageError(f"[temporal] {key}: {file} cannot be read ({error.strerror})") from None


def require() -> None:
    """Raise `UsageError` if Temporal's library is not installed."""
    try:
        import temporalio  # noqa: F401
    except ImportError:
        raise UsageError(MISSING) from None


if TYPE_CHECKING:
    _service: HostingService = Cluster("host:port")  # a Struct cannot inherit from the port
