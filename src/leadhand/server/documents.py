"""The documents that the server answers with; the OpenAPI document is made from them."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from leadhand.app.documents import RunDocument, RunRow
from leadhand.app.run_limits import SpendingLimits
from leadhand.core.lint.findings import FindingRow
from leadhand.core.review.approval import ApprovalRow

Doc = dict[str, Any]


class Document(Struct, kw_only=True):
    """A document; more fields may come."""


class ProblemDocument(Document, kw_only=True):
    """RFC 9457: why a request was not carried out."""

    type: str
    title: str
    status: int
    detail: str
    fix: str | UnsetType | None = UNSET
    findings: list[FindingRow] | UnsetType | None = UNSET


class SessionDocument(Document, kw_only=True):
    """Who is signed in."""

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
    """Why nobody drives it, if that is so."""
    steps_total: int
    next: str | None
    """The cursor of the next page of steps."""


class RunPage(Document, kw_only=True):
    """Runs, the latest first."""

    items: list[RunRow]
    next: str | None


class RevisionRow(Document, kw_only=True):
    """One version of a run's plan."""

    number: int
    hash: str
    """Of what it changes, and of the revision before."""
    digest: str
    """What an approver is shown, and approves."""
    author: str
    status: str
    """proposed, approved, rejected or amended."""
    steps: int
    approvals: list[ApprovalRow]


class RevisionPage(Document, kw_only=True):
    """All versions of a run's plan."""

    items: list[RevisionRow]
    next: None


class RevisionDocument(RevisionRow, kw_only=True):
    """One version, whole."""

    plan: Doc
    heirs: dict[str, str]


class LedgerLine(Document, kw_only=True):
    """One line of a ledger."""

    seq: int
    at: str
    type: str
    ledger: Literal["intent", "execution"]
    text: str
    step: str | None


class LedgerPage(Document, kw_only=True):
    """What happened, oldest first."""

    items: list[LedgerLine]
    next: str | None


class CommandDone(Document, kw_only=True):
    """A word that a run has heard; it is durable."""

    run: str
    status: str


class StepReassigned(CommandDone, kw_only=True):
    """A step that somebody else does now, under a new id."""

    step: str


class RunBegun(CommandDone, kw_only=True):
    """A run that has begun."""

    goal: str
    steps: int
    seq: int


class DraftReach(Document, kw_only=True):
    """What a plan may do, at most."""

    workers: list[str]
    effects: list[str]
    writes: list[str]
    risk: str
    """A level, or `not declared`."""
    policy_risk: str
    """The level that policies count it as."""
    cost: float
    """In cost units, as workers declare them."""


class DraftDocument(Document, kw_only=True):
    """A plan that does not run yet."""

    plan: Doc
    findings: list[FindingRow]
    reach: DraftReach | None
    decision: Literal["let through", "one person", "two people", "refused"]
    reason: str
    limits: SpendingLimits | None
    """What a run of it may spend, and how often its planner is asked; of a refused plan nothing."""


class LintDocument(Document, kw_only=True):
    """What there is to say about a plan."""

    valid: bool
    findings: list[FindingRow]


class LibraryRow(Document, kw_only=True):
    """A plan of the library."""

    name: str
    version: int
    hash: str
    saved: str
    by: str
    goal: str
    params: list[str]
    steps: int


class LibraryPage(Document, kw_only=True):
    """The plans of the library."""

    items: list[LibraryRow]
    next: None


class LibraryPlan(LibraryRow, kw_only=True):
    """A plan of the library, whole, with how its versions fared."""

    document: Doc
    history: list[Doc]


class LibraryChange(Document, kw_only=True):
    """What the library did."""

    name: str


class WorkersDocument(Document, kw_only=True):
    """Who can do what."""

    digest: str
    workers: list[Doc]
    contexts: list[str]
    planners: list[str]


class MetricsDocument(Document, kw_only=True):
    """What all runs amount to, as `leadhand metrics --json`."""

    runs: dict[str, int]
    attempts: int
    cost: float
    money: float
    origins: dict[str, int]
    recovery: list[Doc]


class SettingRow(Document, kw_only=True):
    """A value, and where it came from."""

    value: Any


class SettingsDocument(Document, kw_only=True):
    """Everything that is configured, without secrets."""

    settings: dict[str, SettingRow]
    files: list[str]
    version: str
    store: str


class StopState(Document, kw_only=True):
    """Whether anything may start."""

    stopped: bool
    unreached: list[str] | UnsetType | None = UNSET
    """Runs that Temporal hosts and that have not confirmed it."""
