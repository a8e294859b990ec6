"""The goal planner beside steps that wait for a person."""

import asyncio

from leadhand import GiveUp, Goal, Hybrid, Permanent, Propose, worker
from leadhand.testing import simulate


@worker
async def pay() -> str:
    raise Permanent("no")


@worker(gives="b")
async def make() -> str:
    await asyncio.sleep(3)
    return "z"


async def first(view):
    if view.call > 1:
        return GiveUp("no idea")
    steps = [{"id": "pay", "worker": "pay", "failure_action": "escalate"}]
    return Propose([*steps, {"id": "make", "worker": "make"}])


def test_the_end_waits_for_a_step_that_waits_for_a_person():
    """It called the run done and gave the step up, whose question was still open."""
    goal, asked = Goal(text="g", want=["b"]), []
    done = simulate(goal, [pay, make], Hybrid(first))
    assert (done.outcome.status, done.violations) == ("waiting", ())
    lines = "\n".join(done.lines())
    assert "b: true; waiting for an answer to pay" in lines
    assert "refused" not in lines, "what is open is not given up"

    def skip(question):
        asked.append(question)
        return "skip"

    done = simulate(goal, [pay, make], Hybrid(first), answers=skip)
    assert (done.outcome.status, done.outcome.result) == ("succeeded", "z")
    assert (len(asked), done.violations) == (1, ())
    statuses = {step.id: step.status for step in done.outcome.steps}
    assert statuses == {"pay": "skipped", "make": "succeeded"}
