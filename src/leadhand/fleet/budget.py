"""The daily budget: what was spent on this day (UTC), counted across restarts.

Agents are held back by the governor, who gives them their places. Whoever else costs money
(planners, reviewers) needs no place, and asks the purse instead, before each call.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from leadhand.fleet.status.figures import PAID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from leadhand.fleet.status.journal import Journal, Note


DAY_S = 86_400
MICRO = 1_000_000
LOOK_S = 2.0


class Spending:
    """A purse that is empty again each midnight."""

    def __init__(self, notes: Iterable[Note] = (), clock: Callable[[], float] = time.time) -> None:
        """Count from the journal's `notes` so far."""
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
        """Return the dollars spent since midnight (UTC)."""
        day = self._now()
        if day != self._day:
            self._day, self._spent = day, 0.0
        return self._spent

    def over(self, daily: float, running: float = 0.0) -> str:
        """Return why nothing more may be spent on this day; empty while something may."""
        spent = self.today() + running
        if not daily or spent < daily:
            return ""
        return (
            f"{spent:.2f} of {daily:.2f} dollars of this day are spent; "
            "agents start again after midnight UTC"
        )

    def _now(self) -> int:
        return int(self._clock()) // DAY_S


class Bill:
    """The cost of one agent so far."""

    cost = 0.0

    def heard(self, cost: float | None) -> None:
        """Take the agent's total cost so far."""
        self.cost = self.cost if cost is None else cost


class DailyBudget:
    """Holds back agents, planners and reviewers while nothing may be spent."""

    def __init__(self, against: Callable[[], str] = lambda: "", look_s: float = LOOK_S) -> None:
        """Ask `against` for the reason to wait: the day's money, or a fleet that ends."""
        self._against, self._look_s = against, look_s
        self._waiting = 0
        self._bills: list[Bill] = []

    @property
    def held_back(self) -> str:
        """Return why a caller waits; empty if none does."""
        return self._against() if self._waiting else ""

    @property
    def running(self) -> float:
        """Return the cost so far of agents at work, which is not yet counted."""
        return sum(bill.cost for bill in self._bills)

    async def open(self) -> None:
        """Wait until something may be spent."""
        self._waiting += 1
        try:
            while self._against():  # noqa: ASYNC110 - no event announces a new day
                await asyncio.sleep(self._look_s)
        finally:
            self._waiting -= 1

    @contextmanager
    def bill(self) -> Iterator[Bill]:
        """Counts as running for as long as the block lasts."""
        bill = Bill()
        self._bills.append(bill)
        try:
            yield bill
        finally:
            self._bills.remove(bill)


class Noting:
    """Writes into the journal, and counts the spending."""

    def __init__(self, journal: Journal, before: Iterable[Note]) -> None:
        self._journal = journal
        self.spending = Spending(before)

    def note(self, what: str, **more: Any) -> None:
        """Something happened."""
        self._journal.note(what, **more)
        if what in PAID:
            self.spending.add(float(more.get("cost") or 0.0))
