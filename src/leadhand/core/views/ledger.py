"""One plain line per event, as printed by `leadhand logs` and read by auditors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from leadhand.core import events as ev
from leadhand.core.calendar import utc
from leadhand.core.carried import rerun_text
from leadhand.core.catalog import NOT_DECLARED
from leadhand.core.host_events import (
    ApprovalUsed,
    ArchiveDeleted,
    ArchiveRewritten,
    CircuitClosed,
    CircuitOpened,
    HostOpened,
    PersonChanged,
    RunJoined,
    RunsArchived,
    StopAllLifted,
    StopAllRequested,
    TemporalLeft,
    TemporalOpened,
)
from leadhand.core.library import PlanRemoved, PlanSaved
from leadhand.core.review.comments import answer_line

if TYPE_CHECKING:
    from collections.abc import Callable


VALUE_CHARS = 60
"""The length of a parameter's value."""
DRAFT_CHARS = 300
"""The length of an answer without steps."""
NAMED_MAX = 5
"""The number of steps of a revision that its line names."""
AMENDED = "amended"
"""The reason of a pending revision that a person replaced."""


RECOVERIES = {
    "retry": "retrying with {worker}",
    "reroute": "switching to {worker}",
    "simplify": "asking the planner to split it",
    "replan": "re-planning",
    "ask": "asking a person",
    "probe": "checking whether it took effect",
    "park": "parked until the worker is available",
    "continue": "continuing without it",
    "abort": "aborting the run",
    "abandon": "giving it up",
}
"""What follows each strategy, for people."""
WHY = {"start": "the run started", "report": "a step reported"}
"""Why the planner is called, for people."""


def recovery_words(strategy: str, worker: str) -> str:
    """Return what follows a failure, for people: "retrying with coder"."""
    return RECOVERIES.get(strategy, strategy).format(worker=worker)


def by(author: str) -> str:
    """Return the origin of a plan, for people: "as given", "by ann"."""
    planners = {"document": "as given", "goal": "by the goal planner"}
    return planners.get(author) or f"by {author}"


def _plan_of(event: ev.RunStarted) -> str:
    return f"plan {by(event.planner)}"


def actor_words(actor: str) -> str:
    """Return an actor of the log, for people."""
    return {"nobody": "default", "policy": "the policy"}.get(actor, actor)


def _steps(names: list[str]) -> str:
    return f"{'Step' if len(names) == 1 else 'Steps'} {', '.join(names)}"


def ledger_of(event: ev.Event) -> Literal["intent", "execution"]:
    """Return the ledger an event belongs to: intent or execution."""
    return "intent" if isinstance(event, ev.INTENT) else "execution"


def describe(event: ev.Event) -> str:
    """Describe an event in one line."""
    line = LINES.get(type(event))
    return line(event) if line else type(event).__name__


class EventLines:
    """Describes the events of one run in order, so that a line can refer to earlier events."""

    def __init__(self) -> None:
        self._needed: dict[int, int] = {}
        self._given: dict[int, int] = {}
        self._reason = ""

    def line(self, event: ev.Event) -> str:
        """Describe an event; "" if an earlier line already says it."""
        if isinstance(event, ev.ReviewRequested):
            self._needed[event.number] = event.people
            self._given[event.number] = 0
        if isinstance(event, ev.ApprovalGiven) and event.number in self._needed:
            return self._approval(event)
        if isinstance(event, ev.RevisionApproved) and not event.instants:
            needed = self._needed.get(event.number)
            said = needed and self._given[event.number] >= needed and event.reason == self._reason
            return "" if said else describe(event)
        return describe(event)

    def _approval(self, event: ev.ApprovalGiven) -> str:
        needed = self._needed[event.number]
        self._given[event.number] += 1
        self._reason = event.reason
        given = self._given[event.number]
        end = f" → revision {event.number} approved" if given >= needed else ""
        what = "" if end else f" for revision {event.number}"
        return f"Approval {given} of {needed} by {event.actor}{what}{end}{_terms(event)}"


def _process(process: ev.GuestProcess | None) -> str:
    return f" (process {process.pid}, started in {process.folder})" if process else ""


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _decision(decision: dict[str, object]) -> str:
    match decision.get("kind"):
        case "propose":
            if "revision" in decision:
                return f"revision {decision['revision']}"
            steps = decision.get("steps")
            count = len(steps) if isinstance(steps, list) else 0
            told = f" ({proposal_lines(decision)})" if count else ""
            number = f"{count} step{'' if count == 1 else 's'}"
            return f"{number} proposed{told}{_because(str(decision.get('because', '')))}"
        case "ask":
            return f"question: {decision.get('question')}"
        case "finish":
            return f"finish{_because(str(decision.get('because', '')))}"
        case "wait":
            return f"wait{_because(str(decision.get('because', '')))}"
        case kind:
            return f"{kind}{_because(str(decision.get('reason', '')))}"


