"""Everything that can have happened in a run. Past tense, frozen, JSON only.

An event is a fact: it says what was decided or seen, with every number that was chosen
(attempt, epoch, deadline, backoff), so that folding a log needs no policy. Two ledgers read
the same log: INTENT (what was meant, allowed, answered, and why) and EXECUTION (what was
started, reported, verified). The header (run, seq, at, version) and the hash are kept
outside the body, in `audit/chain.py`.

Adding an event: give it a class here, a handler in `core/evolve*.py`, one in `core/invariants*.py`,
and a line in `core/ledger.py`. Changing one: raise EVENT_VERSION and write an upcaster in
`codec/events.py`; old logs load for ever.
"""

from __future__ import annotations

from typing import Any

import msgspec

from leadhand.core.catalog import WorkerSpec
from leadhand.core.events_base import DECIDE_VERSION, EVENT_VERSION, Doc, Event
from leadhand.core.events_models import DraftRefused, ModelCalled
from leadhand.core.events_review import (
    REVIEW_EVENTS,
    ApprovalGiven,
    ApprovalVoided,
    CancelRequested,
    ChangeApproved,
    ChangesRequested,
    QuestionAnswered,
    QuestionAsked,
    RedoRequested,
    ReleaseGiven,
    ReviewRequested,
    RevisionApproved,
    RevisionExamined,
    RevisionRejected,
    RunPaused,
    RunReopened,
    RunResumed,
    StepsHeld,
    StepsReleased,
    WorkersChanged,
)
from leadhand.core.policy import Policy

__all__ = [
    "DECIDE_VERSION",
    "EVENT_VERSION",
    "EXECUTION",
    "INTENT",
    "NO_COST",
    "RUN_EVENTS",
    "ApprovalGiven",
    "ApprovalVoided",
    "AttemptLost",
    "AttemptReported",
    "AttemptSpawned",
    "AttemptStarted",
    "CancelRequested",
    "ChangeApproved",
    "ChangesRequested",
    "Doc",
    "DraftRefused",
    "Event",
    "FinishAccepted",
    "GoalCheckStarted",
    "GoalChecked",
    "ModelCalled",
    "PlannerAnswered",
    "PlannerAsked",
    "PlannerFailed",
    "PlannerWaits",
    "ProbeReported",
    "ProbeStarted",
    "Process",
    "ProposalRefused",
    "QuestionAnswered",
    "QuestionAsked",
    "RecoveryDecided",
    "RedoRequested",
    "ReleaseGiven",
    "ReportIgnored",
    "ReviewRequested",
    "RevisionApproved",
    "RevisionExamined",
    "RevisionProposed",
    "RevisionRejected",
    "RunEnded",
    "RunHosted",
    "RunPaused",
    "RunReopened",
    "RunResumed",
    "RunStarted",
    "StepCancelled",
    "StepRefused",
    "StepSkipped",
    "StepsHeld",
    "StepsReleased",
    "StopDecided",
    "WorkersChanged",
]


class RunStarted(Event, frozen=True, tag=True, kw_only=True):
    """A run was started, from a goal or from a plan."""

    run: str
    goal: Any
    policy: Policy
    planner: str
    catalog: list[WorkerSpec]
    replans: bool = False
    """Whether the planner can be asked to plan around a failure."""
    splits: bool = False
    """Whether the planner can split a step into smaller ones."""
    deaf: bool = False
    """Whether the planner plans from facts alone, and reads no words of people."""
    consult: str = "on_surprise"
    plan: Doc = {}
    """The plan document without its steps, when the run was started from one."""
    params: Doc = {}
    actor: str = ""
    workers: tuple[str, ...] = ()
    """Modules or files the workers were loaded from, so that `resume` finds them."""
    planner_source: str = ""
    """Where the planner was loaded from, as module:function, for the same reason."""
    approvals: list[Doc] = []
    """Approvals of the plan that were given before the run: see `core/approval.py`."""
    linted: str = ""
    """Digest of the steps that were checked before the start, so they need not be again."""
    decide_version: int = 1
    """Whose decisions these are. Never the newest by default: a default is not written."""


class Process(msgspec.Struct, frozen=True, omit_defaults=True):
    """The process that drives a run beside the host, and where it was started.

    `start_time` and `boot_id` tell it from another process with the same pid.
    """

    pid: int
    start_time: int
    boot_id: str
    folder: str
    python: str
    """The interpreter."""


class RunHosted(Event, frozen=True, tag=True):
    """A host took the run up; whatever an earlier host had in flight is lost."""

    owner: int
    process: Process | None = None
    """The run's own process, where it has one: its workers are loaded there, not in the host."""


class PlannerAsked(Event, frozen=True, tag=True):
    """The planner was asked to look at the state."""

    call: int
    epoch: int
    deadline: int
    why: str


class PlannerAnswered(Event, frozen=True, tag=True):
    """The planner answered. A proposal that became a revision is named; its steps stand there."""

    call: int
    epoch: int
    decision: Doc
    cost: float = 0.0


class PlannerFailed(Event, frozen=True, tag=True):
    """The planner raised, timed out, was lost, or answered something that is no decision."""

    call: int
    epoch: int
    reason: str
    lost: bool = False
    """Its host died; that is nobody's fault and does not count."""


class ProposalRefused(Event, frozen=True, tag=True):
    """A proposal had findings; the planner is told them."""

    call: int
    findings: list[str]
    early: bool = False
    """It finished while steps were still under way: that is no failed round, and the planner is
    asked again when something has changed."""


class PlannerWaits(Event, frozen=True, tag=True):
    """The planner has nothing to add until something changes."""

    call: int
    on: list[str] = []
    """Some of what it waits for: steps and questions."""


