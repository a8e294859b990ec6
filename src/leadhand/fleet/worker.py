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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.report import Failure, Report
from leadhand.fleet import briefs, reviewing
from leadhand.fleet.boundaries import Boundaries
from leadhand.fleet.coder.base import Assignment, Coder, CoderEvent, CoderResult
from leadhand.fleet.conductor import Change, Conductor, Ejected
from leadhand.fleet.git import shown
from leadhand.fleet.hub import ref_of
from leadhand.fleet.ladder import CODER
from leadhand.fleet.patterns import outside
from leadhand.fleet.planning.survey import drifted
from leadhand.fleet.preparing import SetupFailed
from leadhand.fleet.slots import SlotGone
from leadhand.fleet.spending import DAY_S
from leadhand.fleet.tasks import (
    PARAMETERS,
    RETURNS,
    Given,
    Left,
    Paid,
    conflict_in,
    overtaken,
)
from leadhand.fleet.transcripts import Transcript, place
from leadhand.fleet.turns import turn
from leadhand.models.guard import scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from leadhand.fleet.gate import Gate
    from leadhand.fleet.governor import Governor
    from leadhand.fleet.hub import Hub
    from leadhand.fleet.sandbox import Sandbox
    from leadhand.fleet.slots import Slot, Slots
    from leadhand.fleet.taking import Taken
    from leadhand.ports import Context
    from leadhand.ports import Task as Attempt

SAID_CHARS = 1200
LOG_CHARS = 3500
"""How much of a log an agent is told, and a report keeps: of its end, which says what is wrong."""


class Limits(NamedTuple):
    """How far an agent may go in one attempt."""

    time_s: float = 1800.0
    silence_s: float = 300.0
    stall_s: float = 0.0
    turns: int = 200
    cost: float = 0.0


@dataclass(slots=True)
class AtWork:
    """One agent at work."""

    coder: Coder
    assignment: Assignment
    since: float
    words: str = ""
    """The last that was heard of it."""
    cost: float = 0.0


