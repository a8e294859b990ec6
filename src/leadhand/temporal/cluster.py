"""Where runs are hosted when one machine is not enough: a Temporal server, as settings name it.

Nothing of Temporal is imported here: whoever only reads settings needs none of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from leadhand.errors import UsageError
from leadhand.temporal.messages import HostingOptions

NAMESPACE = "default"
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

    @classmethod
    def of(cls, given: Cluster | str | None) -> Cluster | None:
        """From an address, or as it is."""
        return cls(given) if isinstance(given, str) else given


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