class FinishAccepted(Event, frozen=True, tag=True):
    """The planner's finish holds: every accepted step is settled. The goal is checked next."""

    call: int
    drop: dict[str, str] = {}
    """Steps that it gives up by name, each with the reason."""


class RevisionProposed(Event, frozen=True, tag=True, kw_only=True):
    """A new version of the plan, as a delta on the one before."""

    number: int
    author: str
    base: str
    hash: str
    add: list[Doc]
    cancel: list[str] = []
    final: bool = True
    outlook: list[Doc | str] = []
    """What is expected to follow: steps, or a text for each; shown, never executed."""
    because: str = ""
    risk: str = "low"
    """What the policy counts its risk as."""
    undeclared: bool = False
    """Whether no risk is declared, by plan or workers: `risk` is then the policy's word alone."""
    drop: dict[str, str] = {}
    """Steps that it gives up by name, each with the reason."""


class AttemptStarted(Event, frozen=True, tag=True, gc=False):
    """An attempt may be made: durable before the worker is called."""

    step: str
    attempt: int
    epoch: int
    worker: str
    deadline: int
    spec: str
    """Hash of the step as approved."""
    exec: str = ""
    """Hash of the step as resolved: what was really run. Empty when nothing was to resolve."""


class AttemptSpawned(Event, frozen=True, tag=True):
    """A command was started as an operating-system process."""

    step: str
    epoch: int
    pid: int
    start_time: int
    boot_id: str


NO_COST = 0.0
"""One object: what is the default is not written."""


class AttemptReported(Event, frozen=True, tag=True, gc=False):
    """A worker reported and the engine judged: `met` is the verdict, not the claim."""

    step: str
    attempt: int
    epoch: int
    met: bool
    data: Any = None
    data_ref: str = ""
    """Artifact that holds the data when it is large."""
    failure: Doc | None = None
    findings: tuple[str, ...] = ()
    """Which criteria did not hold, and why."""
    recommendations: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    cost: float = NO_COST
    output: str = ""
    """What it printed, when that is short; else `output_ref` names the artifact."""
    output_ref: str = ""
    surprise: str = ""
    """Why a success should make the planner look again."""


class ReportIgnored(Event, frozen=True, tag=True):
    """A report came for an attempt that is no longer the current one. Only its cost counts."""

    step: str
    attempt: int
    epoch: int
    cost: float = 0.0


class AttemptLost(Event, frozen=True, tag=True):
    """Nobody saw how an attempt ended: its time ran out, or its host died."""

    step: str
    attempt: int
    epoch: int
    failure_class: str
    reason: str


class ProbeStarted(Event, frozen=True, tag=True):
    """The worker is asked whether an unseen attempt happened."""

    step: str
    attempt: int
    epoch: int
    deadline: int


class ProbeReported(Event, frozen=True, tag=True):
    """The probe's answer: done (with its data), not_done, unknown, or lost with host or machine."""

    step: str
    attempt: int
    epoch: int
    outcome: str
    data: Any = None
    data_ref: str = ""
    reason: str = ""
    met: bool = False
    findings: tuple[str, ...] = ()


class StepRefused(Event, frozen=True, tag=True):
    """A step could not be started: a reference did not resolve, a worker is gone."""

    step: str
    failure_class: str
    reason: str


class RecoveryDecided(Event, frozen=True, tag=True, kw_only=True):
    """What follows a failed attempt, and why."""

    step: str
    attempt: int
    failure_class: str
    strategy: str
    reason: str
    until: int = 0
    worker: str = ""


class StepSkipped(Event, frozen=True, tag=True):
    """A step will not run because of another step, or because a person said so."""

    step: str
    reason: str
    tolerated: bool = False
    """A person said so, and the run may still succeed."""


class StepCancelled(Event, frozen=True, tag=True):
    """A step was taken out of the plan, or the run was stopped before it."""

    step: str
    reason: str


class StopDecided(Event, frozen=True, tag=True):
    """No further step will start; what is in flight may finish, then the run ends."""

    status: str
    reason: str
    limit: str = ""
    rollback: bool = False
    """What was done is to be taken back, by a run of its own."""
    origin: str = ""
    """Where the cause lies: planning, execution, limits or person."""


class GoalCheckStarted(Event, frozen=True, tag=True):
    """All is done; the goal's acceptance criteria are being checked."""


class GoalChecked(Event, frozen=True, tag=True):
    """The goal's acceptance criteria were checked."""

    met: bool
    findings: list[str] = []


class RunEnded(Event, frozen=True, tag=True):
    """The run ended. Of one that failed, `RunReopened` may follow."""

    status: str
    reason: str = ""
    result: Any = None
    result_ref: str = ""
    limit: str = ""
    rollback: bool = False
    """What was done is to be taken back, by a run of its own."""
    origin: str = ""
    """Where the cause of an end without success lies: planning, execution, limits or person."""


INTENT: tuple[type[Event], ...] = (
    RunStarted,
    PlannerAsked,
    PlannerAnswered,
    PlannerFailed,
    DraftRefused,
    PlannerWaits,
    FinishAccepted,
    ProposalRefused,
    RevisionProposed,
    *REVIEW_EVENTS,
    RecoveryDecided,
    StepSkipped,
    StepCancelled,
    StopDecided,
    RunEnded,
)

EXECUTION: tuple[type[Event], ...] = (
    RunHosted,
    ModelCalled,
    AttemptStarted,
    AttemptSpawned,
    AttemptReported,
    ReportIgnored,
    AttemptLost,
    ProbeStarted,
    ProbeReported,
    StepRefused,
    GoalCheckStarted,
    GoalChecked,
)

RUN_EVENTS: tuple[type[Event], ...] = INTENT + EXECUTION
