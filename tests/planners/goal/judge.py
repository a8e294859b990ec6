"""A judge that shares no code with the planner: it carries proposals out by needs and gives alone.

    run = Run(workers, want=["summary"], have={"topic": "x"})
    outcome = run.to_the_end(GoalPlanner())

A worker here is a `Does`: needs, gives, drops, and a list of what its attempts come to. The judge
refuses a step whose needs do not hold when it starts, and steps side by side that disturb each
other: `Broken` says which promise the planner broke.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leadhand.core.catalog import Catalog, Offer, WorkerSpec
from leadhand.core.plan.model import Goal
from leadhand.core.report import (
    Decision,
    FailedAttempt,
    Failure,
    Finish,
    PlannerView,
    Propose,
    StepView,
    Wait,
    decision_doc,
)

Doc = dict[str, Any]


class Broken(AssertionError):
    """The planner proposed what it must not."""


@dataclass(frozen=True)
class Does:
    """What a worker declares."""

    name: str
    needs: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    cost: float = 0.0
    optional: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    def spec(self) -> WorkerSpec:
        """As the catalogue describes it; a name such as `stack:a.b` is an action of a worker."""
        worker, _, _ = self.name.partition(":")
        return WorkerSpec(name=worker, offers={self.action: self.offer()})

    @property
    def action(self) -> str:
        return self.name.partition(":")[2]

    def offer(self) -> Offer:
        takes = [fact for fact in self.needs if ":" not in fact]
        schema = {
            "type": "object",
            "properties": {name: {} for name in (*takes, *self.optional)},
            "required": takes,
            "additionalProperties": False,
        }
        return Offer(
            parameters=schema,
            needs=self.needs,
            gives=self.gives,
            drops=self.drops,
            cost=self.cost,
            **self.more,
        )


def catalog_of(workers: Iterable[Does]) -> Catalog:
    """The catalogue of some workers; those of one name are its actions."""
    offers: dict[str, dict[str, Offer]] = {}
    for each in workers:
        offers.setdefault(each.name.partition(":")[0], {})[each.action] = each.offer()
    return Catalog(WorkerSpec(name=name, offers=each) for name, each in offers.items())


Attempt = Callable[[Doc, int], Failure | Any]
"""What becomes of an attempt: the step and the attempt's number to its data, or a failure."""


def succeed(step: Doc, _attempt: int) -> Any:
    """Data for whatever the step promises."""
    artefacts = [fact for fact in step.get("gives", ()) if ":" not in fact]
    values = {fact: f"{fact} by {step['id']}" for fact in artefacts}
    return values[artefacts[0]] if len(artefacts) == 1 else values


