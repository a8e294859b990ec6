"""A fleet that a person has paused: no agent starts until a person resumes it.

The pause is a file in the fleet's folder, so that a fleet that is started again is still paused.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, NamedTuple

from leadhand.core.calendar import iso

if TYPE_CHECKING:
    from pathlib import Path


NAME = "paused.json"


class Pause(NamedTuple):
    """Who paused the fleet, and when."""

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
        return Pause("a person", "")  # it was paused, and nobody resumed it


def write_pause(folder: Path, by: str) -> Pause:
    """Pause the fleet of a folder."""
    made = Pause(by or "a person", iso(time.time_ns() // 1000))
    fresh = folder / f".{NAME}"
    fresh.write_text(json.dumps(made._asdict()), encoding="utf-8")
    fresh.replace(folder / NAME)
    return made


def end_pause(folder: Path) -> None:
    """Let agents start again."""
    with contextlib.suppress(FileNotFoundError):
        (folder / NAME).unlink()
