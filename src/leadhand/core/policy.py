"""The constants a run is started with.

They are recorded in `RunStarted` and read from the state. A value missing in a log is a default of
this file, so these defaults never change (`tests/golden/test_defaults.py`): a later version that
wants another value sets it where runs are started, so that it is recorded.
"""

from __future__ import annotations

import msgspec

MODEL_BUDGET = 10.0
"""The default budget of a run that calls models, in dollars."""
MODEL_CALLS = 200
"""The default maximum of calls of a planning model in a run."""


class Rule(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A review rule: if all its conditions hold, `then` applies."""

    name: str = ""
    """The name of the rule, shown as the reason for a review."""
    risk: str = ""
    """Condition: the effective risk of the revision is at least this."""
    workers: tuple[str, ...] = ()
    """Condition: the revision uses one of these workers."""
    effects: tuple[str, ...] = ()
    """Condition: it has one of these effects."""
    cost_over: float | None = None
    """Condition: its estimated cost exceeds this."""
    untrusted: bool = False
    """Condition: it was proposed after untrusted data was read."""
    findings: bool = False
    """Condition: an automatic reviewer reported a finding."""
    then: str = "one"
    """The requirement: allow, one (person), two (different people), refuse."""


class Policy(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The constants a run was started with. Recorded once; read from the state, never from here."""

    max_concurrency: int = 100
    worker_concurrency: dict[str, int] = {}
    resources: dict[str, int] = {}
    attempts_max: int = 3
    """Maximum attempts of one step by one worker."""
    backoff_s: float = 1.0
    backoff_factor: float = 2.0
    backoff_max_s: float = 60.0
    jitter: float = 0.2
    """Share of the backoff that jitter may add, drawn once from run, step and attempt."""
    park_s: float = 60.0
    """A worker that asks for a longer pause is unavailable: its step parks, without using an
    attempt."""
    outage_s: float = 86_400.0
    """How long a step may be parked in total before the ladder goes on."""
    restarts_free: int = 0
    """How often a step may be lost with its host before that uses up an attempt."""
    splits_max: int = 5
    """How often the parts of a step may be split again."""
    timeout_s: float = 3600.0
    planner_timeout_s: float = 600.0
    probe_timeout_s: float = 60.0
    planner_calls_max: int = 1000
    planner_rounds_max: int = 3
    """How often a refused or failed planner is asked again in a row."""
    replans_idle_max: int = 3
    """Revisions in a row that may change nothing before the run stops as stuck."""
    steps_max: int = 100_000
    wall_s: float | None = None
    budget: float | None = None
    auto_risk: str = "medium"
    """The highest effective risk that needs no approval."""
    review: bool = False
    """Require approval at any risk."""
    rules: tuple[Rule, ...] = ()
    """Review rules, applied before `auto_risk` and `review`; the first match decides."""
    reviewers: tuple[str, ...] = ()
    """Automatic reviewers that examine each revision before a decision."""
    approvers: dict[str, str] = {}
    """Approvers by name, each with a public key: if there are any, only their signatures count."""
    agent_risk: str = ""
    """The highest effective risk of a plan that an agent may approve, where one person must and no
    rule asks for people; empty: an agent approves nothing."""
    approval_s: float | None = None
    """How long an approval holds if the approver does not say."""
    cancel_grace_s: float = 10.0
    no_input: bool = False
    """End the run where a person would be asked about a failure or a plan."""
    inline_bytes: int = 65_536
    """Data above this size is kept as an artifact."""
