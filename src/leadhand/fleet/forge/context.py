"""What the parts of the flow share: the host, the hub, the rules, and who may act."""

from __future__ import annotations

import os
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


def write_durably(place: Path, data: bytes) -> None:
    """Replace a file so that a kill or a loss of power leaves the old one or the new one."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = place.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(place)
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
