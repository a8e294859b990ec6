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
    """The model that was called."""
    step: str = ""
    """Empty for a call by the planner."""
    attempt: int = 0
    """The attempt of the step, or the number of the planner's call."""
    tier: str = ""
    """The tier of the model, if it was chosen by tier."""
    input: int = 0
    """Input tokens."""
    output: int = 0
    """Output tokens."""
    cached: int = 0
    """Input tokens read from the provider's cache."""
    written: int = 0
    """Input tokens written into the provider's cache."""
    cost: float = 0.0
    """The cost of the call, in US dollars."""
    seconds: float = 0.0
    """The duration of the call, in seconds."""
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
    """Why the proposal was refused."""
    draft: Any
    """The proposal, as far as it could be read: bounded, without secrets."""
    answer: str = ""
    """A digest of the model's response, as in `ModelCalled`."""


# Reviews, questions, holds and stops: what people and reviewers say about a run.


class ReviewRequested(Event, frozen=True, tag=True):
    """A revision waits for one or two different people."""

    number: int
    """The number of the revision."""
    hash: str
    """The hash of the revision."""
    reason: str
    """Why an approval is needed."""
    people: int = 1
    """The number of different people who must approve."""


class RevisionExamined(Event, frozen=True, tag=True):
    """The automatic reviewers have examined a revision."""

    number: int
    """The number of the revision."""
    hash: str
    """The hash of the revision."""
    findings: list[str] = []
    """The findings of the reviewers."""
    failed: str = ""
    """Why a reviewer failed; a failed reviewer lets nothing through."""


class ApprovalGiven(Event, frozen=True, tag=True, kw_only=True):
    """A person allowed exactly this revision, with its workers as they are, until it expires."""

    number: int
    """The number of the revision."""
    hash: str
    """The hash of the revision."""
    actor: str
    """The person who approved."""
    binding: str
    """One hash of everything that was allowed: see `core/review/approval.py`."""
    digest: str = ""
    """The digest shown to the approver on every surface: the binding before its expiry was chosen;
    for an approval given before the run, the binding of the plan."""
    expires: int = 0
    """UTC microseconds; 0 for never."""
    reason: str = ""
    """The comment of the approver."""
    key: str = ""
    """The public key of the approver, if the approval is signed."""
    signature: str = ""
    """The signature over the binding, if the approval is signed."""
    approval: str = ""
    """The id of the plan approval given before the run, if it is one."""
    widens: list[str] = []
    """Steps whose claims beyond their workers were shown and are covered by the binding."""


class StepComment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A comment of a reviewer about one step, or about the whole revision."""

    id: str
    """The id by which a planner answers it: `c1`, `c2`, …, unique in the run."""
    text: str
    """The comment."""
    step: str = ""
    """The step that it is about; empty: the whole revision."""


class CommentAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a revision answers a comment on the revision before."""

    comment: str
    """The id of the comment."""
    status: str = "not answered"
    """`addressed`, `not addressed` or `not answered`: what the planner says, or that it says
    nothing."""
    reason: str = ""
    """What the planner did about it, or why it did nothing."""


class ChangesRequested(Event, frozen=True, tag=True):
    """A person sent a revision back to the planner."""

    number: int
    """The number of the revision."""
    hash: str
    """The hash of the revision."""
    actor: str
    """The person who asked for changes."""
    text: str
    """The requested changes."""
    comments: list[StepComment] = []
    """The same one by one, each with its id."""


class StepsHeld(Event, frozen=True, tag=True):
    """Steps are held: they must not start, though nothing else blocks them."""

    steps: list[str]
    """The ids of the held steps."""
    reason: str
    """Why the steps are held."""
    actor: str
    """The person who held the steps, or the part of Leadhand that did."""
    question: str
    """The question a person answers to release them."""


class ReleaseGiven(Event, frozen=True, tag=True, kw_only=True):
    """A person releases held steps: these steps, with their workers as they are."""

    question: str
    """The question that is answered by the release."""
    actor: str
    """The person who releases the steps."""
    binding: str
    """One hash of what is released: `release_binding` in `core/review/approval.py`."""
    expires: int = 0
    """UTC microseconds; 0 for never."""
    reason: str = ""
    """The comment of the person."""
    key: str = ""
    """The public key of the person, if the release is signed."""
    signature: str = ""
    """The signature over the binding, if the release is signed."""


