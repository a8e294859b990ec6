"""The data between a workflow and its activities. JSON, versioned by what it holds: events
have their version, a run its `decide_version`, and everything else here `ORDER_VERSION`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from leadhand.core.events import (
    AttemptReported,
    DraftRefused,
    ModelCalled,
    ProbeReported,
    RunStarted,
)
from leadhand.core.plan.references import Artifact, Secret, SecretText
from leadhand.core.policy import Policy

ORDER_VERSION = 1
"""The version of what a workflow asks for, and in what order; a run takes the newest with each new
history. To change the order: raise it, say here what changed, and let a workflow whose `version`
is lower keep the old branch until no history of that version is open
(docs/reference/temporal.md)."""

RUN = "leadhand.run"
ATTEMPT = "leadhand.attempt"
PROBE = "leadhand.probe"
PLAN = "leadhand.plan"
EXAMINE = "leadhand.examine"
VERIFY = "leadhand.verify_goal"
PROJECT = "leadhand.project"
LOG = "leadhand.log"
SAY = "leadhand.say"
MORE = "leadhand.more"
FORK = "Fork"
"""The type of the error for a log that differs from what its workflow wrote."""


class HostingOptions(msgspec.Struct, frozen=True):
    """How a run is hosted. Recorded at its start, defaults too: a workflow reads no settings."""

    prefix: str = "leadhand"
    """The prefix of the names of task queues."""
    heartbeat_s: float = 20.0
    """An attempt whose machine is silent for so long is lost."""
    linger_s: float = 0.3
    """How long events may gather before they are written to the log."""
    history_max: int = 10_000
    """The length of a history after which nothing new starts until the run continues as new."""
    history_bytes_max: int = 16 << 20
    in_flight_max: int = 1500
    """Temporal takes at most 2,000 activities at once from one workflow."""
    turn_starts_max: int = 500
    """The number of starts in one turn while nothing is in flight yet."""
    turn_more_max: int = 100
    """The number of starts in one turn while others are in flight: their events during a turn are
    buffered by the server, which aborts the turn if these are many."""
    turn_bytes_max: int = 2 << 20
    """The size of the starts of one turn: its content is one message of at most 4 MB."""


class LogPosition(msgspec.Struct, frozen=True):
    """A position in a log: the entries read from it must end in this hash."""

    seq: int
    head: str


class Begin(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run to be hosted: a new one, or one whose log continues from a position."""

    run: str
    ways: HostingOptions = HostingOptions()
    started: RunStarted | None = None
    proposal: dict[str, Any] | None = None
    """The plan, if it is given."""
    place: LogPosition | None = None
    hosted: bool = False
    """Whether the run had another host before, so that its attempts in flight are lost."""
    stopped: bool = False
    """Whether stop-all is in force."""
    version: int = 1
    """See `newest`. A default is not written down: this one stays that of the first histories."""


def newest(begin: Begin) -> Begin:
    """Return `begin` stamped with the current message version."""
    return msgspec.structs.replace(begin, version=ORDER_VERSION)


class DetachedValue(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """The place of a separately kept value in the parameters."""

    path: tuple[str | int, ...]
    artifact: Artifact | None = None
    secret: Secret | None = None
    text: SecretText | None = None


class GivenResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of another step named in the step's `context`, or its summary."""

    data: Any = None
    ref: str = ""
    worker: str = ""
    action: str = ""
    status: str = "succeeded"
    recommendations: tuple[str, ...] = ()
    failure: dict[str, Any] | None = None


class AttemptOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt or probe: everything that a machine needs to carry it out."""

    run: str
    step: str
    attempt: int
    epoch: int
    worker: str
    action: str
    deadline: int
    heartbeat_s: float
    doc: dict[str, Any]
    started: RunStarted
    """The start of the run, with only this worker in its catalogue."""
    parameters: dict[str, Any] | None = None
    """Resolved; None if they are as in `doc`."""
    holes: tuple[DetachedValue, ...] = ()
    failures: tuple[dict[str, Any], ...] = ()
    answers: tuple[dict[str, Any], ...] = ()
    results: dict[str, GivenResult] = {}
    quota: float | None = None
    """Its quota for models; None without a budget."""


class More(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt, or a planner call, that needs more budget for models than its quota."""

    step: str
    epoch: int
    used: float
    """What it has spent, and what its calls in flight may cost; the rest is returned."""
    least: float
    wanted: float


class Spawn(msgspec.Struct, frozen=True):
    """The process that carried out an attempt."""

    pid: int
    start_time: int
    boot_id: str


class Judged(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of an attempt: events on the way, and the judged report."""

    report: AttemptReported | None = None
    probe: ProbeReported | None = None
    spawns: tuple[Spawn, ...] = ()
    calls: tuple[ModelCalled, ...] = ()


class StateRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request that needs the whole state of a run: its log up to a position."""

    run: str
    place: LogPosition
    heartbeat_s: float
    call: int = 0
    epoch: int = 0
    why: str = ""
    number: int = 0
    result: Any = None
    quota: float | None = None


class PlannerReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of a planner, or why there is none."""

    answer: dict[str, Any] | None = None
    reason: str = ""
    calls: tuple[ModelCalled | DraftRefused, ...] = ()
    """Its model calls, and the proposals of models that it refused."""


class Examined(msgspec.Struct, frozen=True, omit_defaults=True):
    """The findings of automatic reviewers."""

    found: list[str] = []
    failed: str = ""


class LogLine(msgspec.Struct, frozen=True, array_like=True):
    """One entry of a log; the body is exactly the bytes that were hashed."""

    seq: int
    at: int
    version: int
    body: msgspec.Raw
    hash: str


class LogBatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Entries for a run's log, in order, and notices for listeners."""

    run: str
    lines: list[LogLine]
    summary: msgspec.Raw = msgspec.Raw(b"null")
    notices: list[tuple[str, str]] = []
    heartbeat_s: float = 20.0


def parked_s(policy: Policy) -> float:
    """Return how long a step without a machine is parked: just long enough to use no attempt."""
    return policy.park_s + 1.0


def detach(value: Any) -> tuple[Any, tuple[DetachedValue, ...]]:
    """Return parameters as JSON, and the separately kept values by their place."""
    holes: list[DetachedValue] = []
    return _detached(value, (), holes), tuple(holes)


def _detached(value: Any, path: tuple[str | int, ...], holes: list[DetachedValue]) -> Any:
    if isinstance(value, Artifact):
        holes.append(DetachedValue(path, artifact=value))
    elif isinstance(value, Secret):
        holes.append(DetachedValue(path, secret=value))
    elif isinstance(value, SecretText):
        holes.append(DetachedValue(path, text=value))
    elif isinstance(value, dict):
        return {key: _detached(item, (*path, key), holes) for key, item in value.items()}
    elif isinstance(value, list):
        return [_detached(item, (*path, index), holes) for index, item in enumerate(value)]
    else:
        return value
    return None


def attach(value: Any, holes: tuple[DetachedValue, ...]) -> Any:
    """Return parameters with the separately kept values in place, still to be loaded."""
    for hole in holes:
        apart = hole.artifact or hole.secret or hole.text
        if not hole.path:
            return apart
        into = value
        for part in hole.path[:-1]:
            into = into[part]
        into[hole.path[-1]] = apart
    return value
