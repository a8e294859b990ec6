"""The constants a run is started with.

They are recorded in `RunStarted` and read from the state. What a log does not say is a default
of this file, so these stay for ever (`tests/golden/test_defaults.py`): a later version that wants
another value sets it where runs are started, where it differs from these and is recorded.
"""

from __future__ import annotations

import msgspec

MODEL_BUDGET = 10.0
"""What a run that asks models may spend, in dollars, where nothing else is said."""
MODEL_CALLS = 200
"""How often a model that plans is asked in a run, where nothing else is said."""


class Rule(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """When all that it names is so, `then` follows."""

    name: str = ""
    risk: str = ""
    """The revision's effective risk is at least this."""
    workers: tuple[str, ...] = ()
    """It uses one of these."""
    effects: tuple[str, ...] = ()
    """It has one of these effects."""
    cost_over: float | None = None
    """It is expected to cost more."""
    untrusted: bool = False
    """It was proposed after data from outside was read."""
    findings: bool = False
    """An automatic reviewer found something."""
    then: str = "one"
    """allow, one (person), two (different people), refuse."""


class Policy(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The constants a run was started with. Recorded once; read from the state, never from here."""

    max_concurrency: int = 100
    worker_concurrency: dict[str, int] = {}
    resources: dict[str, int] = {}
    attempts_max: int = 3
    """Tries of one step by one worker."""
    backoff_s: float = 1.0
    backoff_factor: float = 2.0
    backoff_max_s: float = 60.0
    jitter: float = 0.2
    """Share of the backoff that jitter may add, drawn once from run, step and attempt."""
    park_s: float = 60.0
    """A worker that asks to be left alone for longer is out: its step parks, and no try is used."""
    outage_s: float = 86_400.0
    """How long a step may be parked in all before the ladder goes on."""
    restarts_free: int = 0
    """How often a step may be lost with its host before that uses up a try."""
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
    """The highest effective risk that runs without a person."""
    review: bool = False
    """Wait for a person whatever the risk."""
    rules: tuple[Rule, ...] = ()
    """Who must allow what, before these two; the first that fits decides."""
    reviewers: tuple[str, ...] = ()
    """Automatic reviewers that look at each revision before anybody decides."""
    approvers: dict[str, str] = {}
    """People by name, each with a public key: where there are any, only their word counts."""
    approval_s: float | None = None
    """How long an approval holds when the one who gives it does not say."""
    cancel_grace_s: float = 10.0
    no_input: bool = False
    """End the run where a person would be asked what to do about a failure or a plan."""
    inline_bytes: int = 65_536
    """Data above this size is kept as an artifact."""
