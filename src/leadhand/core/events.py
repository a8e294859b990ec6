"""Everything that can have happened in a run. Past tense, frozen, JSON only.

An event is a fact: it says what was decided or seen, with every number that was chosen
(attempt, epoch, deadline, backoff), so that folding a log needs no policy. Two ledgers read
the same log: INTENT (what was meant, allowed, answered, and why) and EXECUTION (what was
started, reported, verified). The header (run, seq, at, version) and the hash are kept
outside the body, in `audit/chain.py`.

Adding an event: give it a class here, a handler in `core/state/evolve.py`, one in `core/logcheck/`,
and a line in `core/views/ledger.py`. Changing one: raise EVENT_VERSION and write an upcaster in
`codec/events.py`; old logs load for ever.
"""

from __future__ import annotations

from typing import Any

import msgspec

from leadhand.core.catalog import WorkerSpec
from leadhand.core.policy import Policy

# What all events have in common, and the versions of their form and of the decisions in them.


EVENT_VERSION = 1
DECIDE_VERSION = 6
"""2: parking, splitting, people, circuits, answers by default; wanted facts are checked.
3: whoever waits for a surprising success waits until the planner has looked; rollback.
4: an approval also covers the limits that the run was started with.
5: a run that failed may be reopened; a step done again takes those with it that nothing else
keeps from running, and only those.
6: what people allowed ends with the time of their approval and with the workers they allowed, for
later revisions too; whoever takes the place of a held step is held; a step's own word on its
effects adds to its worker's."""

Doc = dict[str, Any]


