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

    async def task(self, run: str, task: str) -> Doc:
        """Return one task in detail. Raise `UsageError` if there is none."""

    def transcript(self, run: str, task: str, attempt: int = 0) -> Doc:
        """Return the transcript of a task's last agent, or of another `attempt`.

        Raise `UsageError` if there is none.
        """

    def submit(self, text: str, name: str, priority: int | None, actor: str) -> Doc:
        """Submit an epic; raise `UsageError`, which names every mistake in it."""

    def order(self, verb: str, task: str = "", text: str = "", actor: str = "") -> Doc:
        """Stop or message the agent of a task, or pause, resume or drain the fleet.

        The order `lift` ends the usage limit of a login, which is given as `task`.

        Raise `UsageError` if no agent works on the task.
        """
