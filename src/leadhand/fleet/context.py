"""The context that coders of one repository share, and the limits of their attempts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from leadhand.fleet.boundaries import EXCLUSIVE, Boundaries, Sharing
from leadhand.fleet.gate.gate_memory import Screening
from leadhand.fleet.take_over import TakenTasks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from leadhand.fleet.agents.base import Assignment, Coder
    from leadhand.fleet.agents.transcripts import Transcript
    from leadhand.fleet.forge.flow import ForgeFlow
    from leadhand.fleet.forge.rules import ForgeSetup
    from leadhand.fleet.gate.gate import Gate, GateRules
    from leadhand.fleet.governor import Governor
    from leadhand.fleet.machines.dispatch import Machines
    from leadhand.fleet.merge.conductor import Conductor
    from leadhand.fleet.overlap_price import OverlapPrice
    from leadhand.fleet.repository.hub import Hub
    from leadhand.fleet.review import AgentReviewer
    from leadhand.fleet.usage_limits import UsageLimit
    from leadhand.fleet.workspace.slots import Slot, Slots
    from leadhand.workers.sandbox.sandbox import Sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryConfig:
    """One repository of a fleet, and how changes reach its branch."""

    repo: Path
    gate: GateRules
    branch: str = ""
    publish: str = ""
    """The branch of the user's repository that gets what has landed; empty: none."""
    forge: ForgeSetup | None = None
    protected: tuple[str, ...] = ()
    sharing: Sharing = EXCLUSIVE
    keep: tuple[str, ...] = ()
    plan_paths: tuple[str, ...] = ()
    """Where planned tasks may write; nothing said: everywhere but what is protected."""


class AttemptLimits(NamedTuple):
    """How far an agent may go in one attempt."""

    time_s: float = 1800.0
    silence_s: float = 300.0
    stall_s: float = 0.0
    turns: int = 200
    cost: float = 0.0


@dataclass(slots=True)
class AtWork:
    """One agent at work."""

    coder: Coder
    assignment: Assignment
    since: float
    words: str = ""
    """The last that was heard of it."""
    cost: float = 0.0
    heard: float = 0.0
    """When it was last heard of; 0: not yet."""
    stopped: str = ""
    """Who stopped it, and why."""
    limit: UsageLimit | None = None
    """The usage limit of its login that ended it."""
    final: bool = False
    """Whether no other attempt follows by itself when it was stopped."""
    transcript: Transcript | None = None
    slot: Slot | None = None
    tried: str = ""
    """The main that its work in progress was last merged with (`merge/early.py`)."""
    told: int = 0
    """How often it was told of a conflict."""


@dataclass(slots=True)
class FleetContext:
    """Everything that coders of one repository share."""

    hub: Hub
    slots: Slots
    gate: Gate
    conductor: Conductor
    governor: Governor
    sandbox: Sandbox
    boundaries: Boundaries = field(default_factory=Boundaries)
    at_work: dict[str, AtWork] = field(default_factory=dict)
    """Agents by run and task, so that one can be stopped or sent a message."""
    protected: tuple[str, ...] = ()
    sharing: Sharing = EXCLUSIVE
    """Which paths several tasks may write at once."""
    price: OverlapPrice | None = None
    """What overlaps cost; None: every overlap is waited for."""
    screening: Screening = field(default_factory=lambda: Screening(always=True))
    """Whether changes run through the gate by themselves before the merge queue."""
    instructions: bool = True
    """Whether agents are told what AGENTS.md and CLAUDE.md of the repository say."""
    skills: bool = True
    """Whether agents are told which skills the repository has."""
    reviewer: AgentReviewer | None = None
    """The reviewers of protected changes; none: a person is asked."""
    forge: ForgeFlow | None = None
    """The code host that changes reach main by; none: the merge queue alone."""
    machines: Machines | None = None
    """Other machines that agents work on; none: all work here."""
    local: int = 1
    """The number of agents at once on this machine."""
    note: Callable[..., None] = lambda _what, **_more: None
    transcripts: Path | None = None
    taken: TakenTasks = field(default_factory=TakenTasks)
    """Tasks that people have taken over from their agents."""
    admitting: set[str] = field(default_factory=set)
    """Attempts by run and task that wait for paths, a place or a slot: no agent has begun."""
    name: str = ""
    """The name of the repository in a fleet that has several; empty: the main one."""
    hubs: Mapping[str, Hub] = field(default_factory=dict)
    """The hubs of all repositories of the fleet, by name."""
    against: Callable[[], str] = lambda: ""
    """Why no agent may start on this repository; empty: nothing is against it."""
    in_flight: set[str] = field(default_factory=set)
    """Attempts by run and task that are not over."""
