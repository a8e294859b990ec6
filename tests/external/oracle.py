"""Random worker graphs through the engine, in virtual time, judged by one that knows everything.

    python -m tests.external.oracle                     every family, some seeds of each
    python -m tests.external.oracle budget 17           one case: the graph, the log, the verdict

The graphs come from `graph_families`, the judge is `graph_world`, which shares no code with
leadhand: what was really done is its own account of the calls that workers got, and what could
have been done is its own search over all sets of facts, with the faults known.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from leadhand import Finish, GiveUp, Goal, GoalPlanner, Hybrid, Policy, Propose, Report, method
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.planners.script import ScriptPlanner
from leadhand.testing import Deadlock, simulate
from tests.external.graph_families import FAMILIES, Case, draw
from tests.external.graph_world import Graph, Job, World, best, is_flag

SEEDS = 110
"""How many graphs of each family `make evals` plays."""
CALLS_MAX = 400
ANSWERS_MAX = 12
HANG_S = 30.0


class Verdict(NamedTuple):
    """What the judge says of one run."""

    name: str
    family: str
    status: str
    reason: str
    reachable: bool
    """There was a way from the start, for one that knows the faults and whom to ask."""
    reached: bool
    """The run succeeded, and what is wanted is really there."""
    false_success: str = ""
    wrong_result: str = ""
    hang: str = ""
    untried: str = ""
    """It ended, or waits for a person, and the way that was left."""
    mute: bool = False
    """It ended without the goal, without a reason and without a question."""
    early: str = ""
    """A person was asked although a way was left: the question."""
    impossible: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()
    spent: float = 0.0
    optimum: float | None = None
    """What it costs at best, where no fault is hidden and everything has its price."""
    lines: tuple[str, ...] = ()


class Actor:
    """A worker of a graph: it changes nothing but the judge's world."""

    def __init__(
        self, job: Job, world: World, hints: Iterable[str] = (), *, charged: bool = False
    ) -> None:
        self.job, self.world = job, world
        self.charge = job.cost if charged else 0.0
        artefacts = [fact for fact in job.needs if not is_flag(fact)]
        names = [*artefacts, *job.loose]
        optional = [hint for hint in hints if hint not in names]
        offer = Offer(
            parameters={
                "type": "object",
                "properties": {name: {} for name in (*names, *optional)},
                "required": names,
                "additionalProperties": False,
            },
            needs=(*job.needs, *job.loose),
            gives=job.gives,
            drops=job.drops,
            cost=job.cost,
            idempotent=job.idempotent,
            timeout_s=HANG_S,
        )
        self.spec = WorkerSpec(name=job.name, offers={"": offer})

    async def perform(self, task: Any, context: Any) -> Report:
        """Do it in the judge's world, unless a fault comes first."""
        job, world = self.job, self.world
        again = job.idempotent and task.step in world.done
        wrong = "" if again else world.begin(job, task.step, task.parameters)
        fault = None if again else world.fails(job, task.parameters)
        if job.takes_s:
            await asyncio.sleep(job.takes_s)
        if wrong:
            return Report.failed("permanent", wrong)
        if fault is None:
            return Report(data=world.end(job, task.step), cost=job.cost)
        if fault.kind == "hang":
            await asyncio.get_running_loop().create_future()
        if fault.kind == "silent":
            world.lied(job)
            return Report(data=False if all(map(is_flag, job.gives)) else None)
        words = f"what is the {fault.hint}?" if fault.hint else f"it is {fault.kind}"
        world.spent += self.charge
        return Report.failed(
            fault.kind, words, retry_after_s=fault.wait_s or None, cost=self.charge
        )

    async def probe(self, task: Any, context: Any) -> Report | None:
        """Nobody can tell but people."""
        raise LookupError

    def check(self, name: str, action: str, data: Any) -> bool:
        """There are no checks."""
        return False

    async def close(self) -> None:
        """Nothing to let go of."""


class Person:
    """Answers as the case says, and remembers what was asked too early."""

    def __init__(self, kind: str, world: World) -> None:
        self.kind, self.world = kind, world
        self.early = ""
        self.answers = 0
        self.gave = False

    def __call__(self, question: Any) -> Any:
        """The answer to a question, or None."""
        self.answers += 1
        if self.answers > ANSWERS_MAX:
            return None
        if question.kind == "review":
            return "approve"
        if question.kind == "unseen":  # somebody has looked
            done = self.world.done.get(question.step)
            return ("done", done) if done is not None else "retry"
        if not self.early and (way := self.world.way()):
            self.early = f"{question.text} (left: {', '.join(way.names)})"
        return self._answer(question)

    def _answer(self, question: Any) -> Any:
        choices, kind = list(question.choices), self.kind
        if kind == "never":
            return None
        if kind == "give" and "give" in choices and question.facts:
            self.gave = True
            return ("give", self.world.give(question.facts))
        if kind in ("repair", "vain") and "retry" in choices:
            if kind == "vain" and self.answers > 2:
                return _first(choices, "stop", "abort")
            self.world.retry(repaired=kind == "repair")
            return "retry"
        if kind in ("give", "repair") and "hand_over" in choices:
            return "hand_over"
        return _first(choices, "stop", "abort") if kind in ("stop", "vain") else None


