"""What language models were asked during a run, and what that cost."""

from __future__ import annotations

from typing import Any

from leadhand.core.events_base import Event

Doc = dict[str, Any]


class ModelCalled(Event, frozen=True, tag=True, kw_only=True):
    """One call of a model ended, for an attempt of a step or for the planner.

    Its cost counts whether or not that attempt is still the current one.
    """

    model: str
    step: str = ""
    """Empty when it was the planner that asked."""
    attempt: int = 0
    """The attempt of the step, or the call of the planner."""
    tier: str = ""
    input: int = 0
    output: int = 0
    cached: int = 0
    """Those of the input that came from the provider's cache."""
    written: int = 0
    """Those of the input that were written into it."""
    cost: float = 0.0
    seconds: float = 0.0
    failure: str = ""
    """The class of its failure, if it failed."""
    prompt: str = ""
    """A digest of the template of the prompt."""
    asked: str = ""
    """A digest of all that was asked; the same question has the same on a tape."""
    answer: str = ""
    """A digest of what was answered; empty where nothing was."""
    contents: Doc | None = None
    """What was asked and answered, where contents are recorded: bounded, without secrets."""


class DraftRefused(Event, frozen=True, tag=True, kw_only=True):
    """A planner's own check refused what its model proposed, before the run saw it."""

    call: int
    """The call of the planner."""
    findings: list[str]
    draft: Any
    """What was proposed, as far as it could be read: bounded, without secrets."""
    answer: str = ""
    """A digest of the model's answer, as in `ModelCalled`."""
