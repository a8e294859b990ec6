"""Every event of a run. Past tense, frozen, JSON only.

An event is a fact: it records a decision or an observation, with every number that was chosen
(attempt, epoch, deadline, backoff), so that folding a log needs no policy. Two ledgers read the
same log: INTENT (what was meant, allowed, answered, and why) and EXECUTION (what was started,
reported, verified). The header (run, seq, at, version) and the hash are kept outside the body, in
`audit/chain.py`.

To add an event: follow docs/contributing/add-an-event.md. To change one: raise EVENT_VERSION and
write an upcaster in `codec/events.py`; old logs must stay readable.
"""

from __future__ import annotations

from typing import Any

import msgspec

from leadhand.core.catalog import WorkerSpec
from leadhand.core.policy import Policy

# The base class of events, and the versions of their form and of the decisions in them.


EVENT_VERSION = 1
DECIDE_VERSION = 1
"""The version of decisions, recorded in `RunStarted` when a run starts.

A log must mean the same for ever, so a change of what `decide`, `evolve`, an approval's binding or
the log checker make of a log is a new version: raise the number, say here what it changed, and
let a run that recorded a lower one keep the old branch (`state.started.decide_version`). Record
a golden history of the new version (`tests/golden/record.py`) and leave those of the old one. A
log of a newer version is refused by `codec/events.py`.
"""

Doc = dict[str, Any]


