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
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.report import Failure, Report
from leadhand.errors import LeadhandError
from leadhand.fleet import briefs, reviewing
from leadhand.fleet.coder.base import Assignment, Coder, CoderEvent, CoderResult
from leadhand.fleet.conductor import Change, Ejected
from leadhand.fleet.enduring import OUTAGE_S, TROUBLE, Patience, endure
from leadhand.fleet.finishing import to_the_end
from leadhand.fleet.git import shown
from leadhand.fleet.guard import findings, guarded
from leadhand.fleet.hub import ref_of
from leadhand.fleet.ladder import CODER
from leadhand.fleet.planning.survey import drifted
from leadhand.fleet.shop import AtWork, Limits, Shop
from leadhand.fleet.slots import SlotGone
from leadhand.fleet.tasks import (
    PARAMETERS,
    RETURNS,
    Given,
    Left,
    Paid,
    conflict_in,
    overtaken,
    wrong_with,
)
from leadhand.fleet.transcripts import Transcript, place
from leadhand.fleet.turns import turn
from leadhand.fleet.unlanded import finished, put_off
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from leadhand.fleet.gate import Verdict
    from leadhand.fleet.slots import Slot
    from leadhand.ports import Context
    from leadhand.ports import Task as Attempt

T = TypeVar("T")

SAID_CHARS = 1200
FINDINGS_TOLD = 20
LOG_CHARS = 3500
"""How much of a log an agent is told, and a report keeps: of its end, which says what is wrong."""
LINE_S = 365 * 86_400.0
"""The deadline of an attempt. All of it but waiting (for paths, a place, money, gate and train) has
a clock of its own, and nobody is to lose a try by waiting."""
NET_S = 600.0
"""More than the time it has is given to no agent, should its own clocks fail."""


