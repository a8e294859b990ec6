"""What the core wishes the shell to do, once the events beside it are durable."""

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
    """Resolved; large results stand as artifact references that the shell loads."""
    deadline: int


class StopAttempt(Effect, frozen=True):
    """End an attempt that is in flight; whatever it still reports is ignored or fenced."""

    step: str
    attempt: int
    epoch: int
    reason: str


class StartProbe(Effect, frozen=True):
    """Ask a worker whether an attempt that nobody saw end did happen."""

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
    """Have the automatic reviewers look at a revision."""

    number: int


class VerifyGoal(Effect, frozen=True):
    """Check the goal's acceptance criteria against the result."""

    result: Any


class Notify(Effect, frozen=True):
    """Tell the outside: something waits for a person, or the run ended."""

    kind: str
    text: str


# A move: facts to record, and what to do once they are durable.


SECOND = 1_000_000


class Move(NamedTuple):
    """Facts to record, and what to do once they are durable."""

    events: list[ev.Event]
    effects: list[Effect]


def stop_failed(reason: str, limit: str = "", origin: str = "limits") -> Move:
    """The run stops as failed; `origin` says where the cause lies."""
    return Move([ev.StopDecided("failed", reason, limit, origin=origin)], [])
