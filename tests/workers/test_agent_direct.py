"""Direct mode: a goal in words goes to one agent, and still is a reviewed one-step revision."""

import pytest

from leadhand import Agent, Goal, Lead, Policy, worker
from leadhand.errors import UsageError
from leadhand.stores.memory import MemoryStore
from tests.support.scripts import calls
from tests.support.scripts import model as scripted

WORDS = Goal(text="Say what the weather is like")


@worker(effects=())
async def weather(city: str) -> str:
    """What the weather is like in a city."""
    return f"rain in {city}"


@pytest.mark.parametrize("mode", ["direct", "auto", ""])
async def test_the_only_agent_gets_the_goal_as_its_task(mode):
    model = scripted([calls("weather", city="Oslo"), "It rains."])
    lead = Lead([Agent("clerk", model, tools=[weather]), weather], store=MemoryStore())
    outcome = await lead.run(WORDS, mode=mode)
    assert outcome.result == "It rains."
    assert [step.worker for step in outcome.steps] == ["clerk"]
    assert "task: Say what the weather is like" in model.requests[0].turns[0].text


async def test_what_is_given_goes_with_it():
    model = scripted(["fine"])
    lead = Lead([Agent("clerk", model)], store=MemoryStore())
    await lead.run(Goal(text="Greet", have={"name": "Ada"}), mode="direct")
    assert "name: Ada" in model.requests[0].turns[0].text


async def test_without_an_agent_the_functions_are_the_tools_of_one():
    model = scripted([calls("weather", city="Oslo"), "It rains."])
    lead = Lead([weather], store=MemoryStore(), tiers={"hand": model})
    outcome = await lead.run(WORDS, mode="direct")
    assert outcome.result == "It rains."
    assert [step.worker for step in outcome.steps] == ["direct"]
    spec = lead.registry.get("direct").spec
    assert spec.offers[""].effects == ()
    assert spec.offers[""].risk == "medium"
    assert "rain in Oslo" in model.requests[1].turns[-1].text


async def test_its_tools_are_its_envelope_and_the_policy_looks_at_them(tmp_path):
    @worker(risk="high", effects="pay")
    async def pay(amount: float) -> str:
        return "paid"

    model = scripted(["done"])
    lead = Lead([weather, pay], store=tmp_path / "x.db", tiers={"hand": model})
    outcome = await lead.run(WORDS, mode="direct")
    assert outcome.status == "waiting"
    assert model.requests == []
    assert (await lead.run(WORDS, mode="direct", approve=True)).result == "done"


async def test_a_run_of_the_implicit_agent_is_taken_up_again(tmp_path):
    @worker(risk="high")
    async def pay(amount: float) -> str:
        return "paid"

    model = scripted([calls("needs_info", question="How much?"), "done"])

    def lead():
        return Lead([pay], store=tmp_path / "x.db", tiers={"hand": model})

    waiting = await lead().run(WORDS, mode="direct")
    assert waiting.status == "waiting"
    await lead().answer(waiting.run, "review-1", "approve")
    asking = await lead().resume(waiting.run)
    assert "How much?" in asking.waiting_for[0].text
    await lead().answer(waiting.run, "q1", "retry", text="7")
    outcome = await lead().resume(waiting.run)
    assert outcome.result == "done"


async def test_the_one_behind_an_agent_does_not_count_as_another():
    tiers = {"hand": scripted(["by hand"], name="a"), "strong": scripted(["x"], name="b")}
    lead = Lead([Agent("clerk")], store=MemoryStore(), tiers=tiers)
    assert (await lead.run(WORDS)).result == "by hand"


async def test_a_plan_can_be_had_without_running_it():
    lead = Lead([Agent("clerk", scripted(["x"]))], store=MemoryStore())
    plan = await lead.plan("Greet Ada")
    assert [step.worker for step in plan.steps] == ["clerk"]


async def test_several_agents_or_none_are_no_direct_mode():
    two = [Agent("one", scripted(["x"])), Agent("two", scripted(["x"]))]
    with pytest.raises(UsageError, match="there are several: one, two"):
        await Lead(two, store=MemoryStore()).run(WORDS, mode="direct")
    with pytest.raises(UsageError, match="neither an agent nor a model"):
        await Lead([weather], store=MemoryStore()).run(WORDS, mode="direct")
    with pytest.raises(UsageError, match="names no facts"):
        await Lead(two, store=MemoryStore()).run(WORDS)


async def test_the_task_is_bounded_as_any_other_run():
    model = scripted([lambda request: calls("weather", city=str(len(request.turns)))])
    lead = Lead(
        [weather], store=MemoryStore(), tiers={"hand": model}, policy=Policy(attempts_max=1)
    )
    outcome = await lead.run(WORDS, mode="direct")
    assert outcome.steps[0].error.failure_class == "too_complex"
    assert len(model.requests) == 20
