"""Depots in which a tenth of the actions never work and a tenth of the attempts fail.

Four contenders meet the same faults (paired: they are drawn from problem, action and attempt):

    retry        a good plan, carried out as it stands; the engine tries again what failed
    forgetful    the goal planner, asked after every report, without memory of failures
    goal         the goal planner as it is
    oracle       the goal planner, told from the start what is broken: what is possible at all
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from leadhand import GoalPlanner, Lead, PlannerView
from tests.external import pursuit
from tests.planners.goal import pddl

DOMAIN = "depots"
BROKEN, SHAKY = 0.10, 0.10
DRAWS_MAX = 50
STATES_MAX = 400_000
CONTENDERS = ("retry", "forgetful", "goal", "oracle")


class Forgetful(GoalPlanner):
    """Sees no failure that is over: what did not work is as good as new."""

    async def decide(self, view: PlannerView) -> Any:
        """The goal planner's word, without its past."""
        notes = {key: value for key, value in (view.notes or {}).items() if key != "seen"}
        return await super().decide(replace(view, failed_attempts=(), notes=notes))


def cases() -> list[str]:
    """All problems of the domain."""
    return sorted(pursuit.texts(DOMAIN).problems)


class Played(NamedTuple):
    """What became of one problem."""

    results: dict[str, pursuit.Result]
    """By contender, with faults that leave a way."""
    hopeless: list[pursuit.Result]
    """Of the goal planner, with those draws of faults that leave none."""


def play(name: str, seed: int) -> Played:
    """Every contender on one problem. Faults are drawn until the judge sees no proof against it."""
    problem = pursuit.problem(pursuit.texts(DOMAIN), name)
    hopeless: list[pursuit.Result] = []
    for draw in range(DRAWS_MAX):
        faults = pursuit.Faults(f"{seed} {draw} {name}", BROKEN, SHAKY)
        left = [each for each in problem.actions.values() if not faults.never(each.name)]
        if not hopeless_without_search(problem, left):
            oracle = _oracle(problem, faults)
            if oracle.reached or not hopeless_by_search(problem, left):
                break
        hopeless.append(pursuit.pursue(problem, GoalPlanner(), faults))
    crew = pursuit.workers(problem.actions, problem.world(), pursuit.Faults(), pursuit.Log())
    plan = Lead(crew, GoalPlanner()).plan_sync(problem.goal)
    results = {
        "retry": pursuit.pursue(problem, None, faults, plan=plan),
        "forgetful": pursuit.pursue(problem, Forgetful(), faults),
        "goal": pursuit.pursue(problem, GoalPlanner(), faults),
        "oracle": oracle,
    }
    return Played(results, hopeless)


def _oracle(problem: pursuit.Problem, faults: pursuit.Faults) -> pursuit.Result:
    return pursuit.pursue(
        problem, GoalPlanner(), faults, known=lambda action: not faults.never(action)
    )


# The judge's own view of what is hopeless: it shares nothing with the planner.


def hopeless_without_search(problem: pursuit.Problem, actions: list[pddl.Action]) -> bool:
    """Whether the goal is out of reach even if nothing were ever taken away."""
    facts, size = set(problem.goal.have), -1
    while size != len(facts):
        size = len(facts)
        for action in actions:
            if action.needs <= facts:
                facts |= action.gives
    return not facts.issuperset(problem.goal.want)


def hopeless_by_search(problem: pursuit.Problem, actions: list[pddl.Action]) -> bool:
    """Whether every state was looked at and none is the goal; False when there are too many."""
    bit: dict[str, int] = {}

    def mask(facts: Iterable[str]) -> int:
        return sum(1 << bit.setdefault(fact, len(bit)) for fact in set(facts))

    moves = [(mask(a.needs), ~mask(a.drops), mask(a.gives)) for a in actions]
    start, goal = mask(problem.goal.have), mask(problem.goal.want)
    seen, edge = {start}, [start]
    while edge and len(seen) < STATES_MAX:
        state = edge.pop()
        if state & goal == goal:
            return False
        for needs, keeps, gives in moves:
            if state & needs == needs:
                after = state & keeps | gives
                if after not in seen:
                    seen.add(after)
                    edge.append(after)
    return not edge
