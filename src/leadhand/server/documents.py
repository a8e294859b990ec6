"""The documents that the server answers with; the OpenAPI document is made from them."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from leadhand.app.documents import RunDocument, RunRow, SettingRow, WorkerRow
from leadhand.app.library_history import LibraryRow
from leadhand.app.run_limits import SpendingLimits
from leadhand.core.lint.findings import FindingRow
from leadhand.core.plan.diff import ChangeRow
from leadhand.core.review.approval import ApprovalRow

Doc = dict[str, Any]
Decision = Literal["let through", "one person", "two people", "refused"]


class ProblemDocument(Struct, kw_only=True):
    """RFC 9457: why a request was not carried out."""

    type: str
    title: str
    status: int
    detail: str
    fix: str | UnsetType = UNSET
    findings: list[FindingRow] | UnsetType = UNSET
    errors: list[str] | UnsetType = UNSET
    """What is wrong with the form of the request."""


class SessionDocument(Struct, kw_only=True):
    """The signed-in person."""

    person: str
    role: Literal["viewer", "operator", "approver"]
    expires: str | None
    """When the session ends; null with a bearer token."""
    version: str
    store: str
    stopped: bool
    stopped_by: str


class ShownRun(RunDocument, kw_only=True):
    """A run, as `leadhand show RUN --json`, with a page of its steps."""

    limits: Doc
    paused: bool
    unhosted: str | None
    """Why the run has no host; empty if it has one."""
    steps_total: int
    next: str | None
    """The cursor of the next page of steps."""


class RunPage(Struct, kw_only=True):
    """Runs, newest first."""

    items: list[RunRow]
    next: str | None


class RevisionRow(Struct, kw_only=True):
    """One revision of a run's plan."""

    number: int
    hash: str
    """Of what it changes, and of the revision before."""
    digest: str
    """The hash that an approval is for."""
    author: str
    status: str
    """proposed, approved, rejected or amended."""
    steps: int
    approvals: list[ApprovalRow]


class RevisionPage(Struct, kw_only=True):
    """All revisions of a run's plan."""

    items: list[RevisionRow]
    next: None


class RevisionDocument(RevisionRow, kw_only=True):
    """One revision with its plan."""

    plan: Doc
    heirs: dict[str, str]


class LedgerRow(Struct, kw_only=True):
    """One entry of the event log."""

    seq: int
    at: str
    type: str
    ledger: Literal["intent", "execution"]
    text: str
    step: str | None


class LedgerPage(Struct, kw_only=True):
    """Entries of the event log, oldest first."""

    items: list[LedgerRow]
    next: str | None


class CommandDone(Struct, kw_only=True):
    """A command that was accepted and is durable."""

    run: str
    status: str
    question: str | UnsetType = UNSET
    """The question that was answered."""
    changes: list[ChangeRow] | UnsetType = UNSET
    """What an amendment changed."""
    step: str | UnsetType = UNSET
    """The new id of a step that was reassigned."""
    steps: list[str] | UnsetType = UNSET
    """The steps that were released."""


class RunBegun(Struct, kw_only=True):
    """A run that was started."""

    run: str
    status: str
    goal: str
    steps: int
    seq: int


class DraftReach(Struct, kw_only=True):
    """The most that a plan may do."""

    workers: list[str]
    effects: list[str]
    writes: list[str]
    risk: str
    """A level, or `not declared`."""
    policy_risk: str
    """The risk level that policies use."""
    cost: float
    """In cost units, as workers declare them."""


class DraftDocument(Struct, kw_only=True):
    """A plan that was not started."""

    plan: Doc
    findings: list[FindingRow]
    reach: DraftReach | None
    decision: Decision
    reason: str
    limits: SpendingLimits | None
    """The budget and the most planner calls of a run; unset for a refused plan."""


class LintDocument(Struct, kw_only=True):
    """The lint findings of a plan."""

    valid: bool
    findings: list[FindingRow]


class LibraryPage(Struct, kw_only=True):
    """The plans of the library."""

    items: list[LibraryRow]
    next: None


class LibraryChange(Struct, kw_only=True):
    """A library plan that was saved or removed."""

    name: str
    version: int | UnsetType = UNSET
    hash: str | UnsetType = UNSET
    new: bool | UnsetType = UNSET
    """Whether a new version was made; unchanged content makes none."""
    removed: bool | UnsetType = UNSET


class WorkersDocument(Struct, kw_only=True):
    """Workers with their actions, planners and contexts."""

    digest: str
    workers: list[WorkerRow]
    contexts: list[str]
    planners: list[str]


class SettingsDocument(Struct, kw_only=True):
    """The effective settings, without secrets."""

    settings: dict[str, SettingRow]
    files: list[str]
    version: str
    store: str
    unhosted: dict[str, str]
    """Runs without a host, and why."""


class StopState(Struct, kw_only=True):
    """The state of the emergency stop."""

    stopped: bool
    unreached: list[str] | UnsetType | None = UNSET
    """Runs that Temporal hosts and that have not confirmed it."""
