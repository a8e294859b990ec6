"""Where runs are hosted when one machine is not enough: a Temporal server, as settings name it.

`Cluster` is the `HostingService` (app/hosting_service.py) that the rest of Leadhand speaks to.
Nothing of Temporal is imported before it is spoken to: reading settings needs none of it.
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

    from leadhand.app.hosting_service import Notice
    from leadhand.app.reader import Reader
    from leadhand.core.plan.model import Doc
    from leadhand.ports import Store
    from leadhand.settings import Settings
    from leadhand.stores.location import Place
    from leadhand.stores.log import Log
    from leadhand.temporal.host import TemporalHost
    from leadhand.temporal.host_status import TemporalStatus
    from leadhand.temporal.service import RunningService

NAMESPACE = "default"
NAME_DIGITS = 12
"""Of a log's own name, in the names of its queues and workflows."""
MISSING = "Temporal is not installed here. Fix: pip install 'leadhand[temporal]'"


class Cluster(msgspec.Struct, frozen=True):
    """A Temporal server, and how runs are hosted on it."""

    address: str
    namespace: str = NAMESPACE
    ways: HostingOptions = HostingOptions()
    tls: bool = False
    ca: str = ""
    """A file with the certificate that the server's is checked against; the system's else."""
    cert: str = ""
    key: str = ""
    """Files with the certificate and the key that this side shows (mTLS)."""
    api_key: str = ""
    """The name of an environment variable that holds the key of an account."""

    name: ClassVar[str] = "Temporal"
    setting: ClassVar[str] = "temporal.address"

    async def open(self, place: Place | Store) -> TemporalHost:
        """Return the host of the runs of a log. An open store is lent: it is not closed."""
        from leadhand.temporal.host_factory import open_host

        return await open_host(self, place)

    async def say(self, place: Place, run: str, verb: str, actor: str, details: Doc) -> Doc:
        """Send a command to a run, or to all when `run` is empty; in the log when it returns."""
        host = await self.open(place)
        try:
            return await host.say(run, verb, actor, details)
        finally:
            await host.close()

    async def give_up(self, place: Place, run: str, actor: str, reason: str) -> None:
        """End the workflow of a run, whatever it still meant to do: its log is what counts."""
        host = await self.open(place)
        try:
            await host.give_up(run, f"given up by {actor}: {reason}")
        finally:
            await host.close()

    async def withdraw(self, place: Place, run: str, actor: str, reason: str) -> bool:
        """Take back a run that waits for an engine. Return False when there is none of this id."""
        host = await self.open(place)
        try:
            why = f"withdrawn by {actor}" + (f": {reason}" if reason else "")
            return await host.withdraw(run, why)
        finally:
            await host.close()

    async def take_back(
        self, place: Place, actor: str, reason: str, tell: Callable[[str], None]
    ) -> bool:
        """Let processes of ours host the runs of a log again. Return False when they do already."""
        from leadhand.temporal.take_back import take_back

        return await take_back(place, self, actor, reason, tell)

    def status(self, reader: Reader) -> TemporalStatus:
        """Return what knows who drives the runs of a log."""
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
    """Return the server with names on it that are this log's own: `PREFIX.LOG`.

    An engine serves, and a command starts, only what has its own log's name, so no run lands in the
    log of another project with the same prefix. A log that says its names in full keeps them.
    """
    there, prefix = host_state(log).temporal, cluster.ways.prefix
    own = f".{log.database_id[:NAME_DIGITS]}"
    if prefix.endswith(own) or (there is not None and there.prefix == prefix):
        return cluster
    return replace(cluster, ways=replace(cluster.ways, prefix=prefix + own))


def security_of(cluster: Cluster) -> dict[str, Any]:
    """How a client is told to prove the server and itself; UsageError names what is missing."""
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
    """UsageError when Temporal's library is not installed."""
    try:
        import temporalio  # noqa: F401
    except ImportError:
        raise UsageError(MISSING) from None
