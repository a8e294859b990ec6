"""The coder: a worker whose steps are changes of a repository, done when they are on main.

    boundaries ─► slot at main ─► agent ─► what it left ─► within bounds? ─► gate ─► train ─► main
                                    │ ended badly                │ no          │ red    │ ejected
                                    └────────────── a failure with its class, and a handoff ─┘

An agent is never believed: neither its exit code nor its last words. What counts is what it left
in the slot, whether that stays within the paths it was given, whether acceptance and gate hold
for it, and whether it is on main. Until then nothing has happened outside, so every failure has
the effect "none" and may be tried again; what was left is saved before anybody is ended, and the
next attempt is told of it.

The ladder is the core's. What this file adds is who tries again: an agent's second try goes on with
the same conversation; whoever comes next (`coder@fresh`, `coder@strong`) begins a new one with a
handoff. An agent that cannot go on asks: a line `needs: …` among its closing words, with nothing
left that passes, is a question (`needs_info`), not a failure. A task whose files others changed
since it was planned goes back to whoever planned it before anybody starts. After a crash `probe`
answers from git: a commit on main with the trailers of this run and task is the task, done.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.report import Failure, Report
from leadhand.errors import LeadhandError, UsageError
from leadhand.fleet import review
from leadhand.fleet.agents import brief
from leadhand.fleet.agents.base import Assignment, Coder, CoderEvent, CoderResult
from leadhand.fleet.agents.transcripts import Transcript, place
from leadhand.fleet.background import finish_despite_cancel
from leadhand.fleet.boundaries import outside
from leadhand.fleet.context import AttemptLimits, AtWork, FleetContext
from leadhand.fleet.forge.delivery import PullRecord, Rejected, rework_of
from leadhand.fleet.gate.gate import GateTrouble
from leadhand.fleet.gate.guard import findings, protected_parts
from leadhand.fleet.governor import Overtaken
from leadhand.fleet.machines.messages import session_of
from leadhand.fleet.machines.remote_slot import MachineLost, RemoteSlot
from leadhand.fleet.merge.conductor import Ejected, Landed, QueuedChange
from leadhand.fleet.merge.early import base_taken_in
from leadhand.fleet.planning.survey import appeared_or_gone, changes_since
from leadhand.fleet.repositories import repository_of, unknown_repository
from leadhand.fleet.repository.git import GitFailed, printable_name
from leadhand.fleet.repository.hub import ref_of
from leadhand.fleet.status.ladder import CODER
from leadhand.fleet.take_over import (
    AGENT,
    ASKED,
    REFUSED_CHARS,
    SENT_BACK,
    TakenOver,
    TakenTask,
)
from leadhand.fleet.tasks import (
    PARAMETERS,
    RETURNS,
    Left,
    Paid,
    PlannedTask,
    conflict_in,
    overtaken_report,
    wrong_with,
)
from leadhand.fleet.usage_limits import LimitReached, UsageLimit, login_of
from leadhand.fleet.workspace.slots import SetupFailed, Slot, SlotGone
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Iterable,
        Mapping,
        Sequence,
    )

    from leadhand.fleet.agents.base import Assignment, Coder
    from leadhand.fleet.boundaries import Boundaries
    from leadhand.fleet.context import AttemptLimits, FleetContext
    from leadhand.fleet.gate.gate import GateVerdict
    from leadhand.fleet.governor import Governor
    from leadhand.fleet.repository.hub import Hub
    from leadhand.ports import Context
    from leadhand.ports import Task as Attempt


# Trouble of the machine: it is waited for, and uses up no try.
#
# A disk that is full, a package index that does not answer, a process that cannot be started:
# whoever comes next fares no better, so no other agent is asked, and what an agent has finished is
# kept. It is tried again, later and later; meanwhile nobody starts, and `fleet status` says why.
# What does not pass within a day is reported, as an outage.


TROUBLE = (SetupFailed, GateTrouble, GitFailed, OSError)
PATIENCE_S = 86_400.0
PAUSE_S = 1.0
PAUSE_S_MAX = 60.0
OUTAGE_S = 600.0
"""How long an outage is reported to last: long enough to be parked."""
WORDS = 300

T = TypeVar("T")


class TroublePatience:
    """How long something has been in trouble by now."""

    def __init__(self, governor: Governor, said: Callable[[str], None]) -> None:
        self._governor, self._said = governor, said
        self._since: float | None = None
        self._pause_s = PAUSE_S

    def another(self, trouble: Exception) -> float:
        """Return how long to wait, during which no agent starts; 0: it has lasted too long."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= PATIENCE_S:
            return 0.0
        words = " ".join(str(trouble).split())[:WORDS]
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, PAUSE_S_MAX)
        self._governor.pause(f"trouble, which is waited for: {words}", pause_s)
        self._said(f"waits, since {words}")
        return pause_s


async def retry_trouble(
    governor: Governor, said: Callable[[str], None], work: Callable[[], Awaitable[T]]
) -> T:
    """Return the result of `work`, repeated through trouble of the machine.

    Raise trouble that does not pass.
    """
    patience = TroublePatience(governor, said)
    while True:
        try:
            return await work()
        except TROUBLE as trouble:
            if not (pause_s := patience.another(trouble)):
                raise
        await asyncio.sleep(pause_s)


# Admission of a task: the paths that it may write, and a place for its agent.
#
# Paths come first, so that no place is taken by somebody who cannot start. But a task that has its
# paths and waits for a place keeps others from them; should one of these be more urgent, it gives
# them back, and lines up behind it.


@asynccontextmanager
async def turn(  # noqa: PLR0913 - what is known of one task
    boundaries: Boundaries,
    governor: Governor,
    writes: Sequence[str],
    kind: str,
    priority: int,
    name: str = "",
    login: str = "",
    goal: str = "",
    *,
    against: Callable[[], str] = lambda: "",
) -> AsyncIterator[None]:
    """Wait for both, and keep them while the block lasts; `name` and `goal` are the task's.

    `against` says why no agent may start on the repository.
    """
    while True:
        async with boundaries.hold(writes, priority, name, goal) as claim:
            try:
                async with governor.place(kind, priority, claim.is_wanted, login, against):
                    yield
                    return
            except Overtaken:
                continue


# Deferred landing: finished changes that trouble of the machine kept from main.
#
# They are kept under a name in the hub, and the failure of their attempt says where. The next
# attempt goes on with the change as it is: nobody is paid for it twice.


KEY = "finished"


class FinishedChange(NamedTuple):
    """A finished change that waits to be landed, with the facts of its attempt."""

    left: Left
    handoff: dict[str, Any]


