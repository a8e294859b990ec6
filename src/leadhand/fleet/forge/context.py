"""What the parts of the flow share: the host, the hub, the rules, and who may act."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leadhand.fleet.forge.people import People
    from leadhand.fleet.forge.port import Forge
    from leadhand.fleet.forge.remote import HostRepository
    from leadhand.fleet.forge.rules import ForgeRules
    from leadhand.fleet.merge.conductor import Conductor
    from leadhand.fleet.repository.hub import Hub


@dataclass(frozen=True, slots=True)
class ForgeContext:
    """The code host of a fleet, and the fleet's side of it."""

    hub: Hub
    forge: Forge
    rules: ForgeRules
    remote: HostRepository
    people: People
    conductor: Conductor
    folder: Path
    """Where records of pull requests are kept."""
    note: Callable[..., None]
    """Writes into the fleet's journal."""