@dataclass
class Run:
    """One run, without an engine: what is true, what was proposed, what failed."""

    workers: Sequence[Does]
    want: Sequence[str]
    have: Mapping[str, Any] = field(default_factory=dict)
    attempt: Attempt = succeed
    budget: float | None = None
    seed: int = 0
    """Decides which of the steps under way ends next."""
    one_by_one: bool = False
    """Whether the planner is asked only when nothing is under way."""

    def __post_init__(self) -> None:
        self.catalog = catalog_of(self.workers)
        self.facts = set(self.have)
        self.steps: dict[str, Doc] = {}
        self.status: dict[str, str] = {}
        self.results: dict[str, Any] = {}
        self.ended: list[str] = []
        self.failed: list[FailedAttempt] = []
        self.attempts: dict[str, int] = {}
        self.answers: list[Doc] = []
        self.recommendations: list[str] = []
        self.notes: Any = None
        self.outlook: list[Doc] = []
        self.findings: tuple[str, ...] = ()
        self.calls = 0
        self.decisions: list[Decision] = []
        self.spent = 0.0
        self._random = random.Random(self.seed)

    # What the planner sees.

    def view(self) -> PlannerView:
        """The state as the engine would show it."""
        rest = [name for name in self.steps if name not in self.ended]
        left = None if self.budget is None else self.budget - self.spent
        return PlannerView(
            run="r",
            goal=Goal(want=tuple(self.want), have=dict(self.have)),
            call=self.calls,
            why="report",
            steps={name: self._seen(name) for name in self.steps},
            results=dict(self.results),
            failed_attempts=tuple(self.failed),
            recommendations=tuple(self.recommendations),
            answers=tuple(self.answers),
            findings=self.findings,
            notes=self.notes,
            params=dict(self.have),
            catalog=self.catalog,
            timeline=[self._seen(name) for name in (*self.ended, *rest)],
            in_flight=tuple(rest),
            outlook=tuple(self.outlook),
            budget_left=left,
        )

    def _seen(self, name: str) -> StepView:
        doc = self.steps[name]
        failures = [each.failure for each in self.failed if each.step == name]
        return StepView(
            id=name,
            worker=doc["worker"],
            action=doc.get("action", ""),
            status=self.status[name],
            error=failures[-1] if failures else None,
            planned=doc,
        )

    # What the planner says, and what comes of it.

    def ask(self, planner: Any) -> Decision:
        """One decision, judged."""
        self.calls += 1
        decision = asyncio.run(planner.decide(self.view()))
        self.decisions.append(decision)
        doc = decision_doc(decision)
        self.notes = doc.get("notes", self.notes)
        if isinstance(decision, Propose):
            self.outlook = doc.get("outlook", [])
            self._accept(doc["steps"])
        return decision

    def _accept(self, steps: list[Doc]) -> None:
        under_way = [
            self.steps[name] for name, status in self.status.items() if status == "running"
        ]
        if not steps and not under_way:
            raise Broken("it proposes nothing, and nothing is under way")
        for step in steps:
            self._fits(step)
            for other in under_way:
                if self._disturb(step, other):
                    raise Broken(f"{step['id']} disturbs {other['id']}")
            under_way.append(step)
        for step in steps:
            self.steps[step["id"]] = step
            self.status[step["id"]] = "running"
            old = step.get("supersedes")
            if old is not None:
                assert self.status[old] == "failed", f"{step['id']} supersedes {old}"
                self.status[old] = "superseded"

    def _fits(self, step: Doc) -> None:
        own = next(w for w in self.workers if w.name == operator(step))
        if step["id"] in self.steps:
            raise Broken(f"there is a step {step['id']} already")
        missing = sorted(set(step.get("needs", own.needs)) - self.facts)
        if missing:
            raise Broken(f"{step['id']} needs {', '.join(missing)}")
        for name, value in step.get("parameters", {}).items():
            for ref in re.findall(r"(?<!\$)\$\{\{ steps\.([\w.-]+?)\.data", str(value)):
                if self.status.get(ref) != "succeeded":
                    raise Broken(f"{step['id']}.{name} refers to {ref}")
        for name in step.get("depends_on", ()):
            assert name in self.steps, f"{step['id']} depends on {name}"

    def _disturb(self, one: Doc, other: Doc) -> bool:
        for a, b in ((one, other), (other, one)):
            if set(a.get("drops", ())) & {*b.get("needs", ()), *b.get("gives", ())}:
                return True
            mine, theirs = self._declared(a), self._declared(b)
            if set(mine.get("writes", ())) & {*theirs.get("writes", ()), *theirs.get("reads", ())}:
                return True
        return False

    def _declared(self, step: Doc) -> Mapping[str, Any]:
        return next(w for w in self.workers if w.name == operator(step)).more

    def settle(self, name: str) -> None:
        """Let an attempt end."""
        step = self.steps[name]
        self.attempts[name] = self.attempts.get(name, 0) + 1
        came = self.attempt(step, self.attempts[name])
        self.ended.append(name)
        self.spent += next(w for w in self.workers if w.name == operator(step)).cost
        if isinstance(came, Failure):
            self.status[name] = "failed"
            self.failed.append(FailedAttempt(name, self.attempts[name], step["worker"], came))
            return
        own = next(w for w in self.workers if w.name == operator(step))
        self.status[name] = "succeeded"
        self.results[name] = came
        self.facts -= set(step.get("drops", own.drops))
        self.facts |= set(step.get("gives", own.gives))

    def to_the_end(self, planner: Any, calls_max: int = 500) -> Decision:
        """Ask and carry out until the planner says that it is over, or asks a person."""
        while self.calls < calls_max:
            decision = self.ask(planner)
            running = [name for name, status in self.status.items() if status == "running"]
            if not isinstance(decision, Propose) and not (isinstance(decision, Wait) and running):
                if isinstance(decision, Finish):
                    assert set(self.want) <= self.facts, "it says that it is done, and it is not"
                return decision
            running = [name for name, status in self.status.items() if status == "running"]
            while running:
                self.settle(running.pop(self._random.randrange(len(running))))
                if not self.one_by_one:
                    break
        raise Broken(f"still not done after {calls_max} calls")

    @property
    def done(self) -> list[str]:
        """The workers whose steps succeeded, in order."""
        return [operator(self.steps[n]) for n in self.ended if self.status[n] == "succeeded"]


def operator(step: Doc) -> str:
    """The name of what a step does."""
    return f"{step['worker']}:{step['action']}" if step.get("action") else step["worker"]
