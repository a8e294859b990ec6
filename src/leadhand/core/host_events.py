"""The `$host` stream: events that belong to no single run.

It has its own few events and its own fold. Deciders of runs request attempts; the host (in the
engine) grants them within this state: a stop of everything, and open circuits
(`decide/circuit_breaker.py`).
"""

from __future__ import annotations

import msgspec

from leadhand.core.decide.circuit_breaker import Circuit
from leadhand.core.events import Event
from leadhand.errors import Bug, Conflict

HOST_STREAM = "$host"


class HostOpened(Event, frozen=True, tag=True):
    """A process became the host of this database."""

    owner: int
    """The number of the host; it grows with each host."""
    pid: int
    """The id of the host's process."""
    version: str
    """The version of Leadhand."""
    max_concurrency: int = 1000
    """The number of attempts at once, over all runs."""


class RunJoined(Event, frozen=True, tag=True):
    """A process began to drive a run beside the host, under an owner number of its own."""

    run: str
    """The id of the run."""
    owner: int
    """The owner number of the process."""
    pid: int
    """The id of the process."""


class StopAllRequested(Event, frozen=True, tag=True):
    """No step starts in any run until this is lifted; survives restarts."""

    actor: str
    """The person who stopped all runs."""
    reason: str = ""
    """Why all runs were stopped."""


class StopAllLifted(Event, frozen=True, tag=True):
    """Runs may start steps again."""

    actor: str
    """The person who lifted the stop."""


class CircuitOpened(Event, frozen=True, tag=True):
    """A worker is not used by any run until a time on the run clock."""

    worker: str
    """The worker that is not used."""
    until: int
    """When the worker may be used again, in UTC microseconds."""
    trips: int
    """How often the circuit has opened in a row."""
    reason: str
    """Why the circuit opened."""


class CircuitClosed(Event, frozen=True, tag=True):
    """A worker is usable again."""

    worker: str
    """The worker that is usable again."""


class ApprovalUsed(Event, frozen=True, tag=True):
    """A run used up an approval of a plan; the approval allows no other run."""

    id: str
    """The id of the approval."""
    run: str
    """The run that used it."""
    actor: str
    """The person who gave the approval."""


class PersonChanged(Event, frozen=True, tag=True):
    """The owner of a server changed who may sign in to it."""

    person: str
    """The person who may sign in, or no longer."""
    actor: str
    """The owner of the server, or the name of the settings file."""
    role: str = ""
    """The role of the person from now on; empty: removed."""
    reason: str = ""
    """Why the log is put right by what the settings file says; empty: a change by the owner."""


class TemporalOpened(Event, frozen=True, tag=True):
    """A Temporal server hosts the runs of this database: no embedded host may drive them."""

    address: str
    """The address of the Temporal server."""
    namespace: str
    """The namespace on that server."""
    prefix: str
    """The beginning of the names of task queues and workflows."""


class TemporalLeft(Event, frozen=True, tag=True):
    """The runs were taken back from Temporal: they are hosted here again."""

    actor: str
    """The person who took the runs back."""
    reason: str = ""
    """Why the runs were taken back."""


class KeptRun(msgspec.Struct, frozen=True, array_like=True):
    """Where the log of a run stood that stays in the database, at the end of an archive."""

    run: str
    """The id of the run."""
    before: int
    """The number of its last entry that an earlier archive covers."""
    seq: int
    """The number of its last entry that this archive covers."""
    hash: str
    """The hash of that entry."""


class RunsArchived(Event, frozen=True, tag=True):
    """Runs that had ended were moved into an archive: their entries are no longer in the database.

    The archive takes the place of all commits up to `commit` in the chain of commits.
    """

    archive: int
    """The number of the archive, from 1."""
    actor: str
    """The person who archived the runs."""
    before: int
    """The runs ended before this moment, in UTC microseconds."""
    folder: str
    """The folder that the file was written to."""
    file: str
    """The name of the file."""
    size: int
    """The size of the file in bytes."""
    digest: str
    """The SHA-256 of the file."""
    commit: int
    """The number of the last commit that is no longer in the database."""
    position: int
    """The position of the last entry of that commit."""
    head: str
    """The hash of that commit."""
    runs: int
    """How many runs the archive holds."""
    entries: int
    """How many entries of runs it holds."""
    heads: str
    """The SHA-256 over the ends of the logs of these runs."""
    kept: tuple[KeptRun, ...]
    """The runs with entries in these commits that stay in the database."""
    key: str = ""
    """The name of the key that signed this record; empty: not signed."""
    signature: str = ""
    """Its signature, in base64."""


