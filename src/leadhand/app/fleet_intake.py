"""Taking epics from the folder that they are put into: each once, when nobody writes it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from leadhand.app.fleet_submitting import data_of, run_of
from leadhand.app.fleet_watching import LOOK_S
from leadhand.errors import LeadhandError
from leadhand.fleet.epics import parse_epic, text_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from leadhand.fleet.epics import Epic

Mark = tuple[int, int]
"""Size and time of change: a file that has the same ones is the same."""


class Intake:
    """Looks at the folder, and begins what is new there."""

    def __init__(
        self,
        folder: Path,
        known: Callable[[str], bool],
        begin: Callable[[str, Path, Epic], Awaitable[None]],
    ) -> None:
        """`known` says whether a run was begun already, by this fleet or an earlier one."""
        self._folder, self._known, self._begin = folder, known, begin
        self._seen: dict[str, Mark] = {}
        self._taken: dict[str, Mark] = {}
        self.refused: dict[str, str] = {}
        """Files that are no epics, and why."""

    async def look(self) -> None:
        """Begin what is there; a file that was begun is not read again until it changes."""
        paths = [path for path in sorted(self._folder.glob("*.md")) if path.name[0] != "."]
        for path in paths:
            mark = self._whole(path)
            if mark is not None and self._taken.get(path.name) != mark:
                await self._take(path, mark)
        names = {path.name for path in paths}
        for kept in (self._seen, self._taken, self.refused):
            for gone in kept.keys() - names:
                kept.pop(gone)

    async def _take(self, path: Path, mark: Mark) -> None:
        try:
            data = await asyncio.to_thread(data_of, path)
            ident = run_of(path.stem, data)
            if not self._known(ident):
                await self._begin(ident, path, parse_epic(text_of(data), path.stem, str(path)))
        except (OSError, UnicodeDecodeError, LeadhandError) as error:
            self.refused[path.name] = str(error)
        else:
            self.refused.pop(path.name, None)
            self._taken[path.name] = mark

    def _whole(self, path: Path) -> Mark | None:
        """Nothing while somebody writes the file: half an epic would be another one."""
        try:
            about = path.stat()
        except OSError:
            return None
        mark = (about.st_size, about.st_mtime_ns)
        before, self._seen[path.name] = self._seen.get(path.name), mark
        return mark if mark == before or time.time() - about.st_mtime > LOOK_S else None
