"""What a standing fleet puts away, so that it does not grow with each epic for ever.

The homes of agents go when their epic has ended: nobody goes on with those conversations. Of an
epic that failed those of open tasks stay, since `redo` takes it up again. The hub's loose objects
go into packs (`Hub.pack`); nothing of them is thrown away.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from leadhand.fleet.agents.base import Assignment
from leadhand.fleet.status.sources import DONE, REPLACED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.state.model import State
    from leadhand.fleet.agents.base import Coder
    from leadhand.fleet.repository.hub import Hub


LOOK_S = 30.0
LOOSE_MAX = 20_000
"""So many more loose objects than after the last time are worth a pack."""


class Keeping:
    """Looks at what has ended, and tidies up after it."""

    def __init__(self, hub: Hub, coders: Iterable[Coder]) -> None:
        self._hub = hub
        self._coders = {coder.name: coder for coder in coders}
        self._owed: dict[str, list[str]] = {}
        self._over: set[str] = set()
        self._loose = 0

    def heard(self, state: State) -> None:
        """How an epic stands; one that has ended is tidied up after, once."""
        if state.ended is None:
            self._over.discard(state.run)
        elif state.run not in self._over:
            self._over.add(state.run)
            open_ = state.ended.status == "failed"
            self._owed[state.run] = [
                step.id
                for step in state.steps.values()
                if step.attempts and (not open_ or step.status in (DONE, REPLACED))
            ]

    async def look(self) -> None:
        """Put away what is due."""
        while self._owed:
            run = next(iter(self._owed))
            await asyncio.to_thread(self._forget, run, self._owed[run])
            del self._owed[run]
        loose = await asyncio.to_thread(self._hub.loose)
        if loose - self._loose >= LOOSE_MAX:
            await self._hub.pack()
            self._loose = await asyncio.to_thread(self._hub.loose)

    def _forget(self, run: str, tasks: list[str]) -> None:
        for name in (each for task in tasks for each in (task, f"{task}.review")):
            for coder in self._coders.values():
                with contextlib.suppress(OSError):  # what cannot go now goes at the next start
                    coder.forget(Assignment(run=run, task=name, brief=""))
