"""What a person says to a run, as data: a verb, who says it, and what goes with it.

Every way in carries the same words: the socket of the embedded host, the command line, HTTP, and
the updates of a Temporal workflow. Here they become moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from leadhand.core import control
from leadhand.core.events import Event, ReleaseGiven, StepsHeld, StepsReleased
from leadhand.core.moves import Move
from leadhand.core.plan import Doc
from leadhand.core.state import Now, State
from leadhand.errors import UsageError


class Word(msgspec.Struct, frozen=True):
    """One word of a person."""

    verb: str
    actor: str
    details: dict[str, Any] = {}

    def __call__(self, state: State, now: Now) -> Move:
        """The move it comes to; raises for whoever said it when it comes to none."""
        return move_of(self.verb, self.actor, self.details)(state, now)


def move_of(verb: str, actor: str, details: Doc) -> Callable[[State, Now], Move]:
    """What a verb means, ready to be asked of a state."""
    reason = str(details.get("reason", ""))
    match verb:
        case "pause":
            return lambda state, _now: control.pause(state, actor, reason)
        case "resume":
            return lambda state, _now: control.resume(state, actor)
        case "cancel":
            return lambda state, now: control.cancel(state, actor, reason, now)
        case "answer":
            return lambda state, now: control.answer(
                state,
                str(details.get("id", "")),
                str(details.get("choice", "")),
                actor,
                now,
                text=str(details.get("text", "")),
                data=details.get("data"),
                approval=details.get("approval"),
            )
        case "hold":
            return lambda state, _now: control.hold(state, details["steps"], actor, reason)
        case "redo":
            return lambda state, now: control.redo(state, str(details["step"]), actor, reason, now)
        case "release":
            return lambda state, now: control.release(
                state, details["steps"], actor, now, reason, details.get("signed")
            )
        case "amend":
            return lambda state, now: control.amend(state, details["revision"], actor, now)
        case _:
            raise UsageError(f"{verb} is nothing a run understands")


def told(events: Sequence[Event]) -> Doc:
    """What whoever said it wants to know: which question lets held steps go, which are let go."""
    held = [event for event in events if isinstance(event, StepsHeld)]
    if held:
        return {"question": held[0].question}
    if not any(isinstance(event, ReleaseGiven) for event in events):
        return {}
    return {"steps": [s for e in events if isinstance(e, StepsReleased) for s in e.steps]}