def _first(choices: list[str], *words: str) -> str | None:
    return next((word for word in words if word in choices), None)


# The planners.


def plan_of(graph: Graph) -> tuple[dict[str, Any], ...]:
    """The cheapest plan of one that knows no fault, whole, as a person or a model would write."""
    way = best(graph, graph.have, blind=True)
    if way is None:
        return ()
    giver = dict.fromkeys(graph.have, "")
    refs = {fact: f"${{{{ params.{fact} }}}}" for fact in graph.have}
    steps: list[dict[str, Any]] = []
    drops = any(graph.job(name).drops for name in way.names)
    for number, name in enumerate(way.names, 1):
        job, ident = graph.job(name), f"p{number}"
        before = {giver[fact] for fact in job.needs} - {""}
        if drops and steps:
            before.add(steps[-1]["id"])
        known = {fact: refs[fact] for fact in job.needs if not is_flag(fact)}
        steps.append(
            {"id": ident, "worker": name, "parameters": known, "depends_on": sorted(before)}
        )
        artefacts = [fact for fact in job.gives if not is_flag(fact)]
        for fact in job.gives:
            giver[fact] = ident
            tail = f".{fact}" if len(artefacts) > 1 else ""
            refs[fact] = f"${{{{ steps.{ident}.data{tail} }}}}"
    return tuple(steps)


def first_planner(behaviour: str, graph: Graph) -> Callable[[Any], Any]:
    """A planner that writes a whole plan, and does badly once something has gone wrong."""
    steps = plan_of(graph)

    async def first(view: Any) -> Any:
        if view.call == 1 and steps:
            return Propose(steps, final=True, because="the whole plan")
        failed = [step.id for step in view.steps.values() if step.status == "failed"]
        if not failed and any(step.status not in _OVER for step in view.steps.values()):
            return Propose(())
        return _badly(behaviour, view.call)

    return first


_OVER = frozenset({"succeeded", "failed", "skipped", "cancelled", "superseded"})


def _badly(behaviour: str, call: int) -> Any:
    match behaviour:
        case "raises":
            raise RuntimeError("out of ideas")
        case "talks":
            return "let me think about that"
        case "unknown_worker":
            return Propose(({"id": f"x{call}", "worker": "nobody"},))
        case "again":
            return Propose(({"id": "p1", "worker": "w1"},))
        case "finishes":
            return Finish("done")
        case "silent":
            return Propose(())
        case "cycle":
            one, two = f"x{call}", f"y{call}"
            return Propose(
                (
                    {"id": one, "worker": "w1", "depends_on": [two]},
                    {"id": two, "worker": "w1", "depends_on": [one]},
                )
            )
        case _:
            return GiveUp("out of ideas")


def planner_of(case: Case) -> Any:
    """The planner of a case."""
    if not case.first:
        return None
    first = first_planner(case.first, case.graph)
    return Hybrid(ScriptPlanner(first, consult=case.consult), GoalPlanner())


def _methods(graph: Graph) -> list[Any]:
    def declared(stages: tuple[str, ...], fact: str, name: str) -> Any:
        def stages_of() -> list[str]:
            return list(stages)

        return method(fact, name=name)(stages_of)

    return [declared(each.stages, each.fact, each.name) for each in graph.methods]


# Play and judge.


def play(case: Case, planner: Any = None) -> Verdict:
    """One case through the engine; `planner` instead of the case's own, to test the judge."""
    graph, world = case.graph, World.of(case.graph)
    hints = sorted({job.fault.hint for job in graph.jobs if job.fault.hint})
    crew: list[Any] = [Actor(job, world, hints, charged=case.charged) for job in graph.jobs]
    person = Person(case.person, world)
    goal = Goal(
        want=list(graph.want),
        have=dict(world.facts),
        budget=graph.budget,
        mode=None if case.mode == "auto" else case.mode,
    )
    try:
        done = simulate(
            goal,
            [*crew, *_methods(graph)],
            planner or planner_of(case),
            seed=case.order,
            policy=Policy(planner_calls_max=CALLS_MAX),
            answers=person,
            crash_after=case.crashes,
        )
    except Deadlock as error:
        return Verdict(case.name, case.family, "hang", "", True, False, hang=str(error))
    return _judge(case, world, person, done)


