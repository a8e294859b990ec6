"""Usage limits of logins: what a provider refuses until a stated time is waited out.

Agents that use one login (an account or a key) share its limit. When one of them is told that it is
reached, every task of that login waits until the limit ends: agents at work are ended with their
work saved, none is started, no try is used up and nothing counts as a failure. Then the work goes
on, one agent after the other. The limits are kept in a file of the fleet's folder, so that a fleet
that is started again does not run into them.

Laws
    1. No agent makes a limit. Where the door sees the provider's answers (`provider_answers.py`), a
       limit is a refusal that was seen there, and ends when the provider said.
    2. Where it does not, a limit is what a program printed, and an agent may have had a part in
       that. Then the task that was told of it waits, alone; the login waits once agents of two
       tasks were told; either for `UNTOLD_S` at most, after which it is tried again.
    3. One task holds itself up in this way no longer than the longest limit that is waited out.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.core.calendar import iso
from leadhand.stores.sqlite.connection import sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from leadhand.fleet.agents.base import Coder, CoderResult

NAME = "usage-limits.json"

WAIT_S_MIN = 60.0
"""A shorter limit is left to the retries of the task."""
UNTOLD_S = 900.0
"""How long is waited when a provider says that a limit is reached, and not until when."""
SPREAD_S = 10.0
"""Work goes on at most this long after the limit has ended, so that not all come at once."""
WORDS = 200

_REACHED = re.compile(
    r"(?:usage|session|weekly|daily|monthly|5-hour|opus|sonnet)[ _]limit|limit reached"
    r"|(?:hit|reached) your (?:\w+ )?limit|tokens per day|exhausted your capacity",
    re.IGNORECASE,
)


class UsageLimit(NamedTuple):
    """One login that its provider refuses for a while."""

    login: str
    until: float
    """In seconds since the epoch."""
    words: str
    """What the provider or the agent's tool said."""
    told: bool = True
    """Whether the time was told; otherwise it is when the login is tried again."""
    sure: bool = True
    """Whether the provider was seen to refuse; otherwise a program printed that it does."""

    @property
    def why(self) -> str:
        """Return the reason that no agent of this login starts."""
        when = iso(int(self.until * 1e6))[:16].replace("T", " ") + " UTC"
        ends = f"until {when}" if self.told else f"end not told; tried again at {when}"
        seen = "" if self.sure else ", as its program says"
        return f"the usage limit of {self.login} is reached{seen}, {ends}"

    def told_as(self, tasks: int | None) -> dict[str, Any]:
        """Return the limit for `fleet status` and the page; `tasks` is how many wait for it."""
        return {
            "login": self.login,
            "until": iso(int(self.until * 1e6)),
            "told": self.told,
            "said": self.words,
            "tasks": tasks,
        }


class LimitReached(Exception):
    """An agent was ended by a usage limit: its task goes on when the limit has ended."""

    def __init__(self, limit: UsageLimit, session: str, cost: float) -> None:
        super().__init__(limit.why)
        self.limit, self.session, self.cost = limit, session, cost