async def put_off(hub: Hub, assignment: Assignment, left: Left) -> dict[str, Any]:
    """Keep a change for the next attempt: where, for the report; nothing when it cannot be."""
    ref = ref_of("task", assignment.run, assignment.task, assignment.attempt)
    with suppress(OSError, LeadhandError):
        await hub.submit(ref, left.head)
        return {KEY: {"ref": ref, "base": left.base}}
    return {}


async def deferred_change(hub: Hub, context: Context) -> FinishedChange | None:
    """Return the change that the last attempt could not land, unless a person said more since."""
    last = context.failures[-1].details if context.failures else None
    found = last.get(KEY) if isinstance(last, dict) else None
    if not isinstance(found, dict) or not isinstance(last, dict):
        return None
    if context.answers and (context.answers[-1].get("text") or context.answers[-1].get("data")):
        return None
    ref, base = str(found.get("ref", "")), str(found.get("base", ""))
    head = (await hub.kept(ref)).get(ref, "") if ref else ""
    handoff = {key: value for key, value in last.items() if key != KEY}
    return FinishedChange(Left(base, head), handoff) if head and base else None


CONFLICTS_MAX = 3
"""Conflicts with others' work that one attempt settles, each on a newer main. Those that follow are
failures: two tasks do not send each other back for ever."""
NO_CONFLICT: Any = MappingProxyType({})


class Conflicted(Exception):
    """A change conflicts with others' work that landed first: its agent settles it, and goes on."""

    def __init__(self, conflict: Mapping[str, Any], session: str, cost: float) -> None:
        super().__init__("in conflict: " + ", ".join(conflict.get("paths", ())))
        self.conflict, self.session, self.cost = conflict, session, cost


class Interrupted(NamedTuple):
    """What came between: a usage limit that ended the last conversation, changes of others."""

    worker: str = ""
    session: str = ""
    cost: float = 0.0
    others: tuple[dict[str, Any], ...] = ()
    """Commits of others, since the task was planned, in files that it may write."""
    person: str = ""
    """What a person says who had the task meanwhile, and gave it back."""
    finished: bool = False
    """Whether an earlier attempt left a change that only has to land."""
    conflict: Mapping[str, Any] = NO_CONFLICT
    """The conflict with others' work that sent the last change back (`tasks.conflict_in`)."""
    conflicts: int = 0
    """How often that happened in this attempt."""

    def __bool__(self) -> bool:
        """Return whether there was an agent before."""
        return bool(self.worker)

    def by(self, worker: str, reached: LimitReached | TakenOver | Conflicted) -> Interrupted:
        """Return it with one more conversation."""
        cost = self.cost + reached.cost
        known = self._replace(worker=worker, session=reached.session, cost=cost)
        if isinstance(reached, Conflicted):
            return known._replace(conflict=reached.conflict, conflicts=self.conflicts + 1)
        return known

    def paid(self, cost: float) -> Interrupted:
        """Return it with the cost of an agent that was lost."""
        return self._replace(cost=self.cost + cost)

    def session_of(self, worker: str) -> str:
        """Return the conversation that a worker can go on with; empty if it was another's."""
        return self.session if worker == self.worker else ""


LIMIT_LOOK_S = 2.0
LOSSES_MAX = 5
"""Machines that an attempt may lose one after the other before it counts as failed."""
SAID_CHARS = 1200
FINDINGS_TOLD = 20
LOG_CHARS = 3500
"""How much of a log an agent is told, and a report keeps: of its end, which says what is wrong."""
LINE_S = 365 * 86_400.0
"""The deadline of an attempt. All of it but waiting (for paths, a place, money, gate and train) has
a clock of its own, and nobody is to lose a try by waiting."""
PATHS_NOTED = 50
WITH_BATCH = "counted with its batch"
"""Of a commit whose tests were counted at the tip that it landed with."""
NET_S = 600.0
"""More than the time it has is given to no agent, should its own clocks fail."""


