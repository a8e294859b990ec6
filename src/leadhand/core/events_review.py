"""What people and reviewers say about a run: reviews, questions, holds, stops."""

from __future__ import annotations

from typing import Any

from leadhand.core.catalog import WorkerSpec
from leadhand.core.events_base import Doc, Event


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
    """What was allowed, as one hash: see `core/approval.py`."""
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
    """What is released, as one hash: `release_binding` in `core/approval.py`."""
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
    """By an approver, where there are any: see `core/protected_change.py`."""


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
