"""How a fleet behaves towards its code host: what starts work, what is required, who merges."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from leadhand.fleet.forge.port import ACCESS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from leadhand.fleet.forge.port import Forge, MergeMethod
    from leadhand.fleet.forge.webhooks import WebhookListener

MergeBy = Literal["host", "train", "people"]
KEY_CHARS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeRules:
    """The behaviour that `[fleet.forge]` sets."""

    label: str = "leadhand"
    """Open issues with this label become epics; empty: `assignee` alone decides."""
    assignee: str = ""
    """Only issues of this account become epics; empty: the label alone decides."""
    start: tuple[str, ...] = ("write",)
    """Who may start work, answer and review: an access level, or names of accounts."""
    base: str = ""
    """The branch that pull requests go to; empty: the branch that the fleet follows."""
    prefix: str = "leadhand/"
    """How the names of our branches begin."""
    merge: MergeBy = "people"
    """Who merges: the host when all is well, the fleet's merge queue, or people."""
    method: MergeMethod = "squash"
    checks: tuple[str, ...] = ()
    """Checks that must pass on a pull request, and on the branch afterwards."""
    approvals: int = 1
    """How many people must approve before the host or the merge queue merges."""
    check_time_s: float = 7200.0
    """How long checks may take before the attempt fails."""
    look_s: float = 15.0
    """How often the host is looked at."""
    writes: tuple[str, ...] = ()
    """What the task of an issue may write, in a fleet without a planner."""

    def may_start(self, user: str, level: str) -> bool:
        """Return whether an account with this access level is among `start`."""
        held = ACCESS.index(level) if level in ACCESS else 0
        levels = [ACCESS.index(each) for each in self.start if each in ACCESS]
        named = [each.removeprefix("@").lower() for each in self.start if each not in ACCESS]
        return user.lower() in named or any(held >= max(1, least) for least in levels)


@dataclass(frozen=True, slots=True)
class ForgeSetup:
    """A code host for a fleet: how its client is opened, and the rules."""

    connect: Callable[[], Forge]
    rules: ForgeRules = ForgeRules()
    certificates: Path | None = None
    """A file of certificates that git trusts when it speaks to the host."""
    listen: Callable[[Callable[[], None]], Awaitable[WebhookListener]] | None = None
    """Begins to listen for webhooks, each of which calls the given function; None: only polling."""


def key_for(what: str, *parts: object) -> str:
    """Return the key of one write: the same for the same parts, and fit for a marker."""
    text = "\0".join(map(str, parts))
    return f"{what}:{hashlib.sha256(text.encode()).hexdigest()[:KEY_CHARS]}"