class Event(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """Base of all events."""


# What language models were asked during a run, and what that cost.


class ModelCalled(Event, frozen=True, tag=True, kw_only=True):
    """One call of a model ended, for an attempt of a step or for the planner.

    Its cost counts whether or not that attempt is still the current one.
    """

    model: str
    step: str = ""
    """Empty when it was the planner that asked."""
    attempt: int = 0
    """The attempt of the step, or the call of the planner."""
    tier: str = ""
    input: int = 0
    output: int = 0
    cached: int = 0
    """Those of the input that came from the provider's cache."""
    written: int = 0
    """Those of the input that were written into it."""
    cost: float = 0.0
    seconds: float = 0.0
    failure: str = ""
    """The class of its failure, if it failed."""
    prompt: str = ""
    """A digest of the template of the prompt."""
    asked: str = ""
    """A digest of all that was asked; the same question has the same on a tape."""
    answer: str = ""
    """A digest of what was answered; empty where nothing was."""
    contents: Doc | None = None
    """What was asked and answered, where contents are recorded: bounded, without secrets."""


class DraftRefused(Event, frozen=True, tag=True, kw_only=True):
    """A planner's own check refused what its model proposed, before the run saw it."""

    call: int
    """The call of the planner."""
    findings: list[str]
    draft: Any
    """What was proposed, as far as it could be read: bounded, without secrets."""
    answer: str = ""
    """A digest of the model's answer, as in `ModelCalled`."""


# What people and reviewers say about a run: reviews, questions, holds, stops.


class ReviewRequested(Event, frozen=True, tag=True):
    """A revision waits for people: one, or two different ones."""

    number: int
    hash: str
    reason: str
    people: int = 1


class RevisionExamined(Event, frozen=True, tag=True):
    """The automatic reviewers have looked at a revision."""

    number: int
    hash: str
    findings: list[str] = []
    failed: str = ""
    """Why one of them could not look; a reviewer that fails lets nothing through."""


class ApprovalGiven(Event, frozen=True, tag=True, kw_only=True):
    """A person allowed exactly this: the revision, its workers as they are, until it expires."""

    number: int
    hash: str
    actor: str
    binding: str
    """What was allowed, as one hash: see `core/review/approval.py`."""
    digest: str = ""
    """What the approver was shown, as every surface shows it: the binding before its end was
    chosen; of an approval that was given before the run, that of the plan."""
    expires: int = 0
    """UTC microseconds; 0 for never."""
    reason: str = ""
    key: str = ""
    signature: str = ""
    approval: str = ""
    """The id of the approval of the plan that this is, when it was given before the run."""
    widens: list[str] = []
    """Steps whose claims beyond their workers they were shown, and the binding covers."""


class ChangesRequested(Event, frozen=True, tag=True):
    """A person sent a revision back to the planner."""

    number: int
    hash: str
    actor: str
    text: str


class StepsHeld(Event, frozen=True, tag=True):
    """Steps that must not start for now, though nothing else is in their way."""

    steps: list[str]
    reason: str
    actor: str
    question: str
    """What a person answers to let them go on."""


class ReleaseGiven(Event, frozen=True, tag=True, kw_only=True):
    """A person lets held steps go on: these steps, with their workers as they are."""

    question: str
    actor: str
    binding: str
    """What is released, as one hash: `release_binding` in `core/review/approval.py`."""
    expires: int = 0
    """UTC microseconds; 0 for never."""
    reason: str = ""
    key: str = ""
    signature: str = ""


class StepsReleased(Event, frozen=True, tag=True):
    """Held steps may start again: as many people have released them as must."""

    steps: list[str]
    actor: str
    reason: str = ""
    expires: int = 0
    """When this permission ends, in UTC microseconds; 0 for never."""


class ApprovalVoided(Event, frozen=True, tag=True):
    """What a log says was allowed does not hold: looked at when the run was taken up."""

    entry: int
    """The entry of the log that is wrong."""
    reason: str
    revisions: list[int] = []
    """The revisions whose steps it concerns."""


class WorkersChanged(Event, frozen=True, tag=True):
    """A host has other workers than the run knows: other versions, or new ones."""

    specs: list[WorkerSpec]
    added: list[str] = []
    """Those among them that the run had not known."""


class RedoRequested(Event, frozen=True, tag=True):
    """A person wants a step that failed to be tried again, and says why."""

    step: str
    actor: str
    reason: str


class RevisionApproved(Event, frozen=True, tag=True):
    """A revision was let through, by the policy or by a person."""

    number: int
    hash: str
    actor: str
    reason: str = ""
    instants: dict[str, int] = {}
    """When the steps with a `not_before` may start, in UTC microseconds."""
    envelope: Doc = {}
    """What revisions to come may do without asking again, when a person drew it."""
    expires: int = 0
    """After this no step of it may start, in UTC microseconds; 0 for never."""
    widens: list[str] = []
    """Steps whose claims beyond their workers count: everybody who allowed it was shown them."""


class RevisionRejected(Event, frozen=True, tag=True):
    """A revision was refused, by a person or by the policy."""

    number: int
    hash: str
    actor: str
    reason: str = ""


class QuestionAsked(Event, frozen=True, tag=True, kw_only=True):
    """Something waits for a person's answer."""

    id: str
    kind: str
    text: str
    choices: list[str] = []
    step: str = ""
    attempt: int = 0
    default: str = ""
    """What counts as the answer when nobody gives one by `until`."""
    until: int = 0
    facts: list[str] = []
    """What a person is asked to give."""
    people: int = 1
    """How many different people must answer, where that is asked for."""


class ChangeApproved(Event, frozen=True, tag=True, kw_only=True):
    """A person approved one change of something protected: this commit, with this content."""

    question: str
    step: str
    commit: str
    digest: str
    actor: str
    reason: str = ""
    key: str = ""
    signature: str = ""
    """By an approver, where there are any: see `core/review/protected_change.py`."""


class QuestionAnswered(Event, frozen=True, tag=True, kw_only=True):
    """A person answered."""

    id: str
    choice: str
    actor: str
    text: str = ""
    data: Any = None


class RunReopened(Event, frozen=True, tag=True):
    """A person takes the end of a failed run back, to have a step done again: it stands where
    it stood before."""

    step: str
    actor: str
    reason: str


class RunPaused(Event, frozen=True, tag=True):
    """No new starts until resumed."""

    actor: str
    reason: str = ""


class RunResumed(Event, frozen=True, tag=True):
    """Starts are allowed again."""

    actor: str


class CancelRequested(Event, frozen=True, tag=True):
    """A person wants the run to stop; what is in flight is ended, at the latest by `deadline`."""

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
    """Approvals of the plan that were given before the run: see `core/review/approval.py`."""
    linted: str = ""
    """Digest of the steps that were checked before the start, so they need not be again."""
    decide_version: int = 1
    """Whose decisions these are. Never the newest by default: a default is not written."""


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
    """A host took the run up; whatever an earlier host had in flight is lost."""

    owner: int
    process: GuestProcess | None = None
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
