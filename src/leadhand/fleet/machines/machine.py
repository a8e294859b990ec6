"""A machine's side: an order comes in, a commit and a result go out.

    fetch the base ─► slot ─► agent in the sandbox ─► save, take ─► guard, gate ─► push ─► result

Slots, sandbox, agents and gate are those of a fleet at home, and so is the governor, which bounds
agents by what this machine has free. Nothing of a machine lands by itself: home judges what is
handed in as it judges its own agents' work, and only its train moves main.

A cancelled order ends the agent; its work is saved and handed in. When the lease is gone, or home
cannot be reached for longer than a lease lasts, the agent is ended, too: its work would be refused.
What it left stays in the mirror under the name of the attempt until the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec
from temporalio import activity
from temporalio.exceptions import ApplicationError

from leadhand.errors import LeadhandError
from leadhand.fleet.background import finish_despite_cancel
from leadhand.fleet.boundaries import outside
from leadhand.fleet.gate.gate import GateTrouble
from leadhand.fleet.gate.guard import findings
from leadhand.fleet.gate.test_runs import Ran
from leadhand.fleet.machines.lease import LeaseLost
from leadhand.fleet.machines.messages import (
    EVENT_CHARS,
    EVENTS_MAX,
    LOG_CHARS,
    TELL,
    WORK,
    Message,
    Sign,
    WorkDone,
    WorkOrder,
    session_of,
)
from leadhand.fleet.repository.git import GitFailed, printable_name
from leadhand.fleet.repository.hub import ref_of
from leadhand.fleet.workspace.clean_up import remove
from leadhand.fleet.workspace.slots import SlotGone
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from leadhand.fleet.agents.base import Assignment, Coder, CoderEvent
    from leadhand.fleet.gate.gate import Gate, GateVerdict
    from leadhand.fleet.governor import Governor
    from leadhand.fleet.machines.lease import HubRemote
    from leadhand.fleet.repository.hub import Hub
    from leadhand.fleet.workspace.slots import Slot, Slots
    from leadhand.workers.sandbox.sandbox import Sandbox

BEATS = 4
"""Signs of life in the time after which silence means death."""
AGAIN_S = 2.0
HOMES_MAX = 200
"""Private homes of agents that a machine keeps, the newest."""


@dataclass(slots=True)
class Job:
    """One order at work."""

    machine: str
    coder: Coder
    assignment: Assignment
    phase: str = "fetching"
    count: int = 0
    events: deque[CoderEvent] = field(default_factory=lambda: deque(maxlen=EVENTS_MAX))
    stopped: bool = False

    def heard(self, event: CoderEvent) -> None:
        """Take an event of the agent."""
        text, path = scrub(event.text[:EVENT_CHARS]), scrub(event.path[:EVENT_CHARS])
        self.events.append(replace(event, text=text, path=path))
        self.count += 1

    def sign(self) -> Sign:
        """Return a sign of life."""
        return Sign(
            machine=self.machine, phase=self.phase, heard=self.count, events=tuple(self.events)
        )


@dataclass(slots=True, kw_only=True)
class CoderMachine:
    """Carries out orders of one fleet."""

    name: str
    mirror: Hub
    remote: HubRemote
    slots: Slots
    gate: Gate
    sandbox: Sandbox
    governor: Governor
    coders: Mapping[str, Coder]
    rules: str
    homes: Path
    reachable: Callable[[], bool] = lambda: True
    jobs: dict[str, Job] = field(default_factory=dict)

    @activity.defn(name=WORK)
    async def work(self, order: WorkOrder) -> WorkDone:
        """Carry out one order. What keeps this machine from it is an `ApplicationError`."""
        job = self._job(order)
        self.jobs[order.lease] = job
        doing = asyncio.ensure_future(self._carry_out(order, job))
        heard = time.monotonic()
        while not doing.done():
            try:
                await asyncio.wait([doing], timeout=order.heartbeat_s / BEATS)
                activity.heartbeat(job.sign())
            except asyncio.CancelledError:
                self._stop(job, doing)
            heard = time.monotonic() if self.reachable() else heard
            if time.monotonic() - heard > 2 * order.heartbeat_s:
                self._stop(job, doing)
        self.jobs.pop(order.lease, None)
        await asyncio.to_thread(_prune, self.homes)
        try:
            return doing.result()
        except asyncio.CancelledError:
            raise ApplicationError("it was ended before its agent began") from None
        except (LeadhandError, OSError) as error:
            raise ApplicationError(f"{error}"[:500]) from error

    @activity.defn(name=TELL)
    async def tell(self, message: Message) -> bool:
        """Tell an agent something; return False if it cannot be told."""
        job = self.jobs.get(message.lease)
        return job is not None and job.coder.message(job.assignment, message.text)

    def _job(self, order: WorkOrder) -> Job:
        coder = self.coders.get(order.coder)
        if coder is None:
            known = ", ".join(sorted(self.coders))
            raise ApplicationError(
                f"it has no coder {order.coder!r}, only {known}. Fix: write [coders.{order.coder}] "
                "into its leadhand.toml, as at home"
            )
        if order.rules != self.rules:
            raise ApplicationError(
                "its gate is not the fleet's. Fix: give it the [fleet] of home's leadhand.toml"
            )
        session = session_of(self.name, order.assignment.session)
        return Job(self.name, coder, replace(order.assignment, session=session))

    def _stop(self, job: Job, doing: asyncio.Future[WorkDone]) -> None:
        """End the agent, or what comes before it; what is left of its work is handed in."""
        if job.phase == "agent":
            job.stopped = job.coder.stop(job.assignment) or job.stopped
        elif job.phase in ("fetching", "waiting", "gate"):
            job.stopped = True
            doing.cancel()

    async def _carry_out(self, order: WorkOrder, job: Job) -> WorkDone:
        given = job.assignment
        ref = ref_of("wip", given.run, given.task, given.attempt)
        await self.remote.fetch(order.base)
        job.phase = "waiting"
        async with (
            self.governor.place(job.coder.name, login=""),
            self.slots.lease(order.base, saved_as=ref) as slot,
        ):
            job.phase = "agent"
            done = await self._agent(slot, job, ref)
            if done.head and not done.result.failure and not job.stopped:
                job.phase = "gate"
                verdict = await self._judge(order, slot, done) if order.screen else None
                done = msgspec.structs.replace(done, verdict=verdict)
        job.phase = "handing in"
        return await self._hand_in(order, job, done)

    async def _agent(self, slot: Slot, job: Job, ref: str) -> WorkDone:
        """Let the agent work; its result, and its work as commits of the mirror."""

        async def ending(_why: str) -> None:
            await slot.save(ref)

        result = await job.coder.work(job.assignment, slot, self.sandbox, job.heard, ending=ending)
        self.governor.heard(job.coder.name, "" if job.stopped else result.failure, None)
        try:
            work = await finish_despite_cancel(slot.save(ref))
            slot.saved = True
            taken = await slot.take()
        except SlotGone as gone:
            slot.saved = True
            return WorkDone(sign=job.sign(), result=result, gone=str(gone))
        return WorkDone(
            sign=job.sign(),
            result=result,
            work=work or "",
            head=taken.head,
            left_out={printable_name(path): why for path, why in taken.left_out.items()},
            ignored=tuple(map(printable_name, taken.ignored[:EVENTS_MAX])),
            elsewhere={printable_name(name): sha for name, sha in taken.elsewhere.items()},
        )

    async def _judge(self, order: WorkOrder, slot: Slot, done: WorkDone) -> GateVerdict | None:
        """Return the gate's verdict; None where home refuses the change without one, or decides."""
        given, mirror = order.assignment, self.mirror
        changed = await mirror.changed(slot.base, done.head)
        if outside(sorted(changed), given.writes) or done.left_out:
            return None
        if await findings(mirror, slot.base, done.head):
            return None
        tests = order.tests
        if tests is not None and self.gate.known.of(tests.tree) is None:
            passed = Counter(tests.passed)
            self.gate.known.keep(tests.tree, Ran(passed, counted=tests.counted, runs=tests.runs))
        try:
            verdict = await self.gate.check(done.head, given.acceptance)
        except (GateTrouble, GitFailed, OSError):
            return None  # this machine's trouble: home runs its own gate
        return replace(verdict, log=scrub(verdict.log[-LOG_CHARS:]))

    async def _hand_in(self, order: WorkOrder, job: Job, done: WorkDone) -> WorkDone:
        """Push the work, as often as the network needs. Raise `LeaseLost`."""
        mirror = self.mirror
        commits = tuple(dict.fromkeys(filter(None, (done.work, done.head))))
        if not commits:
            return msgspec.structs.replace(done, sign=job.sign())
        seal = await mirror.commit(await mirror.tree(order.base), commits, "What a machine made")
        began = time.monotonic()
        while True:
            try:
                await self.remote.hand_in(order.lease, order.base, seal)
                return msgspec.structs.replace(done, sign=job.sign(), seal=seal)
            except LeaseLost:
                raise
            except GitFailed:
                if time.monotonic() - began > order.limit_s:
                    raise
            await asyncio.sleep(AGAIN_S)


def _prune(homes: Path) -> None:
    """Remove the oldest homes of agents beyond those that are kept."""
    with contextlib.suppress(OSError):
        found = sorted(homes.iterdir(), key=lambda path: path.stat().st_mtime)
        for path in found[: max(0, len(found) - HOMES_MAX)]:
            remove(path)
