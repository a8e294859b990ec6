"""Tiers: which models an agent asks, who helps out, and the stronger one behind it."""

import pytest
from msgspec.structs import replace

from leadhand import Agent, Lead, Policy, Rule, worker
from leadhand.codec.events import decode
from leadhand.core.catalog import Catalog, Offer, WorkerSpec, able_workers
from leadhand.core.review.approval import versions
from leadhand.core.review.ruling import reach
from leadhand.models.failures import ModelFailure
from leadhand.stores.memory import MemoryStore
from leadhand.testing import check
from leadhand.testing import scripted as scripted_worker
from tests.support.scripts import calls
from tests.support.scripts import model as scripted

QUICK = Policy(backoff_s=0.01, jitter=0.0)
HARD = calls("too_complex", reason="too much for me")
ONE = {"id": "one", "worker": "clerk"}


async def play(agent, tiers, step=ONE, policy=QUICK, **more):
    lead = Lead(workers=[agent], store=MemoryStore(), policy=policy, tiers=tiers, **more)
    return await lead.run({"goal": "g", "steps": [step]})


async def test_the_tier_of_an_agent_and_the_one_that_a_step_names():
    hand, strong = scripted(["by hand"], name="a"), scripted(["strongly"], name="b")
    tiers = {"hand": hand, "strong": strong}
    assert (await play(Agent("clerk"), tiers)).result == "by hand"
    assert (await play(Agent("clerk"), tiers, {**ONE, "tier": "strong"})).result == "strongly"
    outcome = await play(Agent("clerk"), {"hand": hand}, {**ONE, "tier": "strong"})
    assert "the tier 'strong' has no model" in outcome.steps["one"].error.message


@pytest.mark.parametrize("kind", ["unavailable", "denied", "rate_limited", "transient", "timeout"])
async def test_when_a_model_is_the_trouble_the_next_of_its_tier_answers(kind):
    down, up = scripted([ModelFailure(kind, "down")], name="a"), scripted(["fine"], name="b")
    outcome = await play(Agent("clerk"), {"hand": [down, up]})
    assert outcome.result == "fine"
    assert outcome.steps["one"].attempts == 1


async def test_when_the_answer_is_the_trouble_no_other_model_is_asked():
    bad, other = scripted([ModelFailure("policy", "no")], name="a"), scripted(["x"], name="b")
    outcome = await play(Agent("clerk"), {"hand": [bad, other]})
    assert outcome.steps["one"].error.failure_class == "policy"
    assert other.requests == []


async def test_what_is_too_much_for_a_hand_goes_to_the_stronger_tier(tmp_path):
    hand, strong = scripted([HARD], name="a"), scripted(["strongly"], name="b")
    lead = Lead([Agent("clerk")], store=tmp_path / "x.db", tiers={"hand": hand, "strong": strong})
    outcome = await lead.run({"goal": "g", "steps": [ONE]})
    assert outcome.result == "strongly"
    assert (len(hand.requests), len(strong.requests)) == (1, 1)
    assert outcome.steps["one"].worker == "clerk@strong"
    async with lead.hosting() as host:
        entries = host.store.read(outcome.run)
    assert check([(each.at, decode(each.version, each.body)) for each in entries]) == []
    assert b'"reroute"' in b"".join(each.body for each in entries)


async def test_the_stronger_one_stays_strong_whatever_tier_the_step_names():
    hand, strong = scripted([HARD], name="a"), scripted(["strongly"], name="b")
    tiers = {"hand": hand, "strong": strong}
    assert (await play(Agent("clerk"), tiers, {**ONE, "tier": "hand"})).result == "strongly"
    assert len(hand.requests) == 1


async def test_invalid_output_is_tried_once_more_by_an_idempotent_agent_then_goes_up():
    hand, strong = scripted(["words"], name="a"), scripted([calls("finish", result=7)], name="b")
    agent = Agent("clerk", returns=int, idempotent=True)
    outcome = await play(agent, {"hand": hand, "strong": strong})
    assert outcome.result == 7
    assert len(hand.requests) == 4
    assert len(strong.requests) == 1


async def test_a_stronger_one_does_not_do_again_what_was_done():
    sent = []

    @worker(effects="mail")
    async def send() -> str:
        sent.append(1)
        return "sent"

    hand, strong = scripted([calls("send"), HARD], name="a"), scripted([calls("send")], name="b")
    outcome = await play(Agent("clerk", tools=[send]), {"hand": hand, "strong": strong})
    assert outcome.status == "waiting"
    assert sent == [1]
    assert strong.requests == []


async def test_alternatives_of_the_step_come_before_the_stronger_one():
    @worker
    def other() -> str:
        return "other"

    hand, strong = scripted([HARD], name="a"), scripted(["strongly"], name="b")
    lead = Lead(
        [Agent("clerk"), other], store=MemoryStore(), tiers={"hand": hand, "strong": strong}
    )
    outcome = await lead.run({"goal": "g", "steps": [{**ONE, "alternatives": ["other"]}]})
    assert outcome.result == "other"


