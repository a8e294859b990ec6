"""Request bodies: checked before anything is done with them.

An unknown field is refused: a misspelt limit that is silently ignored is no limit.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from leadhand.codec.documents import read_document
from leadhand.core.review.comments import COMMENT_CHARS, COMMENTS_MAX
from leadhand.server.bodies import check_text

Doc = dict[str, Any]
Text = Annotated[str, StringConstraints(max_length=20_000)]
Short = Annotated[str, StringConstraints(max_length=2_000)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
TEXT_MAX = 10 << 20


Plan = Doc | Annotated[str, StringConstraints(max_length=TEXT_MAX)]
"""A plan document, or its text as YAML or JSON."""
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Form(BaseModel):
    """A body."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class SignIn(Form):
    """A token to sign in with."""

    token: Annotated[str, StringConstraints(min_length=1, max_length=500)]
    """The token, as `leadhand serve token add` printed it."""


class GoalForm(Form):
    """A goal."""

    text: Text = ""
    """The goal in a sentence."""
    want: list[Name] = Field(default=[], max_length=200)
    """Facts that should be true in the end."""
    have: Doc = Field(default={}, description="What is true already, with its data.")
    acceptance: list[Short] = Field(default=[], max_length=200)
    """Expressions that must hold in the end."""
    budget: float | None = Field(default=None, ge=0, le=1e12, description="Dollars.")
    deadline: Short | None = Field(default=None, description='"2 hours", or a moment.')
    mode: Literal["auto", "direct", "next_step", "whole"] | None = None
    """How far ahead to plan."""


class StartForm(Form):
    """A run to start: one of a goal, a plan or a library plan."""

    goal: GoalForm | None = None
    """The goal to pursue."""
    plan: Plan | None = Field(default=None, description="A plan, or its text in YAML or JSON.")
    library: Name | None = Field(default=None, description="NAME or NAME@VERSION.")
    params: Doc = Field(default={}, description="Values of the plan's parameters.")
    planner: Name | None = Field(default=None, description="For a goal; one the settings know.")
    context: Name | None = None
    """The context the plan runs in."""
    review: bool = Field(default=False, description="Wait for a person whatever the risk.")
    budget: float | None = Field(default=None, ge=0, le=1e12, description="Dollars.")
    labels: list[Name] = Field(default=[], max_length=20, description="`name` or `name=value`.")


class NoForm(Form):
    """An empty object."""


Caller = Annotated[str, StringConstraints(min_length=1, max_length=86)]
"""The name of an agent, recorded as `agent:NAME`."""
Lease = Annotated[str, StringConstraints(min_length=1, max_length=40)]
Attempt = Annotated[int, Field(ge=1, le=1_000_000)]


class NextStepForm(Form):
    """An agent that asks for its next step."""

    caller: Caller
    """The name of the agent, recorded as `agent:NAME`."""
    lease: Lease | None = Field(default=None, description='How long it may work: "15m".')
    wait: float = Field(default=0.0, ge=0, le=30, description="Seconds to wait for a step.")


class LeaseForm(Form):
    """An agent that is still at work on a step."""

    caller: Caller
    """The name of the agent, as it asked for the step."""
    attempt: Attempt
    """The number of the attempt, as handed out."""
    lease: Lease | None = Field(default=None, description='How long from now: "15m".')
    message: Short = ""
    """How far it is; shown, and not logged."""
    fraction: float | None = Field(default=None, ge=0, le=1, description="The completed share.")


class StepReportForm(Form):
    """The report of an agent."""

    caller: Caller
    """The name of the agent, as it asked for the step."""
    attempt: Attempt
    """The number of the attempt, as handed out."""
    status: Literal["succeeded", "failed"]
    """What the agent says; the criteria of the step decide."""
    data: Any = Field(default=None, description="The result.")
    error: Text = ""
    """Why it failed."""
    failure_class: Name | Literal[""] = ""
    """The failure class, which decides what follows; `unavailable` if empty."""
    effect: Literal["none", "done", "unknown"] = "unknown"
    """Whether a failed attempt changed anything."""
    recommendations: list[Short] = Field(default=[], max_length=20)
    """Hints for the planner."""
    cost: float = Field(default=0.0, ge=0, le=1e12, description="What the attempt cost.")
    output: Annotated[str, StringConstraints(max_length=1 << 20)] = ""
    """Printed output, for readers of the log."""


