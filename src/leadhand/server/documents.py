"""The documents that the server answers with; the OpenAPI document is made from them."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from leadhand.app.documents import RunDocument, RunRow, SettingRow, WorkerRow
from leadhand.app.library_history import LibraryRow
from leadhand.app.run_limits import SpendingLimits
from leadhand.core.lint.findings import FindingRow
from leadhand.core.plan.diff import ChangeRow
from leadhand.core.plan.parameters import ParameterRow
from leadhand.core.review.approval import ApprovalRow
from leadhand.core.review.assessment import ReviewFinding

Doc = dict[str, Any]
Decision = Literal["let through", "one person", "two people", "refused"]


class ProblemDocument(Struct, kw_only=True):
    """RFC 9457: why a request was not carried out."""

    type: str
    """The kind of problem, `urn:leadhand:problem:…`."""
    title: str
    """The phrase of the HTTP status."""
    status: int
    """The HTTP status."""
    detail: str
    """What is wrong."""
    fix: str | UnsetType = UNSET
    """How to fix it."""
    findings: list[FindingRow] | UnsetType = UNSET
    """The lint findings of an invalid plan."""
    errors: list[str] | UnsetType = UNSET
    """What is wrong with the form of the request."""


class SessionDocument(Struct, kw_only=True):
    """The signed-in person."""

    person: str
    """The name of the person."""
    role: Literal["viewer", "operator", "approver"]
    """The role of the person."""
    owner: bool
    """Whether it is the owner, who manages people."""
    expires: str | None
    """When the session ends; null with a bearer token."""
    version: str
    """The version of Leadhand."""
    store: str
    """The database, without its password."""
    project: str
    """The name of the project: as the settings give it, else that of its folder."""
    environment: str
    """The environment that runs are started in; empty if the settings name none."""
    stopped: bool
    """Whether the emergency stop is in force."""
    stopped_by: str
    """The person who stopped all runs."""


class ShownRun(RunDocument, kw_only=True):
    """A run, as `leadhand show RUN --json`, with a page of its steps."""

    limits: Doc
    """The limits of the run."""
    paused: bool
    """Whether the run is paused."""
    unhosted: str | None
    """Why the run has no host; empty if it has one."""
    steps_total: int
    """The number of steps in all."""
    next: str | None
    """The cursor of the next page of steps."""


class RunPage(Struct, kw_only=True):
    """Runs, newest first."""

    items: list[RunRow]
    """The runs of this page."""
    next: str | None
    """The cursor of the next page; null on the last page."""


class RevisionRow(Struct, kw_only=True):
    """One revision of a run's plan."""

    number: int
    """The number of the revision."""
    hash: str
    """Of what it changes, and of the revision before."""
    digest: str
    """The hash that an approval is for."""
    author: str
    """The planner or person who proposed it."""
    status: str
    """proposed, approved, rejected, sent back or amended."""
    because: str
    """Why it was proposed or amended; "" if nothing was said."""
    steps: int
    """The number of steps."""
    approvals: list[ApprovalRow]
    """Its approvals."""


class RevisionPage(Struct, kw_only=True):
    """All revisions of a run's plan."""

    items: list[RevisionRow]
    """The revisions, in order."""
    next: None
    """Always null: there is one page."""


class RevisionDocument(RevisionRow, kw_only=True):
    """One revision with its plan."""

    plan: Doc
    """The whole plan of this revision."""
    heirs: dict[str, str]
    """Replaced steps, each with the id of its successor."""


class LedgerRow(Struct, kw_only=True):
    """One entry of the event log."""

    seq: int
    """The number of the entry, from 1."""
    at: str
    """When it was written, in ISO 8601."""
    type: str
    """The name of the event."""
    ledger: Literal["intent", "execution"]
    """The ledger to which the event belongs."""
    text: str
    """The event in a sentence."""
    step: str | None
    """The id of the step that it is about."""


class LedgerEntry(LedgerRow, kw_only=True):
    """One entry of the event log with its event as it is recorded."""

    hash: str
    """The hash that binds the entry to all entries before it."""
    event: Doc
    """The event, without the fields that have their default values."""


class LedgerPage(Struct, kw_only=True):
    """Entries of the event log, oldest first."""

    items: list[LedgerRow]
    """The entries of this page."""
    next: str | None
    """The cursor of the next page; null on the last page."""


