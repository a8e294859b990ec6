"""A real model plans, badly: the run reaches its goal all the same, and says who brought it there.

The model is SmolLM2 (135 million parameters): it keeps to a form and counts its tokens, and its
judgement is no better than chance. A scripted capable model does the same goal without help.
"""

import msgspec
import pytest

from leadhand import Hybrid, Lead
from leadhand.models.messages import ModelRequest, UserMessage
from leadhand.models.registry import ModelRegistry
from leadhand.planners.model import answers
from leadhand.planners.model.planner import ModelPlanner
from leadhand.stores.memory import MemoryStore
from leadhand.testing import ScriptedModel
from tests.planners.test_model_planner import FINISH, GOAL, PLAN, WORKERS

pytestmark = [pytest.mark.slow, pytest.mark.real]


def named(smollm):
    return f"chat:smollm2@{smollm}/v1"


def logged(store, run, kind):
    bodies = [msgspec.json.decode(entry.body) for entry in store.read(run)]
    return [body for body in bodies if body["type"] == kind]


async def test_its_decisions_parse_and_are_counted(smollm):
    heard = []
    request = ModelRequest(
        system="You plan. Answer in JSON.",
        turns=(UserMessage("The workers are fetch, average and summarise. What is next?"),),
        schema=answers.SCHEMA,
        max_tokens=300,
        temperature=0.0,
    )
    answer = await ModelRegistry().client(named(smollm)).ask(request, heard.append)
    assert answer.data["kind"] in answers.KINDS, "held to the form while it spoke"
    assert "".join(heard) == answer.text
    assert answer.usage.input > 10
    assert 10 < answer.usage.output <= 300
    assert answer.cost == 0.0


async def test_a_poor_planner_still_reaches_the_goal(smollm):
    store = MemoryStore()
    planner = ModelPlanner(
        named(smollm),
        style="whole",
        asks=False,
        tokens=500,
        max_tokens=160,
        temperature=0.0,
        timeout_s=120,
    )
    outcome = await Lead(WORKERS, Hybrid(planner), store).run(GOAL)
    assert outcome.status == "succeeded"
    calls = logged(store, outcome.run, "ModelCalled")
    assert 1 <= len(calls) <= 12
    assert all(call["input"] > 50 for call in calls)
    said = [body["decision"] for body in logged(store, outcome.run, "PlannerAnswered")]
    handed = said[-1]["notes"].get("handed", "")
    assert "proposals were usable" in handed or said[-1]["kind"] == "finish"
    print(handed or "it needed nobody")


async def test_a_capable_model_needs_nobody():
    store = MemoryStore()
    model = ScriptedModel([PLAN, FINISH])
    outcome = await Lead(WORKERS, Hybrid(ModelPlanner(model, asks=False)), store).run(GOAL)
    assert (outcome.status, outcome.result) == ("succeeded", "2.0 degrees")
    said = logged(store, outcome.run, "PlannerAnswered")
    assert not any("goes on from here" in str(body) for body in said)
