"""People's answers and the goal planner: what is given counts, what is asked is waited for."""

import pytest

from leadhand import GiveUp, Goal, Hybrid, Lead, Permanent, worker
from leadhand.stores.memory import MemoryStore
from leadhand.testing import ScriptedPlanner, simulate


@worker(gives="left")
async def find_left() -> int:
    """Broken."""
    raise Permanent("no left")


@worker(gives="right")
async def find_right() -> int:
    """Broken as well, at the same moment."""
    raise Permanent("no right")


@worker(gives="both")
async def pair(left: int, right: int) -> list[int]:
    """Needs the two."""
    return [left, right]


def planners():
    """The goal planner alone, and behind another one."""
    return [None, Hybrid(ScriptedPlanner([GiveUp("no idea")]))]


@pytest.mark.parametrize("planner", planners(), ids=["alone", "behind"])
async def test_a_person_who_gives_the_wanted_fact_ends_the_run(planner):
    """As asked: the run succeeds with what was given."""
    lead = Lead([find_left], planner, MemoryStore())
    async with lead.hosting():
        waiting = await lead.run(Goal(text="left", want="left"))
        (question,) = waiting.waiting_for
        await lead.answer(waiting.run, question.id.partition("/")[2], "give", data=7)
        outcome = await lead.resume(waiting.run)
    assert (outcome.status, outcome.result) == ("succeeded", 7)


@pytest.mark.parametrize("planner", planners(), ids=["alone", "behind"])
@pytest.mark.parametrize("seed", range(12))
def test_two_failures_at_once_are_asked_about_and_waited_for(planner, seed):
    """The second call finds the question asked already: it waits, and the answers are used."""
    goal = Goal(text="both", want="both")
    done = simulate(goal, [find_left, find_right, pair], planner, seed=seed)
    assert (done.outcome.status, done.violations) == ("waiting", ())

    def answer(question):
        return "give", dict.fromkeys(question.facts, 3)

    done = simulate(goal, [find_left, find_right, pair], planner, seed=seed, answers=answer)
    assert (done.outcome.status, done.outcome.result) == ("succeeded", [3, 3])