class CoderWorker:
    """Gives tasks to agents of one kind and one tier."""

    def __init__(
        self,
        shop: FleetContext,
        coder: Coder,
        *,
        name: str = CODER,
        model: str = "",
        limits: AttemptLimits | None = None,
        stronger: str = "",
        concurrency: int | None = None,
    ) -> None:
        self.shop, self.coder, self.model = shop, coder, model
        self.login = login_of(coder)
        self.limits = limits or AttemptLimits()
        self._verdicts: dict[str, dict[str, GateVerdict]] = {}
        """Verdicts of other machines on changes that are about to land, by task and tree."""
        self.stand_ins: tuple[CoderWorker, ...] = ()
        """Workers with other logins that take over while a usage limit of this one holds."""
        self.elsewhere: Mapping[str, CoderWorker] = {}
        """The same worker for each further repository of the fleet, by name."""
        offer = Offer(
            parameters=PARAMETERS,
            returns=RETURNS,
            effects=("repository",),
            risk="medium",
            idempotent=True,
            probe=True,
            timeout_s=LINE_S,
        )
        self.spec = WorkerSpec(
            name=name,
            kind="coder",
            version=f"{coder.name}:{model}",
            description=f"changes the repository with {coder.name}, and lands what it changed",
            offers={"": offer},
            max_concurrency=concurrency,
            trusted=False,
            stronger=stronger,
        )

    async def perform(self, task: Attempt, context: Context) -> Report:
        """Run one attempt, from a slot to main of the repository that its task belongs to."""
        own = repository_of({"parameters": task.parameters})
        if own != self.shop.name:
            if own in self.elsewhere:
                return await self.elsewhere[own].perform(task, context)
            words = unknown_repository(own, list(self.elsewhere))
            return Report("failed", error=Failure("permanent", words, "none"))
        shop, name = self.shop, f"{task.run}/{task.step}"
        shop.in_flight.add(name)
        try:
            report = await self._performed(task, context)
        finally:
            shop.in_flight.discard(name)
        if report.error is None:
            shop.taken.release(task.run, task.step)
        return report

    async def _performed(self, task: Attempt, context: Context) -> Report:
        shop, given = self.shop, msgspec.convert(task.parameters, PlannedTask)
        if landed := shop.hub.landed(task.run, task.step):
            return await self._adopted(landed)
        if shop.forge is not None and (
            handed := shop.forge.delivery.pending(task.run, task.step, context.failures)
        ):
            return await self.deliver(handed, context)
        patience = TroublePatience(shop.governor, context.progress)
        finished = review.approved_change(context) or await deferred_change(shop.hub, context)
        interrupted, worker, losses = Interrupted(finished=bool(finished)), self, 0
        while True:
            if not finished and shop.taken.of(task.run, task.step) is not None:
                told = await self._with_person(task, given, context, interrupted)
                if isinstance(told, Report):
                    return told
                interrupted = told
            if not finished:  # a finished change needs no agent: it only has to land
                worker = await self._free_worker(task, context)
            try:
                attempt = worker.attempt_in_turn(task, given, context, interrupted)
                made = await self._unless_taken(task, attempt)
                report = made if isinstance(made, Report) else await worker.deliver(made, context)
                return report if worker is self else worker.instead_of(self, report)
            except TakenOver as taken:  # no try is used up: wait until the person gives it back
                if taken.session or taken.cost:
                    interrupted = interrupted.by(worker.spec.name, taken)
            except Conflicted as met:  # no try is used up: nothing failed, others were first
                interrupted = interrupted.by(worker.spec.name, met)
                context.progress(str(met)[:WORDS])
            except LimitReached as reached:  # no try is used up: queue again until it has ended
                interrupted = interrupted.by(worker.spec.name, reached)
                context.progress(f"waits: {reached}")
            except MachineLost as lost:  # no try is used up: the task goes elsewhere
                interrupted = interrupted.paid(lost.cost)
                losses += bool(lost.machine)
                context.progress(f"goes elsewhere: {lost}")
                about = {"run": task.run, "task": task.step, "attempt": task.attempt}
                shop.note("machine lost", **about, machine=lost.machine, why=str(lost)[:WORDS])
                if losses >= LOSSES_MAX:
                    words = f"{losses} machines did not carry it out; the last is {lost}"
                    return _failed("unavailable", words, OUTAGE_S, interrupted.cost)
            except TROUBLE as trouble:  # no agent has begun: queue again after a pause
                if not patience.another(trouble):
                    return _failed("unavailable", str(trouble), OUTAGE_S)

    async def _unless_taken(self, task: Attempt, attempt: Coroutine[Any, Any, T]) -> T:
        """Await an attempt; raise `TakenOver` if a person takes the task before an agent begins."""
        shop, name = self.shop, f"{task.run}/{task.step}"
        doing = asyncio.ensure_future(attempt)
        try:
            while not doing.done():
                changed = shop.taken.changed(task.run, task.step)
                if shop.taken.of(task.run, task.step) is not None and name in shop.admitting:
                    break
                await asyncio.wait((doing, changed), return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
            else:
                return doing.result()
        finally:
            if not doing.done():
                doing.cancel()
                await asyncio.gather(doing, return_exceptions=True)
        raise TakenOver

    async def _with_person(
        self, task: Attempt, given: PlannedTask, context: Context, interrupted: Interrupted
    ) -> Report | Interrupted:
        """Wait while a person has the task, and land the commits that they give.

        Return the report once they have landed or wait for an approval; otherwise what the agent
        that goes on is told.
        """
        shop, run, step = self.shop, task.run, task.step
        while (taken := shop.taken.of(run, step)) is not None:
            if not taken.ready:  # its agent was lost with an earlier fleet, which saved its work
                taken = shop.taken.change(run, step, ready=True, **await self._kept(run, step))
            if taken.given == AGENT:
                await self._import(task, taken)
                shop.taken.release(run, step)
                told = f"{taken.by} had it meanwhile. {taken.message}".strip()
                return interrupted._replace(worker=self.spec.name, person=told)
            if taken.given == ASKED:
                taken = shop.taken.change(run, step, given="", refused=SENT_BACK)
            changed = shop.taken.changed(run, step)
            if not taken.given:
                context.progress(f"taken by {taken.by}")
                await changed
                continue
            changed.cancel()
            made = await self._land_given(task, given, context, taken, interrupted)
            report = made if isinstance(made, Report) else await self.deliver(made, context)
            kind = report.error.failure_class if report.error is not None else ""
            if kind not in ("criteria_unmet", "needs_info", "transient"):
                if kind == "policy":
                    shop.taken.change(run, step, given=ASKED)
                return report
            assert report.error is not None
            words = report.error.message[:REFUSED_CHARS]
            shop.taken.change(run, step, given="", refused=words)
            shop.note("given back", run=run, task=step, by=taken.by, why=words[:WORDS])
        return interrupted

    async def _kept(self, run: str, step: str) -> dict[str, str]:
        """Return the last work in progress of a task's agents, and the commit it began with."""
        prefix = ref_of("wip", run, step, 0).removesuffix("0")
        saved = await self.shop.hub.kept(prefix)
        numbers = {int(number): ref for ref in saved if (number := ref[len(prefix) :]).isdigit()}
        if not numbers:
            return {"base": self.shop.hub.main()}
        work = saved[numbers[max(numbers)]]
        return {"base": await self.shop.hub.resolve(f"{work}^1"), "work": work}

    async def _import(self, task: Attempt, taken: TakenTask) -> Left | str:
        """Take the person's commits into the hub, as one commit on the main they began with.

        Return why they cannot be taken, if so: trying again would not help.
        """
        hub, bundle = self.shop.hub, self.shop.taken.bundle_of(taken)
        if bundle is None or not taken.head or not bundle.exists():
            return "there are no commits in what was given"
        if (await hub.git("bundle", "verify", "--quiet", str(bundle), codes=(0, 1))).code:
            return "it builds on commits that the fleet does not have. Fix: git rebase fleet/main"
        ref = ref_of("task", task.run, task.step, task.attempt)
        fetch = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--force")
        await hub.git(*fetch, str(bundle), f"HEAD:{ref}")
        head = await hub.resolve(ref)
        if head != taken.head:  # the file is written before the fleet says whose task it is
            return "the commits are no longer those that were given. Fix: give it again"
        base = (await hub.git("merge-base", hub.main(), head, codes=(0, 1))).text
        if not base:
            return "it has no commit in common with main. Fix: commit on the branch of the clone"
        message = (await hub.git("log", "-1", "--format=%B", head)).text
        made = await hub.commit(await hub.tree(head), [base], message, author=taken.author)
        await hub.submit(ref_of("wip", task.run, task.step, task.attempt), made)
        return Left(base, made)

    async def _land_given(
        self,
        task: Attempt,
        given: PlannedTask,
        context: Context,
        taken: TakenTask,
        interrupted: Interrupted,
    ) -> Report | PullRecord:
        """Bring a person's commits to main, by the way that an agent's work goes."""
        paid = Paid(CoderResult(ended="result", said=f"{taken.by} did it"))
        paid.add(interrupted.cost)
        try:
            left = await self._endure(context, lambda: self._import(task, taken))
        except TROUBLE as trouble:
            return paid.failed("unavailable", str(trouble), OUTAGE_S, {})
        if isinstance(left, str):
            return paid.failed("criteria_unmet", left, None, {})
        changed = await self._endure(context, lambda: self.shop.hub.changed(left.base, left.head))
        if beyond := outside(sorted(changed), given.writes):
            named = ", ".join(map(printable_name, beyond[:5]))
            words = f"it changes {named}, which is outside of {', '.join(given.writes)}"
            return paid.failed("criteria_unmet", words, None, {})
        assignment = await self._assignment(task, given, context, interrupted)
        alone = not (taken.coder or taken.work or interrupted)
        assignment = replace(assignment, session="", person=taken.author, alone=alone)
        handoff = {"person": taken.author, "by": self.spec.name}
        return await self._land(assignment, given, context, left, paid, handoff)

    async def _free_worker(self, task: Attempt, context: Context) -> CoderWorker:
        """Return the worker whose agent does the task: this one, or a stand-in within its limit.

        While a limit holds and there is no stand-in, wait: paths and places are free for others.
        """
        limits, taken = self.shop.governor.limits, self.shop.taken
        name = f"{task.run}/{task.step}"
        while (limit := limits.limit_of(self.login, name)) is not None:
            if taken.of(task.run, task.step) is not None:
                return self
            for other in self.stand_ins:
                if limits.limit_of(other.login) is None:
                    context.progress(f"{other.coder.name} takes over: {limit.why}")
                    return other
            context.progress(f"waits: {limit.why}")
            with limits.parking(self.login):
                await asyncio.sleep(min(LIMIT_LOOK_S, max(0.05, limit.until - time.time())))
        return self

    def instead_of(self, first: CoderWorker, report: Report) -> Report:
        """Return the report of an attempt that this worker did for another, and that says so.

        The log names the first one as the worker of the attempt: it was chosen for it.
        """
        by = {"worker": self.spec.name, "coder": self.coder.name, "model": self.model}
        told = {"stand_in": {**by, "login": self.login, "for_login": first.login}}
        if report.error is None:
            data = report.data if isinstance(report.data, dict) else {}
            return replace(report, data={**data, **told})
        details = report.error.details if isinstance(report.error.details, dict) else {}
        return replace(report, error=replace(report.error, details={**details, **told}))

    async def attempt_in_turn(
        self, task: Attempt, given: PlannedTask, context: Context, interrupted: Interrupted
    ) -> Report | PullRecord:
        """Run the attempt once its paths and a place are free.

        With a code host, return the record of a change that goes to main by a pull request. Raise
        trouble until an agent begins, `LimitReached` when a usage limit ended it, and `TakenOver`
        when a person took its task.
        """
        shop, who = self.shop, (task.run, task.step, task.attempt)
        shop.admitting.add(f"{task.run}/{task.step}")
        try:
            return await self._admitted(task, given, context, interrupted, who)
        finally:
            shop.admitting.discard(f"{task.run}/{task.step}")

    async def _admitted(
        self,
        task: Attempt,
        given: PlannedTask,
        context: Context,
        interrupted: Interrupted,
        who: tuple[str, str, int],
    ) -> Report | PullRecord:
        shop = self.shop
        login = "" if interrupted.finished else self.login
        alone = shop.sharing.reserved(given.writes)
        named = f"{task.run}/{task.step}"
        held = alone, self.coder.name, given.priority, named, login, given.goal
        if shop.price is not None:
            await shop.price.refresh(shop.hub)
        async with turn(shop.boundaries, shop.governor, *held, against=shop.against):
            since = given.base if task.attempt == 1 else ""
            free = shop.sharing.append
            others = await changes_since(shop.hub, task.run, since, given.writes, free)
            if others and await appeared_or_gone(shop.hub, since, alone):
                return overtaken_report(others)
            interrupted = interrupted._replace(others=tuple(others))
            start = rework_of(context).tip or shop.hub.main()
            kept = ref_of("wip", *who)
            if not interrupted.finished and await self._goes_elsewhere(context):
                assert shop.machines is not None  # it goes to one of them
                screen = self._screens(given, context)
                async with shop.machines.lease(start, saved_as=kept, screen=screen) as remote:
                    return await self._attempt(task, given, context, remote, interrupted)
            async with shop.slots.lease(start, saved_as=kept) as slot:
                return await self._attempt(task, given, context, slot, interrupted)

    async def _goes_elsewhere(self, context: Context) -> bool:
        """Return whether the agent works on another machine; wait for one if none works here."""
        shop = self.shop
        if shop.machines is None:
            return False
        while not shop.machines.has_room():
            if shop.local:
                return False
            context.progress("waits for a machine: leadhand worker --kinds coder")
            await asyncio.sleep(LIMIT_LOOK_S)
        return True

    async def _attempt(
        self,
        task: Attempt,
        given: PlannedTask,
        context: Context,
        slot: Slot | RemoteSlot,
        interrupted: Interrupted,
    ) -> Report | PullRecord:
        self.shop.admitting.discard(f"{task.run}/{task.step}")
        assignment = await self._assignment(task, given, context, interrupted)
        if interrupted.finished:
            assignment = replace(assignment, person=_person_in(context))
        if allowed := review.approved_change(context):
            paid = Paid(CoderResult(ended="result", said="people approved it"))
            return await self._land(assignment, given, context, allowed.left, paid, {}, allowed)
        if done := await deferred_change(self.shop.hub, context):
            paid = Paid(CoderResult(ended="result", said="it was done before"))
            return await self._land(assignment, given, context, done.left, paid, done.handoff)
        result, limit = await self._work(assignment, slot, context)
        paid = Paid(result)
        paid.add(interrupted.cost)
        wip = await self._saved(slot, assignment)
        if self.shop.taken.of(task.run, task.step) is not None:
            await self._hand_over(assignment, slot, result)
            raise TakenOver(result.session, result.cost)
        if limit is not None:  # it may have ended meanwhile: no try is used up all the same
            raise LimitReached(limit, result.session, result.cost)
        handoff: dict[str, Any] = {
            "session": result.session,
            "wip": wip,
            "said": scrub(result.said)[-SAID_CHARS:],
            "by": self.spec.name,
            "agent": self.coder.name,
            "conversation": "same" if assignment.session else "new",
        }
        if result.stopped:
            handoff["stopped"] = True
        if result.failure:
            why = scrub(result.why or result.ended)
            # A model that refuses is answered by another one, and only then by a person.
            kind = "denied" if result.failure == "policy" else result.failure
            return paid.failed(kind, why, result.retry_after_s, handoff)
        message, author = f"{given.goal[:72]}\n", self._author(assignment)
        try:
            taken = await self._endure(context, lambda: slot.take(message, author))
        except SlotGone as gone:
            words = f"the agent destroyed its slot: {gone}"
            return paid.failed("transient", words, None, handoff)
        except TROUBLE as trouble:
            return paid.failed("unavailable", str(trouble), OUTAGE_S, handoff)
        wrong = wrong_with(taken, given)
        if wrong and (asked := brief.question_in(handoff["said"])):
            return paid.failed("needs_info", asked, None, handoff)
        if wrong:
            return paid.failed("criteria_unmet", wrong, None, handoff)
        base = await self._endure(context, lambda: base_taken_in(self.shop.hub, slot, taken.head))
        left = Left(rework_of(context).base or base, taken.head)
        name = f"{task.run}/{task.step}"
        if isinstance(slot, RemoteSlot):
            self._verdicts[name] = slot.verdicts
        try:
            report = await self._land(assignment, given, context, left, paid, handoff)
        finally:
            self._verdicts.pop(name, None)
        conflict = handoff.get("conflict")
        if conflict and isinstance(report, Report) and interrupted.conflicts < CONFLICTS_MAX:
            raise Conflicted(conflict, result.session, paid.cost - interrupted.cost)
        return _counting(report, interrupted.conflicts)

    async def _hand_over(
        self, assignment: Assignment, slot: Slot | RemoteSlot, result: CoderResult
    ) -> None:
        """Record where the agent's work and its conversation are, for the person who took both.

        A conversation on another machine stays there.
        """
        found = await self.shop.hub.kept(_wip(assignment))
        here = isinstance(slot, Slot)
        home = getattr(self.coder, "home", None) if here else None
        self.shop.taken.change(
            assignment.run,
            assignment.task,
            ready=True,
            base=slot.base,
            work=found.get(_wip(assignment), ""),
            coder=self.coder.name,
            session=result.session if here else "",
            home=str(home(assignment)) if home is not None else "",
        )

    async def _endure(self, context: Context, work: Callable[[], Awaitable[T]]) -> T:
        return await retry_trouble(self.shop.governor, context.progress, work)

    async def _land(
        self,
        assignment: Assignment,
        given: PlannedTask,
        context: Context,
        left: Left,
        paid: Paid,
        handoff: dict[str, Any],
        allowed: review.Approved | None = None,
    ) -> Report | PullRecord:
        """Bring an agent's work to main; keep it for later if that is impossible now.

        `allowed` names the people who approved exactly this change.
        """
        try:
            return await self._bring(assignment, given, context, left, paid, handoff, allowed)
        except Exception as error:  # noqa: BLE001 - any error: the work is done and paid for
            words = f"it is done, and could not be tested or landed: {error}"
            kept = await put_off(self.shop.hub, assignment, left)
            return paid.failed("unavailable", words, OUTAGE_S, {**handoff, **kept})

    async def _bring(
        self,
        assignment: Assignment,
        given: PlannedTask,
        context: Context,
        left: Left,
        paid: Paid,
        handoff: dict[str, Any],
        allowed: review.Approved | None,
        *,
        screen: bool = False,
    ) -> Report | PullRecord:
        """Pass the gate, the review of protected parts, and the train.

        `screen`: the gate runs on the change by itself first; else it may be left to the train.
        """
        shop, hub, verdict = self.shop, self.shop.hub, None
        if allowed is not None:
            author = self._author(assignment)
            left, allowed = await self._as_approved(context, given, left, allowed, author)
        waived = allowed.waived if allowed is not None else ()
        found = await self._endure(context, lambda: findings(hub, left.base, left.head))
        if found:
            words = "it holds what must not land:\n" + "\n".join(found[:FINDINGS_TOLD])
            return paid.failed("criteria_unmet", words, None, handoff)
        changed = await self._endure(context, lambda: hub.changed(left.base, left.head))
        kept = await self._endure(context, lambda: self._guarded(left, changed))
        if screen or waived or kept.any or self._screens(given, context):
            verdict = await self._checked(assignment, given, context, left, waived)
            if not (verdict.ok or (verdict.only_removed and given.may_remove_tests)):
                return self._red(paid, handoff, verdict.failed, verdict.log)
            kept = kept._replace(removed=verdict.removed, altered=verdict.altered)
        bound = allowed.digest if allowed is not None else ""
        if kept.any and not bound:
            reviewed = (assignment, context, left, kept, paid, handoff)
            refused, bound = await self._endure(context, lambda: self._reviewed(*reviewed))
            if refused is not None:
                return refused
        by = allowed.by if allowed is not None else ()
        change = self._change(assignment, given, left, kept, bound, by)
        tests = verdict.tests.removeprefix("tests ") or "not counted" if verdict else WITH_BATCH
        trailers = {**change.trailers, "Leadhand-Tests": tests}
        change = replace(change, waived=(*waived, *kept.tests), trailers=trailers)
        remarks, same = brief.remarks_in(handoff.get("said", "")), bool(assignment.session)
        files = sorted(map(printable_name, changed))
        if shop.forge is not None and verdict is not None:
            said = {"handoff": handoff, "cost": paid.cost, "remarks": list(remarks), "same": same}
            ran = {"files": files, "tests": verdict.tests, "flaky": list(verdict.flaky)}
            number = shop.forge.issue_number(change.run)
            make_record = shop.forge.delivery.make_record
            return make_record(change, context.failures, number, **said, **ran)
        context.progress("on the train")
        outcome = await self._endure(context, lambda: shop.conductor.land(change))
        await self._priced(left, outcome)
        if isinstance(outcome, Ejected):
            if outcome.kind == "protected" and bound:
                left = await self._onto_main(context, given, left, self._author(assignment))
                return await self._bring(assignment, given, context, left, paid, handoff, None)
            if verdict is None and outcome.kind == "red" and outcome.details.get("tests"):
                again = (assignment, given, context, left, paid, handoff, None)
                return await self._bring(*again, screen=True)  # a person may let its tests pass
            return self._ejected(outcome, left, paid, handoff)
        shop.screening.add(red=False)
        gated = outcome if verdict is None else verdict
        tests, flaky = gated.tests, gated.flaky
        return paid.landed(outcome.sha, files, flaky, remarks, same=same, tests=tests)

    def _screens(self, given: PlannedTask, context: Context) -> bool:
        """Return whether a change passes the gate by itself before the train tests its batch.

        One that was red before is: it would make the next batch red.
        """
        kinds = [(each.failure_class, each.details) for each in context.failures]
        red = any(kind == "criteria_unmet" and not _conflicted(about) for kind, about in kinds)
        shop = self.shop  # a pull request shows a verdict
        return shop.screening.needed or shop.forge is not None or given.may_remove_tests or red

    async def _checked(
        self,
        assignment: Assignment,
        given: PlannedTask,
        context: Context,
        left: Left,
        waived: tuple[str, ...],
    ) -> GateVerdict:
        """Return the verdict of acceptance and gate on the change by itself."""
        context.progress("gate")
        shop, acceptance = self.shop, tuple(map(tuple, given.acceptance))
        check = (left.head, acceptance, waived) if waived else (left.head, acceptance)
        known = self._verdicts.get(f"{assignment.run}/{assignment.task}", {})
        found = known.get(await shop.hub.tree(left.head))
        if found is not None and not waived:  # the machine of its agent ran the gate
            verdict = found
        else:
            verdict = await self._endure(context, lambda: shop.gate.check(*check))
        took = {"ok": verdict.ok, "seconds": round(verdict.seconds, 3)}
        shop.note("checked", **assignment.about, **took)
        return verdict

    def _red(self, paid: Paid, handoff: dict[str, Any], failed: str, log: str) -> Report:
        """Return the report of a change that does not pass the gate, or of the agent's question."""
        if asked := brief.question_in(handoff.get("said", "")):
            return paid.failed("needs_info", asked, None, handoff)
        self.shop.screening.add(red=True)
        words = f"its change does not pass {failed[:200]}:\n{log[-LOG_CHARS:]}"
        return paid.failed("criteria_unmet", words, None, handoff)

    def _ejected(self, outcome: Ejected, left: Left, paid: Paid, handoff: dict[str, Any]) -> Report:
        """Return the report of a change that the train gave back."""
        if outcome.kind == "red":
            failed = str(outcome.details.get("failed", ""))
            return self._red(paid, handoff, f"{failed} (ejected)", outcome.log)
        words = f"ejected ({outcome.kind}):\n{outcome.log[-LOG_CHARS:]}"
        if outcome.kind == "conflict":
            handoff["conflict"] = conflict_in(outcome, left)
        kind = "policy" if outcome.kind == "protected" else "criteria_unmet"
        return paid.failed(kind, words, None, handoff)

    async def _priced(self, left: Left, outcome: Landed | Ejected) -> None:
        """Record whether the change met changes of others in its files, and conflicted."""
        price, hub = self.shop.price, self.shop.hub
        conflict = isinstance(outcome, Ejected) and outcome.kind == "conflict"
        if price is None or (isinstance(outcome, Ejected) and not conflict):
            return
        with suppress(LeadhandError, OSError):  # it prices later tasks, and decides nothing here
            if isinstance(outcome, Ejected):
                onto, paths = str(outcome.details["onto"]), list(outcome.details["paths"])
            else:
                onto, paths = await hub.resolve(f"{outcome.sha}^"), None
            met = await price.merged(hub, left.base, left.head, onto, conflicts=paths)
            self.shop.note("merged", paths=met[:PATHS_NOTED], conflict=conflict)

    async def deliver(self, record: PullRecord, context: Context) -> Report:
        """Bring a change to main by its pull request; holds neither a slot nor a place."""
        assert self.shop.forge is not None  # it made the record
        paid = Paid(CoderResult(ended="result", cost=record.cost))
        outcome = await self.shop.forge.delivery.land(record, context.progress)
        handoff = dict(record.handoff)
        if isinstance(outcome, Rejected):
            handoff["pull"] = dict(outcome.details)
            kind = "permanent" if outcome.kind == "closed" else "criteria_unmet"
            return paid.failed(kind, outcome.words, None, handoff)
        if isinstance(outcome, Ejected):
            handoff["pull"] = {"head": record.head, "number": record.number}
            if outcome.kind == "conflict":
                left = Left(str(record.change["base"]), record.head)
                handoff["conflict"] = conflict_in(outcome, left)
            words = f"ejected ({outcome.kind}):\n{outcome.log[-LOG_CHARS:]}"
            return paid.failed("criteria_unmet", words, None, handoff)
        found = tuple(record.flaky), tuple(record.remarks)
        return paid.landed(outcome.sha, record.files, *found, same=record.same, tests=record.tests)

    async def _guarded(self, left: Left, changed: Iterable[str]) -> review.Guarded:
        """Return the parts of a change that need more than the gate."""
        shop = self.shop
        return review.Guarded(
            review.protected_paths(changed, shop.protected),
            await protected_parts(shop.hub, shop.gate.rules, left.base, left.head),
        )

    async def _as_approved(
        self,
        context: Context,
        given: PlannedTask,
        left: Left,
        allowed: review.Approved,
        author: str,
    ) -> tuple[Left, review.Approved | None]:
        """Return the change on the present main; drop the approval if it became another one."""
        now, hub = await self._onto_main(context, given, left, author), self.shop.hub
        look = lambda: review.digest_of(hub, now.base, now.head)  # noqa: E731
        return now, allowed if await self._endure(context, look) == allowed.digest else None

    async def _onto_main(
        self, context: Context, given: PlannedTask, left: Left, author: str
    ) -> Left:
        message = f"{given.goal[:72]}\n"
        hub = self.shop.hub
        return await self._endure(context, lambda: review.onto_main(hub, left, message, author))

    async def _reviewed(
        self,
        assignment: Assignment,
        context: Context,
        left: Left,
        kept: review.Guarded,
        paid: Paid,
        handoff: dict[str, Any],
    ) -> tuple[Report | None, str]:
        """Return why it may not land or that people must look; or the digest that was approved."""
        shop, named = self.shop, ", ".join(map(printable_name, kept.all_paths[:5]))
        reviewer = review.other_than(shop.reviewer, self.coder)
        if reviewer is None or kept.for_people:
            try:
                change = await review.change_of(shop.hub, left, kept)
            except review.DiffTooLarge as error:
                words = f"{error}: too large to review. Split it"
                return paid.failed("criteria_unmet", words, None, handoff), ""
            ref = ref_of("task", assignment.run, assignment.task, assignment.attempt)
            await shop.hub.submit(ref, left.head)
            before = any(each.change for each in context.failures)
            words = f"It passes its acceptance and the gate. {kept.words}".rstrip()
            words += " What was shown before is not what would land now." if before else ""
            return paid.failed("policy", words, None, handoff, change), ""
        context.progress("under review")
        said = await review.review_change(shop, reviewer, assignment, left, kept.paths)
        paid.add(said.cost)
        if said.trouble:
            return paid.failed(said.trouble, f"no review: {said.words}", None, handoff), ""
        if not said.approved:
            words = f"{reviewer.coder.name} does not let it pass ({named}):\n{said.words}"
            return paid.failed("criteria_unmet", words, None, handoff), ""
        return None, await review.digest_of(shop.hub, left.base, left.head)

    def _limit_of(self, result: CoderResult, name: str) -> UsageLimit | None:
        """Return the usage limit that ended a task's agent, and end all others of its login.

        Those of other tasks go on where the limit holds for this one alone.
        """
        limits = self.shop.governor.limits
        limit = limits.heard(self.login, result, name)
        if limit is None:
            return None
        said = scrub(limit.words)
        self.shop.note("usage limit", login=self.login, until=limit.until, said=said)
        if limits.limit_of(self.login) is None:
            return limit
        for other in list(self.shop.at_work.values()):
            if login_of(other.coder) == self.login and other.limit is None:
                other.limit = limit
                other.coder.stop(other.assignment)
        return limit

    async def _assignment(
        self, task: Attempt, given: PlannedTask, context: Context, interrupted: Interrupted
    ) -> Assignment:
        """Return the assignment; the same conversation goes on once, then a new one begins.

        A conversation that a usage limit interrupted goes on.
        """
        last = brief.last_judged(context.failures).details if context.failures else None
        known: Mapping[str, Any] = last if isinstance(last, dict) else {}
        resumes = (known.get("by"), known.get("conversation")) == (self.spec.name, "new")
        if known.get("pull"):  # what a host rejects goes back to the same conversation
            resumes = known.get("agent") == self.coder.name
        met = interrupted.conflict or known.get("conflict")
        conflict = await brief.conflict_of(self.shop.hub, met)
        again = (task.attempt > 1 or bool(interrupted)) and not rework_of(context).tip
        kept = await brief.kept_of(self.shop.hub, task.run, task.step) if again else ""
        text = brief.brief_of(given, context, conflict, kept)
        hub = self.shop.hub
        if self.shop.instructions and (
            own := await brief.instructions_of(hub, hub.main(), given.writes)
        ):
            text = f"{text}\n\n{own}"
        if self.shop.skills and (skills := await brief.skills_of(hub, hub.main())):
            text = f"{text}\n\n{skills}"
        if landed := await brief.landed_elsewhere(self.shop.hubs, self.shop.name, task.run):
            text = f"{text}\n\n{landed}"
        if interrupted.others:
            text = f"{text}\n\n{brief.changed_since(interrupted.others)}"
        session = str(known.get("session", "")) if resumes else ""
        if interrupted:
            why = brief.HANDED_BACK if interrupted.person else brief.INTERRUPTED
            why = brief.CLEAN if interrupted.conflict and not interrupted.person else why
            text = f"{text}\n\n{why} {kept}\n{scrub(interrupted.person)}".strip()
            session = interrupted.session_of(self.spec.name)
        return Assignment(
            run=task.run,
            task=task.step,
            attempt=task.attempt,
            goal=given.goal,
            acceptance=tuple(map(tuple, given.acceptance)),
            writes=tuple(given.writes),
            reads=tuple(given.reads),
            brief=text,
            handoff=brief.handoff_of(context),
            session=session,
            model=self.model,
            time_s=given.time_s or self.limits.time_s,
            turns=self.limits.turns,
            cost=given.budget or self.limits.cost,
            silence_s=self.limits.silence_s,
            stall_s=self.limits.stall_s,
        )

    async def _work(
        self, assignment: Assignment, slot: Slot | RemoteSlot, context: Context
    ) -> tuple[CoderResult, UsageLimit | None]:
        """Return how the agent ended, and the usage limit that ended it."""
        shop, name = self.shop, f"{assignment.run}/{assignment.task}"
        transcript = self._transcript(assignment)
        here = slot if isinstance(slot, Slot) else None
        coder = self.coder if isinstance(slot, Slot) else slot.agent(self.coder)
        if here is not None:
            session = session_of("", assignment.session)
            assignment = replace(assignment, session=session)
        at_work = AtWork(coder, assignment, time.time(), transcript=transcript, slot=here)
        shop.at_work[name] = at_work
        shop.note("agent", **assignment.about, coder=self.coder.name, model=self.model)

        def heard(event: CoderEvent) -> None:
            if event.text or event.tool:
                words = scrub(f"{event.tool} {event.path} {event.text}".strip()[:200])
                at_work.words, at_work.heard = words, time.time()
                context.progress(words)
            at_work.cost = at_work.cost if event.cost is None else event.cost
            if transcript is not None:
                transcript.heard(event)

        async def ending(_why: str) -> None:
            await slot.save(_wip(assignment))

        result = CoderResult(ended="stopped", failure="lost", why="its attempt was ended")
        try:
            async with asyncio.timeout(2 * assignment.time_s + NET_S) as net:
                if not shop.governor.stopped:  # it may have been, while the slot was prepared
                    result = await coder.work(assignment, slot, shop.sandbox, heard, ending=ending)
        except TimeoutError:
            if not net.expired():
                raise
            late = f"not done after {assignment.time_s:g} s, and its clocks did not end it"
            result = CoderResult(ended="timeout", failure="timeout", why=late, cost=at_work.cost)
        finally:
            shop.at_work.pop(name, None)
            result = _as_ordered(result, at_work)
            if at_work.limit is not None and result.ended == "stopped" and not at_work.final:
                result = _as_limited(result, at_work.limit)
            cost = max(result.cost, at_work.cost)
            how = {"ended": result.ended, "failure": result.failure, "cost": cost}
            shop.note("agent ended", **assignment.about, coder=self.coder.name, **how)
            if transcript is not None:
                said = scrub(result.why)
                said = said if at_work.stopped else f"{result.ended} {said}".strip()
                transcript.note("ended", text=said)
                transcript.close()
        limit = self._limit_of(result, name)
        if limit is None and result.failure == "rate_limited":
            limit = at_work.limit
        if limit is None and result.ended != "stopped":  # by a person: no sign of trouble
            seen = result.provider == "refused"  # words of an agent hold no login back
            wait = result.retry_after_s if seen else None
            shop.governor.heard(self.coder.name, result.failure, wait)
        return result, limit

    def _transcript(self, assignment: Assignment) -> Transcript | None:
        if (folder := self.shop.transcripts) is None:
            return None
        return Transcript(place(folder, assignment.run, assignment.task, assignment.attempt))

    async def _saved(self, slot: Slot | RemoteSlot, assignment: Assignment) -> str:
        """Return where the work in progress lies; empty if there is none."""
        ref = _wip(assignment)
        try:
            kept = await finish_despite_cancel(slot.save(ref))
        except SlotGone:
            kept = None
        except (OSError, LeadhandError):
            return ""  # it is tried again when the slot is given back, and until it succeeds
        slot.saved = True
        return ref if kept else ""

    def _change(
        self,
        assignment: Assignment,
        given: PlannedTask,
        left: Left,
        kept: review.Guarded,
        bound: str,
        by: tuple[str, ...],
    ) -> QueuedChange:
        return QueuedChange(
            run=assignment.run,
            task=assignment.task,
            attempt=assignment.attempt,
            base=left.base,
            head=left.head,
            goal=given.goal,
            paths=tuple(given.writes),
            cleared=kept.all_paths,
            bound=bound,
            acceptance=tuple(map(tuple, given.acceptance)),
            author=self._author(assignment),
            trailers={
                "Leadhand-Task": assignment.task,
                "Leadhand-Run": assignment.run,
                "Leadhand-Attempt": str(assignment.attempt),
                **self._maker(assignment),
                **({"Leadhand-Approved-by": ", ".join(by)} if by else {}),
            },
        )

    def _author(self, assignment: Assignment) -> str:
        return assignment.person or f"{self.coder.name} (Leadhand) <agent@localhost>"

    def _maker(self, assignment: Assignment) -> dict[str, str]:
        """Return the trailer that names the agent, or the person who took the task over."""
        agent = f"{self.coder.name}:{self.model or 'default'}"
        if not assignment.person:
            return {"Assisted-by": agent}
        by = {"Leadhand-Given-by": assignment.person}
        return {**by, "Assisted-by": "none" if assignment.alone else agent}

    async def _adopted(self, sha: str) -> Report:
        hub = self.shop.hub
        files = await hub.changed(await hub.resolve(f"{sha}^"), sha)
        return Report(data={"commit": sha, "files": sorted(map(printable_name, files))})

    async def probe(self, task: Attempt, _context: Context) -> Report | None:
        """Report whether the change is on main, as git says."""
        own = repository_of({"parameters": task.parameters})
        if own in self.elsewhere:
            return await self.elsewhere[own].probe(task, _context)
        landed = self.shop.hub.landed(task.run, task.step)
        return None if landed is None else await self._adopted(landed)

    def check(self, name: str, action: str, data: Any) -> bool:
        """There are no named checks: the gate is the check."""
        return False

    async def close(self) -> None:
        """Do nothing: the service that opened the fleet's resources closes them."""


def _as_ordered(result: CoderResult, at_work: AtWork) -> CoderResult:
    """Return the result of an agent that a person stopped; one that was done before stays so."""
    if not at_work.stopped or result.ended != "stopped":
        return result
    kind = "permanent" if at_work.final else result.failure or "transient"
    return replace(result, failure=kind, why=at_work.stopped, stopped=True)


def _counting(report: Report | PullRecord, conflicts: int) -> Report | PullRecord:
    """Return the report of a landed change with the conflicts that its agent settled."""
    if not conflicts or not isinstance(report, Report) or not isinstance(report.data, dict):
        return report
    return replace(report, data={**report.data, "conflicts": conflicts})


def _conflicted(details: object) -> bool:
    """Return whether an attempt failed since its change conflicted with others' work."""
    return isinstance(details, dict) and "conflict" in details


def _as_limited(result: CoderResult, limit: UsageLimit) -> CoderResult:
    """Return the result of an agent that was ended since the limit of its login is reached.

    It says nothing of the provider by itself.
    """
    wait = max(0.0, limit.until - time.time())
    return replace(
        result,
        ended="rate_limited",
        failure="rate_limited",
        why=f"ended: {limit.why}",
        retry_after_s=wait,
        provider="answered",
    )


def _person_in(context: Context) -> str:
    """Return the person whose change the last attempt kept; empty: an agent's."""
    last = context.failures[-1].details if context.failures else None
    return str(last.get("person", "")) if isinstance(last, dict) else ""


def _failed(kind: str, words: str, retry_after_s: float, cost: float = 0.0) -> Report:
    return Report("failed", error=Failure(kind, words, "none", retry_after_s), cost=cost)


def _wip(assignment: Assignment) -> str:
    return ref_of("wip", assignment.run, assignment.task, assignment.attempt)


# The agents of a fleet as workers, each with its fallback.
#
#     coder ─► coder@fresh ─► coder@strong ─► …
#
# The first one stands twice: `coder@fresh` is the same agent for a conversation that begins anew,
# so that what one conversation cannot get right is not at once a matter for a dearer model.


FRESH = f"{CODER}@fresh"

Made = tuple[str, "Coder", str]


def coder_workers(
    shop: FleetContext,
    made: Iterable[Made],
    limits: AttemptLimits,
    *,
    take_over: bool = False,
    others: Mapping[str, FleetContext] | None = None,
) -> list[CoderWorker]:
    """Return workers from agents: a name (`coder`, `coder@strong`), the coder, its model.

    `take_over`: while the usage limit of a login holds, coders of other logins do its tasks.
    `others` are further repositories by name: the same agents do their tasks.
    """
    given = list(made)
    names = [name for name, _coder, _model in given]
    if CODER not in names:
        raise UsageError(f"a fleet needs a coder that is called {CODER!r}")
    if FRESH not in names:
        at = names.index(CODER)
        given.insert(at + 1, (FRESH, *given[at][1:]))
        names.insert(at + 1, FRESH)
    behind = dict(zip(names, [*names[1:], ""], strict=True))
    crew = [
        CoderWorker(shop, coder, name=name, model=model, limits=limits, stronger=behind[name])
        for name, coder, model in given
    ]
    for number, worker in enumerate(crew if take_over else ()):
        later = crew[number + 1 :] + crew[:number]
        worker.stand_ins = tuple(each for each in later if each.login != worker.login)
    there = {
        name: coder_workers(context, given, limits, take_over=take_over)
        for name, context in (others or {}).items()
    }
    for number, worker in enumerate(crew):
        worker.elsewhere = {name: workers[number] for name, workers in there.items()}
    return crew


def tiers_of(workers: Sequence[CoderWorker]) -> tuple[str, ...]:
    """Return the tiers that a task may ask for besides the first one."""
    names = [worker.spec.name for worker in workers]
    return tuple(name.partition("@")[2] for name in names if name not in (CODER, FRESH))
