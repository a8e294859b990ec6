"""The application: Lead and its parts, and the interfaces for other processes.

Its names are loaded on first use: reading a database needs no engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadhand.app.lead import Lead
    from leadhand.app.outcome import Outcome, Steps

__all__ = ["Lead", "Outcome", "Steps"]
_HOMES = {"Lead": "lead", "Outcome": "outcome", "Steps": "outcome"}


if not TYPE_CHECKING:  # A type checker that saw this would accept any name.

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'leadhand.app' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"leadhand.app.{home}"), name)
