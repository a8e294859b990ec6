"""What was spent on this day, counted on across restarts. A day is one of UTC."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leadhand.fleet.journal import Journal, Note

DAY_S = 86_400
PAID = frozenset({"agent ended", "reviewed", "planned", "lost"})
"""Notes of the journal that say what somebody cost."""
MICRO = 1_000_000


class Spending:
    """A purse that is empty again each midnight."""

    def __init__(self, notes: Iterable[Note] = (), clock: Callable[[], float] = time.time) -> None:
        """`notes` are those of the journal before now."""
        self._clock = clock
        self._day = self._now()
        self._spent = sum(
            float(note.get("cost") or 0.0)
            for note in notes
            if note["what"] in PAID and note["at"] // MICRO // DAY_S == self._day
        )

    def add(self, cost: float) -> None:
        """Something was spent now."""
        self._spent = self.today() + cost

    def today(self) -> float:
        """What was spent since midnight."""
        day = self._now()
        if day != self._day:
            self._day, self._spent = day, 0.0
        return self._spent

    def over(self, daily: float, running: float = 0.0) -> str:
        """Why nothing more may be spent on this day; empty while something may."""
        spent = self.today() + running
        if not daily or spent < daily:
            return ""
        return (
            f"{spent:.2f} of {daily:.2f} dollars of this day are spent; "
            "agents start again after midnight UTC"
        )

    def _now(self) -> int:
        return int(self._clock()) // DAY_S


class Noting:
    """Writes into the journal, and counts what was spent."""

    def __init__(self, journal: Journal, before: Iterable[Note]) -> None:
        self._journal = journal
        self.spending = Spending(before)

    def note(self, what: str, **more: Any) -> None:
        """Something happened."""
        self._journal.note(what, **more)
        if what in PAID:
            self.spending.add(float(more.get("cost") or 0.0))
