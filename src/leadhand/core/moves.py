"""A move: facts to record, and what to do once they are durable."""

from __future__ import annotations

from typing import NamedTuple

from leadhand.core import events as ev
from leadhand.core.effects import Effect

SECOND = 1_000_000


class Move(NamedTuple):
    """Facts to record, and what to do once they are durable."""

    events: list[ev.Event]
    effects: list[Effect]


def stop_failed(reason: str, limit: str = "", origin: str = "limits") -> Move:
    """The run stops as failed; `origin` says where the cause lies."""
    return Move([ev.StopDecided("failed", reason, limit, origin=origin)], [])
