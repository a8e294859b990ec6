"""The records of the log checker while it reads a log. Shares nothing with `evolve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.core.hashing import canonical

if TYPE_CHECKING:
    from leadhand.core.catalog import Offer, WorkerSpec
    from leadhand.core.events import (
        QuestionAnswered,
        QuestionAsked,
        ReleaseGiven,
        RunEnded,
        RunStarted,
    )
    from leadhand.core.plan.model import Doc
    from leadhand.core.policy import Policy


SETTLED = frozenset({"succeeded", "failed", "skipped", "cancelled", "superseded"})


class Violation(NamedTuple):
    """One violation in a log: rule, entry and message."""

    rule: str
    """The name of the violated rule."""
    seq: int
    """The number of the entry in the log."""
    message: str
    """What is wrong."""

    def __str__(self) -> str:
        return f"{self.rule} at {self.seq}: {self.message}"


class InFlight(NamedTuple):
    """An attempt or a probe in flight."""

    kind: str
    attempt: int
    epoch: int
    worker: str
    deadline: int
    owner: int
    price: float
    caller: str = ""
    limit: int = 0


class StepRecord:
    """Everything the checker knows about one step.

    status: planned (never started), again (may start once more), attempt or probe (in flight), open
    (failed, no decision yet), probing or asking (decided, about to begin), asked (a person was), or
    settled.
    """

    __slots__ = (
        "attempts",
        "broken",
        "depth",
        "doc",
        "done_by",
        "failure",
        "happened",
        "id",
        "parked_s",
        "restarts",
        "status",
        "tolerated",
        "tries",
        "unseen",
        "until",
        "widened",
        "worker",
    )

    def __init__(self, doc: Doc) -> None:
        self.doc = doc
        self.id: str = doc["id"]
        self.worker: str = doc["worker"]
        self.status = "planned"
        self.attempts = 0
        self.broken: list[Doc] = []
        """Failures of attempts that did not give the promised facts."""
        self.done_by = ""
        """The person who reported it done, if a person does it."""
        self.tries: dict[str, int] = {}
        """Failed attempts by worker since a person last restarted it."""
        self.failure: Doc = {}
        self.until = 0
        self.parked_s = 0.0
        """The total time it was parked."""
        self.restarts = 0
        """How often it was lost with its host since a person last restarted it."""
        self.depth = 0
        """How often it, or the step it is part of, was split."""
        self.unseen = False
        """Whether the outcome of an attempt is unknown, and no person has looked since."""
        self.happened = False
        """Whether an attempt took effect though it did not succeed."""
        self.tolerated = False
        self.widened = False
        """Whether people allowed its claims beyond its worker."""

    @property
    def settled(self) -> bool:
        """Whether it is final."""
        return self.status in SETTLED

    @property
    def blocking(self) -> bool:
        """Whether it keeps the run from succeeding."""
        return self.status in ("failed", "skipped") and not self.tolerated


class Pending(NamedTuple):
    """A proposed revision that is not approved yet."""

    number: int
    hash: str
    add: list[Doc]
    cancel: list[str]
    final: bool
    person: bool
    """Whether only a person may approve it."""
    people: list[int]
    """The number of people required, once they were asked."""
    allowed: dict[str, Any]
    """Approvals by actor."""
    by_person: bool
    """Whether a person wrote it."""
    drop: dict[str, str]
    """Steps it drops, each with the reason."""


class PermitBook:
    """Permissions: their expiry, the number of people required, and which no longer count."""

    def __init__(self) -> None:
        self.held_under: dict[str, str] = {}
        """Held steps, each with the question that releases it."""
        self.until: dict[str, int] = {}
        """The expiry of each step's permission; 0 for never."""
        self.reviewed: dict[str, int] = {}
        """The number of people required for each step; 0 if the policy let it through."""
        self.part_of: dict[str, int] = {}
        """The revision that added each step to the plan."""
        self.void: dict[str, str] = {}
        """Steps whose permission no longer counts, each with the reason."""
        self.releases: dict[str, list[ReleaseGiven]] = {}
        """Releases by question."""