class AmendPreview(Struct, kw_only=True):
    """What an amendment would change. Nothing was changed."""

    changes: list[ChangeRow]
    """The differences to the plan as it is."""
    errors: list[str]
    """Why the amendment would be refused; empty: it would be accepted."""
    summary: str
    """The steps after it in one line; "" where it would be refused."""
    starts: list[str]
    """When the steps would start after an approval, with the instants of clock times."""
    findings: list[ReviewFinding]
    """What to consider about the steps after it."""


class CommandDone(Struct, kw_only=True):
    """A command that was accepted and is durable."""

    run: str
    """The id of the run."""
    status: str
    """The status of the run afterwards."""
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
    """The id of the run."""
    status: str
    """The status of the run."""
    goal: str
    """The goal in a sentence."""
    steps: int
    """The number of steps."""
    seq: int
    """The number of the last entry of its log."""


class DraftReach(Struct, kw_only=True):
    """The most that a plan may do."""

    workers: list[str]
    """The workers that it may use."""
    effects: list[str]
    """What it may change in the world."""
    writes: list[str]
    """The paths and places that it may write."""
    risk: str
    """A level, or `not declared`."""
    policy_risk: str
    """The risk level that policies use."""
    cost: float
    """In cost units, as workers declare them."""


class DraftDocument(Struct, kw_only=True):
    """A plan that was not started."""

    plan: Doc
    """The plan document."""
    findings: list[FindingRow]
    """The lint findings."""
    reach: DraftReach | None
    """The most that the plan may do; null for an invalid plan."""
    decision: Decision
    """What the policy would decide."""
    reason: str
    """Why the policy would decide so."""
    limits: SpendingLimits | None
    """The budget and the most planner calls of a run; unset for a refused plan."""


class LintDocument(Struct, kw_only=True):
    """The lint findings of a plan."""

    valid: bool
    """Whether there are no errors."""
    findings: list[FindingRow]
    """The findings."""
    parameters: list[ParameterRow]
    """The parameters of the plan, as fields."""


class LibraryPage(Struct, kw_only=True):
    """The plans of the library."""

    items: list[LibraryRow]
    """The plans, by name."""
    next: None
    """Always null: there is one page."""


class LibraryChange(Struct, kw_only=True):
    """A library plan that was saved or removed."""

    name: str
    """The name of the plan."""
    version: int | UnsetType = UNSET
    """The version that was saved."""
    hash: str | UnsetType = UNSET
    """The hash of that version."""
    new: bool | UnsetType = UNSET
    """Whether a new version was made; unchanged content makes none."""
    removed: bool | UnsetType = UNSET
    """Whether the plan was removed."""


class WorkersDocument(Struct, kw_only=True):
    """Workers with their actions, planners and contexts."""

    digest: str
    """The digest of all workers."""
    workers: list[WorkerRow]
    """The workers, one row for each action."""
    contexts: list[str]
    """The names of the configured contexts."""
    planners: list[str]
    """The planners that can be named."""


class SettingsDocument(Struct, kw_only=True):
    """The effective settings, without secrets."""

    settings: dict[str, SettingRow]
    """The values by key."""
    files: list[str]
    """The settings files that were read."""
    version: str
    """The version of Leadhand."""
    store: str
    """The database, without its password."""
    unhosted: dict[str, str]
    """Runs without a host, and why."""


Role = Literal["viewer", "operator", "approver"]


class PersonRow(Struct, kw_only=True):
    """A person who may sign in."""

    name: str
    """The name of the person."""
    role: Role
    """The role of the person."""
    owner: bool
    """Whether it is the owner, whose token is kept beside the database."""
    signs: bool
    """Whether the server holds a key that signs the person's approvals."""


class PeoplePage(Struct, kw_only=True):
    """The people who may sign in."""

    items: list[PersonRow]
    """The people, the owner first."""
    next: None
    """Always null: there is one page."""


class PersonAdded(Struct, kw_only=True):
    """A person who may sign in from now on, and their token."""

    name: str
    """The name of the person."""
    role: Role
    """The role of the person."""
    token: str
    """The token; the server keeps its hash only, so it is shown once."""
    file: str
    """The settings file that was changed."""


class PersonChange(Struct, kw_only=True):
    """A person whose role was changed, or who was removed."""

    name: str
    """The name of the person."""
    role: Role | None
    """The role from now on; null for a person who was removed."""
    file: str
    """The settings file that was changed."""


class StopState(Struct, kw_only=True):
    """The state of the emergency stop."""

    stopped: bool
    """Whether the emergency stop is in force."""
    unreached: list[str] | UnsetType | None = UNSET
    """Runs that Temporal hosts and that have not confirmed it."""
