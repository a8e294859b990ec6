"""Leadhand's own folder in a project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.errors import NotAllowed
from leadhand.stores.location import home
from leadhand.stores.permissions import FOLDER_MODE, STATE_FOLDER, tighten

if TYPE_CHECKING:
    from leadhand.stores.location import StoreLocation

FOLDER = STATE_FOLDER


def make_store_folder(store: StoreLocation) -> None:
    """Create `.leadhand/`, for this account only, with a .gitignore: no run is ever committed."""
    folder = home(store).parent
    if folder.name != FOLDER:
        return
    if folder.exists():
        tighten(folder)
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise NotAllowed(
            f"{folder}: cannot be created ({error.strerror}). Fix: use a folder that is "
            "writable, or give --store PATH."
        ) from None
