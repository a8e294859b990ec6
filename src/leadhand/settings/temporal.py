"""`[temporal]`: the server that hosts runs when one machine is not enough.

    [temporal]
    address = "temporal.example:7233"
    namespace = "default"
    prefix = "leadhand"
    heartbeat = "20 s"

With an address, `run`, `resume`, `answer` and the like speak to that server, and the store is
where the log is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.temporal.cluster import NAMESPACE, Cluster
from leadhand.temporal.orders import Ways

if TYPE_CHECKING:
    from leadhand.core.plan import Doc


def temporal_rows(cluster: Cluster | None) -> Doc:
    """The settings as they are listed."""
    ways = cluster.ways if cluster else Ways()
    return {
        "temporal.address": cluster.address if cluster else "",
        "temporal.namespace": cluster.namespace if cluster else NAMESPACE,
        "temporal.prefix": ways.prefix,
        "temporal.heartbeat": ways.heartbeat_s,
    }


def cluster_of(read: Doc) -> Cluster | None:
    """The server that the settings name; none without an address."""
    address = read.get("temporal.address", "")
    if not address:
        return None
    plain = Ways()
    ways = Ways(
        prefix=read.get("temporal.prefix", plain.prefix),
        heartbeat_s=read.get("temporal.heartbeat", plain.heartbeat_s),
    )
    return Cluster(address, read.get("temporal.namespace", NAMESPACE), ways)
