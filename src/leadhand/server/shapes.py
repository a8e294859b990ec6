"""What answers look like, for the OpenAPI document. Tests hold every answer against these.

Documents are written from the builders that `--json` uses, never through these models: they
describe, and cost nothing when a page is served.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Doc = dict[str, Any]


class Shape(BaseModel):
    """A document; more fields may come."""

    model_config = ConfigDict(extra="allow")


class Finding(Shape):
    """Something that is wrong with a plan, and its fix."""

    rule: str
    level: Literal["error", "warning", "note"]
    place: str
    message: str
    fix: str


class Problem(Shape):
    """RFC 9457: why a request was not carried out."""

    type: str
    title: str
    status: int
    detail: str
    fix: str | None = None
    findings: list[Finding] | None = None


class Session(Shape):
    """Who is signed in."""

    person: str
    role: Literal["viewer", "operator", "approver"]
    expires: str | None = Field(description="When the session ends; null with a bearer token.")
    version: str
    store: str
    stopped: bool
    stopped_by: str


class RunRow(Shape):
    """A run in a list."""

    run: str
    status: str
    goal: str
    plan: str
    steps: int | None
    settled: int | None
    succeeded: int | None
    failed: int | None
    replaced: int | None = Field(description="Steps that others took the place of.")
    waiting: int | None
    cost: float | None = Field(
        description="What counts against the budget: money, and the cost units of workers."
    )
    money: float | None = Field(description="What models and coding agents cost, in dollars.")
    created: str
    updated: str
    started: str
    host: int | None


class RunPage(Shape):
    """Runs, the latest first."""

    items: list[RunRow]
    next: str | None


class Choice(Shape):
    """An answer, and what follows from it."""

    answer: str
    leads_to: str


class Asked(Shape):
    """Something that waits for a person."""

    id: str
    kind: str
    run: str
    step: str | None
    goal: str
    plan: str = Field(description="The plan's own id; empty where it has none.")
    risk: str | None = Field(
        description="Of the steps concerned: a level, or `not declared`; null where there are none."
    )
    effects: list[str]
    cost: float | None = Field(description="What workers declare, in cost units.")
    asked_by: str
    text: str
    choices: list[Choice]
    since: str
    default: str | None = Field(description="The answer that counts when none came by `until`.")
    until: str | None
    commit: str | None = None
    """Of a protected change, and so are those below: what is to be approved."""
    base: str | None = None
    digest: str | None = None
    diff: str | None = None
    paths: list[str] | None = None
    people: int | None = None
    """How many different people must approve it."""
    approved_by: list[str] | None = None


class StepRow(Shape):
    """A step of a run."""

    id: str
    status: str
    worker: str
    attempts: int
    error: Doc | None


class Run(Shape):
    """A run, as `leadhand show RUN --json`."""

    run: str
    status: str
    goal: str
    result: Any
    steps: list[StepRow] = Field(description="A page of them.")
    steps_total: int
    next: str | None = Field(description="The cursor of the next page of steps.")
    cost: float
    money: float
    duration: float
    reason: str
    origin: str = Field(description="Where the cause of an end without success lies.")
    host: int | None
    started: str
    plan: Doc
    params: Doc
    revision: int
    proposed_revision: int | None = Field(description="The one that waits for a person, if any.")
    planner: str
    can_roll_back: bool
    worked: float = Field(description="Seconds in which workers were at work, of `duration`.")
    begun: bool = Field(description="Whether anything of it has started.")
    seq: int
    rollback: Doc | None
    fault: Doc | None
    refused: list[Doc] = Field(description="Proposals that were refused, with the reasons.")
    recovery: Doc
    waiting_for: list[Asked] = Field([], description="The oldest 100; the inbox has all.")
    dropped: list[Doc] = Field([], description="Steps that were given up by name, with the reason.")
    limits: Doc
    paused: bool
    unhosted: str | None = Field(description="Why nobody drives it, if that is so.")


class Node(Shape):
    """A step in the graph."""

    id: str
    worker: str
    action: str
    status: str
    attempts: int
    started: str | None
    ended: str | None
    cost: float
    money: float
    reason: str
    outlook: bool
    held: str | None
    superseded_by: str | None


class Graph(Shape):
    """All steps, and which waits for which."""

    run: str
    nodes: list[Node]
    edges: list[tuple[str, str]] = Field(description="The second one waits for the first.")
    replaces: list[tuple[str, str]] = Field(
        description="A step that was given up, and the one that took its place."
    )
    revision: int


class Attempt(Shape):
    """One try of a step."""

    attempt: int
    worker: str
    started: str
    ended: str | None
    status: str
    failure: Doc | None
    recovery: Doc | None
    cost: float
    model_calls: int
    findings: list[str]
    recommendations: list[str]


class Step(Node):
    """All there is of a step."""

    run: str
    planned: Doc
    inputs: Doc | None = Field(
        description="The parameters as the last attempt's worker got them; secrets by name."
    )
    depends_on: list[str]
    dependents: list[str]
    replaces: list[str]
    error: Doc | None
    findings: list[str]
    recommendations: list[str]
    """What its last report recommends, whether it succeeded or not."""
    held: str | None
    questions: list[Asked]
    attempts_made: list[Attempt]
    others: list[str]
    models: Doc | None
    data: Any
    output: str


class Wait(Shape):
    """Something that kept a step, or the plan, waiting."""

    kind: Literal["question", "approval", "retry", "held", "scheduled"]
    started: str
    ended: str | None
    outcome: str | None


class Attempts(Shape):
    """The attempts of steps that had more than one, and what each step waited for."""

    run: str
    steps: dict[str, list[Doc]]
    waits: dict[str, list[Wait]] = Field(
        description="By step; waits for an approval of the plan are under the empty name."
    )


class Approval(Shape):
    """Who allowed a revision, or `policy`."""

    revision: int
    digest: str = Field(description="What was shown to whoever allowed it.")
    by: str
    at: str
    why: str
    until: str | None
    signed: bool
    key: str


class RevisionRow(Shape):
    """One version of a run's plan."""

    number: int
    hash: str = Field(description="Of what it changes, and of the revision before.")
    digest: str = Field(description="What an approver is shown, and approves.")
    author: str
    status: str = Field(description="proposed, approved, rejected or amended.")
    steps: int
    approvals: list[Approval]