class StepsReleased(Event, frozen=True, tag=True):
    """Held steps may start again: enough people have released them."""

    steps: list[str]
    """The ids of the released steps."""
    actor: str
    """The person who gave the last release."""
    reason: str = ""
    """The comment of that person."""
    expires: int = 0
    """When the permission expires, in UTC microseconds; 0 for never."""


class ApprovalVoided(Event, frozen=True, tag=True):
    """A permission in the log does not hold, as found when the run was resumed."""

    entry: int
    """The number of the wrong entry in the log."""
    reason: str
    """Why the permission does not hold."""
    revisions: list[int] = []
    """The revisions whose steps are affected."""


class WorkersChanged(Event, frozen=True, tag=True):
    """The host has other workers than the run knows: other versions, or new ones."""

    specs: list[WorkerSpec]
    """The workers as they are now."""
    added: list[str] = []
    """Workers new to the run."""


class RedoRequested(Event, frozen=True, tag=True):
    """A person asks to retry a failed step, with a reason."""

    step: str
    """The id of the step."""
    actor: str
    """The person who asked."""
    reason: str
    """Why the step is retried."""


class RevisionApproved(Event, frozen=True, tag=True):
    """A revision was approved, by the policy or by a person."""

    number: int
    """The number of the revision."""
    hash: str
    """The hash of the revision."""
    actor: str
    """The person who approved, or `policy`."""
    reason: str = ""
    """The comment of the approver, or the rule that applied."""
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
    """The number of the revision."""
    hash: str
    """The hash of the revision."""
    actor: str
    """The person who rejected, or `policy`."""
    reason: str = ""
    """Why it was rejected."""


class QuestionAsked(Event, frozen=True, tag=True, kw_only=True):
    """A person is asked a question."""

    id: str
    """The id of the question in the run."""
    kind: str
    """The kind of question."""
    text: str
    """The question."""
    choices: list[str] = []
    """The possible answers."""
    step: str = ""
    """The id of the step that the question is about, if any."""
    attempt: int = 0
    """The attempt of that step."""
    default: str = ""
    """The answer used if none is given by `until`."""
    until: int = 0
    """When the default applies, in UTC microseconds; 0 for never."""
    facts: list[str] = []
    """The facts a person is asked to give."""
    people: int = 1
    """The number of different people who must answer."""


class ChangeApproved(Event, frozen=True, tag=True, kw_only=True):
    """A person approved one change of a protected file: this commit, with this content."""

    question: str
    """The question that is answered by the approval."""
    step: str
    """The id of the step that made the change."""
    commit: str
    """The approved commit."""
    digest: str
    """The digest of the approved content."""
    actor: str
    """The person who approved."""
    reason: str = ""
    """The comment of the approver."""
    key: str = ""
    """The public key of the approver, if the approval is signed."""
    signature: str = ""
    """The approver's signature, if approvers are configured: see
    `core/review/protected_change.py`."""


class QuestionAnswered(Event, frozen=True, tag=True, kw_only=True):
    """A person answered a question."""

    id: str
    """The id of the question."""
    choice: str
    """The chosen answer."""
    actor: str
    """The person who answered."""
    text: str = ""
    """The comment of the person."""
    data: Any = None
    """The facts that were asked for, or the result of a task."""


class LinkUsed(Event, frozen=True, tag=True):
    """A person answers through a signed link: the link allows no second answer."""

    id: str
    """The id of the link."""
    question: str
    """The id of the question or review that the answer belongs to."""
    actor: str
    """The person whom the link was made for."""
    channel: str
    """The channel that carried the link to the person: `email`, `slack` or `ntfy`."""


class RunReopened(Event, frozen=True, tag=True):
    """A person reopened a failed run to retry a step: the run is as it was before its end."""

    step: str
    """The id of the step that is retried."""
    actor: str
    """The person who reopened the run."""
    reason: str
    """Why the run was reopened."""


