"""What language models were asked during a run, and what that cost."""

from __future__ import annotations

from leadhand.core.events_base import Event


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
    cost: float = 0.0
    seconds: float = 0.0
    failure: str = ""
    """The class of its failure, if it failed."""
    prompt: str = ""
    """A digest of the prompt that was used."""