class Event(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """Base of all events."""


# Calls of language models during a run, and their cost.


class ModelCalled(Event, frozen=True, tag=True, kw_only=True):
    """A call of a model ended, for an attempt of a step or for the planner.

    Its cost counts whether or not that attempt is still current.
    """

    model: str
    step: str = ""
    """Empty for a call by the planner."""
    attempt: int = 0
    """The attempt of the step, or the number of the planner's call."""
    tier: str = ""
    input: int = 0
    output: int = 0
    cached: int = 0
    """Input tokens read from the provider's cache."""
    written: int = 0
    """Input tokens written into the provider's cache."""
    cost: float = 0.0
    seconds: float = 0.0
    failure: str = ""
    """The class of its failure, or empty."""
    prompt: str = ""
    """A digest of the prompt template."""
    asked: str = ""
    """A digest of the whole request; equal requests have equal digests in a recording."""
    answer: str = ""
    """A digest of the response; empty without a response."""
    contents: Doc | None = None
    """Request and response, if contents are recorded: bounded, without secrets."""


class DraftRefused(Event, frozen=True, tag=True, kw_only=True):
    """A planner's own check refused the proposal of its model, before the run saw it."""

    call: int
    """The number of the planner's call."""
    findings: list[str]
    draft: Any
    """The proposal, as far as it could be read: bounded, without secrets."""
    answer: str = ""
    """A digest of the model's response, as in `ModelCalled`."""


# Reviews, questions, holds and stops: what people and reviewers say about a run.


class ReviewRequested(Event, frozen=True, tag=True):
    """A revision waits for one or two different people."""

    number: int
    hash: str
    reason: str
    people: int = 1


class RevisionExamined(Event, frozen=True, tag=True):
    """The automatic reviewers have examined a revision."""

    number: int
    hash: str
    findings: list[str] = []
    failed: str = ""
    """Why a reviewer failed; a failed reviewer lets nothing through."""


class ApprovalGiven(Event, frozen=True, tag=True, kw_only=True):
    """A person allowed exactly this revision, with its workers as they are, until it expires."""

    number: int
    hash: str
    actor: str
    binding: str
    """One hash of everything that was allowed: see `core/review/approval.py`."""
    digest: str = ""
    """The digest shown to the approver on every surface: the binding before its expiry was chosen;
    for an approval given before the run, the binding of the plan."""
    expires: int = 0
    """UTC microseconds; 0 for never."""
    reason: str = ""
    key: str = ""
    signature: str = ""
    approval: str = ""
    """The id of the plan approval given before the run, if it is one."""
    widens: list[str] = []
    """Steps whose claims beyond their workers were shown and are covered by the binding."""


class ChangesRequested(Event, frozen=True, tag=True):
    """A person sent a revision back to the planner."""

    number: int
    hash: str
    actor: str
    text: str


class StepsHeld(Event, frozen=True, tag=True):
    """Steps are held: they must not start, though nothing else blocks them."""

    steps: list[str]
    reason: str
    actor: str
    question: str
    """The question a person answers to release them."""


class ReleaseGiven(Event, frozen=True, tag=True, kw_only=True):
    """A person releases held steps: these steps, with their workers as they are."""

    question: str
    actor: str
    binding: str
    """One hash of what is released: `release_binding` in `core/review/approval.py`."""
    expires: int = 0
    """UTC microseconds; 0 for never."""
    reason: str = ""
    key: str = ""
    signature: str = ""


class StepsReleased(Event, frozen=True, tag=True):
    """Held steps may start again: enough people have released them."""

    steps: list[str]
    actor: str
    reason: str = ""
    expires: int = 0
    """When the permission expires, in UTC microseconds; 0 for never."""


class ApprovalVoided(Event, frozen=True, tag=True):
    """A permission in the log does not hold, as found when the run was resumed."""

    entry: int
    """The number of the wrong entry in the log."""
    reason: str
    revisions: list[int] = []
    """The revisions whose steps are affected."""


class WorkersChanged(Event, frozen=True, tag=True):
    """The host has other workers than the run knows: other versions, or new ones."""

    specs: list[WorkerSpec]
    added: list[str] = []
    """Workers new to the run."""


class RedoRequested(Event, frozen=True, tag=True):
    """A person asks to retry a failed step, with a reason."""

    step: str
    actor: str
    reason: str


class RevisionApproved(Event, frozen=True, tag=True):
    """A revision was approved, by the policy or by a person."""

    number: int
    hash: str
    actor: str
    reason: str = ""
    instants: dict[str, int] = {}
    """The earliest start of steps with a `not_before`, in UTC microseconds."""
    envelope: Doc = {}
    """The limits within which later revisions need no new approval, if a person set them."""
    expires: int = 0
    """When the permission to start its steps expires, in UTC microseconds; 0 for never."""
    widens: list[str] = []
    """Steps whose claims beyond their workers count: all approvers were shown them."""


class RevisionRejected(Event, frozen=True, tag=True):
    """A revision was refused, by a person or by the policy."""

    number: int
    hash: str
    actor: str
    reason: str = ""


class QuestionAsked(Event, frozen=True, tag=True, kw_only=True):
    """A person is asked a question."""

    id: str
    kind: str
    text: str
    choices: list[str] = []
    step: str = ""
    attempt: int = 0
    default: str = ""
    """The answer used if none is given by `until`."""
    until: int = 0
    facts: list[str] = []
    """The facts a person is asked to give."""
    people: int = 1
    """The number of different people who must answer."""


class ChangeApproved(Event, frozen=True, tag=True, kw_only=True):
    """A person approved one change of a protected file: this commit, with this content."""

    question: str
    step: str
    commit: str
    digest: str
    actor: str
    reason: str = ""
    key: str = ""
    signature: str = ""
    """The approver's signature, if approvers are configured: see
    `core/review/protected_change.py`."""


class QuestionAnswered(Event, frozen=True, tag=True, kw_only=True):
    """A person answered a question."""

    id: str
    choice: str
    actor: str
    text: str = ""
    data: Any = None


class RunReopened(Event, frozen=True, tag=True):
    """A person reopened a failed run to retry a step: the run is as it was before its end."""

    step: str
    actor: str
    reason: str


class RunPaused(Event, frozen=True, tag=True):
    """The run was paused: no new attempts start."""

    actor: str
    reason: str = ""


class RunResumed(Event, frozen=True, tag=True):
    """The run was resumed: attempts may start again."""

    actor: str


class CancelRequested(Event, frozen=True, tag=True):
    """A person cancelled the run; attempts in flight end by `deadline` at the latest."""

    actor: str
    deadline: int
    reason: str = ""


REVIEW_EVENTS: tuple[type[Event], ...] = (
    ReviewRequested,
    RevisionExamined,
    ApprovalGiven,
    RevisionApproved,
    RevisionRejected,
    ChangesRequested,
    QuestionAsked,
    ChangeApproved,
    QuestionAnswered,
    StepsHeld,
    ReleaseGiven,
    StepsReleased,
    ApprovalVoided,
    WorkersChanged,
    RedoRequested,
    RunReopened,
    RunPaused,
    RunResumed,
    CancelRequested,
)


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
    """Whether the planner plans from facts alone and ignores text written by people."""
    consult: str = "on_surprise"
    plan: Doc = {}
    """The plan document without its steps, when the run was started from one."""
    params: Doc = {}
    actor: str = ""
    workers: tuple[str, ...] = ()
    """Modules or files the workers were loaded from, used by `resume`."""
    planner_source: str = ""
    """The planner's source as module:function, used by `resume`."""
    approvals: list[Doc] = []
    """Approvals of the plan given before the run: see `core/review/approval.py`."""
    linted: str = ""
    """Digest of the steps checked before the start, so that they are not checked again."""
    decide_version: int = 1
    """The version of the decisions in this log. Never defaults to the newest: defaults are not
    written."""


class GuestProcess(msgspec.Struct, frozen=True, omit_defaults=True):
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
    """A host took over the run; attempts in flight under an earlier host are lost."""

    owner: int
    process: GuestProcess | None = None
    """The run's own process, if it has one: its workers are loaded there, not in the host."""


class PlannerAsked(Event, frozen=True, tag=True):
    """The planner was asked for a decision."""

    call: int
    epoch: int
    deadline: int
    why: str


class PlannerAnswered(Event, frozen=True, tag=True):
    """The planner answered.

    `RevisionProposed` holds the steps of a proposal that became a revision.
    """

    call: int
    epoch: int
    decision: Doc
    cost: float = 0.0


class PlannerFailed(Event, frozen=True, tag=True):
    """The planner raised, timed out, was lost, or returned no valid decision."""

    call: int
    epoch: int
    reason: str
    lost: bool = False
    """Its host died; this does not count as a failure of the planner."""


class ProposalRefused(Event, frozen=True, tag=True):
    """A proposal was refused because of findings, which the planner receives."""

    call: int
    findings: list[str]
    early: bool = False
    """It finished while steps were still in flight: not a failed round; the planner is asked again
    after the next change."""


class PlannerWaits(Event, frozen=True, tag=True):
    """The planner has nothing to add until the state changes."""

    call: int
    on: list[str] = []
    """Some of the steps and questions it waits for."""


class FinishAccepted(Event, frozen=True, tag=True):
    """The planner's finish is accepted: every accepted step is settled.

    The goal is checked next.
    """

    call: int
    drop: dict[str, str] = {}
    """Abandoned steps, each with the reason."""


class RevisionProposed(Event, frozen=True, tag=True, kw_only=True):
    """A new version of the plan was proposed, as a delta to the one before."""

    number: int
    author: str
    base: str
    hash: str
    add: list[Doc]
    cancel: list[str] = []
    final: bool = True
    outlook: list[Doc | str] = []
    """Expected later steps, as steps or texts; shown, never executed."""
    because: str = ""
    risk: str = "low"
    """The risk the policy assigns."""
    undeclared: bool = False
    """Whether neither plan nor workers declare a risk: `risk` is then only the policy's default."""
    drop: dict[str, str] = {}
    """Abandoned steps, each with the reason."""


class AttemptStarted(Event, frozen=True, tag=True, gc=False):
    """An attempt may run: durable before the worker is called."""

    step: str
    attempt: int
    epoch: int
    worker: str
    deadline: int
    spec: str
    """Hash of the step as approved."""
    exec: str = ""
    """Hash of the step with references resolved, as really run. Empty without references."""


class AttemptSpawned(Event, frozen=True, tag=True):
    """A command was started as an operating-system process."""

    step: str
    epoch: int
    pid: int
    start_time: int
    boot_id: str


NO_COST = 0.0
"""One shared object: defaults are not written."""


class AttemptReported(Event, frozen=True, tag=True, gc=False):
    """A worker reported and the engine verified: `met` is the verdict, not the worker's claim."""

    step: str
    attempt: int
    epoch: int
    met: bool
    data: Any = None
    data_ref: str = ""
    """The artifact with the data, if the data is large."""
    failure: Doc | None = None
    findings: tuple[str, ...] = ()
    """The criteria that did not hold, and why."""
    recommendations: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    cost: float = NO_COST
    output: str = ""
    """The printed output, if short; else `output_ref` names the artifact."""
    output_ref: str = ""
    surprise: str = ""
    """Why the planner should reconsider despite the success."""


class ReportIgnored(Event, frozen=True, tag=True):
    """A report arrived for an attempt that is no longer current. Only its cost counts."""

    step: str
    attempt: int
    epoch: int
    cost: float = 0.0


class AttemptLost(Event, frozen=True, tag=True):
    """The outcome of an attempt is unknown: its time ran out, or its host died."""

    step: str
    attempt: int
    epoch: int
    failure_class: str
    reason: str


class ProbeStarted(Event, frozen=True, tag=True):
    """The worker is asked whether an unobserved attempt took effect."""

    step: str
    attempt: int
    epoch: int
    deadline: int


class ProbeReported(Event, frozen=True, tag=True):
    """The result of a probe: done (with data), not_done, unknown, or lost with host or machine."""

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
    """A step could not start: a reference did not resolve, or a worker is gone."""

    step: str
    failure_class: str
    reason: str


class RecoveryDecided(Event, frozen=True, tag=True, kw_only=True):
    """The recovery that follows a failed attempt, and why."""

    step: str
    attempt: int
    failure_class: str
    strategy: str
    reason: str
    until: int = 0
    worker: str = ""


class StepSkipped(Event, frozen=True, tag=True):
    """A step will not run because of another step, or by decision of a person."""

    step: str
    reason: str
    tolerated: bool = False
    """Decided by a person, so the run may still succeed."""


class StepCancelled(Event, frozen=True, tag=True):
    """A step was removed from the plan, or the run stopped before it."""

    step: str
    reason: str


class StopDecided(Event, frozen=True, tag=True):
    """No further step will start; attempts in flight may finish, then the run ends."""

    status: str
    reason: str
    limit: str = ""
    rollback: bool = False
    """Completed steps are to be undone by a rollback run."""
    origin: str = ""
    """The origin of the cause: planning, execution, limits or person."""


class GoalCheckStarted(Event, frozen=True, tag=True):
    """All steps are done; the check of the goal's acceptance criteria started."""


class GoalChecked(Event, frozen=True, tag=True):
    """The goal's acceptance criteria were checked."""

    met: bool
    findings: list[str] = []


class RunEnded(Event, frozen=True, tag=True):
    """The run ended. `RunReopened` may follow the end of a failed run."""

    status: str
    reason: str = ""
    result: Any = None
    result_ref: str = ""
    limit: str = ""
    rollback: bool = False
    """Completed steps are to be undone by a rollback run."""
    origin: str = ""
    """The origin of an end without success: planning, execution, limits or person."""


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