class RunPaused(Event, frozen=True, tag=True):
    """The run was paused: no new attempts start."""

    actor: str
    """The person who paused the run."""
    reason: str = ""
    """Why the run was paused."""


class RunResumed(Event, frozen=True, tag=True):
    """The run was resumed: attempts may start again."""

    actor: str
    """The person who resumed the run."""


class CancelRequested(Event, frozen=True, tag=True):
    """A person cancelled the run; attempts in flight end by `deadline` at the latest."""

    actor: str
    """The person who cancelled the run."""
    deadline: int
    """When attempts in flight end at the latest, in UTC microseconds."""
    reason: str = ""
    """Why the run was cancelled."""


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
    LinkUsed,
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
    """The id of the run."""
    goal: Any
    """The goal: a text, or a document as in a plan."""
    policy: Policy
    """The limits and review rules of the run."""
    planner: str
    """The name of the planner; `document` for a run of a given plan."""
    catalog: list[WorkerSpec]
    """The workers, as they were when the run started."""
    replans: bool = False
    """Whether the planner can be asked to plan around a failure."""
    splits: bool = False
    """Whether the planner can split a step into smaller ones."""
    deaf: bool = False
    """Whether the planner plans from facts alone and ignores text written by people."""
    consult: str = "on_surprise"
    """When the planner is asked again: `every_report` or `on_surprise`."""
    plan: Doc = {}
    """The plan document without its steps, when the run was started from one."""
    params: Doc = {}
    """The values of the plan's parameters."""
    actor: str = ""
    """The person who started the run."""
    workers: tuple[str, ...] = ()
    """Modules or files the workers were loaded from, used by `resume`."""
    planner_source: str = ""
    """The planner's source as module:function, used by `resume`."""
    approvals: list[Doc] = []
    """Approvals of the plan given before the run: see `core/review/approval.py`."""
    labels: tuple[str, ...] = ()
    """Labels of the run, as `name` or `name=value`, sorted."""
    environment: str = ""
    """The environment that the settings name, such as `production`."""
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
    """The id of the process."""
    start_time: int
    """When the process started, in the clock ticks of the kernel."""
    boot_id: str
    """The boot of the machine in which the process was started."""
    folder: str
    """The working directory of the process."""
    python: str
    """The interpreter."""


class RunHosted(Event, frozen=True, tag=True):
    """A host took over the run; attempts in flight under an earlier host are lost."""

    owner: int
    """The number of the new host; it grows with each host."""
    process: GuestProcess | None = None
    """The run's own process, if it has one: its workers are loaded there, not in the host."""


class PlannerAsked(Event, frozen=True, tag=True):
    """The planner was asked for a decision."""

    call: int
    """The number of the planner's call."""
    epoch: int
    """The number by which the answer is recognised as current."""
    deadline: int
    """When the answer is due, in UTC microseconds."""
    why: str
    """Why the planner is asked."""


class PlannerAnswered(Event, frozen=True, tag=True):
    """The planner answered.

    `RevisionProposed` holds the steps of a proposal that became a revision.
    """

    call: int
    """The number of the planner's call."""
    epoch: int
    """The number by which the answer is recognised as current."""
    decision: Doc
    """The decision, without the steps of a proposal."""
    cost: float = 0.0
    """The cost of the call."""


class PlannerFailed(Event, frozen=True, tag=True):
    """The planner raised, timed out, was lost, or returned no valid decision."""

    call: int
    """The number of the planner's call."""
    epoch: int
    """The number by which the answer is recognised as current."""
    reason: str
    """What went wrong."""
    lost: bool = False
    """Its host died; this does not count as a failure of the planner."""


class ProposalRefused(Event, frozen=True, tag=True):
    """A proposal was refused because of findings, which the planner receives."""

    call: int
    """The number of the planner's call."""
    findings: list[str]
    """Why the proposal was refused."""
    early: bool = False
    """It finished while steps were still in flight: not a failed round; the planner is asked again
    after the next change."""


class PlannerWaits(Event, frozen=True, tag=True):
    """The planner has nothing to add until the state changes."""

    call: int
    """The number of the planner's call."""
    on: list[str] = []
    """Some of the steps and questions it waits for."""


