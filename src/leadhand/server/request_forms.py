"""Request bodies: checked before anything is done with them.

An unknown field is refused: a misspelt limit that is silently ignored is no limit.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from leadhand.codec.documents import read_document
from leadhand.server.bodies import check_text

Doc = dict[str, Any]
Text = Annotated[str, StringConstraints(max_length=20_000)]
Short = Annotated[str, StringConstraints(max_length=2_000)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
TEXT_MAX = 10 << 20


Plan = Doc | Annotated[str, StringConstraints(max_length=TEXT_MAX)]
"""A plan document, or its text as YAML or JSON."""
Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12,64}$")]


class Form(BaseModel):
    """A body."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SignIn(Form):
    """A token to sign in with."""

    token: Annotated[str, StringConstraints(min_length=1, max_length=500)]


class GoalForm(Form):
    """A goal."""

    text: Text = ""
    want: list[Name] = Field(default=[], max_length=200)
    have: Doc = Field(default={}, description="What is true already, with its data.")
    acceptance: list[Short] = Field(default=[], max_length=200)
    budget: float | None = Field(default=None, ge=0, le=1e12, description="Dollars.")
    deadline: Short | None = Field(default=None, description='"2 hours", or a moment.')
    mode: Literal["auto", "direct", "next_step", "whole"] | None = None


class StartForm(Form):
    """A run to start: one of a goal, a plan or a library plan."""

    goal: GoalForm | None = None
    plan: Plan | None = Field(default=None, description="A plan, or its text in YAML or JSON.")
    library: Name | None = Field(default=None, description="NAME or NAME@VERSION.")
    params: Doc = Field(default={}, description="Values of the plan's parameters.")
    planner: Name | None = Field(default=None, description="For a goal; one the settings know.")
    context: Name | None = None
    review: bool = Field(default=False, description="Wait for a person whatever the risk.")
    budget: float | None = Field(default=None, ge=0, le=1e12, description="Dollars.")


class LintForm(Form):
    """A plan to lint."""

    plan: Plan
    params: Doc | None = None
    context: Name | None = None


class ReasonForm(Form):
    """The recorded reason."""

    reason: Short = ""


class RedoForm(Form):
    """The reason for a retry."""

    reason: Annotated[str, StringConstraints(min_length=1, max_length=2_000)]


class ReassignForm(Form):
    """The new worker of a step, and the reason."""

    worker: Name
    reason: Short = ""


class ApproveForm(Form):
    """An approval of exactly the revision that was shown."""

    hash: Hash = Field(description="How the binding shown begins.")
    reason: Short = ""
    expires_s: float | None = Field(default=None, gt=0, le=10 * 365 * 86400)


class RejectForm(Form):
    """A rejection of the revision that was shown."""

    hash: Hash
    reason: Annotated[str, StringConstraints(min_length=1, max_length=2_000)]


class ChangesForm(Form):
    """A request for changes of the revision that was shown."""

    hash: Hash
    text: Annotated[str, StringConstraints(min_length=1, max_length=20_000)]


class PlanEdit(Form):
    """One field of a plan, and its new value."""

    path: Name
    value: Any = Field(default=None, description="As it stands, in JSON.")
    text: Text | None = Field(
        default=None,
        description="Instead of `value`: as a person typed it, read as `--set PATH=VALUE` is.",
    )


class AmendForm(Form):
    """An amendment of steps that have not started: by field, or as a whole plan."""

    hash: Hash
    set: list[PlanEdit] = Field(default=[], max_length=1000)
    unset: list[Name] = Field(default=[], max_length=1000)
    plan: Annotated[str, StringConstraints(max_length=TEXT_MAX)] | None = Field(
        default=None, description="The plan as YAML or JSON."
    )
    reason: Short = ""


class AnswerForm(Form):
    """The answer to a question."""

    choice: Annotated[str, StringConstraints(max_length=200)] = ""
    text: Text = ""
    data: Any = None
    commit: Annotated[str, StringConstraints(max_length=64)] = Field(
        default="", description="Of a protected change that is approved: the commit that was shown."
    )


class SaveForm(Form):
    """A plan for the library."""

    plan: Plan


def plan_document(plan: Plan, name: str = "the plan") -> Doc:
    """Return a plan as a document, also if sent as text. Not for the loop: parsing takes time."""
    if isinstance(plan, str):
        check_text(plan)
        return read_document(plan.encode("utf-8", "replace"), name=name)
    return plan