class Revisions(Shape):
    """All versions of a run's plan."""

    items: list[RevisionRow]
    next: None


class Revision(RevisionRow):
    """One version, whole."""

    plan: Doc
    heirs: dict[str, str]


class Diff(Shape):
    """What differs, by meaning."""

    old: str
    new: str
    equal: bool
    changes: list[Doc]
    difference: list[str]


class Line(Shape):
    """One line of a ledger."""

    seq: int
    at: str
    type: str
    ledger: Literal["intent", "execution"]
    text: str
    step: str | None


class Ledger(Shape):
    """What happened, oldest first."""

    items: list[Line]
    next: str | None


class Review(Shape):
    """All that waits in a run, as `leadhand review RUN --json`."""

    run: str
    waiting: bool
    question: str | None
    reason: str
    revision: int
    binding: str
    digest: str = Field(description="The same as `binding`: what an approval is of.")
    people: int
    approvals: list[Approval]
    steps: list[Doc]
    resolved: dict[str, Doc]
    """By step: what stands at each place that holds a reference whose value is known."""
    unresolved: dict[str, list[str]]
    """By step: the places whose values are known only when the step starts."""
    choices: list[Choice]
    """What can be answered: approve, reject, and request_changes where the planner reads words."""
    risk: str
    effects: list[str]
    writes: list[str]
    workers: Doc
    sandboxes: Doc
    """By step, the walls that its worker runs behind, in words; empty: none."""
    cost: float
    widens: list[str]
    """What steps claim beyond their workers, in words: an approval allows it too."""
    overclaims: list[str]
    """The same of a planner's steps, where it does not count."""
    lookalikes: list[str]
    """Texts that cannot be told by looking, each with its path, escaped as `\\u....`."""
    changes: list[Doc]
    difference: list[str]
    revisable: Doc | None
    """Who may revise the plan, and within which envelope once this is allowed; None: nobody."""


class Done(Shape):
    """A word that a run has heard; it is durable."""

    run: str
    status: str


class Reassigned(Done):
    """A step that somebody else does now, under a new id."""

    step: str


class Started(Done):
    """A run that has begun."""

    goal: str
    steps: int


class Reach(Shape):
    """What a plan may do, at most."""

    workers: list[str]
    effects: list[str]
    writes: list[str]
    risk: str = Field(description="A level, or `not declared`.")
    policy_risk: str = Field(description="The level that policies count it as.")
    cost: float = Field(description="In cost units, as workers declare them.")


class DraftLimits(Shape):
    """The limits that a run would start with."""

    budget: float | None
    planner_calls: int


class Draft(Shape):
    """A plan that does not run yet."""

    plan: Doc
    findings: list[Finding]
    reach: Reach | None
    decision: Literal["let through", "one person", "two people", "refused"]
    reason: str
    limits: DraftLimits | None
    """What a run of it may spend, and how often its planner is asked; of a refused plan nothing."""


class Lint(Shape):
    """What there is to say about a plan."""

    valid: bool
    findings: list[Finding]


class Inbox(Shape):
    """What waits for people, oldest first."""

    items: list[Asked]
    next: str | None
    total: int = Field(description="How much waits, on this page and on all others.")


class Saved(Shape):
    """A plan of the library."""

    name: str
    version: int
    hash: str
    saved: str
    by: str
    goal: str
    params: list[str]
    steps: int


class Library(Shape):
    """The plans of the library."""

    items: list[Saved]
    next: None


class SavedPlan(Saved):
    """A plan of the library, whole, with how its versions fared."""

    document: Doc
    history: list[Doc]


class Kept(Shape):
    """What the library did."""

    name: str


class Workers(Shape):
    """Who can do what."""

    digest: str
    workers: list[Doc]
    contexts: list[str]
    planners: list[str]


class Metrics(Shape):
    """What all runs amount to, as `leadhand metrics --json`."""

    runs: dict[str, int]
    attempts: int
    cost: float
    money: float
    origins: dict[str, int]
    recovery: list[Doc]


class Setting(Shape):
    """A value, and where it came from."""

    value: Any


class Settings(Shape):
    """Everything that is configured, without secrets."""

    settings: dict[str, Setting]
    files: list[str]
    version: str
    store: str


class Stopped(Shape):
    """Whether anything may start."""

    stopped: bool
    unreached: list[str] | None = None
    """Runs that Temporal hosts and that have not confirmed it."""