class CoderWorker:
    """Gives tasks to agents of one kind and one tier."""

    def __init__(
        self,
        shop: Shop,
        coder: Coder,
        *,
        name: str = CODER,
        model: str = "",
        limits: Limits | None = None,
        stronger: str = "",
        concurrency: int | None = None,
    ) -> None:
        self.shop, self.coder, self.model = shop, coder, model
        self.limits = limits or Limits()
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
        """One attempt, from a slot to main."""
        shop, given = self.shop, msgspec.convert(task.parameters, Given)
        if landed := shop.hub.landed(task.run, task.step):
            return await self._adopted(landed)
        patience = Patience(shop.governor, context.progress)
        while True:
            try:
                return await self._in_turn(task, given, context)
            except TROUBLE as trouble:  # nobody has begun: it lines up again, after a pause
                if not patience.another(trouble):
                    return _failed("unavailable", str(trouble), OUTAGE_S)

    async def _in_turn(self, task: Attempt, given: Given, context: Context) -> Report:
        """As soon as its paths and a place are free; trouble is raised until an agent begins."""
        shop, who = self.shop, (task.run, task.step, task.attempt)
        held = given.writes, self.coder.name, given.priority
        async with turn(shop.boundaries, shop.governor, *held):
            since = given.base if task.attempt == 1 else ""
            if others := await drifted(shop.hub, task.run, since, given.writes):
                return overtaken(others)
            async with shop.slots.lease(shop.hub.main(), saved_as=ref_of("wip", *who)) as slot:
                return await self._attempt(task, given, context, slot)

    async def _attempt(self, task: Attempt, given: Given, context: Context, slot: Slot) -> Report:
        assignment = await self._assignment(task, given, context)
        if allowed := reviewing.approved(context):
            paid = Paid(CoderResult(ended="result", said="people approved it"))
            return await self._land(assignment, given, context, allowed.left, paid, {}, allowed)
        if done := await finished(self.shop.hub, context):
            paid = Paid(CoderResult(ended="result", said="it was done before"))
            return await self._land(assignment, given, context, done.left, paid, done.handoff)
        result = await self._work(assignment, slot, context)
        paid = Paid(result)
        wip = await self._saved(slot, assignment)
        handoff: dict[str, Any] = {
            "session": result.session,
            "wip": wip,
            "said": scrub(result.said)[-SAID_CHARS:],
            "by": self.spec.name,
            "conversation": "same" if assignment.session else "new",
        }
        if result.failure:
            why = scrub(result.why or result.ended)
            # A model that refuses is answered by another one, and only then by a person.
            kind = "denied" if result.failure == "policy" else result.failure
            return paid.failed(kind, why, result.retry_after_s, handoff)
        message, author = f"{given.goal[:72]}\n", self._author()
        try:
            taken = await self._endure(context, lambda: slot.take(message, author))
        except SlotGone as gone:
            words = f"the agent destroyed its slot: {gone}"
            return paid.failed("transient", words, None, handoff)
        except TROUBLE as trouble:
            return paid.failed("unavailable", str(trouble), OUTAGE_S, handoff)
        wrong = wrong_with(taken, given)
        if wrong and (asked := briefs.question_in(handoff["said"])):
            return paid.failed("needs_info", asked, None, handoff)
        if wrong:
            return paid.failed("criteria_unmet", wrong, None, handoff)
        left = Left(slot.base, taken.head)
        return await self._land(assignment, given, context, left, paid, handoff)

    async def _endure(self, context: Context, work: Callable[[], Awaitable[T]]) -> T:
        return await endure(self.shop.governor, context.progress, work)

    async def _land(
        self,
        assignment: Assignment,
        given: Given,
        context: Context,
        left: Left,
        paid: Paid,
        handoff: dict[str, Any],
        allowed: reviewing.Approved | None = None,
    ) -> Report:
        """From what was left to main; what cannot be brought there now is kept for later.

        `allowed`: that people approved exactly this, and who.
        """
        try:
            return await self._bring(assignment, given, context, left, paid, handoff, allowed)
        except Exception as error:  # noqa: BLE001 - whatever it is, the work is done and paid for
            words = f"it is done, and could not be tested or landed: {error}"
            kept = await put_off(self.shop.hub, assignment, left)
            return paid.failed("unavailable", words, OUTAGE_S, {**handoff, **kept})

    async def _bring(
        self,
        assignment: Assignment,
        given: Given,
        context: Context,
        left: Left,
        paid: Paid,
        handoff: dict[str, Any],
        allowed: reviewing.Approved | None,
    ) -> Report:
        """Gate, review of what is protected, train."""
        context.progress("gate")
        shop, acceptance = self.shop, tuple(map(tuple, given.acceptance))
        if allowed is not None:
            left, allowed = await self._as_approved(context, given, left, allowed)
        hub, waived = shop.hub, allowed.waived if allowed is not None else ()
        found = await self._endure(context, lambda: findings(hub, left.base, left.head))
        if found:
            words = "it holds what must not land:\n" + "\n".join(found[:FINDINGS_TOLD])
            return paid.failed("criteria_unmet", words, None, handoff)
        check = (left.head, acceptance, waived) if waived else (left.head, acceptance)
        verdict = await self._endure(context, lambda: shop.gate.check(*check))
        passes = verdict.ok or (verdict.only_removed and given.may_remove_tests)
        if not passes and (asked := briefs.question_in(handoff.get("said", ""))):
            return paid.failed("needs_info", asked, None, handoff)
        if not passes:
            words = f"its change does not pass {verdict.failed[:200]}:\n{verdict.log[-LOG_CHARS:]}"
            return paid.failed("criteria_unmet", words, None, handoff)
        changed = await self._endure(context, lambda: hub.changed(left.base, left.head))
        kept = await self._endure(context, lambda: self._guarded(left, changed, verdict))
        bound = allowed.digest if allowed is not None else ""
        if kept.any and not bound:
            reviewed = (assignment, context, left, kept, paid, handoff)
            refused, bound = await self._endure(context, lambda: self._reviewed(*reviewed))
            if refused is not None:
                return refused
        context.progress("on the train")
        by = allowed.by if allowed is not None else ()
        change = self._change(assignment, given, left, kept, bound, by)
        counted = {"Leadhand-Tests": verdict.tests.removeprefix("tests ") or "not counted"}
        trailers = {**change.trailers, **counted}
        change = replace(change, waived=(*waived, *kept.tests), trailers=trailers)
        outcome = await self._endure(context, lambda: shop.conductor.land(change))
        if isinstance(outcome, Ejected) and outcome.kind == "protected" and bound:
            now = await self._onto_main(context, given, left)
            return await self._bring(assignment, given, context, now, paid, handoff, None)
        if isinstance(outcome, Ejected):
            words = f"ejected ({outcome.kind}):\n{outcome.log[-LOG_CHARS:]}"
            if outcome.kind == "conflict":
                handoff["conflict"] = conflict_in(outcome, left)
            kind = "policy" if outcome.kind == "protected" else "criteria_unmet"
            return paid.failed(kind, words, None, handoff)
        remarks, same = briefs.remarks_in(handoff.get("said", "")), bool(assignment.session)
        files = sorted(map(shown, changed))
        landed, tests = outcome.sha, verdict.tests
        return paid.landed(landed, files, verdict.flaky, remarks, same=same, tests=tests)

    async def _guarded(
        self, left: Left, changed: Iterable[str], verdict: Verdict
    ) -> reviewing.Guarded:
        """What of a change needs more than the gate."""
        shop = self.shop
        return reviewing.Guarded(
            reviewing.touched(changed, shop.protected),
            await guarded(shop.hub, shop.gate.rules, left.base, left.head),
            verdict.removed,
            verdict.altered,
        )

    async def _as_approved(
        self, context: Context, given: Given, left: Left, allowed: reviewing.Approved
    ) -> tuple[Left, reviewing.Approved | None]:
        """The change on main as it is now; the approval is gone where that is another one."""
        now, hub = await self._onto_main(context, given, left), self.shop.hub
        look = lambda: reviewing.digest_of(hub, now.base, now.head)  # noqa: E731
        return now, allowed if await self._endure(context, look) == allowed.digest else None

    async def _onto_main(self, context: Context, given: Given, left: Left) -> Left:
        message, author = f"{given.goal[:72]}\n", self._author()
        hub = self.shop.hub
        return await self._endure(context, lambda: reviewing.onto_main(hub, left, message, author))

    async def _reviewed(
        self,
        assignment: Assignment,
        context: Context,
        left: Left,
        kept: reviewing.Guarded,
        paid: Paid,
        handoff: dict[str, Any],
    ) -> tuple[Report | None, str]:
        """Why it may not land, or that people are to look at it; or what was approved, hashed."""
        shop, named = self.shop, ", ".join(map(shown, kept.all_paths[:5]))
        reviewer = reviewing.other_than(shop.reviewer, self.coder)
        if reviewer is None or kept.for_people:
            try:
                change = await reviewing.change_of(shop.hub, left, kept)
            except reviewing.TooLarge as error:
                words = f"{error}: nobody could read it. Split it"
                return paid.failed("criteria_unmet", words, None, handoff), ""
            ref = ref_of("task", assignment.run, assignment.task, assignment.attempt)
            await shop.hub.submit(ref, left.head)
            before = any(each.change for each in context.failures)
            words = f"It passes its acceptance and the gate. {kept.words}".rstrip()
            words += " What was shown before is not what would land now." if before else ""
            return paid.failed("policy", words, None, handoff, change), ""
        context.progress("under review")
        said = await reviewing.judged(shop, reviewer, assignment, left, kept.paths)
        paid.add(said.cost)
        if said.trouble:
            return paid.failed(said.trouble, f"no review: {said.words}", None, handoff), ""
        if not said.approved:
            words = f"{reviewer.coder.name} does not let it pass ({named}):\n{said.words}"
            return paid.failed("criteria_unmet", words, None, handoff), ""
        return None, await reviewing.digest_of(shop.hub, left.base, left.head)

    async def _assignment(self, task: Attempt, given: Given, context: Context) -> Assignment:
        """The same conversation goes on once; whoever comes after that begins anew."""
        last = context.failures[-1].details if context.failures else None
        known: Mapping[str, Any] = last if isinstance(last, dict) else {}
        resumes = (known.get("by"), known.get("conversation")) == (self.spec.name, "new")
        conflict = await briefs.conflict_of(self.shop.hub, known.get("conflict"))
        kept = await briefs.kept_of(self.shop.hub, task.run, task.step) if task.attempt > 1 else ""
        return Assignment(
            run=task.run,
            task=task.step,
            attempt=task.attempt,
            goal=given.goal,
            acceptance=tuple(map(tuple, given.acceptance)),
            writes=tuple(given.writes),
            reads=tuple(given.reads),
            brief=briefs.brief_of(given, context, conflict, kept),
            handoff=briefs.handoff_of(context),
            session=str(known.get("session", "")) if resumes else "",
            model=self.model,
            time_s=given.time_s or self.limits.time_s,
            turns=self.limits.turns,
            cost=given.budget or self.limits.cost,
            silence_s=self.limits.silence_s,
            stall_s=self.limits.stall_s,
        )

    async def _work(self, assignment: Assignment, slot: Slot, context: Context) -> CoderResult:
        shop, name = self.shop, f"{assignment.run}/{assignment.task}"
        transcript = self._transcript(assignment)
        at_work = shop.at_work[name] = AtWork(self.coder, assignment, time.time())
        shop.note("agent", **assignment.about, coder=self.coder.name, model=self.model)

        def heard(event: CoderEvent) -> None:
            if event.text or event.tool:
                words = scrub(f"{event.tool} {event.path} {event.text}".strip()[:200])
                at_work.words = words
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
                    given = assignment, slot, shop.sandbox, heard
                    result = await self.coder.work(*given, ending=ending)
        except TimeoutError:
            if not net.expired():
                raise
            late = f"not done after {assignment.time_s:g} s, and its clocks did not end it"
            result = CoderResult(ended="timeout", failure="timeout", why=late, cost=at_work.cost)
        finally:
            shop.at_work.pop(name, None)
            cost = max(result.cost, at_work.cost)
            how = {"ended": result.ended, "failure": result.failure, "cost": cost}
            shop.note("agent ended", **assignment.about, coder=self.coder.name, **how)
            if transcript is not None:
                transcript.note("ended", text=f"{result.ended} {scrub(result.why)}".strip())
                transcript.close()
        if result.ended != "stopped":  # by a person: no sign of trouble
            shop.governor.heard(self.coder.name, result.failure, result.retry_after_s)
        return result

    def _transcript(self, assignment: Assignment) -> Transcript | None:
        if (folder := self.shop.transcripts) is None:
            return None
        return Transcript(place(folder, assignment.run, assignment.task, assignment.attempt))

    async def _saved(self, slot: Slot, assignment: Assignment) -> str:
        """Where the work in progress lies; empty when there is none."""
        ref = _wip(assignment)
        try:
            kept = await to_the_end(slot.save(ref))
        except SlotGone:
            kept = None
        except (OSError, LeadhandError):
            return ""  # it is tried again when the slot is given back, and until it succeeds
        slot.saved = True
        return ref if kept else ""

    def _change(
        self,
        assignment: Assignment,
        given: Given,
        left: Left,
        kept: reviewing.Guarded,
        bound: str,
        by: tuple[str, ...],
    ) -> Change:
        return Change(
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
            author=self._author(),
            trailers={
                "Leadhand-Task": assignment.task,
                "Leadhand-Run": assignment.run,
                "Leadhand-Attempt": str(assignment.attempt),
                "Assisted-by": f"{self.coder.name}:{self.model or 'default'}",
                **({"Leadhand-Approved-by": ", ".join(by)} if by else {}),
            },
        )

    def _author(self) -> str:
        return f"{self.coder.name} (Leadhand) <agent@localhost>"

    async def _adopted(self, sha: str) -> Report:
        hub = self.shop.hub
        files = await hub.changed(await hub.resolve(f"{sha}^"), sha)
        return Report(data={"commit": sha, "files": sorted(map(shown, files))})

    async def probe(self, task: Attempt, _context: Context) -> Report | None:
        """Whether it is on main, as git says."""
        landed = self.shop.hub.landed(task.run, task.step)
        return None if landed is None else await self._adopted(landed)

    def check(self, name: str, action: str, data: Any) -> bool:
        """There are no named checks: the gate is the check."""
        return False

    async def close(self) -> None:
        """The shop is closed by whoever opened it."""


def _failed(kind: str, words: str, retry_after_s: float) -> Report:
    return Report("failed", error=Failure(kind, words, "none", retry_after_s))


def _wip(assignment: Assignment) -> str:
    return ref_of("wip", assignment.run, assignment.task, assignment.attempt)