class ArchiveRewritten(Event, frozen=True, tag=True):
    """Secrets were erased from an archive, which is another file since."""

    archive: int
    """The number of the archive."""
    actor: str
    """The person who erased them."""
    reason: str
    """Why they were erased."""
    folder: str
    """The folder that the new file was written to."""
    file: str
    """The name of the new file."""
    size: int
    """The size of the new file in bytes."""
    digest: str
    """The SHA-256 of the new file."""
    changed: int
    """In how many entries something was replaced."""
    erased: int
    """How many artifacts were taken out."""
    key: str = ""
    """The name of the key that signed this record; empty: not signed."""
    signature: str = ""
    """Its signature, in base64."""


class ArchiveDeleted(Event, frozen=True, tag=True):
    """The file of an archive was deleted, as the policy of retention says."""

    archive: int
    """The number of the archive."""
    actor: str
    """The person who deleted it."""
    reason: str
    """The rule that it was deleted by."""
    key: str = ""
    """The name of the key that signed this record; empty: not signed."""
    signature: str = ""
    """Its signature, in base64."""


ARCHIVE_EVENTS = (RunsArchived, ArchiveRewritten, ArchiveDeleted)
"""The events that record an archive."""

HOST_EVENTS: tuple[type[Event], ...] = (
    HostOpened,
    RunJoined,
    StopAllRequested,
    StopAllLifted,
    CircuitOpened,
    CircuitClosed,
    ApprovalUsed,
    PersonChanged,
    TemporalOpened,
    TemporalLeft,
    RunsArchived,
    ArchiveRewritten,
    ArchiveDeleted,
)


class HostState(msgspec.Struct):
    """The state shared by all runs of a database."""

    owner: int = 0
    max_concurrency: int = 1000
    stopped: bool = False
    stopped_by: str = ""
    seq: int = 0
    circuits: dict[str, Circuit] = {}
    used: dict[str, str] = {}
    """Used approvals of plans by id, each with its run."""
    people: dict[str, str] = {}
    """The role that the log says of each person whom the owner has changed; empty: removed."""
    temporal: TemporalOpened | None = None
    """The Temporal server that hosts the runs, if any."""


def evolve_host(state: HostState, event: Event) -> None:
    """Apply one host event to the state."""
    match event:
        case HostOpened():
            state.owner = event.owner
            state.max_concurrency = event.max_concurrency
        case RunJoined() | RunsArchived() | ArchiveRewritten() | ArchiveDeleted():
            pass  # the host is the same; `stores/archive.py` knows where archives are
        case PersonChanged():
            state.people[event.person] = event.role  # told; the settings say who may sign in
        case StopAllRequested():
            state.stopped = True
            state.stopped_by = event.actor
        case StopAllLifted():
            state.stopped = False
            state.stopped_by = ""
        case CircuitOpened():
            state.circuits[event.worker] = Circuit(event.until, event.trips, event.reason)
        case CircuitClosed():
            state.circuits.pop(event.worker, None)
        case ApprovalUsed():
            state.used.setdefault(event.id, event.run)
        case TemporalOpened():
            state.temporal = event
        case TemporalLeft():
            state.temporal = None
        case _:
            raise Bug(f"{type(event).__name__} is no event of the host")
    state.seq += 1


def refuse_used(state: HostState, approval: str, actor: str) -> None:
    """Raise `Conflict` if an approval of a plan was already used."""
    run = state.used.get(approval)
    if run is not None:
        raise Conflict(
            f"{actor}'s approval {approval} was used by run {run}, and is good for one. "
            "Fix: approve the plan again: `leadhand review PLAN approve -o FILE`"
        )


def refuse_other(state: HostState, namespace: str, prefix: str) -> None:
    """Raise `Conflict` if the runs are hosted under another namespace or prefix."""
    there = state.temporal
    if there is not None and (there.namespace, there.prefix) != (namespace, prefix):
        raise Conflict(
            f"Temporal hosts the runs of this database in namespace {there.namespace} with prefix "
            f"{there.prefix}, and not in {namespace} with {prefix}. Fix: set [temporal] namespace "
            "and prefix as they were; or take the runs back first: leadhand resume RUN --here"
        )


def refuse_elsewhere(state: HostState) -> None:
    """Raise `Conflict` if a Temporal server hosts the runs: writes beside it would fork the log."""
    if (there := state.temporal) is None:
        return
    more = "" if there.namespace == "default" else f", namespace {there.namespace}"
    raise Conflict(
        f"the Temporal server at {there.address}{more} hosts the runs of this database, so nothing "
        f"was done here. Fix: say it there, with --temporal {there.address}, [temporal] address, "
        f"or LEADHAND_TEMPORAL__ADDRESS={there.address}; or take the runs back from it, once its "
        "engines have ended: leadhand resume RUN --here"
    )
