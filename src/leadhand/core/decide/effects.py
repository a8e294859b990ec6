"""Effects: actions the core requests from the engine once the events beside them are durable."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from leadhand.core import events as ev


class Effect(msgspec.Struct, frozen=True, gc=False):
    """Base of all effects."""


class StartAttempt(Effect, frozen=True):
    """Call a worker."""

    step: str
    attempt: int
    epoch: int
    worker: str
    action: str
    parameters: dict[str, Any]
    """Resolved; large results are artifact references that the engine loads."""
    deadline: int


class StopAttempt(Effect, frozen=True):
    """Stop an attempt in flight; a later report of it is ignored or fenced."""

    step: str
    attempt: int
    epoch: int
    reason: str


class StartProbe(Effect, frozen=True):
    """Ask a worker whether an attempt of unknown outcome took effect."""

    step: str
    attempt: int
    epoch: int
    worker: str
    action: str
    parameters: dict[str, Any]


class CallPlanner(Effect, frozen=True):
    """Ask the planner."""

    call: int
    epoch: int
    why: str


class Examine(Effect, frozen=True):
    """Let the automatic reviewers examine a revision."""

    number: int


class VerifyGoal(Effect, frozen=True):
    """Check the goal's acceptance criteria against the result."""

    result: Any


class Notify(Effect, frozen=True):
    """Notify the outside: a person is awaited, or the run ended."""

    kind: str
    text: str


# A move: events to record, and effects to perform once they are durable.


SECOND = 1_000_000


class Move(NamedTuple):
    """Events to record, and effects to perform once they are durable."""

    events: list[ev.Event]
    effects: list[Effect]


def stop_failed(reason: str, limit: str = "", origin: str = "limits") -> Move:
    """Return the move that stops the run as failed; `origin` is the origin of the cause."""
    return Move([ev.StopDecided("failed", reason, limit, origin=origin)], [])