def _judge(case: Case, world: World, person: Person, done: Any) -> Verdict:
    graph, outcome = case.graph, done.outcome
    good = outcome.status == "succeeded"
    questions = "; ".join(str(each.text) for each in outcome.waiting_for)
    start = World.of(graph).way()
    left = None if good or (person.kind in ("stop", "vain") and person.answers) else world.way()
    optimum = None
    if start is not None and not graph.faulty and all(job.cost for job in graph.jobs):
        optimum = start.cost
    values = {fact: world.facts.get(fact) for fact in graph.want}
    shown = f"result {outcome.result!r}, wanted {values!r}"
    why = outcome.reason or questions
    return Verdict(
        name=case.name,
        family=case.family,
        status=outcome.status,
        reason=why,
        reachable=start is not None or _helped(person, world),
        reached=good and world.reached,
        false_success="" if not good or world.reached else f"wanted {graph.want}",
        wrong_result="" if not good or world.returns(outcome.result) else shown,
        untried=f"{outcome.status}: {why} (left: {', '.join(left.names)})" if left else "",
        mute=not good and not why,
        early=person.early,
        impossible=tuple(world.impossible),
        repeated=tuple(world.repeated),
        blind=() if case.crashes else tuple(world.blind),
        violations=tuple(map(str, done.violations)),
        spent=world.spent,
        optimum=optimum,
        lines=tuple(done.lines()),
    )


def _helped(person: Person, world: World) -> bool:
    """Whether a person did what was asked, so that there is a way now, or all is there."""
    helped = person.gave or bool(world.repaired)
    return helped and (world.reached or world.way() is not None)


# Figures.


def cases(seeds: int = SEEDS) -> list[tuple[str, int]]:
    """Every family with its seeds."""
    return [(family, seed) for family in FAMILIES for seed in range(seeds)]


def played(case: tuple[str, int]) -> Verdict:
    """One of them; without its log, which is long."""
    return play(draw(*case))._replace(lines=())


FAULTS: dict[str, Callable[[Verdict], Any]] = {
    "false success": lambda v: v.false_success,
    "result is not the wanted values": lambda v: v.wrong_result,
    "hangs": lambda v: v.hang,
    "ended or waits with a way left": lambda v: v.untried,
    "a person asked while a way was left": lambda v: v.early,
    "no goal, no reason, no question": lambda v: v.mute,
    "called without what it needs": lambda v: v.impossible,
    "finished and not idempotent, run again": lambda v: v.repeated,
    "failed for good, tried again": lambda v: v.blind,
    "logs that break an invariant": lambda v: v.violations,
}


def command(verdict: Verdict) -> str:
    """The one command that repeats it."""
    return f"python -m tests.external.oracle {verdict.name}"


def report(verdicts: list[Verdict]) -> str:
    """Every fault by kind, with its cases; for people who look for the cause."""
    lines = []
    for family in dict.fromkeys(each.family for each in verdicts):
        own = [each for each in verdicts if each.family == family]
        can = [each for each in own if each.reachable]
        got = sum(each.reached for each in can)
        lines.append(f"{family:15} {got} of {len(can)} reachable, {len(own)} in all")
        for what, wrong in FAULTS.items():
            bad = [each for each in own if wrong(each)]
            if bad:
                numbers = " ".join(each.name.split()[1] for each in bad[:12])
                first = str(wrong(bad[0]))[:110]
                lines.append(f"    {len(bad):4} {what}: seeds {numbers}: {first}")
        ratios = [each.spent / each.optimum for each in own if each.optimum and each.reached]
        if ratios:
            mean = sum(ratios) / len(ratios)
            lines.append(f"         cost {mean:.4f} of the optimum, at worst {max(ratios):.2f}")
    return "\n".join(lines)


def main() -> int:
    """One case with everything about it, or the faults of many."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("family", nargs="?", choices=list(FAMILIES))
    parser.add_argument("seed", nargs="?", type=int)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    if given.seed is None:
        chosen = [each for each in cases(given.seeds) if given.family in (None, each[0])]
        print(report([played(each) for each in chosen]))
        return 0
    case = draw(given.family, given.seed)
    print(*case.graph.jobs, *case.graph.methods, sep="\n")
    print(f"have {case.graph.have}, want {case.graph.want}, budget {case.graph.budget}")
    print(case._replace(graph=None))  # type: ignore[arg-type]
    verdict = play(case)
    print(*verdict.lines, sep="\n")
    for name, value in verdict._replace(lines=())._asdict().items():
        print(f"{name:14} {value}")
    return int(any(wrong(verdict) for wrong in FAULTS.values()))


if __name__ == "__main__":
    sys.exit(main())
