"""A model that waits, drops and is told what is pending."""

import asyncio

import pytest

from leadhand import Context, Goal, Hybrid, Lead, Permanent, RateLimited, worker
from leadhand.codec.events import decode
from leadhand.core import events as ev
from leadhand.core.report import PlannerView
from leadhand.planners.model import answers, prompt
from leadhand.planners.model.planner import ModelPlanner
from leadhand.stores.memory import MemoryStore
from leadhand.testing.models import ScriptedModel
from tests.planners.test_model_planner import FINISH, GOAL, PLAN, WORKERS, last, run
from tests.support.plans import call

WAIT = {"kind": "wait", "because": "it is under way"}
EMPTY = {"kind": "propose", "because": "nothing to add", "steps": []}
BROKEN = PLAN | {"steps": [call("x", "broken", city="Oslo")]}


@worker(gives="raw", idempotent=True)
async def slow(city: str):
    await asyncio.sleep(0.1)
    return {"values": [1, 2, 3]}


@worker(gives="raw")
async def broken(city: str):
    raise Permanent("no such city")


@worker(gives="raw", idempotent=True)
async def busy(city: str, context: Context):
    if context.attempt == 1:
        raise RateLimited("slow down", retry_after_s=0.2)
    return {"values": [1, 2, 3]}


@worker(gives="aside", idempotent=True)
async def quick():
    return 1


ALL = [*WORKERS, slow, broken, busy, quick]
REST = [call("b", "average", raw="${{ steps.a.data }}"), PLAN["steps"][2]]


@pytest.mark.parametrize("nothing", [WAIT, EMPTY])
@pytest.mark.parametrize("name", ["slow", "busy"])
async def test_it_waits_while_something_is_under_way_or_tried_again(nothing, name):
    """An empty proposal during a backoff was refused, and a person disturbed."""
    first = PLAN | {"steps": [call("a", name, city="Oslo"), call("q", "quick")]}
    begun = []

    def answer(request):
        told = request.turns[-1].text
        if not begun:
            begun.append(1)
            return first
        if "Under way:" in told or "is tried again by itself" in told:
            begun.append(told)
            return nothing
        return FINISH if "c: summarise: succeeded" in told else PLAN | {"steps": REST}

    store, model = MemoryStore(), ScriptedModel(answer)
    lead = Lead(ALL, Hybrid(ModelPlanner(model, asks=False, style="next_step")), store)
    outcome = await lead.run(GOAL)
    assert (outcome.status, outcome.result) == ("succeeded", "2.0 degrees")
    assert len(begun) > 1, "it was asked while something was under way"
    log = [decode(entry.version, entry.body) for entry in store.read(outcome.run)]
    assert not [each for each in log if isinstance(each, ev.ProposalRefused | ev.QuestionAsked)]
    assert any(isinstance(each, ev.PlannerWaits) for each in log)
    if name == "busy":
        assert "a: busy: failed once, is tried again by itself at 20" in str(begun)
        assert "again and again" not in str(begun)


@pytest.mark.parametrize("nothing", [WAIT, EMPTY])
async def test_it_cannot_wait_for_nothing(nothing):
    model = ScriptedModel([nothing, PLAN, FINISH])
    assert (await run(model)).status == "succeeded"
    assert "nothing is under way" in last(model, 1)
    model = ScriptedModel([nothing] * 9)
    outcome = await run(model)
    assert (outcome.status, len(model.requests)) == ("succeeded", 3), "handed over"


@pytest.mark.parametrize(
    ("drop", "words"),
    [
        ([{"id": "x", "reason": " "}], "it drops x without a reason"),
        ([{"id": "zz", "reason": "r"}], "it drops zz, which is not in the plan"),
        ({"x": "r"}, "is not a list of objects"),
    ],
)
async def test_a_drop_that_cannot_be_is_sent_back(drop, words):
    done = FINISH | {"drop": [{"id": "x", "reason": "fetch did it"}]}
    model = ScriptedModel([BROKEN, PLAN | {"drop": drop}, PLAN, done])
    store = MemoryStore()
    lead = Lead(ALL, Hybrid(ModelPlanner(model, asks=False)), store)
    outcome = await lead.run(GOAL)
    assert outcome.status == "succeeded"
    assert words in last(model, 2)
    assert len(model.requests) == 4
    log = b"".join(entry.body for entry in store.read(outcome.run))
    assert b"fetch did it" in log


def test_open_questions_are_told():
    """So that it can wait for the answer instead of asking again."""
    asked = {
        "id": "q1",
        "kind": "failure",
        "text": "Step u failed. Choose how to continue.",
        "step": "u",
    }
    view = PlannerView(run="r", goal=Goal(text="g"), call=2, why="report", questions=(asked,))
    told = prompt.state_parts(view, 12_000)["now"]
    assert "A person is asked (step u): Step u failed. Choose how to continue." in told


def test_the_published_schema_knows_both():
    assert "wait" in answers.SCHEMA["properties"]["kind"]["enum"]
    assert answers.SCHEMA["properties"]["drop"]["items"]["required"] == ["id", "reason"]
