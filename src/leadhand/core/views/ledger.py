"""One plain line per event, as printed by `leadhand logs` and read by auditors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from leadhand.core import events as ev
from leadhand.core.calendar import utc
from leadhand.core.catalog import NOT_DECLARED
from leadhand.core.host_events import (
    ApprovalUsed,
    CircuitClosed,
    CircuitOpened,
    HostOpened,
    RunJoined,
    StopAllLifted,
    StopAllRequested,
    TemporalLeft,
    TemporalOpened,
)
from leadhand.core.library import PlanRemoved, PlanSaved

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


def ledger_of(event: ev.Event) -> Literal["intent", "execution"]:
    """Return the ledger an event belongs to: intent or execution."""
    return "intent" if isinstance(event, ev.INTENT) else "execution"


def describe(event: ev.Event) -> str:
    """Describe an event in one line."""
    line = LINES.get(type(event))
    return line(event) if line else type(event).__name__


def _process(process: ev.GuestProcess | None) -> str:
    return f" in process {process.pid}, started in {process.folder}" if process else ""


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _decision(decision: dict[str, object]) -> str:
    match decision.get("kind"):
        case "propose":
            if "revision" in decision:
                return f"propose revision {decision['revision']}"
            steps = decision.get("steps")
            count = len(steps) if isinstance(steps, list) else 0
            told = f" ({proposal_lines(decision)})" if count else ""
            return f"propose {count} steps{told}{_because(str(decision.get('because', '')))}"
        case "ask":
            return f"ask: {decision.get('question')}"
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
    return f"draft refused (planner call {event.call}): {told}: {'; '.join(event.findings)}"


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
    text = f"revision {event.number} by {event.author}: {', '.join(parts)}, {last}, risk {risk}"
    return text + _because(event.because)


def _dropped(drop: dict[str, str]) -> str:
    return ", ".join(f"{step} ({reason})" for step, reason in drop.items())


def _report(event: ev.AttemptReported) -> str:
    told = "".join(f"; it recommends: {each}" for each in event.recommendations)
    if event.met:
        surprise = f", but {event.surprise}" if event.surprise else ""
        return f"{event.step}: attempt {event.attempt} verified{surprise}{told}"
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


def _started(event: ev.RunStarted) -> str:
    goal = event.goal if isinstance(event.goal, str) else event.goal.get("text", "")
    text = f"{event.actor or 'somebody'} started the run{_because(goal)} (planner: {event.planner})"
    back = event.plan.get("rollback_of")
    why = _because(str(event.plan.get("rollback_reason", "")))
    return f"{text}; it takes back run {back}{why}" if back else text


def _approved(event: ev.RevisionApproved) -> str:
    text = f"revision {event.number} approved by {event.actor}{_because(event.reason)}"
    some = list(event.instants.items())[:NAMED_MAX]
    starts = "".join(f"; {step} starts at {utc(at)} or later" for step, at in some)
    more = len(event.instants) - len(some)
    return text + starts + (f"; {more} more have a time" if more else "")


def _workers_changed(event: ev.WorkersChanged) -> str:
    told = [
        f"{spec.name} (version {spec.version[:12]})" if spec.version else spec.name
        for spec in event.specs
    ]
    new = [text for spec, text in zip(event.specs, told, strict=True) if spec.name in event.added]
    old = [text for text in told if text not in new]
    parts = [f"workers have changed: {', '.join(old)}"] if old else []
    parts += [f"workers were added: {', '.join(new)}"] if new else []
    return "; ".join(parts)


def _allowed(event: ev.ApprovalGiven) -> str:
    shown = f", digest {event.digest}" if event.digest else ""
    until = f", until {utc(event.expires)}" if event.expires else ""
    signed = f", signed by {event.key}" if event.signature else ", not signed"
    said = f"revision {event.number} allowed by {event.actor}{_because(event.reason)}"
    return f"{said}{shown}{until}{signed}"


def _rejected(event: ev.RevisionRejected) -> str:
    if event.reason == AMENDED:
        return f"revision {event.number} amended by {event.actor}"
    return f"revision {event.number} rejected by {event.actor}{_because(event.reason)}"


def _examined(event: ev.RevisionExamined) -> str:
    if event.failed:
        return f"a reviewer of revision {event.number} failed: {event.failed}"
    found = "; ".join(event.findings) or "nothing found"
    return f"reviewers looked at revision {event.number}: {found}"


def _recovery(event: ev.RecoveryDecided) -> str:
    to = f" with {event.worker}" if event.worker else ""
    return f"{event.step}: {event.failure_class}, so {event.strategy}{to}: {event.reason}"


def _called(event: ev.ModelCalled) -> str:
    who = event.step or "planner"
    price = f", {event.cost:.6f}" if event.cost else ""
    end = f", and failed ({event.failure})" if event.failure else ""
    cached = f" ({event.cached} cached)" if event.cached else ""
    tokens = f"{event.input}{cached} + {event.output} tokens"
    return f"{who}: asked {event.model}: {tokens}{price}{end}"


LINES: dict[type[ev.Event], Callable[[Any], str]] = {
    ev.RunStarted: _started,
    ev.RunHosted: lambda e: f"host {e.owner} took the run up{_process(e.process)}",
    ev.PlannerAsked: lambda e: f"planner asked (call {e.call}): {e.why}",
    ev.PlannerAnswered: lambda e: f"planner answered (call {e.call}): {_decision(e.decision)}",
    ev.PlannerFailed: lambda e: f"planner call {e.call} failed: {e.reason}",
    ev.DraftRefused: _drafted,
    ev.ProposalRefused: lambda e: (
        f"proposal refused (planner call {e.call}): {'; '.join(e.findings)}"
    ),
    ev.PlannerWaits: lambda e: f"planner waits{' for ' + ', '.join(e.on) if e.on else ''}",
    ev.FinishAccepted: lambda e: (
        f"finish accepted{'; dropped: ' + _dropped(e.drop) if e.drop else ''}"
    ),
    ev.RevisionProposed: _revision,
    ev.ReviewRequested: lambda e: e.reason,
    ev.RevisionApproved: _approved,
    ev.RevisionExamined: _examined,
    ev.ApprovalGiven: _allowed,
    ev.ChangesRequested: lambda e: f"{e.actor} asks for changes of revision {e.number}: {e.text}",
    ev.StepsHeld: lambda e: f"held by {e.actor}: {', '.join(e.steps)}{_because(e.reason)}",
    ev.StepsReleased: lambda e: f"released by {e.actor}: {', '.join(e.steps)}{_because(e.reason)}",
    ev.ReleaseGiven: lambda e: f"{e.question} released by {e.actor}{_because(e.reason)}",
    ev.ApprovalVoided: lambda e: f"an approval does not hold: {e.reason}",
    ev.WorkersChanged: _workers_changed,
    ev.RedoRequested: lambda e: f"{e.step}: {e.actor} wants it done again{_because(e.reason)}",
    ev.RunReopened: lambda e: f"the run is reopened by {e.actor}{_because(e.reason)}",
    ev.RevisionRejected: _rejected,
    ev.QuestionAsked: lambda e: f"question {e.id}: {e.text} [{' / '.join(e.choices)}]",
    ev.ChangeApproved: lambda e: (
        f"{e.step}: change {e.commit[:12]} approved by {e.actor}{_because(e.reason)}"
    ),
    ev.QuestionAnswered: lambda e: (
        f"question {e.id} answered by {e.actor}: {e.choice}{_because(e.text)}"
    ),
    ev.AttemptStarted: lambda e: f"{e.step}: attempt {e.attempt} started by {e.worker}",
    ev.AttemptSpawned: lambda e: f"{e.step}: process {e.pid}",
    ev.AttemptReported: _report,
    ev.ModelCalled: _called,
    ev.ReportIgnored: lambda e: f"{e.step}: a late report of attempt {e.attempt} was ignored",
    ev.AttemptLost: lambda e: f"{e.step}: attempt {e.attempt} {e.failure_class}: {e.reason}",
    ev.ProbeStarted: lambda e: f"{e.step}: probing whether attempt {e.attempt} happened",
    ev.ProbeReported: lambda e: f"{e.step}: probe says {e.outcome}{_because(e.reason)}",
    ev.StepRefused: lambda e: f"{e.step}: could not start ({e.failure_class}): {e.reason}",
    ev.RecoveryDecided: _recovery,
    ev.StepSkipped: lambda e: f"{e.step}: skipped: {e.reason}",
    ev.StepCancelled: lambda e: f"{e.step}: cancelled: {e.reason}",
    ev.RunPaused: lambda e: f"paused by {e.actor}{_because(e.reason)}",
    ev.RunResumed: lambda e: f"resumed by {e.actor}",
    ev.CancelRequested: lambda e: f"cancel asked by {e.actor}{_because(e.reason)}",
    ev.StopDecided: lambda e: f"stopping as {e.status}: {e.reason}",
    ev.GoalCheckStarted: lambda _: "checking the goal's acceptance criteria",
    ev.GoalChecked: lambda e: "the goal is met" if e.met else f"not met: {'; '.join(e.findings)}",
    ev.RunEnded: lambda e: (
        f"run {e.status}{f' ({e.origin})' if e.origin else ''}{_because(e.reason)}"
    ),
    HostOpened: lambda e: f"host {e.owner} opened (pid {e.pid}, leadhand {e.version})",
    StopAllRequested: lambda e: f"stop-all by {e.actor}{_because(e.reason)}",
    StopAllLifted: lambda e: f"stop-all lifted by {e.actor}",
    CircuitOpened: lambda e: f"worker {e.worker} is left alone: {e.reason}",
    RunJoined: lambda e: f"process {e.pid} drives run {e.run} beside the host, as host {e.owner}",
    CircuitClosed: lambda e: f"worker {e.worker} is called again",
    TemporalOpened: lambda e: f"runs are hosted by Temporal at {e.address} ({e.namespace})",
    TemporalLeft: lambda e: f"runs taken back from Temporal by {e.actor}{_because(e.reason)}",
    ApprovalUsed: lambda e: f"approval {e.id} by {e.actor} used up by run {e.run}",
    PlanSaved: lambda e: f"plan {e.name}@{e.version} saved by {e.actor}",
    PlanRemoved: lambda e: f"plan {e.name} removed by {e.actor}",
}
