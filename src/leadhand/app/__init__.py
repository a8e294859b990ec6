"""The application: Lead and its parts put together, and the doors other processes use.

Its names load when they are first used: whoever only reads needs no engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadhand.app.lead import Lead
    from leadhand.app.outcome import Outcome, Steps

__all__ = ["Lead", "Outcome", "Steps"]
_HOMES = {"Lead": "lead", "Outcome": "outcome", "Steps": "outcome"}


if not TYPE_CHECKING:  # A type checker that saw it would take any name for one of ours.

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'leadhand.app' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"leadhand.app.{home}"), name)
