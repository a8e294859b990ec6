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
from leadhand.settings.models import read_model, tier
from leadhand.settings.notify import NotifyTable
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
CountOrZero = Annotated[int, Meta(ge=0)]
Factor = Annotated[float, Meta(ge=1, lt=1e15)]


class ProjectTable(TableSchema):
    """`[project]`"""

    name: Text = ""
    """The name of the project, as people see it. Default: the name of its folder."""
    environment: Text = ""
    """The environment that runs are started in, such as `production`: recorded with each run. A
    context that a run is started in takes its place."""
    store: Text = ""
    """The database: a path, or an address `postgres://…`. Default: `.leadhand/leadhand.db`."""
    workers: Texts = ()
    """Modules and `.py` files that hold workers."""
    planner: Text = ""
    """The planner of goals: a model, a tier, `module:function` or `file.py:function`."""
    actor: Person = ""
    """Your name in the log. Default: the login name."""


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
    """The number of steps of one run that may run at once."""
    worker_concurrency: dict[str, Count] = msgspec.field(default_factory=dict)
    """The number of steps at once for each worker, as in `{deploy = 1}`; others have no limit."""
    resources: dict[str, Count] = msgspec.field(default_factory=dict)
    """Named resources that steps hold by `uses`, and how many of each there are."""
    attempts_max: Count = DEFAULTS.attempts_max
    """The number of attempts of one step by one worker."""
    backoff_s: Duration = DEFAULTS.backoff_s
    """The pause before the first retry."""
    backoff_factor: Factor = DEFAULTS.backoff_factor
    """The factor by which the pause grows with each retry."""
    backoff_max_s: Duration = DEFAULTS.backoff_max_s
    """The longest pause between two attempts."""
    park_s: Duration = DEFAULTS.park_s
    """A worker that asks for a longer pause than this parks its step; no attempt is used up."""
    outage_s: Duration = DEFAULTS.outage_s
    """The longest time in all that a step may be parked."""
    restarts_free: CountOrZero = DEFAULTS.restarts_free
    """How often an idempotent step may be lost with its host before that uses up an attempt; in a
    fleet 50 by default."""
    splits_max: Count = DEFAULTS.splits_max
    """How often the parts of a step may be split again."""
    jitter: Share = DEFAULTS.jitter
    """The largest share of a pause that is added to it at random, from 0 to 1."""
    timeout_s: Duration = DEFAULTS.timeout_s
    """The timeout of an attempt, where neither step nor worker names one."""
    planner_timeout_s: Duration = DEFAULTS.planner_timeout_s
    """The timeout of one call of the planner."""
    probe_timeout_s: Duration = DEFAULTS.probe_timeout_s
    """The timeout of a probe, which checks whether a lost attempt took effect."""
    planner_calls_max: Count = DEFAULTS.planner_calls_max
    """The number of calls of the planner in a run; for a model see `planner.calls`."""
    planner_rounds_max: Count = DEFAULTS.planner_rounds_max
    """The number of failed or refused answers of the planner in a row."""
    replans_idle_max: Count = DEFAULTS.replans_idle_max
    """The number of revisions in a row that try nothing new before a person is asked."""
    steps_max: Count = DEFAULTS.steps_max
    """The number of steps of a run."""
    wall_s: Duration | None = DEFAULTS.wall_s
    """The longest time that a run may take; without it there is no limit."""
    budget: Number | None = DEFAULTS.budget
    """The highest cost of a run: US dollars of models and cost units of workers together. Without
    it there is no limit, or that of `planner.budget` where models are called."""
    auto_risk: Risk = "medium"
    """The highest risk level that runs without an approval."""
    review: bool = DEFAULTS.review
    """Whether every plan needs an approval, at any risk level."""
    no_input: bool = DEFAULTS.no_input
    """Whether a run ends where a person would be asked about a failure or a plan."""
    cancel_grace_s: Duration = DEFAULTS.cancel_grace_s
    """The time that attempts in flight have to stop after the run is cancelled."""


class ReviewTable(TableSchema, rename={"approval_s": "expires"}):
    """`[review]`: all but `key` are fields of `Policy`."""

    rules: Rules = ()
    """Review rules; the first rule whose conditions all hold decides."""
    reviewers: Reviewers = ()
    """Functions (`module:function`) that examine each revision before a person decides."""
    agent_risk: Literal["", "low", "medium", "high", "critical"] = ""
    """The highest risk of a plan that an agent may approve, where one person must and no rule asks
    for people. An answer that travels through an agent is the agent's. Empty: people only."""
    approval_s: Duration | None = None
    """The time for which an approval is valid; without it, approvals never expire."""
    key: Text = ""
    """The file of the private key that signs your approvals."""


class PlannerTable(TableSchema):
    """`[planner]`: how a model plans; None: as `ModelPlanner` says."""

    style: Literal["whole", "next_step", "list"] | None = None
    """How a model plans: the whole plan, the next step, or a list of steps. Unset: `whole`."""
    prompts: Text | None = None
    """A folder with prompts of your own."""
    rounds: Count | None = None
    """How often an invalid answer is sent back to the model in one call. Unset: 3."""
    tokens: Count | None = None
    """The approximate size of the prompt, in tokens. Unset: 12,000."""
    idle: Count | None = None
    """The number of steps in revisions without progress before the model is told. Unset: 12."""
    budget: Money = None
    """The highest cost of a run that calls models, in US dollars, where neither `policy.budget` nor
    the run sets one; `"none"`: no limit. Unset: 10."""
    calls: Count | None = None
    """The number of calls of a planning model in a run, where `policy.planner_calls` is not set.
    Unset: 200."""


class TelemetryTable(TableSchema):
    """`[telemetry]`"""

    enabled: bool = False
    """Whether spans and metrics are sent by OTLP."""
    contents: bool = False
    """Whether requests to models and their answers are kept, in spans and in the log."""


class TiersTable(TableSchema):
    """`[tiers]`: a key for each of `TIERS`."""

    hand: Tier = ()
    """The models of agents."""
    lead: Tier = ()
    """The models of planners."""
    strong: Tier = ()
    """The models that are asked when a task was too complex for those of `hand`."""


class AuditTable(TableSchema):
    """`[audit]`"""

    anchor: Text = ""
    """The file to which the head of the log is written. Default: beside the database."""
    every: Duration = Anchoring().every_s
    """The longest time between two anchors."""
    key: Text = ""
    """The file of the private key that signs anchors and exports; see `leadhand audit-key`."""


class ArchiveTable(TableSchema):
    """`[archive]`: retention, as `leadhand archive` applies it."""

    older_than: Duration | None = None
    """Runs that ended longer ago than this are archived. Without it, `--older-than` must say it."""
    folder: Text = ""
    """The folder of the archives. Default: beside the database."""
    delete_after: Duration | None = None
    """Archives of which every run ended longer ago than this are deleted. Default: never."""


SCHEMAS: dict[str, type[msgspec.Struct]] = {
    "project": ProjectTable,
    "policy": PolicyTable,
    "review": ReviewTable,
    "planner": PlannerTable,
    "telemetry": TelemetryTable,
    "tiers": TiersTable,
    "notify": NotifyTable,
    "audit": AuditTable,
    "archive": ArchiveTable,
}
NAMED: dict[str, Callable[[str, str, Any], Any]] = {"models": read_model}
"""Tables of tables: readers by place, name and content."""
APPROVERS = PublicKey
"""The type of each key of `[approvers]`."""
TABLES = (*SCHEMAS, "approvers", *NAMED, "workers", "agents", "mcp", "context")