class UsageLimits:
    """The limits that hold now, by login."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        wait_max_s: float = 8 * 86_400.0,
        wait_min_s: float = WAIT_S_MIN,
        spread_s: float = SPREAD_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Read the limits kept in `folder`.

        - `wait_max_s`: the longest limit that is waited out; 0: none is.
        - `wait_min_s`: a shorter limit is left to the retries of the task.
        """
        self._folder, self._clock = folder, clock
        self._wait_max_s, self._wait_min_s = wait_max_s, wait_min_s
        self._spread_s = spread_s
        self._limits: dict[str, UsageLimit] = _read(folder) if folder else {}
        self._claims: dict[str, dict[str, UsageLimit]] = {}
        """By login and task: what only a program printed."""
        self._held: dict[tuple[str, str], float] = {}
        """By login and task: how long the task waited for what only a program printed."""
        self.parked: Counter[str] = Counter()
        """By login: the tasks that wait for the end of its limit."""

    def limit_of(self, login: str, task: str = "") -> UsageLimit | None:
        """Return the limit that holds for a login; None if its agents may start.

        - `task`: one that may have to wait although others of its login start.
        """
        limit = self._limits.get(login)
        if limit is not None and self._clock() >= limit.until:
            del self._limits[login]
            limit = None
        if limit is None and (claim := self._claims.get(login, {}).get(task)) is not None:
            limit = claim if self._clock() < claim.until else None
        return limit

    def standing(self) -> list[UsageLimit]:
        """Return all limits that hold now, the next to end first."""
        found = [limit for login in list(self._limits) if (limit := self.limit_of(login))]
        return sorted(found, key=lambda limit: limit.until)

    def heard(self, login: str, result: CoderResult, task: str = "") -> UsageLimit | None:
        """Take how the agent of a task ended; return the limit that is to be waited out, if any.

        It holds for the login if `limit_of` says so, else for this task alone.
        """
        if result.failure != "rate_limited" or result.provider == "answered":
            return None
        wait, told = result.retry_after_s, result.retry_after_s is not None
        if wait is None and _REACHED.search(result.why):
            wait = UNTOLD_S
        if wait is None or not self._wait_min_s <= wait <= self._wait_max_s:
            return None
        until = self._clock() + random.uniform(0.0, self._spread_s)  # noqa: S311 - no secret
        words = result.why[:WORDS]
        if result.provider == "refused":
            return self.reached(UsageLimit(login, until + wait, words, told))
        told, wait = told and wait <= UNTOLD_S, min(wait, UNTOLD_S)
        held = self._held.get((login, task), 0.0) + wait
        if held > self._wait_max_s:
            return None
        self._held[login, task] = held
        return self._claimed(UsageLimit(login, until + wait, words, told, sure=False), task)

    def _claimed(self, limit: UsageLimit, task: str) -> UsageLimit:
        """Keep what the program of one task printed; it holds for the login if another's did."""
        now, claims = self._clock(), self._claims.get(limit.login, {})
        standing = {name: each for name, each in claims.items() if now < each.until}
        self._claims[limit.login] = {**standing, task: limit}
        return self.reached(limit) if standing.keys() - {task} else limit

    def reached(self, limit: UsageLimit) -> UsageLimit:
        """Keep a limit, unless a later one is known; return the one that holds."""
        known = self.limit_of(limit.login)
        if known is not None and known.until >= limit.until - self._spread_s:
            return known
        self._limits[limit.login] = limit
        if self._folder is not None:
            _write(self._folder, self.standing())
        return limit

    @contextmanager
    def parking(self, login: str) -> Iterator[None]:
        """Count a task among those that wait for the end of a limit."""
        self.parked[login] += 1
        try:
            yield
        finally:
            self.parked[login] -= 1

    def lift(self, login: str) -> UsageLimit | None:
        """End a limit before its time; return it, or None if there is none.

        Tasks of the login start again. If its provider still refuses, the limit is told anew.
        """
        self._claims.pop(login, None)
        if (limit := self.limit_of(login)) is None:
            return None
        del self._limits[login]
        if self._folder is not None:
            _write(self._folder, self.standing())
        return limit


def login_of(coder: Coder) -> str:
    """Return the login that a coder uses; its name if none is configured."""
    return str(getattr(coder, "login", "") or coder.name)


def _read(folder: Path) -> dict[str, UsageLimit]:
    try:
        found = json.loads((folder / NAME).read_text(encoding="utf-8"))
        made = [
            UsageLimit(
                str(each["login"]),
                float(each["until"]),
                str(each["words"]),
                each["told"],
                each.get("sure", True),
            )
            for each in found
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}  # the first agent is told of the limit again
    return {limit.login: limit for limit in made}


def _write(folder: Path, limits: list[UsageLimit]) -> None:
    fresh = folder / f".{NAME}"
    with fresh.open("w", encoding="utf-8") as file:
        json.dump([limit._asdict() for limit in limits], file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / NAME)
    sync_folder(folder)