def proposal_lines(decision: object) -> str:
    """Return the steps of a proposal in brief, each with its worker and parameters."""
    if not isinstance(decision, dict) or not isinstance(decision.get("steps"), list):
        text = decision if isinstance(decision, str) else _json(decision)
        return _short(text, DRAFT_CHARS)
    steps = [step for step in decision["steps"] if isinstance(step, dict)]
    told = [_step(step) for step in steps[:NAMED_MAX]]
    more = f" and {len(steps) - NAMED_MAX} more" if len(steps) > NAMED_MAX else ""
    return f"{', '.join(told)}{more}"


def _step(step: dict[str, Any]) -> str:
    who = f"{step.get('worker', '')} {step.get('action', '')}".strip()
    given = step.get("parameters")
    given = given.items() if isinstance(given, dict) else ()
    told = ", ".join(f"{name}={_short(_json(value), VALUE_CHARS)}" for name, value in given)
    return f"{step.get('id', '?')} = {who}({told})"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _drafted(event: ev.DraftRefused) -> str:
    told = proposal_lines(event.draft)
    return f"Draft refused (planner call {event.call}): {told}: {'; '.join(event.findings)}"


def _revision(event: ev.RevisionProposed) -> str:
    number, names = len(event.add), ", ".join(str(doc.get("id")) for doc in event.add[:NAMED_MAX])
    more = f" and {number - NAMED_MAX} more" if number > NAMED_MAX else ""
    parts = [f"{number} step{'s' if number != 1 else ''}" + (f" ({names}{more})" if names else "")]
    if event.cancel:
        parts.append(f"cancels {', '.join(event.cancel)}")
    if event.drop:
        parts.append(f"drops {_dropped(event.drop)}")
    last = "final" if event.final else "to be continued"
    risk = NOT_DECLARED if event.undeclared else event.risk
    text = f"Revision {event.number} {by(event.author)}: {', '.join(parts)}, {last}, risk {risk}"
    text += _because(event.because)
    if event.answers:
        text += f"; comments: {', '.join(map(answer_line, event.answers))}"
    return text


def _dropped(drop: dict[str, str]) -> str:
    return ", ".join(f"{step} ({reason})" for step, reason in drop.items())


def _report(event: ev.AttemptReported) -> str:
    told = "".join(f"; it recommends: {each}" for each in event.recommendations)
    if event.met:
        surprise = f", but {event.surprise}" if event.surprise else ""
        # A step of a caller may have no criteria: its line must not say that they hold.
        word = "reported as done, and no check failed" if event.said else "verified"
        return f"{event.step}: attempt {event.attempt} {word}{surprise}{told}"
    failure = event.failure or {}
    text = f"{failure.get('class')}: {failure.get('message')}{_place(failure.get('details'))}"
    return f"{event.step}: attempt {event.attempt} failed: {text}{told}"


_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def _place(details: object) -> str:
    """Return the place where a function raised, from its traceback: the innermost frame."""
    lines = details.get("traceback") if isinstance(details, dict) else None
    frames = _FRAME.findall("\n".join(map(str, lines))) if isinstance(lines, list) else []
    if not frames:
        return ""
    path, line, name = frames[-1]
    return f" ({path.rsplit('/', 1)[-1]}:{line} in {name})"


def _attempt_started(event: ev.AttemptStarted) -> str:
    if event.caller:
        return f"{event.step}: attempt {event.attempt} handed out to {event.caller}"
    return f"{event.step}: attempt {event.attempt} started by {event.worker}"


def _started(event: ev.RunStarted) -> str:
    goal = event.goal if isinstance(event.goal, str) else event.goal.get("text", "")
    who = f" by {event.actor}" if event.actor else ""
    text = f"Run started{who}, {_plan_of(event)}{_because(goal)}"
    back = event.plan.get("rollback_of")
    why = _because(str(event.plan.get("rollback_reason", "")))
    again = rerun_text(event.plan)
    text += f"; it rolls back run {back}{why}" if back else ""
    return f"{text}; {again}" if again else text


