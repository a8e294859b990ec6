"""The flow between a code host and a fleet: issues in, pull requests out, verdicts back.

    issue ─► epic (`intake`) ─► tasks ─► pull requests (`delivery`) ─► the host's branch ─► main
      ▲  questions and answers (`conversation`)                                    │
      └────────────────── closed with evidence (`closing`) ◄── green ◄─────────────┘

What is true stands in the log of the runs, in git, and on the host. Each look compares them and
does what is missing; every write has a key. So a fleet may be killed at any point.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.fleet.forge.context import ForgeContext
from leadhand.fleet.forge.conversation import Conversation
from leadhand.fleet.forge.delivery import Delivery
from leadhand.fleet.forge.intake import IssueIntake
from leadhand.fleet.forge.issue_closure import IssueClosure
from leadhand.fleet.forge.origin import issue_of
from leadhand.fleet.forge.people import People
from leadhand.fleet.forge.remote import HostRepository
from leadhand.fleet.merge.conductor import Ejected, QueuedChange

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from leadhand.core.state.model import State
    from leadhand.fleet.epics import Epic
    from leadhand.fleet.forge.port import Forge
    from leadhand.fleet.forge.rules import ForgeRules, ForgeSetup
    from leadhand.fleet.merge.conductor import Conductor
    from leadhand.fleet.repository.hub import Hub
    from leadhand.ports import RunHandle

Doc = dict[str, Any]
LOG_CHARS = 2000
BRANCH = "the branch of the code host"


class HostFollowing:
    """Brings the host's branch to the fleet's main, through the merge queue."""

    def __init__(self, context: ForgeContext) -> None:
        self._hub, self._conductor, self._remote = context.hub, context.conductor, context.remote
        self._base = context.rules.base
        self._lock = asyncio.Lock()
        self._refused_tip = ""
        self.refused = ""
        """Why the host's last commits are not on main, if so."""

    async def look(self) -> None:
        """Bring new commits of the host to main; return when they are there or refused."""
        async with self._lock:
            tip = await self._remote.tip(self._base)
            if not tip or tip == self._refused_tip:
                return
            if await self._remote.is_ancestor(tip, self._hub.main()):
                self.refused = ""
                return
            said = await self._hub.git("merge-base", tip, self._hub.main(), codes=(0, 1))
            if not said.text:
                self.refused = f"{tip[:12]} has no commit in common with main"
                return
            change = QueuedChange(
                run="",
                task="",
                attempt=0,
                base=said.text,
                head=tip,
                goal=f"Merge {tip[:12]} of {self._base}",
                joins=True,
                forward=True,
            )
            told = await self._conductor.land(change)
            self.refused = self._refused_tip = ""
            if isinstance(told, Ejected):
                self._refused_tip = tip
                self.refused = f"{tip[:12]} was not merged ({told.kind}): {told.log[-LOG_CHARS:]}"


class ForgeFlow:
    """A fleet's side of its code host."""

    def __init__(
        self,
        context: ForgeContext,
        known: Callable[[str], bool],
        begin: Callable[[str, Epic, Doc], Awaitable[None]],
        state: Callable[[str], State | None],
        *,
        planned: bool,
    ) -> None:
        """Create it; `known`, `begin` and `state` are the fleet's, by the name of a run."""
        self.forge, self.rules, self._state = context.forge, context.rules, state
        self.following = HostFollowing(context)
        self.delivery = Delivery(context, self.following.look, self._plan)
        self.intake = IssueIntake(context, known, begin, planned=planned)
        self.conversation = Conversation(context)
        self.closing = IssueClosure(context, self.delivery)

    @property
    def told(self) -> dict[str, str]:
        """Return what was ignored, waits or is in trouble, by its subject."""
        branch = {BRANCH: self.following.refused} if self.following.refused else {}
        return {
            **self.intake.refused,
            **self.conversation.refused,
            **self.closing.waiting,
            **self.delivery.trouble,
            **branch,
        }

    def issue_number(self, run: str) -> int:
        """Return the number of the issue that a run was begun for; 0: for none."""
        state = self._state(run)
        issue = issue_of(state) if state is not None else None
        return int(issue["number"]) if issue is not None else 0

    def about(self, run: str) -> Doc:
        """Return the issue and the pull requests of a run, for views."""
        state = self._state(run)
        issue = issue_of(state) if state is not None else None
        pulls = [each.url or str(each.number) for each in self.delivery.records(run)]
        return {**({"issue": issue} if issue else {}), **({"pulls": pulls} if pulls else {})}

    def _plan(self, run: str) -> list[tuple[str, str]]:
        state = self._state(run)
        steps = state.steps.values() if state is not None else ()
        return [(step.id, step.status) for step in steps]

    async def look(self, runs: Iterable[RunHandle], ended: Iterable[State]) -> None:
        """Look at the host once, and do what is due."""
        await self.following.look()
        await self.intake.look()
        open_ = list(runs)
        await self.conversation.look(open_)
        over = [each.state for each in open_ if each.state.ended is not None]
        await self.closing.look([*ended, *over])


class HostConnection(NamedTuple):
    """The code host of a fleet: its client, the rules, and its repository for git."""

    forge: Forge
    rules: ForgeRules
    remote: HostRepository


def connect_host(hub: Hub, setup: ForgeSetup) -> HostConnection:
    """Return the code host; nothing is sent yet."""
    forge, rules = setup.connect(), setup.rules
    if not rules.base:
        rules = replace(rules, base=hub.user.ref.removeprefix("refs/heads/"))
    return HostConnection(forge, rules, HostRepository(hub, forge, setup.certificates))


def forge_context(
    hub: Hub, host: HostConnection, conductor: Conductor, folder: Path, note: Callable[..., None]
) -> ForgeContext:
    """Return what the parts of the flow share."""
    people = People(host.forge, host.rules)
    return ForgeContext(hub, *host, people, conductor, folder, note)