async def test_there_is_no_stronger_one_without_another_model():
    one = scripted([HARD], name="a")
    for tiers in ({"hand": one}, {"hand": ["chat:m@http://127.0.0.1:1"]}):
        lead = Lead([Agent("clerk")], store=MemoryStore(), tiers=tiers)
        assert lead.registry.get("clerk@strong") is None
        assert not lead.registry.get("clerk").spec.stronger


def test_everybody_who_may_do_a_step_counts():
    """Named ones first, then who stands behind them, each once, rings included."""
    specs = {
        "a": WorkerSpec(name="a", stronger="a2"),
        "a2": WorkerSpec(name="a2", stronger="a3"),
        "a3": WorkerSpec(name="a3", stronger="a"),
        "b": WorkerSpec(name="b", stronger="gone"),
    }
    assert able_workers({"worker": "a", "alternatives": ["b"]}, specs) == (
        "a",
        "b",
        "a2",
        "a3",
        "gone",
    )
    assert able_workers({"worker": "x"}, specs) == ("x",)


def test_the_stronger_one_is_inside_of_what_is_reviewed():
    """Its risk, effects and price count from the start, so that no approval is too small."""
    weak = WorkerSpec(name="a", kind="agent", stronger="b", offers={"": Offer(effects=())})
    high = Offer(effects=("mail",), risk="high", cost=5.0)
    strong = WorkerSpec(name="b", kind="agent", offers={"": high})
    found = reach([{"id": "s", "worker": "a"}], Catalog([weak, strong]))
    assert found.workers == {"a", "b"}
    assert found.effects == {"mail"}
    assert (found.risk, found.cost) == ("high", 5.0)


async def test_a_change_of_the_stronger_one_alone_voids_an_approval(tmp_path):
    def lead(version):
        first, behind = scripted_worker("a", ["x"]), scripted_worker("b", ["y"])
        first.spec = replace(first.spec, stronger="b")
        behind.spec = replace(behind.spec, version=version)
        return Lead([first, behind], store=tmp_path / "x.db")

    step = {"id": "one", "worker": "a", "risk_level": "high"}
    waiting = await lead("1").run({"goal": "g", "steps": [step]})
    assert versions([step], lead("1").registry.catalog()) == {"a": "scripted", "b": "1"}
    await lead("1").answer(waiting.run, "review-1", "approve")
    assert (await lead("2").resume(waiting.run)).status == "waiting"


async def test_a_rule_about_the_stronger_one_holds_before_it_is_needed():
    hand, strong = scripted(["fine"], name="a"), scripted(["x"], name="b")
    policy = Policy(rules=(Rule(workers=("clerk@strong",), then="one"),))
    outcome = await play(Agent("clerk"), {"hand": hand, "strong": strong}, policy=policy)
    assert outcome.status == "waiting"
    assert hand.requests == []


async def test_a_goal_is_planned_with_the_agent_and_not_with_the_one_behind_it():
    hand, strong = scripted([HARD], name="a"), scripted([calls("finish", result="s")], name="b")
    agent = Agent("clerk", gives="summary", returns=str)
    lead = Lead([agent], store=MemoryStore(), tiers={"hand": hand, "strong": strong})
    plan = await lead.plan("sum it up", want="summary")
    assert [step.worker for step in plan.steps] == ["clerk"]
    assert "alternatives" not in plan.steps[0].to_doc()
    outcome = await lead.run(plan)
    assert outcome.result == "s"


@pytest.mark.parametrize("what", ["nothing", "tool", "instructions", "model"])
async def test_another_model_tool_or_prompt_voids_an_approval(tmp_path, what):
    """What runs is what was approved, or nothing."""

    async def look() -> str:
        return "x"

    @worker
    async def note() -> str:
        return "y"

    def lead_with(tools, tiers, **more):
        return Lead([Agent("clerk", tools=tools, **more)], store=tmp_path / "x.db", tiers=tiers)

    tiers = {"hand": scripted(["fine"], name="a"), "strong": scripted(["fine"], name="b")}
    lead = lead_with([look], tiers)
    waiting = await lead.run({"goal": "g", "steps": [{**ONE, "risk_level": "high"}]})
    assert waiting.status == "waiting"
    await lead.answer(waiting.run, "review-1", "approve")
    other = {
        "nothing": lambda: lead_with([look], tiers),
        "tool": lambda: lead_with([look, note], tiers),
        "instructions": lambda: lead_with([look], tiers, instructions="Hurry."),
        "model": lambda: lead_with([look], {**tiers, "strong": scripted(["fine"], name="c")}),
    }[what]()
    outcome = await other.resume(waiting.run)
    assert outcome.status == ("succeeded" if what == "nothing" else "waiting")
