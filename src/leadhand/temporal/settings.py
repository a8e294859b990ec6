"""`[temporal]`: the server that hosts runs when one machine is not enough.

    [temporal]
    address = "temporal.example:7233"
    namespace = "default"
    prefix = "leadhand"
    heartbeat = "20 s"
    tls = true
    ca = "ca.pem"
    cert = "client.pem"
    key = "client.key"
    api_key = "TEMPORAL_API_KEY"

With an address, `run`, `resume`, `answer` and the like contact that server, and the store is where
the log is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadhand.codec.tables import Duration, TableSchema, Text
from leadhand.settings.sections import Section, Trusted, detail_text
from leadhand.temporal.cluster import NAMESPACE, Cluster
from leadhand.temporal.messages import HostingOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.plan.model import Doc
    from leadhand.settings import Settings

SECURITY: dict[str, Any] = {"tls": False, "ca": "", "cert": "", "key": "", "api_key": ""}
"""The security settings of both sides, with their defaults."""

FILES = ("ca", "cert", "key")


SERVER = "Temporal server"
"""The name of the address in folder trust."""


def cluster_of(settings: Settings) -> Cluster | None:
    """Return the server that hosts the runs; None if processes of ours host them."""
    found: Cluster | None = SECTION.of(settings)
    return found


class TemporalTable(TableSchema):
    """The keys of `[temporal]`."""

    address: Text = ""
    """The Temporal server as `host:port`; without it, runs are hosted by processes of Leadhand."""
    namespace: Text = NAMESPACE
    """The namespace on that server."""
    prefix: Text = HostingOptions().prefix
    """The beginning of the names of task queues and workflows."""
    heartbeat: Duration = HostingOptions().heartbeat_s
    """A process that is silent for longer than this has lost its attempts."""
    tls: bool = False
    """Whether TLS is used; a certificate file or an API key turns it on too."""
    ca: Text = ""
    """The file of the certificate authority. Default: those of the system."""
    cert: Text = ""
    """The file of the client certificate (mTLS)."""
    key: Text = ""
    """The file of the client's private key (mTLS)."""
    api_key: Text = ""
    """The environment variable that holds an API key."""


def _make(read: Doc, folders: Mapping[str, Path]) -> Cluster | None:
    """Return the configured server; None without an address.

    `folders`: the folder of each setting's file, to which paths are relative.
    """
    address = read.get("temporal.address", "")
    if not address:
        return None
    plain = HostingOptions()
    ways = HostingOptions(
        prefix=read.get("temporal.prefix", plain.prefix),
        heartbeat_s=read.get("temporal.heartbeat", plain.heartbeat_s),
    )
    security = {key: read.get(f"temporal.{key}", plain) for key, plain in SECURITY.items()}
    for name in FILES:
        if security[name]:
            security[name] = str(folders[f"temporal.{name}"] / Path(security[name]).expanduser())
    return Cluster(address, read.get("temporal.namespace", NAMESPACE), ways, **security)


def _rows(cluster: Cluster | None) -> Doc:
    """Return the settings as they are listed."""
    ways = cluster.ways if cluster else HostingOptions()
    return {
        "temporal.address": cluster.address if cluster else "",
        "temporal.namespace": cluster.namespace if cluster else NAMESPACE,
        "temporal.prefix": ways.prefix,
        "temporal.heartbeat": ways.heartbeat_s,
        **{f"temporal.{key}": getattr(cluster, key, plain) for key, plain in SECURITY.items()},
    }


def _trusted(_settings: Settings, cluster: Cluster | None) -> Trusted:
    if cluster is not None:
        detail = detail_text({"url": cluster.address, "api_key": cluster.api_key})
        yield SERVER, "temporal.address", cluster.address, detail


def _without(cluster: Cluster | None, kinds: Mapping[str, set[str]]) -> Cluster | None:
    return None if SERVER in kinds else cluster


SECTION = Section(
    name="temporal",
    tables={"temporal": TemporalTable},
    make=_make,
    rows=_rows,
    trusted=_trusted,
    without=_without,
)
