"""What crosses between a workflow and its activities. JSON, versioned by what it holds: events
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

ORDER_VERSION = 2
"""Of what a workflow asks for, and in what order; a run takes the newest with each new history.

1   the first
2   an attempt that is over before it began is dropped; one that may be done twice waits for the one
    before it only a while; a step that nobody can take now is parked; the size of a turn counts all
    that crosses; activities that were given up count as under way; a run that is taken up has its
    revision examined
"""

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
"""The type of the error that says that a log is not what its workflow wrote."""


class HostingOptions(msgspec.Struct, frozen=True):
    """How a run is hosted. Recorded when it starts, defaults too: a workflow reads no settings."""

    prefix: str = "leadhand"
    """What the names of task queues begin with."""
    heartbeat_s: float = 20.0
    """An attempt whose machine is silent for so long is lost."""
    linger_s: float = 0.3
    """How long events may gather before they are written to the log."""
    history_max: int = 10_000
    """Events of a history after which nothing new starts until the run continues as new."""
    history_bytes_max: int = 16 << 20
    in_flight_max: int = 1500
    """Temporal takes at most 2,000 activities at once from one workflow."""
    turn_starts_max: int = 500
    """Starts in one turn when nothing is under way yet."""
    turn_more_max: int = 100
    """Starts in one turn while others are under way: what happens to them during a turn is buffered
    by the server, which breaks the turn off when that is much."""
    turn_bytes_max: int = 2 << 20
    """Of the steps that one turn starts: what it says crosses in one message of at most 4 MB."""


class LogPosition(msgspec.Struct, frozen=True):
    """Where a log stands: what is read from it must end in this hash."""

    seq: int
    head: str


class Begin(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run to be hosted: a new one, or one whose log goes on from a place."""

    run: str
    ways: HostingOptions = HostingOptions()
    started: RunStarted | None = None
    proposal: dict[str, Any] | None = None
    """The plan, where it is written already."""
    place: LogPosition | None = None
    hosted: bool = False
    """Whether the run was hosted by another before, so that what that had in flight is lost."""
    stopped: bool = False
    """Whether stop-all is in force."""
    version: int = 1
    """See `newest`. A default is not written down: this one stays that of the first histories."""


def newest(begin: Begin) -> Begin:
    """A history that begins now, in the order of today."""
    return msgspec.structs.replace(begin, version=ORDER_VERSION)


class DetachedValue(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """Where something that is kept apart belongs in the parameters."""

    path: tuple[str | int, ...]
    artifact: Artifact | None = None
    secret: Secret | None = None
    text: SecretText | None = None


class GivenResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of another step, for one that names it in its `context`; of a summary the rest."""

    data: Any = None
    ref: str = ""
    worker: str = ""
    action: str = ""
    status: str = "succeeded"
    recommendations: tuple[str, ...] = ()
    failure: dict[str, Any] | None = None


class AttemptOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt or probe: all that a machine must know to carry it out."""

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
    """The start of the run, with no worker in its catalogue but this one."""
    parameters: dict[str, Any] | None = None
    """Resolved; None when they are as they stand in `doc`."""
    holes: tuple[DetachedValue, ...] = ()
    failures: tuple[dict[str, Any], ...] = ()
    answers: tuple[dict[str, Any], ...] = ()
    results: dict[str, GivenResult] = {}
    quota: float | None = None
    """What it may spend on models; None without a budget."""


class More(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt, or a call of a planner, that wants more money for models than it was given."""

    step: str
    epoch: int
    used: float
    """What it has spent, and what its calls under way may cost; the rest goes back."""
    least: float
    wanted: float


class Spawn(msgspec.Struct, frozen=True):
    """Which process carried out an attempt."""

    pid: int
    start_time: int
    boot_id: str


class Judged(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of an attempt: what was noted on the way, and the judged report."""

    report: AttemptReported | None = None
    probe: ProbeReported | None = None
    spawns: tuple[Spawn, ...] = ()
    calls: tuple[ModelCalled, ...] = ()


class StateRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something to be done with the whole state of a run: its log up to a place is it."""

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
    """What a planner said, or why it said nothing."""

    answer: dict[str, Any] | None = None
    reason: str = ""
    calls: tuple[ModelCalled | DraftRefused, ...] = ()
    """What its models were asked, and what it refused of their proposals."""


class Examined(msgspec.Struct, frozen=True, omit_defaults=True):
    """What automatic reviewers found."""

    found: list[str] = []
    failed: str = ""


class LogLine(msgspec.Struct, frozen=True, array_like=True):
    """One entry of a log; the body is the very bytes that were hashed."""

    seq: int
    at: int
    version: int
    body: msgspec.Raw
    hash: str


class LogBatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Entries for a run's log, in order, and what to tell whoever listens."""

    run: str
    lines: list[LogLine]
    summary: msgspec.Raw = msgspec.Raw(b"null")
    notices: list[tuple[str, str]] = []
    heartbeat_s: float = 20.0


def parked_s(policy: Policy) -> float:
    """How long a step waits that no machine can take now: just long enough to use up no try."""
    return policy.park_s + 1.0


def detach(value: Any) -> tuple[Any, tuple[DetachedValue, ...]]:
    """Parameters as JSON, and what is kept apart from them by its place."""
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
    """Parameters with what is kept apart in its place, still to be loaded."""
    for hole in holes:
        apart = hole.artifact or hole.secret or hole.text
        if not hole.path:
            return apart
        into = value
        for part in hole.path[:-1]:
            into = into[part]
        into[hole.path[-1]] = apart
    return value
