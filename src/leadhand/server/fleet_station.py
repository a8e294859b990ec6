"""The coding fleet that works in the server's process, as far as the server knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from leadhand.app.lead import Lead
    from leadhand.core.plan.model import Doc


class FleetStation(Protocol):
    """Where a fleet is seen and spoken to."""

    @property
    def lead(self) -> Lead:
        """The Lead that drives the fleet's runs."""

    async def figures(self, since_s: float) -> Doc:
        """Return the document of `leadhand fleet status --json` for the last `since_s` seconds."""

    def transcript(self, run: str, task: str) -> Doc:
        """Return what the last agent of a task said. Raise UsageError when there is none."""

    def order(self, verb: str, task: str = "", text: str = "", actor: str = "") -> Doc:
        """Tell the agent of a task something, or stop it. Raise UsageError when none is at work."""
