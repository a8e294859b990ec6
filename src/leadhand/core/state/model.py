"""The state of a run: everything known about it, and nothing else.

Laws of this file
1. Everything known about a run is here, and only `evolve` (core/state/evolve.py) changes it.
2. The state is owned and updated in place. No other module keeps references into it; views copy.
3. Each event costs the same for a plan of any size: steps know their dependents and count their
   blockers, ready steps sit in a queue, timers in a heap.

Theory of operation. A revision is pending until it is approved; only then do its steps exist. A
step waits until its blockers are settled, is ready, runs as an attempt with an epoch, and is
settled by a verdict. A failed attempt puts the step on `undecided`, where `decide` finds it; the
decision (an event) moves it on: back to the queue, to a probe, to a person, or to an end. Ends
settle dependents: a success unblocks them, any other end puts them on the list of steps to skip,
where `decide` finds them, unless they tolerate failure.

    waiting ─► ready ─► running ─► succeeded
                 ▲         │
                 │         ▼
      backing_off ◄── undecided ─► probing, asking ─► …
                           └─► failed       to_skip ─► skipped       cancelled, superseded

Not elegant: large results are held as references, so a lookup may return a placeholder that the
engine must load. The core never sees the bytes.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.core import events as ev
from leadhand.core.catalog import CALLER, Catalog
from leadhand.core.decide.recovery import alternative
from leadhand.core.hashing import canonical, digest
from leadhand.core.plan.references import Artifact
from leadhand.core.policy import Policy
from leadhand.core.state.ready import CapacityGroup, Ready, uses_of
from leadhand.core.state.records import (
    Comment,
    EndSnapshot,
    ModelCalls,
    Permits,
    PlannerState,
    Question,
    Revision,
)
from leadhand.core.state.tally import RunTally
from leadhand.errors import Bug

if TYPE_CHECKING:
    from collections.abc import Container

    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.plan.references import Ref


SETTLED = frozenset({"succeeded", "failed", "skipped", "cancelled", "superseded"})
IN_FLIGHT = frozenset({"running", "probing"})
STARTABLE = frozenset({"ready", "backing_off"})
MOVABLE = STARTABLE | {"waiting", "asking"}
"""Statuses of steps that a revision may still remove, or a person skip."""
REPLACEABLE = MOVABLE | {"failed", "skipped", "cancelled"}
"""Statuses of steps that a revision may supersede."""
DROPPABLE = MOVABLE | {"failed", "skipped"}
"""Statuses of steps that a planner may drop."""


OFFERED = 1 << 40
"""The first ticket of steps for callers: no ticket is in both queues."""

TIMERS_KEPT = 1000
"""Obsolete timers are removed when there are this many, and several for each attempt in flight: a
step that took a second must not be remembered until its deadline."""


class IllegalEvent(Bug):
    """An event that does not fit the state it is folded into."""


class Now(NamedTuple):
    """Two kinds of time: the run clock (elapsed) and the calendar, both in microseconds."""

    at: int
    wall: int

    @property
    def latest(self) -> int:
        """The later of both clocks: a permission stays expired if the calendar is set back.

        The run clock never goes behind the newest time in the log.
        """
        return max(self.at, self.wall)


class StepState(msgspec.Struct, gc=False):
    """Everything known about one step. There are many, so rare parts are allocated on demand."""

    doc: dict[str, Any]
    order: int
    worker: str
    tail: float = 0.0
    status: str = "waiting"
    ticket: int = 0
    blockers: int = 0
    dependents: list[tuple[str, bool]] | tuple[()] = ()
    """(step, tolerant): the steps that wait for this one, and whether they tolerate its failure."""
    attempts: int = 0
    epoch: int = 0
    deadline: int = 0
    caller: str = ""
    """The caller that its last attempt was handed out to."""
    limit: int = 0
    """When the time of that caller is over, however often its lease is extended."""
    said: dict[str, str] | None = None
    """By attempt, the digest of the report as its caller sent it."""
    tries: dict[str, int] | None = None
    """Failed attempts by worker since a person last restarted the step."""
    until: int = 0
    parked_s: float = 0.0
    """The total time it was parked, waiting for outages to end."""
    depth: int = 0
    """How often it, or the step it is part of, was split."""
    answered: bool = False
    """A person reported it done; the report is still to be verified."""
    not_before: int = 0
    revision: int = 0
    """The revision that added it to the plan."""
    approved: bool = False
    """Whether a person allowed it, rather than the policy."""
    people: int = 0
    """The number of approvals its review required; 0 if the policy let it through."""
    void: str = ""
    """Why its permission no longer counts; empty while it counts."""
    widened: bool = False
    """Whether people were shown its claims beyond its worker and allowed them:
    `core/promises.py`."""
    expires: int = 0
    """When its approval expires, in UTC microseconds; 0 for never."""
    held: str = ""
    """The question whose answer releases it, while it must not start."""
    held_by: str = ""
    """The actor of the hold: a person, or the policy if its permission no longer counts."""
    data: Any = None
    data_ref: str = ""
    failure: dict[str, Any] | None = None
    failures: tuple[dict[str, Any], ...] = ()
    forgiven: int = 0
    """The number of failures a person had seen when the step was restarted."""
    report: ev.AttemptReported | None = None
    """The last report that counted."""
    question: str = ""
    reason: str = ""
    lost_dependency: str = ""
    """The dependency that will never succeed, if the step does not tolerate that."""
    tolerated: bool = False
    """Whether it failed or was skipped, and the plan or a person lets the run go on."""
    dropped: str = ""
    """Why it was dropped, by name or along with another step."""
    superseded_by: str = ""
    used: bool = False
    """Whether another step depends on it."""
    started: int = 0
    ended: int = 0
    cost: float = 0.0
    id: str = ""
    """The id of the step in the plan."""
    action: str = ""
    """The action its worker performs."""

    def __post_init__(self) -> None:
        self.id = self.doc["id"]
        self.action = self.doc.get("action", "")

    @property
    def settled(self) -> bool:
        """Whether it has ended."""
        return self.status in SETTLED

    @property
    def with_caller(self) -> bool:
        """Whether a caller is at work on it."""
        return bool(self.caller) and self.status == "running"

    @property
    def findings(self) -> tuple[str, ...]:
        """The criteria its last report did not meet."""
        return self.report.findings if self.report else ()

    @property
    def recommendations(self) -> tuple[str, ...]:
        """The recommendations of its last report."""
        return self.report.recommendations if self.report else ()

    def failures_by(self, worker: str) -> int:
        """Return how often a worker has failed at it."""
        return self.tries.get(worker, 0) if self.tries else 0


def task_key(doc: Doc) -> str:
    """Return a digest of a step's work, independent of its id: worker, action and parameters."""
    return digest(doc["worker"], doc.get("action", ""), canonical(doc.get("parameters") or {}))


