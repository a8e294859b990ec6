"""What people commit to their own branch meanwhile comes to the fleet's main as well.

It goes the way of every change: merged onto main, gated, and joined to it with its history when
green, so that main stays green and the fleet's result can be given back without force. What is in
conflict, or red, is not taken: nobody but its author can say what was meant. It is shown with the
reason, the fleet goes on with the main it has, and the next commit of theirs is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.fleet.merge.conductor import Ejected, QueuedChange

if TYPE_CHECKING:
    from leadhand.fleet.merge.conductor import Conductor
    from leadhand.fleet.repository.hub import Hub


LOG_CHARS = 2000


class Following:
    """Looks at the user's branch, and takes what is new."""

    def __init__(self, hub: Hub, conductor: Conductor) -> None:
        self._hub, self._conductor = hub, conductor
        self._seen = ""
        self.refused = ""
        """Why the user's last commits are not on main, if so."""

    @property
    def told(self) -> dict[str, str]:
        """The same, by what it is about."""
        return {"your branch": self.refused} if self.refused else {}

    async def look(self) -> None:
        """Take what the user did since the last time; returns when it is on main or refused."""
        tip = await self._hub.user_tip()
        if tip == self._seen:
            return
        found = await self._hub.fetch_user()
        self.refused = ""
        if found.relation in ("ahead", "diverged"):
            self.refused = await self._take(found.tip, found.base)
        self._seen = found.tip

    async def _take(self, tip: str, base: str) -> str:
        if not base:
            return f"{tip[:12]} has no commit in common with main"
        change = QueuedChange(
            run="",
            task="",
            attempt=0,
            base=base,
            head=tip,
            goal=f"Take up {tip[:12]} of the user's branch",
            joins=True,
        )
        told = await self._conductor.land(change)
        if isinstance(told, Ejected):
            return f"{tip[:12]} is not taken up ({told.kind}): {told.log[-LOG_CHARS:]}"
        return ""
