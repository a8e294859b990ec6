"""What `leadhand fleet start` says while it runs: what lands, what ends, what it cannot take.

It looks at what the fleet knows and says what is new, a line for each epic at most: a hundred
agents land several changes a second, and nobody reads that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leadhand.cli.text import clean, clean_lines
from leadhand.fleet.planning.standing import EXAMINER
from leadhand.fleet.sources import DONE, REPLACED

if TYPE_CHECKING:
    from leadhand.app.fleet import Fleet
    from leadhand.cli.console import Console
    from leadhand.core.state.model import State

EVERY_S = 2.0


class News:
    """Says once what is new."""

    def __init__(self, console: Console, fleet: Fleet) -> None:
        self._console, self._fleet = console, fleet
        self._refused: dict[str, str] = {}
        self._stood: dict[str, str] = {}
        self._next = 0.0

    def look(self) -> None:
        """What could not be taken or given, and how far the epics are."""
        for name, why in self._fleet.refused.items():
            if self._refused.get(name) != why:
                self._refused[name] = why
                self._console.say(f"{clean(name)}: {clean_lines(why)}")
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY_S
            self.stand()

    def stand(self) -> None:
        """How far each epic is, where that has changed."""
        for state in self._fleet.states:
            words = _standing(state)
            if words and self._stood.get(state.run) != words:
                self._stood[state.run] = words
                self._console.say(f"{clean(state.run)}: {words}")


def _standing(state: State) -> str:
    tasks = [
        step.status
        for step in state.steps.values()
        if step.worker != EXAMINER and step.status != REPLACED
    ]
    landed = tasks.count(DONE)
    if state.ended is not None:
        return f"{state.ended.status}, {landed} of {len(tasks)} landed"
    return f"{landed} of {len(tasks)} landed" if landed else ""
