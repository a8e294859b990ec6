"""The coding fleet that works in the server's process, as the server sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from leadhand.app.lead import Lead
    from leadhand.core.plan.model import Doc


class FleetStation(Protocol):
    """The interface to a fleet: observe and control it."""

    @property
    def lead(self) -> Lead:
        """The Lead that drives the fleet's runs."""

    async def figures(self, since_s: float) -> Doc:
        """Return the document of `leadhand fleet status --json` for the last `since_s` seconds."""

    def transcript(self, run: str, task: str) -> Doc:
        """Return the transcript of a task's last agent. Raise `UsageError` if there is none."""

    def order(self, verb: str, task: str = "", text: str = "", actor: str = "") -> Doc:
        """Send a message to the agent of a task, or stop it.

        Raise `UsageError` if no agent works on it.
        """
