"""Planning problems through the engine: one run for each, in virtual time, judged by its world.

Every action of a problem is an action of a worker; a worker changes nothing but the judge's world
(`pddl_world`). What the world says cannot be done is reported as a failure, and counted: no planner
of ours should ever try it. Faults are drawn from the problem and the action alone, so that
everybody who tries the same meets the same.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from leadhand import Goal, Policy, Report
from leadhand.core import events as ev
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.testing import simulate
from tests.external import data
from tests.external.pddl_world import World
from tests.planners.goal import pddl
from tests.support.need import need


class Problem(NamedTuple):
    """One problem: as text for the judge, as actions for the workers."""

    name: str
    domain: str
    text: str
    actions: Mapping[str, pddl.Action]
    goal: Goal

    def world(self) -> World:
        """A fresh world."""
        return World(self.domain, self.text)


class Texts(NamedTuple):
    """A domain of PlanBench and the problems in it, as they stand."""

    domain: str
    problems: dict[str, str]


@cache
def texts(domain: str) -> Texts:
    """All problems of a domain, by name."""
    folder = data.folder("planbench") / "pddl" / domain
    files = sorted(folder.glob("instances.json*"))
    need(files, f"PlanBench's {domain} in {folder}; LEADHAND_TEST_DATA names another folder")
    return Texts((folder / "domain.pddl").read_text(), data.load(files[0]))


def problem(found: Texts, name: str) -> Problem:
    """One of them."""
    text = found.problems[name]
    parsed = pddl.parse_problem(text)
    actions = pddl.ground(pddl.parse_domain(found.domain), parsed)
    have = dict.fromkeys(sorted(parsed.init), True)
    return Problem(name, found.domain, text, actions, Goal(want=sorted(parsed.goal), have=have))


class Faults(NamedTuple):
    """Which actions never work, and which attempts fail."""

    seed: str = ""
    broken: float = 0.0
    shaky: float = 0.0

    def never(self, action: str) -> bool:
        """Whether an action is broken for good."""
        return _chance(self.seed, "broken", action) < self.broken

    def now(self, action: str, number: int) -> bool:
        """Whether one attempt at it fails."""
        return _chance(self.seed, "shaky", action, str(number)) < self.shaky


def _chance(*words: str) -> float:
    drawn = hashlib.sha256("\0".join(words).encode()).digest()
    return int.from_bytes(drawn[:8], "big") / 2**64


class Actor:
    """A worker: one PDDL action, with an offer for every choice of objects that could matter."""

    def __init__(self, spec: WorkerSpec, world: World, faults: Faults, log: Log) -> None:
        self.spec = spec
        self._world, self._faults, self._log = world, faults, log

    async def perform(self, task: Any, context: Any) -> Report:
        """Do it in the judge's world, unless a fault comes first."""
        name = ".".join(filter(None, (self.spec.name, task.action)))
        self._log.tried[name] += 1
        if self._faults.never(name):
            return Report.failed("permanent", "it is broken")
        if self._faults.now(name, self._log.tried[name]):
            return Report.failed("transient", "not just now")
        wrong = self._world.do(self.spec.name, task.action.split(".") if task.action else [])
        if wrong:
            self._log.impossible.append(f"{name}: {', '.join(wrong)}")
            return Report.failed("permanent", "; ".join(wrong))
        return Report()

    async def probe(self, task: Any, context: Any) -> Report | None:
        """Nothing is ever lost here."""
        raise LookupError

    def check(self, name: str, action: str, data: Any) -> bool:
        """There are no checks."""
        return False

    async def close(self) -> None:
        """Nothing to let go of."""


class Log:
    """What the workers saw."""

    def __init__(self) -> None:
        self.tried: Counter[str] = Counter()
        self.impossible: list[str] = []


class Result(NamedTuple):
    """How a run ended, in the judge's words and in the engine's."""

    reached: bool
    """The judge's word: the goal is true in the world."""
    status: str
    reason: str
    done: int
    tried: int
    impossible: tuple[str, ...]
    violations: tuple[Any, ...]
    planned: int
    """How often a planner was asked."""
    handed: str
    """Why the goal planner took over, if it did."""


def workers(actions: Mapping[str, pddl.Action], world: World, faults: Faults, log: Log) -> Any:
    """The actions as workers."""
    offers: dict[str, dict[str, Offer]] = {}
    for each in actions.values():
        offers.setdefault(each.worker, {})[each.action] = Offer(
            parameters={"type": "object", "properties": {}, "additionalProperties": False},
            needs=tuple(sorted(each.needs)),
            gives=tuple(sorted(each.gives)),
            drops=tuple(sorted(each.drops)),
        )
    return [
        Actor(WorkerSpec(name=name, offers=found), world, faults, log)
        for name, found in offers.items()
    ]


def pursue(
    each: Problem,
    planner: Any,
    faults: Faults = Faults(),  # noqa: B008 - frozen
    *,
    plan: Any = None,
    known: Callable[[str], bool] = lambda _name: True,
    policy: Policy | None = None,
) -> Result:
    """One run. `plan` is carried out instead of the goal, if given; `known` leaves actions out."""
    world, log = each.world(), Log()
    actions = {name: action for name, action in each.actions.items() if known(name)}
    crew = workers(actions, world, faults, log)
    done = simulate(plan or each.goal, crew, planner, policy=policy, seed=None)
    answers = [e.decision for _, e in done.events if isinstance(e, ev.PlannerAnswered)]
    notes = [e["notes"] for e in answers if isinstance(e.get("notes"), dict)]
    return Result(
        reached=world.reached,
        status=done.outcome.status,
        reason=done.outcome.reason or "".join(q.text for q in done.outcome.waiting_for),
        done=len(world.done),
        tried=log.tried.total(),
        impossible=tuple(log.impossible),
        violations=done.violations,
        planned=len(answers),
        handed=next((n["handed"] for n in notes if n.get("handed")), ""),
    )
