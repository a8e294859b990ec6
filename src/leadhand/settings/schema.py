"""Every table of the settings as a schema: its keys, their types and defaults.

A struct's field is a key, and its type defines the allowed values; `codec.tables` reads values by
it and reports mistakes. Tables of products are declared in the same way: see `sections`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from leadhand.audit.anchors import Anchoring
from leadhand.codec.tables import (
    Count,
    Duration,
    Number,
    TableSchema,
    Text,
    Texts,
    read,
    reader,
)
from leadhand.core.plan.model import Risk
from leadhand.core.policy import Policy, Rule
from leadhand.models.names import TIERS
from leadhand.settings.models import read_model, tier
from leadhand.settings.review import approver, person_name, reviewers, rules

DEFAULTS = Policy()


def _money(value: Any) -> float | None:
    if value == "none":
        return None
    try:
        found: float = read(value, Annotated[float, Meta(gt=0, lt=1e15)])
    except ValueError:
        raise ValueError('must be a number above 0, or "none"') from None
    return found


if TYPE_CHECKING:
    Person: TypeAlias = str
    Rules: TypeAlias = tuple[Rule, ...]
    Reviewers: TypeAlias = tuple[str, ...]
    Money: TypeAlias = float | None
    Tier: TypeAlias = tuple[str, ...]
    PublicKey: TypeAlias = str
else:
    Person = reader(person_name, "the name of a person")
    Rules = reader(rules, "a list of rules")
    Reviewers = reader(reviewers, "a list of functions")
    Money = reader(_money, 'a number above 0, or "none"')
    Tier = reader(tier, "a model, or a list of models")
    PublicKey = reader(approver, "a public key")

Share = Annotated[float, Meta(ge=0, le=1)]
Factor = Annotated[float, Meta(ge=1, lt=1e15)]
Argv = Annotated[
    tuple[Text, ...],
    Meta(min_length=1, description='a list of arguments, as in ["notify-send", "{text}"]'),
]
Webhook = Annotated[
    str,
    Meta(pattern="^https?://", description="an address that begins with https:// or http://"),
]


class ProjectTable(TableSchema):
    """`[project]`"""

    store: Text = ""
    workers: Texts = ()
    planner: Text = ""
    actor: Person = ""


class PolicyTable(
    TableSchema,
    rename={
        "max_concurrency": "concurrency",
        "worker_concurrency": "workers",
        "attempts_max": "attempts",
        "backoff_s": "backoff",
        "backoff_max_s": "backoff_max",
        "park_s": "park",
        "outage_s": "outage",
        "restarts_free": "restarts",
        "splits_max": "splits",
        "timeout_s": "timeout",
        "planner_timeout_s": "planner_timeout",
        "probe_timeout_s": "probe_timeout",
        "planner_calls_max": "planner_calls",
        "planner_rounds_max": "planner_rounds",
        "replans_idle_max": "replans_idle",
        "steps_max": "steps",
        "wall_s": "wall_time",
        "cancel_grace_s": "cancel_grace",
    },
):
    """`[policy]`: each key sets the field of `Policy` with the field's name."""

    max_concurrency: Count = DEFAULTS.max_concurrency
    worker_concurrency: dict[str, Count] = msgspec.field(default_factory=dict)
    resources: dict[str, Count] = msgspec.field(default_factory=dict)
    attempts_max: Count = DEFAULTS.attempts_max
    backoff_s: Duration = DEFAULTS.backoff_s
    backoff_factor: Factor = DEFAULTS.backoff_factor
    backoff_max_s: Duration = DEFAULTS.backoff_max_s
    park_s: Duration = DEFAULTS.park_s
    outage_s: Duration = DEFAULTS.outage_s
    restarts_free: Count = DEFAULTS.restarts_free
    splits_max: Count = DEFAULTS.splits_max
    jitter: Share = DEFAULTS.jitter
    timeout_s: Duration = DEFAULTS.timeout_s
    planner_timeout_s: Duration = DEFAULTS.planner_timeout_s
    probe_timeout_s: Duration = DEFAULTS.probe_timeout_s
    planner_calls_max: Count = DEFAULTS.planner_calls_max
    planner_rounds_max: Count = DEFAULTS.planner_rounds_max
    replans_idle_max: Count = DEFAULTS.replans_idle_max
    steps_max: Count = DEFAULTS.steps_max
    wall_s: Duration | None = DEFAULTS.wall_s
    budget: Number | None = DEFAULTS.budget
    auto_risk: Risk = "medium"
    review: bool = DEFAULTS.review
    no_input: bool = DEFAULTS.no_input
    cancel_grace_s: Duration = DEFAULTS.cancel_grace_s


class ReviewTable(TableSchema, rename={"approval_s": "expires"}):
    """`[review]`: all but `key` are fields of `Policy`."""

    rules: Rules = ()
    reviewers: Reviewers = ()
    approval_s: Duration | None = None
    key: Text = ""


class PlannerTable(TableSchema):
    """`[planner]`: how a model plans; None: as `ModelPlanner` says."""

    style: Literal["whole", "next_step", "list"] | None = None
    prompts: Text | None = None
    rounds: Count | None = None
    tokens: Count | None = None
    idle: Count | None = None
    budget: Money = None
    calls: Count | None = None


class TelemetryTable(TableSchema):
    """`[telemetry]`"""

    enabled: bool = False
    contents: bool = False


TiersTable = msgspec.defstruct("TiersTable", [(name, Tier, ()) for name in TIERS])


class NotifyTable(TableSchema):
    """`[notify]`"""

    command: Argv = ()
    webhook: Webhook = ""


class AuditTable(TableSchema):
    """`[audit]`"""

    anchor: Text = ""
    every: Duration = Anchoring().every_s
    key: Text = ""


SCHEMAS: dict[str, type[msgspec.Struct]] = {
    "project": ProjectTable,
    "policy": PolicyTable,
    "review": ReviewTable,
    "planner": PlannerTable,
    "telemetry": TelemetryTable,
    "tiers": TiersTable,
    "notify": NotifyTable,
    "audit": AuditTable,
}
NAMED: dict[str, Callable[[str, str, Any], Any]] = {"models": read_model}
"""Tables of tables: readers by place, name and content."""
APPROVERS = PublicKey
"""The type of each key of `[approvers]`."""
TABLES = (*SCHEMAS, "approvers", *NAMED, "workers", "agents", "mcp", "context")
