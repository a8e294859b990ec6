"""The fleet's own database: its runs are epics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.fleet.settings import fleet_of
from leadhand.settings import DEFAULT
from leadhand.settings.folders import FOLDER
from leadhand.settings.product_logs import ProductLog

if TYPE_CHECKING:
    from pathlib import Path

    from leadhand.settings import Settings

FLEET_DATABASE = "fleet.db"
"""The log of a fleet, in the fleet's own folder."""
EPIC = "epic-"
"""How the names of a fleet's runs begin; the entry point in pyproject.toml says the same."""


def fleet_store(settings: Settings) -> Path | None:
    """Return the database of the project's fleet.

    None when there is none, or when another database was asked for.
    """
    store = (fleet_of(settings).folder or settings.root / FOLDER / "fleet") / FLEET_DATABASE
    asked = settings.origin("project.store") != DEFAULT
    return store if not asked and store.exists() else None


LOG = ProductLog(fleet_store, "epic", "leadhand fleet status", "leadhand fleet start")
