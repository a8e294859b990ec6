"""`[fleet.machines]`: agents of a fleet on other machines.

At home, where `leadhand fleet start` runs:

    [fleet.machines]
    agents = 12

On each machine, where `leadhand worker --kinds coder` runs:

    [fleet.machines]
    hub = "ssh://leadhand@home.example/srv/shop/.leadhand/fleet/hub/hub.git"

Both name the same Temporal server in `[temporal]`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import urlsplit

from msgspec import Meta

from leadhand.codec.tables import TableSchema
from leadhand.settings.notify import SecretReference

if TYPE_CHECKING:
    from leadhand.temporal.cluster import Cluster

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
SCHEMES = ("ssh", "https", "file")


class MachinesTable(TableSchema):
    """`[fleet.machines]`"""

    agents: Annotated[int, Meta(ge=1, le=2000)] = 4
    """At home: the number of agents at once on all other machines together."""
    fleet: str = "fleet"
    """The name of the fleet on the Temporal server, the same at home and on its machines. Fleets
    that share a server need different names."""
    hub: str = ""
    """On a machine: the address for git of the fleet's clone at home, `hub/hub.git` in its folder,
    as in `ssh://leadhand@home.example/srv/shop/.leadhand/fleet/hub/hub.git` or
    `https://home.example/hub.git`."""
    token: SecretReference = ""
    """On a machine: where the password for `hub` by HTTPS is, `env:NAME` or `file:PATH`; its user
    name stands in `hub`. By SSH the keys of the account are used, and
    `GIT_SSH_COMMAND` where it is set."""
    name: str = ""
    """On a machine: its name, of which there is only one in a fleet. Default: its host name."""

    def __post_init__(self) -> None:
        """Raise ValueError, a sentence, for a name or an address that is none."""
        for key in ("fleet", "name"):
            value = getattr(self, key)
            if (value or key == "fleet") and not NAME.fullmatch(value):
                raise ValueError(f"{key} must have letters, digits, `.`, `-` and `_` only")
        if self.hub and not is_git_address(self.hub):
            raise ValueError(
                "hub must be an address for git without a password. Fix: write one that begins "
                "with ssh:// or https://, and name the variable of a password by token"
            )


def is_git_address(text: str) -> bool:
    """Return whether a text is an address of a repository, with no password in it."""
    try:
        parts = urlsplit(text)
        password = parts.password
    except ValueError:
        return False
    whole = bool(parts.hostname) or parts.scheme == "file"
    safe = text.isprintable() and " " not in text and not (parts.hostname or "").startswith("-")
    return parts.scheme in SCHEMES and whole and safe and password is None


class MachinesSetup(NamedTuple):
    """How a fleet gives work to other machines."""

    cluster: Cluster
    fleet: str = "fleet"
    agents: int = 4

    @property
    def queue(self) -> str:
        """Return the task queue that machines of the fleet ask for work."""
        return f"{self.cluster.ways.prefix}.fleet.{self.fleet}.coder"
