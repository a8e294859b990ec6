"""The story of a run from its log, for the exported page. Pure: no clock but the log's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leadhand.audit.anchors import Anchor, read_line
from leadhand.core import events as ev
from leadhand.core.catalog import declared_risk
from leadhand.core.durations import seconds
from leadhand.core.plan.revisions import RevisedPlan, revisions
from leadhand.core.review.approval import digests
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import State
from leadhand.core.state.recovery_log import RecoveryOutcome
from leadhand.core.views.failure_origin import FailureOrigin, origin_of_run
from leadhand.core.views.headline import headline
from leadhand.core.views.ledger import describe, ledger_of
from leadhand.core.views.recovery_stats import recoveries
from leadhand.core.views.run import (
    acceptance,
    goal_of,
    money_of,
    run_result,
    shown_status,
    state_words,
    worked_s,
)
from leadhand.core.views.timeline import Span, timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.audit.bundle import Parts
    from leadhand.core.state.model import StepState
    from leadhand.ports import Entry


@dataclass
class Try:
    """One attempt, with the recovery if it failed."""

    number: int
    worker: str
    start: int
    end: int = 0
    outcome: str = ""
    ok: bool = False
    message: str = ""
    answer: RecoveryOutcome | None = None


@dataclass
class StepStory:
    """One step."""

    id: str
    worker: str
    action: str
    text: str
    status: str
    cost: float
    start: int
    end: int
    reason: str
    criteria: str
    checked: str
    """How a success was judged: criteria, check, form; empty if only by its worker."""
    recommendations: tuple[str, ...] = ()
    tries: list[Try] = field(default_factory=list)
    risk: str = ""


@dataclass
class Permission:
    """A decision that allowed or forbade something."""

    at: int
    what: str
    word: str
    """approved, rejected, asked, answered, stopped."""
    who: str
    reason: str = ""
    digest: str = ""
    """For a revision: the digest of what was shown to the approver."""
    until: int = 0
    signed: str = ""
    """The key that signed it; or that it is unsigned, if a person gave a permission."""


@dataclass
class LedgerLine:
    """One line of a ledger."""

    seq: int
    at: int
    ledger: str
    text: str


@dataclass
class Story:
    """Everything the page shows."""

    run: str
    goal: str
    plan_id: str
    status: str
    reason: str
    headline: str
    """How the run ended or stood, in one sentence."""
    started: int
    ended: int
    actor: str
    planner: str
    cost: float
    money: float
    """The part of the cost in dollars; the rest is cost units of workers."""
    budget: float | None
    planned_s: float | None
    result: Any
    fault: FailureOrigin
    steps: list[StepStory]
    permissions: list[Permission]
    lines: list[LedgerLine]
    spans: list[Span]
    answers: list[RecoveryOutcome]
    revisions: list[RevisedPlan]
    entries: int
    head: str
    database: str
    anchor: Anchor | None
    artifacts: int
    missing: int
    digests: dict[str, str] = field(default_factory=dict)
    """By the hash of a revision: the digest of what was shown."""
    accepted: bool = False
    """Whether the goal has acceptance criteria, which were checked."""
    worked_s: float = 0.0
    dropped: list[str] = field(default_factory=list)
    """Dropped steps."""


def tell(log: Sequence[tuple[Entry, ev.Event]], parts: Parts) -> Story:
    """Return the story of a run."""
    events = [event for _, event in log]
    timed = [(entry.at, event) for entry, event in log]
    state = State()
    for at, event in timed:
        evolve(state, event, at)
    started = state.started
    planned = started.plan.get("estimated_duration") if started else None
    found = timeline(timed)
    answers = recoveries(events)
    return Story(
        run=parts.run,
        goal=goal_of(state).text or "(no goal text)",
        plan_id=str(started.plan.get("plan_id", "")) if started else "",
        status=state_words(state),
        reason=state.ended.reason if state.ended else "",
        headline=headline(state),
        started=state.started_at,
        ended=state.ended_at or state.last_at,
        actor=started.actor if started else "",
        planner=started.planner if started else "",
        cost=round(state.spent, 6),
        money=money_of(state),
        budget=state.policy.budget,
        planned_s=None if planned is None else seconds(planned),
        result=run_result(state),
        fault=origin_of_run(events),
        steps=_steps(state, timed, found, answers),
        permissions=_permissions(timed),
        lines=[
            LedgerLine(entry.seq, entry.at, ledger_of(event), describe(event))
            for entry, event in log
        ],
        spans=found,
        answers=answers,
        revisions=revisions(events),
        entries=len(log),
        head=log[-1][0].hash.hex(),
        database=parts.database,
        anchor=read_line(parts.anchor) if parts.anchor else None,
        artifacts=len(parts.artifacts),
        missing=len(parts.missing),
        digests=digests(timed),
        accepted=bool(acceptance(state)) and state.goal_met is True,
        worked_s=worked_s(state),
        dropped=[step.id for step in state.steps.values() if step.dropped],
    )


def _steps(
    state: State,
    timed: list[tuple[int, ev.Event]],
    found: list[Span],
    answers: list[RecoveryOutcome],
) -> list[StepStory]:
    messages: dict[tuple[str, int], str] = {}
    for _, event in timed:
        match event:
            case ev.AttemptReported() if not event.met:
                failure = event.failure or {}
                said = [str(failure.get("message", "")), *event.findings]
                messages[event.step, event.attempt] = "\n".join(dict.fromkeys(filter(None, said)))
            case ev.AttemptLost():
                messages[event.step, event.attempt] = event.reason
            case _:
                pass  # not the end of an attempt
    followed = {(answer.step, answer.attempt): answer for answer in answers}
    least = state.started.plan.get("risk_level") if state.started else None
    tries: dict[str, list[Try]] = {}
    for span in found:
        if span.kind == "attempt":
            key = (span.step, span.attempt)
            made = Try(span.attempt, span.worker, span.start, span.end, span.outcome, span.ok)
            made.message = messages.get(key, "")
            made.answer = None if span.ok else followed.get(key)
            tries.setdefault(span.step, []).append(made)
    return [
        StepStory(
            id=step.id,
            worker=step.worker,
            action=step.action,
            text=str(step.doc.get("description") or ""),
            status=shown_status(step),
            cost=step.cost,
            start=step.started,
            end=step.ended,
            reason=_why(step),
            criteria=_criteria(step.doc.get("success_criteria")),
            checked=_checked(state, step),
            recommendations=tuple(step.recommendations),
            tries=tries.get(step.id, []),
            risk=declared_risk(least, step.doc, state.catalog),
        )
        for step in state.steps.values()
    ]


def _why(step: StepState) -> str:
    """Return why a step ended as it did, and why it was dropped, if it was."""
    if not step.dropped or step.dropped == step.reason:
        return step.reason
    return "; ".join(filter(None, (step.reason, f"dropped: {step.dropped}")))


def _checked(state: State, step: StepState) -> str:
    """Return how the success of a step was judged, beside its worker's claim."""
    if step.status != "succeeded":
        return ""
    if step.doc.get("success_criteria"):
        return "criteria"
    offer = state.catalog.offer(step.worker, step.action)
    if offer is None:
        return ""
    return "check" if offer.result_check else "form" if offer.returns is not None else ""


