"""The books that `invariants` keeps while it reads a log. Nothing here is shared with `evolve`."""

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
    """One thing wrong with a log: which rule, at which entry, and what."""

    rule: str
    seq: int
    message: str

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


class StepRecord:
    """What the books know of one step.

    status: planned (never started), again (may start once more), attempt or probe (in
    flight), open (failed, no decision yet), probing or asking (decided, about to begin),
    asked (a person was), or settled.
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
        """Failures of attempts that did not give what was promised."""
        self.done_by = ""
        """Who said that it is done, if a person does it."""
        self.tries: dict[str, int] = {}
        """Failed attempts by worker since a person let it start over."""
        self.failure: Doc = {}
        self.until = 0
        self.parked_s = 0.0
        """How long it was parked in all."""
        self.restarts = 0
        """How often it was lost with its host since a person let it start over."""
        self.depth = 0
        """How often it, or what it is part of, was split."""
        self.unseen = False
        """Nobody saw how an attempt ended, and nobody has looked since."""
        self.happened = False
        """An attempt had its effect though it did not succeed."""
        self.tolerated = False
        self.widened = False
        """People allowed what it claims beyond its worker."""

    @property
    def settled(self) -> bool:
        """Whether it will not change any more."""
        return self.status in SETTLED

    @property
    def bad(self) -> bool:
        """Whether it keeps the run from succeeding."""
        return self.status in ("failed", "skipped") and not self.tolerated


class Pending(NamedTuple):
    """A revision that was proposed and not yet let through."""

    number: int
    hash: str
    add: list[Doc]
    cancel: list[str]
    final: bool
    person: bool
    """Whether only a person may let it through."""
    people: list[int]
    """How many must, once they were asked."""
    allowed: dict[str, Any]
    """Who did."""
    by_person: bool
    """Whether a person wrote it."""
    drop: dict[str, str]
    """Steps it gives up by name, each with the reason."""


class PermitBook:
    """What people allowed: until when, how many of them had to, and what no longer counts."""

    def __init__(self) -> None:
        self.held_under: dict[str, str] = {}
        """Steps that were held, each with the question that lets it go on."""
        self.until: dict[str, int] = {}
        """Until when each step may start; 0 for ever."""
        self.reviewed: dict[str, int] = {}
        """How many people had to allow each step; 0 where the policy let it through."""
        self.part_of: dict[str, int] = {}
        """The revision that put each step into the plan."""
        self.void: dict[str, str] = {}
        """Steps whose permission no longer counts, each with the reason."""
        self.releases: dict[str, list[ReleaseGiven]] = {}
        """The people who released what a question holds."""


class Book:
    """Everything the checker remembers."""

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
        """Steps that are held, each with who holds it."""
        self.permits = PermitBook()
        self.owner = self.epoch = 0
        self.steps: dict[str, StepRecord] = {}
        self.heir: dict[str, str] = {}
        """Superseded step to the one that took its place."""
        self.replaced: dict[str, str] = {}
        """The same the other way round."""
        self.ended_before: set[str] = set()
        """Steps that had ended when another took their place: who only waited for that may go."""
        self.forsaken: list[StepRecord] = []
        """Steps that failed and were left to the planner, neither replaced nor given up since."""
        self.unanswered: list[StepRecord] = []
        """Those of them that failed since the last revision."""
        self.said_last: Doc = {}
        self.answer = ""
        """The kind of the planner's last answer, until something follows from it."""
        self.by_people: set[str] = set()
        """Facts that people gave, and that nothing may have dropped since."""
        # Whether the planner's last answer was to wait, and whether anything changed since then.
        self.waits = self.changed = False
        self.done_before: set[bytes] = set()
        """What was ever started: worker, action and parameters."""
        self.named: dict[str, list[tuple[str, bool]]] = {}
        """Who depends on a step, by the name they call it, and whether they mind how it ends."""
        self.data: dict[str, Any] = {}
        """What the steps that succeeded reported."""
        self.live: dict[str, InFlight] = {}
        self.planner: tuple[int, int, int] | None = None
        """The planner call in flight: epoch, deadline, owner."""
        self.calls = 0
        self.revision = 0
        self.head = ""
        self.final = False
        self.idle = 0
        self.pending: Pending | None = None
        self.facts: dict[str, int] = {}
        """Facts that are true, with when they became so."""
        self.questions: dict[str, QuestionAsked] = {}
        self.asked: set[str] = set()
        self.allowed: dict[str, set[str]] = {}
        """By question about a change: who approved it."""
        self.said: dict[str, str] = {}
        """A person's word on a step that its own event must follow: skip."""
        self.expect: tuple[str, str] | None = None
        """What must come next: the name of an event, and the step it is about."""
        self.back_wanted = False
        """Whether what stops the run next asks for its rollback: the plan, or a person."""
        self.back = False
        """Whether the run was stopped to be taken back."""
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
        """Note a violation at the entry that is being read."""
        self.violations.append(Violation(rule, self.seq, message))

    @property
    def start(self) -> RunStarted:
        """How the run was started; no other event is looked at before there is a start."""
        if self.started is None:
            raise LookupError("the run has not started")
        return self.started

    @property
    def policy(self) -> Policy:
        """The recorded constants."""
        return self.start.policy

    def left_to_planner(self, step: StepRecord) -> None:
        """A step failed, and the planner is to say what becomes of it."""
        self.forsaken.append(step)
        self.unanswered.append(step)

    def told(self, facts: list[str], event: QuestionAnswered) -> None:
        """A person gave facts: they are true from now on, where something stands for them."""
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
        """A step ends whose result was not what it should be: what it should give is not so."""
        if not step.broken:
            return
        offer = self.offer(step.worker, step.doc.get("action", ""))
        theirs = offer.gives if offer else ()
        touched = any(failure.get("effect", "none") != "none" for failure in step.broken)
        for fact in several(step.doc.get("gives", theirs)):
            if (step.widened or fact in theirs) and (touched or ":" in fact):
                self.by_people.discard(fact)
                if self.facts.get(fact, self.at) < self.at:
                    del self.facts[fact]

    def closed(self, step: StepRecord, worker: str) -> list[str]:
        """The flags that a step needs by its worker's word and its own, and that are not true."""
        offer = self.offer(worker, step.doc.get("action", ""))
        own = several(step.doc.get("needs"))
        theirs = () if step.widened and "needs" in step.doc else offer.needs if offer else ()
        return [fact for fact in (*theirs, *own) if ":" in fact and fact not in self.facts]

    def step(self, ident: str, what: str) -> StepRecord | None:
        """A step by its name; I6 when there is none."""
        found = self.steps.get(ident)
        if found is None:
            self.wrong("I6", f"{what} of step {ident}, which no accepted revision has")
        return found

    def follow(self, ident: str) -> StepRecord | None:
        """A step, or the one that took its place."""
        for _ in range(len(self.heir) + 1):
            if ident not in self.heir:
                break
            ident = self.heir[ident]
        return self.steps.get(ident)

    def ended_once(self, ident: str) -> bool:
        """Whether a step, or one that took its place, has ended at some time."""
        step = self.follow(ident)
        for _ in range(len(self.heir) + 1):
            if ident in self.ended_before:
                return True
            if ident not in self.heir:
                break
            ident = self.heir[ident]
        return step is not None and step.settled

    def offer(self, worker: str, action: str) -> Offer | None:
        """What a worker offers for an action."""
        spec = self.catalog.get(worker)
        return spec.offer(action) if spec else None

    def is_for_people(self, worker: str) -> bool:
        """Whether a worker is a person."""
        spec = self.catalog.get(worker)
        return spec is not None and spec.kind == "human"

    def idempotent(self, step: StepRecord, worker: str) -> bool:
        """Whether a worker may do a step twice: it says so, and the step does not deny it."""
        offer = self.offer(worker, step.doc.get("action", ""))
        own = step.doc.get("idempotent")
        if own is False:
            return False
        return bool(offer and offer.idempotent) or (own is True and step.widened)

    def price(self, step: StepRecord, worker: str) -> float:
        """What an attempt reserves."""
        offer = self.offer(worker, step.doc.get("action", ""))
        return offer.cost if offer and self.policy.budget is not None else 0.0

    def succeed(self, step: StepRecord, data: Any) -> None:
        """A step is done: its data is there, its facts are true, and others are no longer."""
        step.status = "succeeded"
        self.data[step.id] = data
        self.idle = 0
        offer = self.offer(step.worker, step.doc.get("action", ""))
        theirs, own = offer.drops if offer else (), several(step.doc.get("drops"))
        for fact in own if step.widened and "drops" in step.doc else (*theirs, *own):
            self.by_people.discard(fact)
            if self.facts.get(fact, self.at) < self.at:
                del self.facts[fact]
        theirs = offer.gives if offer else ()
        for fact in several(step.doc.get("gives", theirs)):
            if step.widened or fact in theirs:
                self.facts[fact] = self.at

    # What is in flight.

    def take(self, step: StepRecord, live: InFlight) -> None:
        """Something is in flight."""
        self.live[step.id] = live
        self.busy[live.worker] = self.busy.get(live.worker, 0) + 1
        self.reserved += live.price
        for name, amount in uses(step.doc).items():
            self.held[name] = self.held.get(name, 0) + amount

    def give_back(self, step: StepRecord) -> InFlight | None:
        """It is not any more."""
        live = self.live.pop(step.id, None)
        if live is None:
            return None
        self.busy[live.worker] -= 1
        self.reserved -= live.price
        for name, amount in uses(step.doc).items():
            self.held[name] -= amount
        return live

    def next_epoch(self, epoch: int, what: str) -> None:
        """Epochs only grow."""
        if epoch <= self.epoch:
            self.wrong("I11", f"{what} has epoch {epoch}, and {self.epoch} was given out before")
        self.epoch = max(self.epoch, epoch)


def does(doc: Doc) -> bytes:
    """What a step does, whatever it is called: worker, action and parameters."""
    return canonical([doc["worker"], doc.get("action", ""), doc.get("parameters") or {}])


def several(names: Any) -> tuple[str, ...]:
    """One name, or several."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def uses(doc: Doc) -> dict[str, int]:
    """The named resources a step holds, in all three spellings."""
    value: Any = doc.get("uses")
    if not value:
        return {}
    if isinstance(value, str):
        return {value: 1}
    if isinstance(value, dict):
        return {name: int(amount) for name, amount in value.items()}
    return dict.fromkeys(value, 1)
