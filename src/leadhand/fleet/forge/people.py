"""Who may start work, answer and review: asked of the host, kept for a minute."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.fleet.forge.port import Forge
    from leadhand.fleet.forge.rules import ForgeRules

KNOWN_S = 60.0


class Authored(Protocol):
    """Anything with an author."""

    @property
    def author(self) -> str: ...


T = TypeVar("T", bound=Authored)


class People:
    """The people of a repository, as far as the rules let them act."""

    def __init__(self, forge: Forge, rules: ForgeRules) -> None:
        self._forge, self._rules = forge, rules
        self._known: dict[str, tuple[float, bool]] = {}
        self._own: str | None = None

    async def own(self) -> str:
        """Return the name of our own account."""
        if self._own is None:
            self._own = await self._forge.account()
        return self._own

    async def may(self, user: str) -> bool:
        """Return whether an account may act. Our own and unknown ones may not."""
        if not user or user == await self.own():
            return False
        at, known = self._known.get(user, (0.0, False))
        if not at or time.monotonic() - at > KNOWN_S:
            known = self._rules.may_start(user, await self._forge.permission(user))
            self._known[user] = (time.monotonic(), known)
        return known

    async def only(self, texts: Iterable[T]) -> list[T]:
        """Return the texts whose authors may act."""
        return [each for each in texts if await self.may(each.author)]
