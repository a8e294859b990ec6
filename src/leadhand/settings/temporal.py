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

With an address, `run`, `resume`, `answer` and the like speak to that server, and the store is
where the log is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadhand.temporal.cluster import NAMESPACE, Cluster
from leadhand.temporal.messages import HostingOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.plan.model import Doc

SECURITY: dict[str, Any] = {"tls": False, "ca": "", "cert": "", "key": "", "api_key": ""}
"""How both sides prove who they are, and what goes where nothing is said."""

FILES = ("ca", "cert", "key")


def temporal_rows(cluster: Cluster | None) -> Doc:
    """The settings as they are listed."""
    ways = cluster.ways if cluster else HostingOptions()
    return {
        "temporal.address": cluster.address if cluster else "",
        "temporal.namespace": cluster.namespace if cluster else NAMESPACE,
        "temporal.prefix": ways.prefix,
        "temporal.heartbeat": ways.heartbeat_s,
        **{f"temporal.{key}": getattr(cluster, key, plain) for key, plain in SECURITY.items()},
    }


def cluster_of(read: Doc, folders: Mapping[str, Path]) -> Cluster | None:
    """The server that the settings name; none without an address.

    `folders`: where each setting stands, which is what the paths of files begin at.
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