@dataclass(slots=True)
class Shop:
    """Everything that coders of one repository share."""

    hub: Hub
    slots: Slots
    gate: Gate
    conductor: Conductor
    governor: Governor
    sandbox: Sandbox
    boundaries: Boundaries = field(default_factory=Boundaries)
    at_work: dict[str, AtWork] = field(default_factory=dict)
    """Agents by run and task, for whoever wants to stop or tell one something."""
    protected: tuple[str, ...] = ()
    reviewer: reviewing.Reviewer | None = None
    """Who lets pass what is protected; nobody: a person is asked."""
    note: Callable[..., None] = lambda _what, **_more: None
    transcripts: Path | None = None


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
            # The coder's clocks end an agent; this one is for when they fail, the queue, the money.
            timeout_s=self.limits.time_s * 2 + 7200 + DAY_S,
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
        since, who = given.base if task.attempt == 1 else "", (task.run, task.step, task.attempt)
        if others := await drifted(shop.hub, task.run, since, given.writes):
            return overtaken(others)
        held = given.writes, self.coder.name, given.priority
        async with turn(shop.boundaries, shop.governor, *held):
            try:
                async with shop.slots.lease(shop.hub.main(), saved_as=ref_of("wip", *who)) as slot:
                    return await self._attempt(task, given, context, slot)
            except SetupFailed as failed:
                return _failed("unavailable", str(failed))
            except SlotGone as gone:
                return _failed("transient", f"the agent destroyed its slot: {gone}")

    async def _attempt(self, task: Attempt, given: Given, context: Context, slot: Slot) -> Report:
        assignment = await self._assignment(task, given, context)
        head, base = reviewing.approved(context)
        if head:
            paid = Paid(CoderResult(ended="result", said="a person let it pass"))
            return await self._land(assignment, given, context, Left(base, head), paid, {})
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
            return paid.failed(result.failure, why, result.retry_after_s, handoff)
        taken = await slot.take(f"{given.goal[:72]}\n", self._author())
        wrong = self._wrong(taken, given)
        if wrong and (asked := briefs.question_in(handoff["said"])):
            return paid.failed("needs_info", asked, None, handoff)
        if wrong:
            return paid.failed("criteria_unmet", wrong, None, handoff)
        left = Left(slot.base, taken.head)
        return await self._land(assignment, given, context, left, paid, handoff)

    async def _land(
        self,
        assignment: Assignment,
        given: Given,
        context: Context,
        left: Left,
        paid: Paid,
        handoff: dict[str, Any],
    ) -> Report:
        """From what was left to main: gate, review of what is protected, train."""
        context.progress("gate")
        acceptance = tuple(map(tuple, given.acceptance))
        verdict = await self.shop.gate.check(left.head, acceptance)
        if not verdict.ok and (asked := briefs.question_in(handoff.get("said", ""))):
            return paid.failed("needs_info", asked, None, handoff)
        if not verdict.ok:
            words = f"its change does not pass {verdict.failed[:200]}:\n{verdict.log[-LOG_CHARS:]}"
            return paid.failed("criteria_unmet", words, None, handoff)
        changed = await self.shop.hub.changed(left.base, left.head)
        kept = reviewing.touched(changed, self.shop.protected)
        if kept and handoff:
            refused = await self._reviewed(assignment, context, left, kept, paid, handoff)
            if refused is not None:
                return refused
        context.progress("on the train")
        outcome = await self.shop.conductor.land(self._change(assignment, given, left, kept))
        if isinstance(outcome, Ejected):
            words = f"ejected ({outcome.kind}):\n{outcome.log[-LOG_CHARS:]}"
            kind = "policy" if outcome.kind == "protected" else "criteria_unmet"
            if outcome.kind == "conflict":
                handoff["conflict"] = conflict_in(outcome, left)
            return paid.failed(kind, words, None, handoff)
        remarks, same = briefs.remarks_in(handoff.get("said", "")), bool(assignment.session)
        files = sorted(map(shown, changed))
        return paid.landed(outcome.sha, files, verdict.flaky, remarks, same=same)

    async def _reviewed(
        self,
        assignment: Assignment,
        context: Context,
        left: Left,
        kept: tuple[str, ...],
        paid: Paid,
        handoff: dict[str, Any],
    ) -> Report | None:
        """None when it may land; otherwise why not, or that a person is to look at it."""
        shop, named = self.shop, ", ".join(map(shown, kept[:5]))
        reviewer = reviewing.other_than(shop.reviewer, self.coder)
        if reviewer is None:
            ref = ref_of("task", assignment.run, assignment.task, assignment.attempt)
            await shop.hub.submit(ref, left.head)
            words = (
                f"it passes, and touches what is protected: {named}. See it with: "
                f"git --git-dir={shop.hub.git.folder} show {left.head[:12]}. Answer retry without "
                "words to let exactly this land, retry with words to have it done again"
            )
            held = {"head": left.head, "base": left.base, "paths": [*map(shown, kept)]}
            return paid.failed("policy", words, None, {**handoff, "held": held})
        context.progress("under review")
        said = await reviewing.judged(shop, reviewer, assignment, left, kept)
        paid.add(said.cost)
        if said.trouble:
            return paid.failed(said.trouble, f"no review: {said.words}", None, handoff)
        if not said.approved:
            words = f"{reviewer.coder.name} does not let it pass ({named}):\n{said.words}"
            return paid.failed("criteria_unmet", words, None, handoff)
        return None

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
            time_s=self.limits.time_s,
            turns=self.limits.turns,
            cost=given.budget or self.limits.cost,
            silence_s=self.limits.silence_s,
            stall_s=self.limits.stall_s,
        )

    async def _work(self, assignment: Assignment, slot: Slot, context: Context) -> CoderResult:
        shop, name = self.shop, f"{assignment.run}/{assignment.task}"
        at_work = shop.at_work[name] = AtWork(self.coder, assignment, time.time())
        transcript = self._transcript(assignment)
        shop.note("agent", **assignment.about, coder=self.coder.name, model=self.model)

        def heard(event: CoderEvent) -> None:
            if event.text or event.tool:
                words = scrub(f"{event.tool} {event.path} {event.text}".strip()[:200])
                at_work.words = words
                context.progress(words)
            at_work.cost = at_work.cost if event.cost is None else event.cost
            if transcript is not None:
                transcript.heard(event)

        result = CoderResult(ended="stopped", failure="lost", why="its attempt was ended")
        try:
            if not shop.governor.stopped:  # it may have been, while the slot was prepared
                result = await self.coder.work(assignment, slot, shop.sandbox, heard)
        except asyncio.CancelledError:
            # Somebody ends the attempt: what is there is kept before the slot goes to another.
            await asyncio.shield(self._saved(slot, assignment))
            raise
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
        ref = ref_of("wip", assignment.run, assignment.task, assignment.attempt)
        try:
            return ref if await slot.save(ref) else ""
        except SlotGone:
            return ""

    def _wrong(self, taken: Taken, given: Given) -> str:
        """Why what was left is not the task, whatever the agent says; nothing when it may be."""
        if not taken.head:
            hidden = f" (but for {shown(min(taken.elsewhere))})" if taken.elsewhere else ""
            return f"the agent says that it is done, and has changed nothing{hidden}"
        beyond = outside(sorted(taken.changed), given.writes)
        if beyond:
            named = ", ".join(map(shown, beyond[:5]))
            return f"it changed {named}, which is outside of {given.writes}"
        if taken.left_out:
            path, why = next(iter(taken.left_out.items()))
            return f"{shown(path)} cannot be taken: {why}"
        return ""

    def _change(
        self, assignment: Assignment, given: Given, left: Left, cleared: tuple[str, ...]
    ) -> Change:
        return Change(
            run=assignment.run,
            task=assignment.task,
            attempt=assignment.attempt,
            base=left.base,
            head=left.head,
            goal=given.goal,
            paths=tuple(given.writes),
            cleared=cleared,
            acceptance=tuple(map(tuple, given.acceptance)),
            author=self._author(),
            trailers={
                "Leadhand-Task": assignment.task,
                "Leadhand-Run": assignment.run,
                "Leadhand-Attempt": str(assignment.attempt),
                "Assisted-by": f"{self.coder.name}:{self.model or 'default'}",
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


def _failed(kind: str, words: str) -> Report:
    return Report("failed", error=Failure(kind, words, "none"))
