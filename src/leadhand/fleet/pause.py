"""A fleet that a person has paused: no agent starts until a person resumes it.

The pause is a file in the fleet's folder, so that a fleet that is started again is still paused.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from leadhand.core.calendar import iso
from leadhand.stores.sqlite.connection import sync_folder

if TYPE_CHECKING:
    from pathlib import Path


NAME = "paused.json"


class Pause(NamedTuple):
    """The person who paused the fleet, and the time in ISO 8601."""

    by: str
    at: str

    @property
    def why(self) -> str:
        """Return the reason that no agent starts."""
        return f"paused by {self.by}"


def pause_of(folder: Path) -> Pause | None:
    """Return the pause of the fleet in a folder; None if it is not paused."""
    try:
        found = json.loads((folder / NAME).read_text(encoding="utf-8"))
        return Pause(str(found["by"]), str(found["at"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return Pause("a person", "")  # an unreadable pause is still a pause


def write_pause(folder: Path, by: str) -> Pause:
    """Pause the fleet of a folder; return once the pause is on the disk."""
    made = Pause(by or "a person", iso(time.time_ns() // 1000))
    fresh = folder / f".{NAME}"
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(made._asdict(), file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / NAME)
    sync_folder(folder)
    return made


def end_pause(folder: Path) -> None:
    """Let agents start again."""
    with contextlib.suppress(FileNotFoundError):
        (folder / NAME).unlink()
        sync_folder(folder)