class RerunForm(Form):
    """A run to run again, from its beginning or from a step."""

    from_step: Name | None = None
    """Run only this step and the steps that wait for it; results of others are taken over."""
    labels: list[Name] = Field(default=[], max_length=20, description="Beside those of the run.")


class LintForm(Form):
    """A plan to lint."""

    plan: Plan
    """The plan document, or its text in YAML or JSON."""
    params: Doc | None = None
    """Values of the plan's parameters, checked too."""
    context: Name | None = None
    """The context the plan runs in."""


class ReasonForm(Form):
    """The recorded reason."""

    reason: Short = ""
    """The reason, recorded in the log."""


class RedoForm(Form):
    """The reason for a retry."""

    reason: Annotated[str, StringConstraints(min_length=1, max_length=2_000)]
    """The reason, recorded in the log."""


class ReassignForm(Form):
    """The new worker of a step, and the reason."""

    worker: Name
    """The new worker of the step."""
    reason: Short = ""
    """The reason, recorded in the log."""


class ApproveForm(Form):
    """An approval of exactly the revision that was shown."""

    digest: Digest
    """The `digest` that was shown, whole."""
    reason: Short = ""
    """A comment, recorded with the approval."""
    expires_s: float | None = Field(default=None, gt=0, le=10 * 365 * 86400)
    """How long the approval is valid, in seconds."""


class RejectForm(Form):
    """A rejection of the revision that was shown."""

    digest: Digest
    """The `digest` that was shown, whole."""
    reason: Annotated[str, StringConstraints(min_length=1, max_length=2_000)]
    """The reason, recorded in the log."""


class CommentForm(Form):
    """A comment on a step of a revision, or on all of it."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=COMMENT_CHARS)]
    """The comment, for the planner."""
    step: Annotated[str, StringConstraints(max_length=200)] = ""
    """The step that it is about; empty: the whole revision."""


class ChangesForm(Form):
    """A request for changes of the revision that was shown."""

    digest: Digest
    """The `digest` that was shown, whole."""
    text: Annotated[str, StringConstraints(max_length=COMMENT_CHARS)] = ""
    """The requested changes in general, for the planner."""
    comments: list[CommentForm] = Field(default=[], max_length=COMMENTS_MAX)
    """Comments on single steps; the planner gets each with an id, and can answer it."""


class PlanEdit(Form):
    """One field of a plan, and its new value."""

    path: Name
    """The path of the field, such as `steps.a.timeout`."""
    value: Any = Field(default=None, description="As it stands, in JSON.")
    text: Text | None = Field(
        default=None,
        description="Instead of `value`: as a person typed it, read as `--set PATH=VALUE` is.",
    )


class AmendForm(Form):
    """An amendment of steps that have not started: by field, or as a whole plan."""

    digest: Digest
    """The `digest` that was shown, whole."""
    set: list[PlanEdit] = Field(default=[], max_length=1000)
    """Fields with their new values."""
    unset: list[Name] = Field(default=[], max_length=1000)
    """Paths of fields to remove."""
    plan: Annotated[str, StringConstraints(max_length=TEXT_MAX)] | None = Field(
        default=None, description="The plan as YAML or JSON."
    )
    reason: Short = ""
    """The reason, recorded in the log."""


class AnswerForm(Form):
    """The answer to a question."""

    choice: Annotated[str, StringConstraints(max_length=200)] = ""
    """One of the choices of the question."""
    text: Text = ""
    """A comment, recorded with the answer."""
    data: Any = None
    """The facts asked for, or the result of a task."""
    commit: Annotated[str, StringConstraints(max_length=64)] = Field(
        default="", description="Of a protected change that is approved: the commit that was shown."
    )


Role = Literal["viewer", "operator", "approver"]


class PersonForm(Form):
    """A person who may sign in."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    """The name of the person: 1 to 64 characters, no slash."""
    role: Role
    """What the person may do; each role includes the roles before it."""


class RoleForm(Form):
    """The new role of a person."""

    role: Role
    """What the person may do; each role includes the roles before it."""


class SaveForm(Form):
    """A plan for the library."""

    plan: Plan
    """The plan document, or its text in YAML or JSON."""


def plan_document(plan: Plan, name: str = "the plan") -> Doc:
    """Return a plan as a document, also if sent as text. Not for the loop: parsing takes time."""
    if isinstance(plan, str):
        check_text(plan)
        return read_document(plan.encode("utf-8", "replace"), name=name)
    return plan