def _approved(event: ev.RevisionApproved) -> str:
    who = " by the policy" if event.actor == "policy" else ""
    text = f"Revision {event.number} approved{who}{_because(event.reason)}"
    some = list(event.instants.items())[:NAMED_MAX]
    starts = "".join(f"; {step} starts at {utc(at)} or later" for step, at in some)
    more = len(event.instants) - len(some)
    return text + starts + (f"; {more} more have a start time" if more else "")


def _workers_changed(event: ev.WorkersChanged) -> str:
    told = [
        f"{spec.name} (version {spec.version[:12]})" if spec.version else spec.name
        for spec in event.specs
    ]
    new = [text for spec, text in zip(event.specs, told, strict=True) if spec.name in event.added]
    old = [text for text in told if text not in new]
    parts = [f"workers changed: {', '.join(old)}"] if old else []
    parts += [f"workers added: {', '.join(new)}"] if new else []
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}"


def _given(event: ev.ApprovalGiven) -> str:
    return f"Approval by {event.actor} for revision {event.number}{_terms(event)}"


def _terms(event: ev.ApprovalGiven) -> str:
    """Return the digest, the expiry, the signature and the reason of an approval."""
    shown = f", digest {event.digest}" if event.digest else ""
    until = f", until {utc(event.expires)}" if event.expires else ""
    signed = f", signed by {event.key}" if event.signature else ", not signed"
    return f"{shown}{until}{signed}{_because(event.reason)}"


def _rejected(event: ev.RevisionRejected) -> str:
    if event.reason == AMENDED:
        return f"Revision {event.number} amended by {event.actor}"
    return f"Revision {event.number} rejected by {actor_words(event.actor)}{_because(event.reason)}"


def _examined(event: ev.RevisionExamined) -> str:
    if event.failed:
        return f"A reviewer of revision {event.number} failed: {event.failed}"
    found = "; ".join(event.findings) or "no findings"
    return f"Reviewers checked revision {event.number}: {found}"


def _recovery(event: ev.RecoveryDecided) -> str:
    what = recovery_words(event.strategy, event.worker)
    return f"{event.step} failed ({event.failure_class}) → {what}: {event.reason}"


def _called(event: ev.ModelCalled) -> str:
    who = event.step or "planner"
    price = f", {event.cost:.6f}" if event.cost else ""
    end = f", and failed ({event.failure})" if event.failure else ""
    cached = f" ({event.cached} cached)" if event.cached else ""
    tokens = f"{event.input}{cached} + {event.output} tokens"
    return f"{who}: called {event.model}: {tokens}{price}{end}"


