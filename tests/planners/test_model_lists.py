"""Style `list`: a numbered list stands for a plan, and what is wrong with it is said."""

import pytest

from leadhand import Goal, Hybrid, Lead, worker
from leadhand.planners.model.planner import ModelPlanner
from leadhand.stores.memory import MemoryStore
from leadhand.testing.models import ScriptedModel
from tests.planners.test_model_planner import GOAL, WORKERS, last, run

RIGHT = "1. fetch\n2. average\n3. summarise"


async def test_a_wrong_order_is_answered_with_the_first_unmet_need():
    """It was a KeyError: handed over after one call, and shown to people when alone."""
    model = ScriptedModel(["1. average\n2. fetch\n3. summarise", RIGHT, "DONE"])
    outcome = await run(model, style="list")
    assert (outcome.status, outcome.result) == ("succeeded", "2.0 degrees")
    assert "step 1 average needs raw, which is not true" in last(model, 1)
    assert "True now: city" in last(model, 1)
    assert len(model.requests) == 3


async def test_the_same_wrong_list_again_ends_it():
    model = ScriptedModel(["1. average", "1. average", RIGHT])
    outcome = await run(model, style="list")
    assert (outcome.status, outcome.result) == ("succeeded", "2.0 degrees"), "handed over"
    assert len(model.requests) == 2


async def test_after_done_the_result_is_there():
    model = ScriptedModel([RIGHT, "DONE"])
    assert (await run(model, style="list")).result == "2.0 degrees"
    goal = Goal(text="x", want=("mean", "summary"), have={"city": "Oslo"})
    model = ScriptedModel([RIGHT, "Done."])
    assert (await run(model, goal, style="list")).result == {"mean": 2.0, "summary": "2.0 degrees"}
    model = ScriptedModel([RIGHT, "DONE"])
    goal = Goal(text="How warm is it?", have={"city": "Oslo"})
    outcome = await run(model, goal, planner=ModelPlanner(model, style="list"))
    assert (outcome.status, outcome.result) == ("succeeded", "2.0 degrees")


async def test_done_too_early_is_sent_back():
    model = ScriptedModel(["DONE", RIGHT, "DONE"])
    assert (await run(model, style="list")).status == "succeeded"
    assert "summary is not true" in last(model, 1)


async def test_its_prompt_asks_for_a_list_everywhere():
    """No word of JSON, kinds or references: what it is told is what it can answer."""
    model = ScriptedModel(["1. average", RIGHT, "DONE"])
    await run(model, style="list")
    for request in model.requests:
        told = request.system + "".join(turn.text for turn in request.turns)
        assert "numbered list" in request.system
        for word in ("JSON", "`kind`", "${{", "propose", "depends_on"):
            assert word not in told, word


async def test_a_system_prompt_of_ones_own_holds_for_lists_too(tmp_path):
    (tmp_path / "system.md").write_text("You are terse.")
    model = ScriptedModel([RIGHT, "DONE"])
    await run(model, style="list", prompts=tmp_path)
    assert model.requests[0].system == "You are terse."
    (tmp_path / "system_list.md").write_text("List it.")
    model = ScriptedModel([RIGHT, "DONE"])
    await run(model, style="list", prompts=tmp_path)
    assert model.requests[0].system == "List it."


@worker(gives="holding:a", needs=["clear:a"])
async def pick_up(what: str = "a"):
    return what


@worker(gives="on:a", needs=["holding:a"])
async def stack(what: str = "a"):
    return what


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1. (stack) (pick-up)", "step 1 stack needs holding:a, which is not true"),
        ("1. (pick-up), (stack); (unstack a)", "'unstack a' names no worker"),
        ("1. (pick-up) (stack)" + " (stack)" * 15, ""),
    ],
)
async def test_several_calls_on_one_line_are_several_steps(line, words):
    """17 calls on one line were one step with an action that no worker offers."""
    more = ["1. pick_up\n2. stack"] if words else []
    model = ScriptedModel([line, *more, "DONE"])
    planner = Hybrid(ModelPlanner(model, style="list", asks=False))
    goal = Goal(text="x", want=("on:a",), have={"clear:a": True})
    outcome = await Lead([pick_up, stack], planner, MemoryStore()).run(goal)
    assert outcome.status == "succeeded"
    assert words in last(model, 1)
    if not words:
        assert len(outcome.steps) == 17


async def test_a_list_that_was_not_asked_for_is_held_to_the_same():
    model = ScriptedModel(["1. average\n2. fetch", RIGHT, "DONE"])
    outcome = await Lead(WORKERS, Hybrid(ModelPlanner(model, asks=False)), MemoryStore()).run(GOAL)
    assert outcome.status == "succeeded"
    assert "needs raw, which is not true" in last(model, 1)
