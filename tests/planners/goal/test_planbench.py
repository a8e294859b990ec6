"""Real problems: PlanBench's blocks, trucks and depots, step by step, judged by PDDL alone."""

import random

import pytest

from leadhand.core.report import Ask, Failure, Finish, GiveUp
from leadhand.planners.goal.planner import GoalPlanner
from tests.planners.goal import pddl
from tests.planners.goal.judge import Does, Run, succeed

LIMIT = {"blocksworld": 20, "logistics": 10, "depots": 10}
"""How many of each are tried here; `tests/external` runs all."""


def some(domain):
    """A spread over all instances of a domain."""
    found, problems = pddl.instances(domain)
    names = list(problems)
    step = max(1, len(names) // LIMIT.get(domain, len(names)))
    return [(name, pddl.ground(found, problems[name]), problems[name]) for name in names[::step]]


def run_of(actions, problem, **more):
    """A problem as a run: every action is a worker's action, every fact a flag."""
    workers = [
        Does(
            f"{each.worker}:{each.action}" if each.action else each.worker,
            tuple(sorted(each.needs)),
            tuple(sorted(each.gives)),
            tuple(sorted(each.drops)),
        )
        for each in actions.values()
    ]
    have = dict.fromkeys(sorted(problem.init), True)
    return Run(workers, sorted(problem.goal), have, **more)


def carried_out(run, actions, problem):
    """The facts after what was done, by the rules of PDDL."""
    names = [name.replace(":", ".") for name in run.done]
    return pddl.run(problem.init, actions, names)


@pytest.mark.slow
@pytest.mark.parametrize("domain", ["blocksworld", "depots", "logistics"])
def test_problems_are_solved_step_by_step(domain):
    """The planner is asked after every report; what was done is valid and reaches the goal."""
    for name, actions, problem in some(domain):
        run = run_of(actions, problem, seed=1)
        assert isinstance(run.to_the_end(GoalPlanner()), Finish), name
        assert problem.goal <= carried_out(run, actions, problem), name


def test_what_is_impossible_is_proved_so():
    """Every unsolvable problem ends at once with a proof, and nothing is done."""
    for name, actions, problem in some("unsolvable_blocksworld"):
        run = run_of(actions, problem)
        decision = run.to_the_end(GoalPlanner())
        assert isinstance(decision, GiveUp), name
        assert "impossible" in decision.reason, name
        assert run.done == [], name


def broken(actions, seed, permanent, transient):
    """A world in which some actions never work and any attempt may fail."""
    chance = random.Random(seed)
    never = {name for name in sorted(actions) if chance.random() < permanent}

    def attempt(step, number):
        name = ".".join(filter(None, [step["worker"], step.get("action", "")]))
        if name in never:
            return Failure("permanent", "it is broken")
        if chance.random() < transient:
            return Failure("transient", "not just now")
        return succeed(step, number)

    return never, attempt


@pytest.mark.slow
@pytest.mark.parametrize("transient", [0.0, 0.1])
def test_broken_actions_are_planned_around(transient):
    """With a tenth of the actions broken for good, whatever can be reached is reached."""
    reached = possible = 0
    for number, (name, actions, problem) in enumerate(some("depots")):
        never, attempt = broken(actions, number, 0.1, transient)
        run = run_of(actions, problem, attempt=attempt)
        decision = run.to_the_end(GoalPlanner())
        whole = {key: each for key, each in actions.items() if key not in never}
        oracle = run_of(whole, problem).to_the_end(GoalPlanner())
        possible += isinstance(oracle, Finish)
        reached += isinstance(decision, Finish)
        if not isinstance(decision, Finish):
            assert isinstance(decision, (Ask, GiveUp)), name
        assert len(run.failed) < 100, name
    assert possible
    assert reached >= 0.98 * possible