def _criteria(value: Any) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _permissions(timed: list[tuple[int, ev.Event]]) -> list[Permission]:
    found: list[Permission] = []
    asked: dict[str, str] = {}
    shown = digests(timed)
    for at, event in timed:
        if isinstance(event, ev.QuestionAsked) and event.kind != "review":
            asked[event.id] = event.text
        permission = _permission(at, event, asked)
        if permission is not None:
            permission.digest = shown.get(getattr(event, "hash", ""), "")
            if isinstance(event, ev.ApprovalGiven):
                permission.digest = event.digest or permission.digest
                permission.until, permission.signed = event.expires, event.key or "not signed"
            found.append(permission)
    return found


def _permission(at: int, event: ev.Event, asked: dict[str, str]) -> Permission | None:
    run = "the run"
    match event:
        case ev.RunStarted():
            return Permission(at, run, "started", event.actor or "unknown")
        case ev.ReviewRequested():
            return _of_revision(at, event, "asked", "policy", event.reason)
        case ev.RevisionExamined():
            said = "; ".join([*event.findings, event.failed]).strip("; ")
            return _of_revision(at, event, "examined", "reviewers", said or "no findings")
        case ev.ApprovalGiven():
            return _of_revision(at, event, "approval given", event.actor, event.reason)
        case ev.ChangesRequested():
            return _of_revision(at, event, "sent back", event.actor, event.text)
        case ev.RevisionApproved():
            return _of_revision(at, event, "approved", event.actor, event.reason)
        case ev.RevisionRejected():
            return _of_revision(at, event, "rejected", event.actor, event.reason)
        case ev.StepsHeld():
            return Permission(at, ", ".join(event.steps), "held", event.actor, event.reason)
        case ev.ApprovalVoided():
            return Permission(at, "an approval in the log", "void", "policy", event.reason)
        case ev.StepsReleased():
            return Permission(at, ", ".join(event.steps), "released", event.actor, event.reason)
        case ev.ChangeApproved():
            what = f"change {event.commit[:12]} of step {event.step}"
            return Permission(at, what, "approved", event.actor, event.reason)
        case ev.RedoRequested():
            return Permission(at, f"step {event.step}", "redo", event.actor, event.reason)
        case ev.QuestionAnswered() if event.id in asked:
            said = f"{event.choice}: {event.text}" if event.text else event.choice
            return Permission(at, asked[event.id], "answered", event.actor, said)
        case ev.RunPaused():
            return Permission(at, run, "paused", event.actor, event.reason)
        case ev.RunResumed():
            return Permission(at, run, "resumed", event.actor)
        case ev.CancelRequested():
            return Permission(at, run, "stopped", event.actor, event.reason)
        case _:
            return None  # no planner was asked


def _of_revision(at: int, event: Any, word: str, who: str, why: str) -> Permission:
    return Permission(at, f"revision {event.number}", word, who, why)
