"""Metering of calls: the payer of a call, and whether its budget allows it.

Before a call its maximum cost is reserved, after it the real cost is settled: so despite concurrent
calls a budget is never exceeded by more than a provider's own miscount. The engine sets the payer
for each attempt and each planner call; outside of a run calls are not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol

import msgspec

from leadhand.models.messages import Usage


class ModelCall(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The outcome of one call of a model."""

    model: str
    tier: str = ""
    usage: Usage = Usage()
    cost: float = 0.0
    seconds: float = 0.0
    failure: str = ""
    """The class of its failure, if it failed."""
    prompt: str = ""
    """A digest of the prompt's template, for those that have one."""
    asked: str = ""
    """A digest of the whole request: its key in a recording."""
    answer: str = ""
    """A digest of the answer, even if it could not be used."""
    contents: dict[str, Any] | None = None
    """Request and answer, if contents are recorded."""


class RefusedDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal of a model that its planner refused before the engine saw it."""

    findings: tuple[str, ...]
    draft: Any
    answer: str = ""
    """The digest of the answer it came in."""


class Payer(Protocol):
    """The account that calls of models are charged to."""

    async def reserve(self, wanted: float, least: float) -> float:
        """Set money aside: `wanted` if there is that much, else the rest, if not below `least`.

        Wait for calls in flight to be settled before refusing. Raise `ModelFailure` of the class
        "budget" if there is too little. Return infinity if there is no limit.
        """

    def settle(self, reserved: float, call: ModelCall) -> None:
        """Return the reservation and record the outcome of the call."""


class NoPayer:
    """No budget, no record."""

    async def reserve(self, wanted: float, _least: float) -> float:
        return wanted

    def settle(self, _reserved: float, _call: ModelCall) -> None:
        pass


def _unheard(_draft: RefusedDraft) -> None:
    """Drop the draft: outside of a run there is no log to keep it."""


drafts: ContextVar[Callable[[RefusedDraft], None]] = ContextVar("drafts", default=_unheard)
"""The listener for refused drafts of this task."""

payer: ContextVar[Payer] = ContextVar("payer", default=NoPayer())  # noqa: B039 - holds nothing
"""The payer of this task's calls."""