class State:
    """One run, folded."""

    def __init__(self) -> None:
        self.run = ""
        self.started: ev.RunStarted | None = None
        self.started_at = self.last_at = 0
        # The time attempts and probes were in flight, in microseconds, and the start of the current
        # one.
        self.worked = self.busy_since = 0
        self.owner = self.seq = 0
        self.process: ev.GuestProcess | None = None
        self.consults_reports = False
        self.catalog = Catalog()
        self.policy = Policy()
        self.params: Doc = {}
        self.steps: dict[str, StepState] = {}
        self.revision = 0
        self.head = ""
        self.final = False
        self.outlook: list[Doc | str] = []
        self.pending: Revision | None = None
        self.comments: list[Comment] = []
        """Comments of reviewers on revisions that they sent back."""
        self.permits = Permits()
        self.held: set[str] = set()
        """Steps that must not start until a person releases them."""
        self.revisions_idle = 0
        """Revisions in a row that tried nothing new and brought no result."""
        self.tried: set[str] = set()
        """Digests of all work ever started (`tried_key`), if a planner may replan."""
        self.backing_off: dict[str, None] = {}
        """Steps that wait for a retry."""
        self.planner = PlannerState()
        self.agenda_built = False
        self.ready = Ready()
        self.offered = Ready(OFFERED)
        """Steps that could start now and wait for a caller to ask."""
        self.handed_out = 0
        """How many of the attempts in flight are with callers."""
        self.has_callers = False
        """Whether any step may be handed out to a caller."""
        self.timers: list[tuple[int, str, str, int]] = []
        self.calendar: list[tuple[int, str]] = []
        self.undecided: deque[str] = deque()
        self.to_skip: deque[str] = deque()
        self.lost_in_flight: deque[tuple[str, int]] = deque()
        self.questions: dict[str, Question] = {}
        self.links: set[str] = set()  # the ids of used links
        self.answers: list[Doc] = []
        self.asked = 0
        self.failed_attempts: list[tuple[str, int, str, Doc]] = []
        self.recommendations, self.recommenders = list[str](), list[str]()  # texts, their steps
        self.epoch = 0
        self.in_flight: dict[str, int] = {}
        """Attempts and probes in flight: step to epoch."""
        self.limits: dict[str, int | None] = {}
        """A cache of `worker_limit`."""
        self.open_circuits: Container[str] = frozenset()
        """Workers with an open circuit: owned by the host, not by this run."""
        self.busy_workers: dict[str, int] = {}
        self.busy_resources: dict[str, int] = {}
        self._init_progress()

    def _init_progress(self) -> None:
        """Declare what is known of the progress and the end of the run."""
        self.unsettled = 0
        self.blocking = 0
        """The number of settled steps that keep the run from succeeding."""
        self.awaiting_planner: list[str] = []
        """Failed steps left to the planner that it has neither replaced nor dropped."""
        self.unanswered: list[str] = []
        """Those of them that failed since the last revision."""
        self.succeeded = self.undoable = 0  # `undoable`: succeeded, with an undo
        self.spent = self.reserved = 0.0
        self.models = ModelCalls()
        self.tally = RunTally()
        self.paused = False
        self.stopping: ev.StopDecided | None = None
        self.finish: Doc | None = None
        self.goal_met: bool | None = None
        self.goal_asked = False
        self.goal_findings: list[str] = []
        self.ended: ev.RunEnded | None = None
        self.ended_at = 0
        self.end_snapshot = EndSnapshot()
        self.cancel_deadline = 0

    # Queries of deciders and views.

    def follow(self, step: str) -> StepState | None:
        """Return a step, or the step that superseded it."""
        state = self.steps.get(step)
        while state is not None and state.superseded_by:
            state = self.steps.get(state.superseded_by)
        return state

    @property
    def feedback_refusal(self) -> str:
        """Why no planner can act on comments about a revision; empty if one can."""
        started = self.started
        if started is None or not started.replans:
            return "the plan comes from a file, and only people change it"
        if started.deaf or self.planner.handed:
            return "the planner plans from facts and reads no comments"
        return ""

    def lookup(self, ref: Ref) -> Json:
        """Return the root value of a reference. Raise `LookupError` if there is none."""
        if ref.kind == "params":
            if ref.name not in self.params:
                raise LookupError(f"there is no parameter {ref.name}")
            return self.params[ref.name]
        if ref.kind == "run":
            raise LookupError("only a rollback plan refers to the run that it takes back")
        state = self.follow(ref.name)
        if state is None or state.status != "succeeded":
            status = "not in the plan" if state is None else state.status
            raise LookupError(f"step {ref.name} is {status}, so it has no data")
        return Artifact(state.data_ref) if state.data_ref else state.data

    def reached_limit(self, group: CapacityGroup) -> str:
        """Return the limit that keeps a group from starting, or ""."""
        worker = group.worker
        if worker in self.open_circuits and not self.has_alternative(group):
            return f"circuit {worker}"
        if worker not in self.limits:
            self.limits[worker] = self.worker_limit(worker)
        limit = self.limits[worker]
        if limit is not None and self.busy_workers.get(worker, 0) >= limit:
            return f"worker {worker}"
        for name, amount in group.uses:
            capacity = self.policy.resources.get(name, amount)
            if self.busy_resources.get(name, 0) + amount > capacity:
                return f"resource {name}"
        return ""

    def has_alternative(self, group: CapacityGroup) -> bool:
        """Return whether another worker may do the one step of a group whose own worker is down."""
        return bool(group.own and alternative(self, self.steps[group.own], self.open_circuits))

    def worker_limit(self, worker: str) -> int | None:
        """Return how many attempts of a worker may run at once; None: no limit."""
        limit = self.policy.worker_concurrency.get(worker)
        spec = self.catalog.workers.get(worker)
        own = spec.max_concurrency if spec else None
        return own if limit is None else limit if own is None else min(limit, own)

    def circuit_closed(self) -> None:
        """Re-examine the steps that waited for an open circuit: a worker may be called again."""
        for limit in [limit for limit in self.ready.parked if limit.startswith("circuit ")]:
            self.ready.unpark(limit)

    def next_ready(self) -> StepState | None:
        """Return the step to start next, or None."""
        if not self.agenda_built:
            self.build_agenda()
        step = self.ready.best(self.steps, self.reached_limit)
        return None if step is None else self.steps[step]

    def next_offered(self) -> StepState | None:
        """Return the step that the next caller to ask is handed, or None."""
        if not self.has_callers:
            return None
        if not self.agenda_built:
            self.build_agenda()
        step = self.offered.best(self.steps, self.reached_limit)
        return None if step is None else self.steps[step]

    def unpark(self, limit: str) -> None:
        """Re-examine the steps that waited for a limit that has room again."""
        self.ready.unpark(limit)
        self.offered.unpark(limit)

    @property
    def planner_name(self) -> str:
        """The planner that is asked: the one a person handed the run to, else the run's own."""
        return self.planner.handed or (self.started.planner if self.started else "")

    def tries_new(self, add: list[Doc]) -> bool:
        """Return whether any of these steps does work never started before."""
        return any(task_key(doc) not in self.tried for doc in add)

    def is_blocking(self, step: StepState) -> bool:
        """Return whether a settled step keeps the run from succeeding."""
        return step.status in ("failed", "skipped") and not step.tolerated

    def drop_hold(self, step: StepState) -> None:
        """End the hold of a step, and remove its question if it holds no other step."""
        question = step.held
        step.held = step.held_by = ""
        self.held.discard(step.id)
        if all(self.steps[other].held != question for other in self.held):
            self.questions.pop(question, None)

    @property
    def surprises_wait(self) -> bool:
        """Whether dependents of a surprise wait for the planner."""
        return self.started is not None and self.started.replans

    def is_for_people(self, step: StepState) -> bool:
        """Return whether a person does the step."""
        spec = self.catalog.workers.get(step.worker)
        return spec is not None and spec.kind == "human"

    def price(self, step: StepState) -> float:
        """Return the expected cost of an attempt, reserved while it runs."""
        if self.policy.budget is None:
            return 0.0
        offer = self.catalog.offer(step.worker, step.action)
        return offer.cost if offer else 0.0

    # The agenda: which steps could start now, and when to look again. Folding a long log does not
    # need it, so it is built on first use; from then on it is kept up to date.

    def drop_agenda(self) -> None:
        """Drop the agenda: entries that it would discard may count again."""
        self.agenda_built = False
        self.ready, self.offered = Ready(), Ready(OFFERED)
        self.timers.clear()
        self.calendar.clear()
        for step in self.steps.values():
            step.ticket = 0

    def build_agenda(self) -> None:
        """Build the agenda from the state."""
        self.agenda_built = True
        started = self.started
        if started is not None and started.policy.wall_s is not None:
            self.add_timer(self.started_at + int(started.policy.wall_s * 1e6), "run", "wall", 0)
        if self.cancel_deadline:
            self.add_timer(self.cancel_deadline, "run", "cancel", 0)
        if self.planner.epoch:
            self.add_timer(self.planner.deadline, "planner", "", self.planner.epoch)
        for question in self.questions.values():
            if question.until:
                self.add_timer(question.until, "question", question.id, 0)
        for step in self.steps.values():
            status = step.status
            if status == "ready":
                self.offer(step)
            elif status == "backing_off":
                self.add_timer(step.until, "retry", step.id, 0)
            elif status in IN_FLIGHT:
                self.add_timer(step.deadline, status, step.id, step.epoch)

    def offer(self, step: StepState) -> None:
        """Put a step that became ready into the queue, or into the calendar if it must wait."""
        if self.agenda_built and not step.held:
            if step.not_before:
                self.add_calendar(step.not_before, step.id)
            else:
                self.enqueue(step)

    def enqueue(self, step: StepState) -> None:
        """Put a step into the queue of steps that could start, unless it is held."""
        if step.held:
            return
        key = (-step.tail, step.order)
        spec = self.catalog.workers.get(step.worker)
        others = "alternatives" in step.doc or (spec is not None and spec.stronger)
        own = step.id if others else ""
        group = CapacityGroup(step.worker, uses_of(step.doc), own)
        queue = self.offered if spec is not None and spec.kind == CALLER else self.ready
        step.ticket = queue.add(key, group, step.id)

    def add_timer(self, when: int, kind: str, ident: str, epoch: int) -> None:
        """Add a timer on the run clock."""
        if self.agenda_built:
            timers = self.timers
            heappush(timers, (when, kind, ident, epoch))
            if len(timers) > TIMERS_KEPT + 4 * len(self.in_flight):
                timers[:] = [timer for timer in timers if self.timer_counts(*timer)]
                heapify(timers)

    def add_calendar(self, when: int, step: str) -> None:
        """Add a calendar time at which a step is queued."""
        heappush(self.calendar, (when, step))

    def timer_counts(self, when: int, kind: str, ident: str, epoch: int) -> bool:
        """Return whether a timer still counts."""
        if kind == "planner":
            return self.planner.epoch == epoch
        if kind == "question":
            return ident in self.questions
        if kind == "run":
            return bool(self.in_flight) if ident == "cancel" else self.stopping is None
        step = self.steps[ident]
        if kind == "retry":
            return step.status == "backing_off" and step.until == when and not step.ticket
        # An extended lease has a later timer.
        return step.status in IN_FLIGHT and step.epoch == epoch and when >= step.deadline

    def tidy_timers(self) -> None:
        """Drop obsolete timers from the top of the heap."""
        if not self.agenda_built:
            self.build_agenda()
        timers = self.timers
        while timers and not self.timer_counts(*timers[0]):
            heappop(timers)
