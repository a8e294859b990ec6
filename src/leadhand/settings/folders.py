"""The folder that Leadhand keeps to itself in a project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.errors import NotAllowed
from leadhand.stores.places import home

if TYPE_CHECKING:
    from leadhand.stores.places import Place

FOLDER = ".leadhand"
FLEET_DATABASE = "fleet.db"
"""The log of a fleet, in the fleet's own folder."""
EPIC = "epic-"
"""How the names of a fleet's runs begin."""


def make_store_folder(store: Place) -> None:
    """Make `.leadhand/` with a .gitignore in it, so that no run is ever committed by accident."""
    folder = home(store).parent
    if folder.name != FOLDER or folder.exists():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise NotAllowed(
            f"{folder}: cannot be made ({error.strerror}). "
            "Fix: run where you may write, or give --store PATH."
        ) from None