class FinishAccepted(Event, frozen=True, tag=True):
    """The planner's finish is accepted: every accepted step is settled.

    The goal is checked next.
    """

    call: int
    """The number of the planner's call."""
    drop: dict[str, str] = {}
    """Abandoned steps, each with the reason."""


class RevisionProposed(Event, frozen=True, tag=True, kw_only=True):
    """A new version of the plan was proposed, as a delta to the one before."""

    number: int
    """The number of the revision."""
    author: str
    """The planner or the person who proposed it."""
    base: str
    """The hash of the revision before."""
    hash: str
    """The hash of this revision."""
    add: list[Doc]
    """The added steps."""
    cancel: list[str] = []
    """The ids of removed steps."""
    final: bool = True
    """Whether the plan is complete; otherwise the planner is asked again."""
    outlook: list[Doc | str] = []
    """Expected later steps, as steps or texts; shown, never executed."""
    because: str = ""
    """Why it was proposed."""
    risk: str = "low"
    """The risk the policy assigns."""
    undeclared: bool = False
    """Whether neither plan nor workers declare a risk: `risk` is then only the policy's default."""
    drop: dict[str, str] = {}
    """Abandoned steps, each with the reason."""
    answers: list[CommentAnswer] = []
    """An answer for each open comment on the revision before."""


class AttemptStarted(Event, frozen=True, tag=True, gc=False):
    """An attempt may run: durable before the worker is called."""

    step: str
    """The id of the step."""
    attempt: int
    """The number of the attempt, from 1."""
    epoch: int
    """The number by which the report is recognised as current."""
    worker: str
    """The worker of the attempt."""
    deadline: int
    """When the report is due, in UTC microseconds."""
    spec: str
    """Hash of the step as approved."""
    exec: str = ""
    """Hash of the step with references resolved, as really run. Empty without references."""
    caller: str = ""
    """The caller that the step was handed out to, as `agent:NAME`: then `deadline` is the end of
    its lease."""
    limit: int = 0
    """When the time of a caller is over however often its lease is extended, in UTC
    microseconds."""


class AttemptSpawned(Event, frozen=True, tag=True):
    """A command was started as an operating-system process."""

    step: str
    """The id of the step."""
    epoch: int
    """The epoch of the attempt."""
    pid: int
    """The id of the process."""
    start_time: int
    """When the process started, in the clock ticks of the kernel."""
    boot_id: str
    """The boot of the machine in which the process was started."""


class LeaseExtended(Event, frozen=True, tag=True):
    """A caller is still at work on the step that was handed out to it: its lease ends later."""

    step: str
    """The id of the step."""
    attempt: int
    """The number of the attempt."""
    epoch: int
    """The epoch of the attempt."""
    deadline: int
    """When the report is due now, in UTC microseconds."""


NO_COST = 0.0
"""One shared object: defaults are not written."""


class AttemptReported(Event, frozen=True, tag=True, gc=False):
    """A worker reported and the engine verified: `met` is the verdict, not the worker's claim."""

    step: str
    """The id of the step."""
    attempt: int
    """The number of the attempt, from 1."""
    epoch: int
    """The epoch of the attempt."""
    met: bool
    """Whether the success criteria were checked and hold."""
    data: Any = None
    """The result."""
    data_ref: str = ""
    """The artifact with the data, if the data is large."""
    failure: Doc | None = None
    """The failure, if there is one: its class, message and effect."""
    findings: tuple[str, ...] = ()
    """The criteria that did not hold, and why."""
    recommendations: tuple[str, ...] = ()
    """What the worker recommends."""
    artifacts: tuple[str, ...] = ()
    """References of the artifacts."""
    cost: float = NO_COST
    """The cost of the attempt."""
    output: str = ""
    """The printed output, if short; else `output_ref` names the artifact."""
    output_ref: str = ""
    """The artifact with the printed output, if it is long."""
    surprise: str = ""
    """Why the planner should reconsider despite the success."""
    said: str = ""
    """Digest of the report as a caller sent it: the same report again changes nothing."""