LINES: dict[type[ev.Event], Callable[[Any], str]] = {
    ev.RunStarted: _started,
    ev.RunHosted: lambda e: f"Run picked up by host {e.owner}{_process(e.process)}",
    ev.PlannerAsked: lambda e: f"Planner call {e.call} ({WHY.get(e.why, e.why)})",
    ev.PlannerAnswered: lambda e: f"Planner call {e.call} → {_decision(e.decision)}",
    ev.PlannerFailed: lambda e: f"Planner call {e.call} failed: {e.reason}",
    ev.DraftRefused: _drafted,
    ev.ProposalRefused: lambda e: (
        f"Proposal refused (planner call {e.call}): {'; '.join(e.findings)}"
    ),
    ev.PlannerWaits: lambda e: f"Planner waits{' for ' + ', '.join(e.on) if e.on else ''}",
    ev.FinishAccepted: lambda e: (
        f"Finish accepted{'; dropped: ' + _dropped(e.drop) if e.drop else ''}"
    ),
    ev.RevisionProposed: _revision,
    ev.ReviewRequested: lambda e: f"Approval requested: {e.reason}",
    ev.RevisionApproved: _approved,
    ev.RevisionExamined: _examined,
    ev.ApprovalGiven: _given,
    ev.ChangesRequested: lambda e: (
        f"Changes to revision {e.number} requested by {e.actor}: {e.text}"
    ),
    ev.StepsHeld: lambda e: f"{_steps(e.steps)} held by {actor_words(e.actor)}{_because(e.reason)}",
    ev.StepsReleased: lambda e: f"{_steps(e.steps)} released by {e.actor}{_because(e.reason)}",
    ev.ReleaseGiven: lambda e: f"Release of {e.question} by {e.actor}{_because(e.reason)}",
    ev.ApprovalVoided: lambda e: f"Approval void: {e.reason}",
    ev.WorkersChanged: _workers_changed,
    ev.RedoRequested: lambda e: f"{e.step}: retry requested by {e.actor}{_because(e.reason)}",
    ev.RunReopened: lambda e: f"Run reopened by {e.actor}{_because(e.reason)}",
    ev.RevisionRejected: _rejected,
    ev.QuestionAsked: lambda e: f"Question {e.id}: {e.text} [{' / '.join(e.choices)}]",
    ev.ChangeApproved: lambda e: (
        f"{e.step}: change {e.commit[:12]} approved by {e.actor}{_because(e.reason)}"
    ),
    ev.QuestionAnswered: lambda e: (
        f"Question {e.id} answered by {actor_words(e.actor)}: {e.choice}{_because(e.text)}"
    ),
    ev.AttemptStarted: _attempt_started,
    ev.LeaseExtended: lambda e: (
        f"{e.step}: lease of attempt {e.attempt} extended to {utc(e.deadline)}"
    ),
    ev.AttemptSpawned: lambda e: f"{e.step}: process {e.pid}",
    ev.AttemptReported: _report,
    ev.ModelCalled: _called,
    ev.ReportIgnored: lambda e: f"{e.step}: late report of attempt {e.attempt} ignored",
    ev.AttemptLost: lambda e: f"{e.step}: attempt {e.attempt} {e.failure_class}: {e.reason}",
    ev.ProbeStarted: lambda e: f"{e.step}: checking whether attempt {e.attempt} took effect",
    ev.ProbeReported: lambda e: f"{e.step}: probe result: {e.outcome}{_because(e.reason)}",
    ev.StepRefused: lambda e: f"{e.step}: could not start ({e.failure_class}): {e.reason}",
    ev.RecoveryDecided: _recovery,
    ev.StepSkipped: lambda e: f"{e.step}: skipped: {e.reason}",
    ev.StepCancelled: lambda e: f"{e.step}: cancelled: {e.reason}",
    ev.LinkUsed: lambda e: f"{e.actor} answers {e.question} through a signed link ({e.channel})",
    ev.RunPaused: lambda e: f"Paused by {e.actor}{_because(e.reason)}",
    ev.RunResumed: lambda e: f"Resumed by {e.actor}",
    ev.CancelRequested: lambda e: f"Cancellation requested by {e.actor}{_because(e.reason)}",
    ev.StopDecided: lambda e: f"Stopping as {e.status}: {e.reason}",
    ev.GoalCheckStarted: lambda _: "Checking the goal's acceptance criteria",
    ev.GoalChecked: lambda e: "Goal met" if e.met else f"Goal not met: {'; '.join(e.findings)}",
    ev.RunEnded: lambda e: (
        f"Run {e.status}{f' ({e.origin})' if e.origin else ''}{_because(e.reason)}"
    ),
    HostOpened: lambda e: f"Host {e.owner} opened (pid {e.pid}, leadhand {e.version})",
    StopAllRequested: lambda e: f"Emergency stop by {e.actor}{_because(e.reason)}",
    StopAllLifted: lambda e: f"Emergency stop lifted by {e.actor}",
    CircuitOpened: lambda e: f"Worker {e.worker} unavailable: {e.reason}",
    RunJoined: lambda e: f"Process {e.pid} runs {e.run} beside the host, as host {e.owner}",
    CircuitClosed: lambda e: f"Worker {e.worker} available again",
    TemporalOpened: lambda e: f"Runs hosted by Temporal at {e.address} ({e.namespace})",
    TemporalLeft: lambda e: f"Runs moved back from Temporal by {e.actor}{_because(e.reason)}",
    RunsArchived: lambda e: (
        f"Archive {e.archive} made by {e.actor}: {e.runs} runs, {e.entries} events, in {e.file}"
    ),
    ArchiveRewritten: lambda e: (
        f"Secrets erased from archive {e.archive} by {e.actor}: {e.changed} events changed, "
        f"{e.erased} artifacts taken out{_because(e.reason)}"
    ),
    ArchiveDeleted: lambda e: f"Archive {e.archive} deleted by {e.actor}{_because(e.reason)}",
    ApprovalUsed: lambda e: f"Approval {e.id} by {e.actor} used by run {e.run}",
    PersonChanged: lambda e: (
        f"{e.person} may sign in as {e.role}, by {e.actor}{_because(e.reason)}"
        if e.role
        else f"{e.person} removed by {e.actor}{_because(e.reason)}"
    ),
    PlanSaved: lambda e: f"Plan {e.name}@{e.version} saved by {e.actor}",
    PlanRemoved: lambda e: f"Plan {e.name} removed by {e.actor}",
}
