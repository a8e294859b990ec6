"""Functions that are planners, and have the names of ours."""

import pytest

from leadhand import Finish, Goal, Lead, Propose, worker
from leadhand.app.reader import Reader
from leadhand.app.verification import verify_database
from leadhand.audit.anchors import Anchoring

NAMES = ("document", "direct", "goal", "hybrid", "model")
GOAL = Goal(text="g", want=["b"])


@worker(gives="b")
def make() -> str:
    return "b"


@worker
def look(number: int) -> int:
    return number


def named(function, name):
    function.__name__ = name
    return function


async def problems(store):
    reader = Reader(store)
    try:
        return verify_database(reader, store, Anchoring()).problems
    finally:
        await reader.close()


@pytest.mark.parametrize("name", NAMES)
async def test_what_such_a_function_plans_keeps_every_rule(name, tmp_path):
    """The checker took each of its revisions for one of a document, which is never revised."""

    def plan(view):
        if view.call < 3:
            n = view.call
            return Propose([{"id": f"n{n}", "worker": "look", "parameters": {"number": n}}])
        return Finish("b") if "b" in view.results else Propose([{"id": "b", "worker": "make"}])

    store = tmp_path / "runs.db"
    outcome = await Lead([make, look], named(plan, name), store).run(GOAL)
    assert outcome.status == "succeeded"
    assert not await problems(store)


@pytest.mark.parametrize("name", NAMES)
async def test_a_person_can_hand_over_what_such_a_function_cannot_plan(name, tmp_path):
    """It was taken for the goal planner, or for a document, to which nothing is handed over."""

    def plan(view):
        raise ValueError("out of order")

    store = tmp_path / "runs.db"
    lead = Lead([make, look], named(plan, name), store, actor="ann")
    asked = await lead.run(GOAL)
    (question,) = asked.waiting_for
    assert "hand_over" in question.answers
    await lead.answer(asked.run, question.id, "hand_over")
    outcome = await lead.resume(asked.run)
    assert (outcome.status, outcome.result) == ("succeeded", "b")
    assert not await problems(store)