class ReportIgnored(Event, frozen=True, tag=True):
    """A report arrived for an attempt that is no longer current. Only its cost counts."""

    step: str
    """The id of the step."""
    attempt: int
    """The number of the attempt."""
    epoch: int
    """The epoch of the attempt."""
    cost: float = 0.0
    """The cost of the attempt."""


class AttemptLost(Event, frozen=True, tag=True):
    """The outcome of an attempt is unknown: its time ran out, or its host died."""

    step: str
    """The id of the step."""
    attempt: int
    """The number of the attempt."""
    epoch: int
    """The epoch of the attempt."""
    failure_class: str
    """The failure class, such as `timeout` or `lost`."""
    reason: str
    """Why the outcome is unknown."""


class ProbeStarted(Event, frozen=True, tag=True):
    """The worker is asked whether an unobserved attempt took effect."""

    step: str
    """The id of the step."""
    attempt: int
    """The number of the attempt."""
    epoch: int
    """The epoch of the probe."""
    deadline: int
    """When the answer is due, in UTC microseconds."""


class ProbeReported(Event, frozen=True, tag=True):
    """The result of a probe: done (with data), not_done, unknown, or lost with host or machine."""

    step: str
    """The id of the step."""
    attempt: int
    """The number of the attempt."""
    epoch: int
    """The epoch of the probe."""
    outcome: str
    """`done`, `not_done`, `unknown` or `lost`."""
    data: Any = None
    """The result, if the attempt took effect."""
    data_ref: str = ""
    """The artifact with the data, if the data is large."""
    reason: str = ""
    """Why the outcome is what it is."""
    met: bool = False
    """Whether the success criteria hold for the data."""
    findings: tuple[str, ...] = ()
    """The criteria that did not hold, and why."""


class StepRefused(Event, frozen=True, tag=True):
    """A step could not start: a reference did not resolve, or a worker is gone."""

    step: str
    """The id of the step."""
    failure_class: str
    """The failure class."""
    reason: str
    """Why the step could not start."""


class RecoveryDecided(Event, frozen=True, tag=True, kw_only=True):
    """The recovery that follows a failed attempt, and why."""

    step: str
    """The id of the step."""
    attempt: int
    """The number of the failed attempt."""
    failure_class: str
    """The failure class."""
    strategy: str
    """The recovery, such as `retry` or `escalate`."""
    reason: str
    """Why this recovery was chosen."""
    until: int = 0
    """The earliest start of the next attempt, in UTC microseconds; 0 for at once."""
    worker: str = ""
    """The worker of the next attempt, if it is another one."""


class StepSkipped(Event, frozen=True, tag=True):
    """A step will not run because of another step, or by decision of a person."""

    step: str
    """The id of the step."""
    reason: str
    """Why it is skipped."""
    tolerated: bool = False
    """Decided by a person, so the run may still succeed."""


class StepCancelled(Event, frozen=True, tag=True):
    """A step was removed from the plan, or the run stopped before it."""

    step: str
    """The id of the step."""
    reason: str
    """Why it was cancelled."""


class StopDecided(Event, frozen=True, tag=True):
    """No further step will start; attempts in flight may finish, then the run ends."""

    status: str
    """The status with which the run will end."""
    reason: str
    """Why the run stops."""
    limit: str = ""
    """The limit that was reached, if any."""
    rollback: bool = False
    """Completed steps are to be undone by a rollback run."""
    origin: str = ""
    """The origin of the cause: planning, execution, limits or person."""


class GoalCheckStarted(Event, frozen=True, tag=True):
    """All steps are done; the check of the goal's acceptance criteria started."""


class GoalChecked(Event, frozen=True, tag=True):
    """The goal's acceptance criteria were checked."""

    met: bool
    """Whether all acceptance criteria hold."""
    findings: list[str] = []
    """The criteria that do not hold, and why."""


class RunEnded(Event, frozen=True, tag=True):
    """The run ended. `RunReopened` may follow the end of a failed run."""

    status: str
    """The final status."""
    reason: str = ""
    """Why the run ended so."""
    result: Any = None
    """The result of the run."""
    result_ref: str = ""
    """The artifact with the result, if the result is large."""
    limit: str = ""
    """The limit that was reached, if any."""
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
    LeaseExtended,
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