class Book:
    """The complete memory of the checker."""

    def __init__(self) -> None:  # noqa: PLR0915 - all of its books
        self.violations: list[Violation] = []
        self.seq = 0
        self.at = self.before = 0
        self.started: RunStarted | None = None
        self.started_at = 0
        self.catalog: dict[str, WorkerSpec] = {}
        self.envelope: Doc | None = None
        self.proposed = 0
        self.barred: dict[str, str] = {}
        """Held steps, each with the actor of the hold."""
        self.permits = PermitBook()
        self.owner = self.epoch = 0
        self.steps: dict[str, StepRecord] = {}
        self.heir: dict[str, str] = {}
        """Superseded steps: old id to new id."""
        self.replaced: dict[str, str] = {}
        """The inverse: new id to old id."""
        self.ended_before: set[str] = set()
        """Steps that had ended when they were superseded: tolerant dependents may start."""
        self.awaiting_planner: list[StepRecord] = []
        """Failed steps left to the planner, neither replaced nor dropped since."""
        self.unanswered: list[StepRecord] = []
        """Those of them that failed since the last revision."""
        self.said_last: Doc = {}
        self.answer = ""
        """The kind of the planner's last answer, until it has a consequence."""
        self.by_people: set[str] = set()
        """Facts given by people that no step may have dropped since."""
        # Whether the planner's last answer was to wait, and whether anything changed since then.
        self.waits = self.changed = False
        self.done_before: set[bytes] = set()
        """All work ever started: worker, action and parameters."""
        self.named: dict[str, list[tuple[str, bool]]] = {}
        """Dependents of a step by the name they use, and whether they tolerate its failure."""
        self.data: dict[str, Any] = {}
        """The data reported by steps that succeeded."""
        self.live: dict[str, InFlight] = {}
        self.planner: tuple[int, int, int] | None = None
        """The planner call in flight: epoch, deadline, owner."""
        self.calls = self.revision = self.idle = 0
        self.head = ""
        self.final = False
        self.pending: Pending | None = None
        self.facts: dict[str, int] = {}
        """True facts, with the time they became true."""
        self.questions: dict[str, QuestionAsked] = {}
        self.asked, self.links = set[str](), set[str]()  # the ids of questions, of used links
        self.allowed: dict[str, set[str]] = {}
        """By question about a change: the approvers so far."""
        self.said: dict[str, str] = {}
        """A person's decision on a step that its own event must follow: skip."""
        self.comments: dict[str, bool] = {}
        """Comments of reviewers by id, and whether a later revision was proposed."""
        self.expect: tuple[str, str] | None = None
        """The required next event: its name, and the step it is about."""
        self.back_wanted = False
        """Whether the next stop asks for a rollback, by the plan or a person."""
        self.back = False
        """Whether the run was stopped to be rolled back."""
        self.busy: dict[str, int] = {}
        self.held: dict[str, int] = {}
        self.spent = self.reserved = 0.0
        self.paused = False
        self.stopping = ""
        self.cancel_by: int | None = None
        self.finish = self.goal_asked = False
        self.goal_met: bool | None = None
        self.ended: int | None = None
        self.end: RunEnded | None = None

    def wrong(self, rule: str, message: str) -> None:
        """Record a violation at the current entry."""
        self.violations.append(Violation(rule, self.seq, message))

    @property
    def start(self) -> RunStarted:
        """The start of the run. Raise `LookupError` before there is one."""
        if self.started is None:
            raise LookupError("the run has not started")
        return self.started

    @property
    def policy(self) -> Policy:
        """The recorded policy."""
        return self.start.policy

    def left_to_planner(self, step: StepRecord) -> None:
        """Record a failed step that is left to the planner."""
        self.awaiting_planner.append(step)
        self.unanswered.append(step)

    def add_facts(self, facts: list[str], event: QuestionAnswered) -> None:
        """Record facts given by a person: they are true if a value was given."""
        data, text = event.data, event.text
        named = isinstance(data, dict) and any(fact in data for fact in facts)
        whole = [fact for fact in facts if ":" not in fact]
        for fact in facts:
            value = data.get(fact) if isinstance(data, dict) and named else data
            if ":" in fact:
                given = value is True
            elif named:
                given = value is not None
            else:
                given = len(whole) == 1 and (data is not None or bool(text))
            if given:
                self.facts[fact] = self.at
                self.by_people.add(fact)

    def unseen_steps(self) -> list[StepRecord]:
        """Return steps with a possible effect of unknown outcome that no person has settled."""
        return [
            step
            for step in self.steps.values()
            if (step.unseen or step.happened) and step.status != "succeeded"
        ]

    def break_promise(self, step: StepRecord) -> None:
        """Withdraw the facts of a step that ended with a broken promise."""
        if not step.broken:
            return
        offer = self.offer(step.worker, step.doc.get("action", ""))
        theirs = offer.gives if offer else ()
        touched = any(failure.get("effect", "none") != "none" for failure in step.broken)
        for fact in as_tuple(step.doc.get("gives", theirs)):
            if (step.widened or fact in theirs) and (touched or ":" in fact):
                self.by_people.discard(fact)
                if self.facts.get(fact, self.at) < self.at:
                    del self.facts[fact]

    def closed_gates(self, step: StepRecord, worker: str) -> list[str]:
        """Return the flags that a step needs, by its worker or itself, and that are not true."""
        offer = self.offer(worker, step.doc.get("action", ""))
        own = as_tuple(step.doc.get("needs"))
        theirs = () if step.widened and "needs" in step.doc else offer.needs if offer else ()
        return [fact for fact in (*theirs, *own) if ":" in fact and fact not in self.facts]

    def step(self, ident: str, what: str) -> StepRecord | None:
        """Return a step by its name; report I6 if there is none."""
        found = self.steps.get(ident)
        if found is None:
            self.wrong("I6", f"{what} of step {ident}, which no accepted revision has")
        return found

    def follow(self, ident: str) -> StepRecord | None:
        """Return a step, or the step that superseded it."""
        for _ in range(len(self.heir) + 1):
            if ident not in self.heir:
                break
            ident = self.heir[ident]
        return self.steps.get(ident)

    def ended_once(self, ident: str) -> bool:
        """Return whether a step, or a step that superseded it, has ever ended."""
        step = self.follow(ident)
        for _ in range(len(self.heir) + 1):
            if ident in self.ended_before:
                return True
            if ident not in self.heir:
                break
            ident = self.heir[ident]
        return step is not None and step.settled

    def offer(self, worker: str, action: str) -> Offer | None:
        """Return the offer of a worker for an action."""
        spec = self.catalog.get(worker)
        return spec.offer(action) if spec else None

    def is_for_people(self, worker: str) -> bool:
        """Return whether a worker is a person."""
        spec = self.catalog.get(worker)
        return spec is not None and spec.kind == "human"

    def idempotent(self, step: StepRecord, worker: str) -> bool:
        """Return whether a worker may do a step twice: it says so, and the step agrees."""
        offer = self.offer(worker, step.doc.get("action", ""))
        own = step.doc.get("idempotent")
        if own is False:
            return False
        return bool(offer and offer.idempotent) or (own is True and step.widened)

    def price(self, step: StepRecord, worker: str) -> float:
        """Return the cost an attempt reserves."""
        offer = self.offer(worker, step.doc.get("action", ""))
        return offer.cost if offer and self.policy.budget is not None else 0.0

    def succeed(self, step: StepRecord, data: Any) -> None:
        """Record a success: store the data, add the given facts, remove the dropped ones."""
        step.status = "succeeded"
        self.data[step.id] = data
        self.idle = 0
        offer = self.offer(step.worker, step.doc.get("action", ""))
        theirs, own = offer.drops if offer else (), as_tuple(step.doc.get("drops"))
        for fact in own if step.widened and "drops" in step.doc else (*theirs, *own):
            self.by_people.discard(fact)
            if self.facts.get(fact, self.at) < self.at:
                del self.facts[fact]
        theirs = offer.gives if offer else ()
        for fact in as_tuple(step.doc.get("gives", theirs)):
            if step.widened or fact in theirs:
                self.facts[fact] = self.at

    # What is in flight.

    def add_in_flight(self, step: StepRecord, live: InFlight) -> None:
        """Record an attempt or probe in flight."""
        self.live[step.id] = live
        self.busy[live.worker] = self.busy.get(live.worker, 0) + 1
        self.reserved += live.price
        for name, amount in uses(step.doc).items():
            self.held[name] = self.held.get(name, 0) + amount

    def remove_in_flight(self, step: StepRecord) -> InFlight | None:
        """Record that a step's attempt or probe is no longer in flight, and return it."""
        live = self.live.pop(step.id, None)
        if live is None:
            return None
        self.busy[live.worker] -= 1
        self.reserved -= live.price
        for name, amount in uses(step.doc).items():
            self.held[name] -= amount
        return live

    def next_epoch(self, epoch: int, what: str) -> None:
        """Report I11 unless epochs grow."""
        if epoch <= self.epoch:
            self.wrong("I11", f"{what} has epoch {epoch}, and {self.epoch} was given out before")
        self.epoch = max(self.epoch, epoch)


def task_key(doc: Doc) -> bytes:
    """Return the work of a step, independent of its id: worker, action and parameters."""
    return canonical([doc["worker"], doc.get("action", ""), doc.get("parameters") or {}])


def as_tuple(names: Any) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def uses(doc: Doc) -> dict[str, int]:
    """Return the named resources a step holds, in all three spellings."""
    value: Any = doc.get("uses")
    if not value:
        return {}
    if isinstance(value, str):
        return {value: 1}
    if isinstance(value, dict):
        return {name: int(amount) for name, amount in value.items()}
    return dict.fromkeys(value, 1)
