"""The constants a run is started with.

They are recorded in `RunStarted` and read from the state, never from here: a default changed
in a later version changes new runs only, and an old log keeps its meaning.
"""

from __future__ import annotations

import msgspec


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
    cancel_grace_s: float = 10.0
    inline_bytes: int = 65_536
    """Data above this size is kept as an artifact."""
