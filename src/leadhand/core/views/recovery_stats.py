"""Success of recoveries: for each recovery decision, whether it worked. Pure, from a log.

`core/state/recovery_log.py` says when a recovery has worked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from leadhand.core.state.recovery_log import RecoveryLog, RecoveryOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core import events as ev


class WinRate(msgspec.Struct, frozen=True, kw_only=True):
    """How often a strategy followed a class of failure, and how often it won."""

    failure_class: str = msgspec.field(name="class")
    """The failure class."""
    strategy: str
    """The recovery strategy."""
    times: int
    """How often it was chosen."""
    won: int
    """How often it succeeded."""
    lost: int
    """How often it failed."""
    open: int
    """How often the outcome is not decided yet."""
    rate: float | None
    """The share that succeeded, of the decided ones, from 0 to 1."""


def recoveries(events: Iterable[ev.Event]) -> list[RecoveryOutcome]:
    """Return every recovery decision in a run's log, in order."""
    log = RecoveryLog()
    for event in events:
        log.add(event)
    return log.closed()


def win_rates(answers: Iterable[RecoveryOutcome]) -> list[WinRate]:
    """Return the table by class and strategy, in that order; runs may be combined."""
    rows: dict[tuple[str, str], list[bool | None]] = {}
    for each in answers:
        rows.setdefault((each.failure_class, each.strategy), []).append(each.won)
    return [_win_rate(*key, found) for key, found in sorted(rows.items())]


def _win_rate(kind: str, strategy: str, found: list[bool | None]) -> WinRate:
    won, lost = found.count(True), found.count(False)
    return WinRate(
        failure_class=kind,
        strategy=strategy,
        times=len(found),
        won=won,
        lost=lost,
        open=len(found) - won - lost,
        rate=round(won / (won + lost), 4) if won + lost else None,
    )
