"""Each misbehaviour of a provider is answered as its class is: the strategy, and the end of it."""

import msgspec
import pytest

from leadhand import Agent, GiveUp, Goal, Lead, Policy, Propose, ScriptPlanner, worker
from leadhand.stores.memory import MemoryStore
from leadhand.testing.endpoint import (
    Cut,
    Endpoint,
    Fail,
    Garbage,
    Hang,
    Huge,
    Loop,
    Refuse,
    Say,
    Truncated,
    Use,
    Wrong,
)

QUICK = Policy(backoff_s=0.01, jitter=0.0, park_s=60.0)
FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
GOOD = Use("finish", {"result": {"n": 1}})
LOOK = Use("look", {"at": "x"})

CASES = {
    "429": ([Fail(429, retry_after_s=0.05)], ["retry"], "hand"),
    "429 for an hour": ([Fail(429, retry_after_s=3600)], ["reroute"], "other"),
    "500": ([Fail(500)], ["retry"], "hand"),
    "529 twice": ([Fail(529), Fail(529)], ["retry", "retry"], "hand"),
    "500 for ever": ([Loop(Fail(500))], ["retry", "retry", "reroute"], "other"),
    "hang": ([Hang(30)], ["retry"], "hand"),
    "half a stream": ([Cut(GOOD, at="arguments", how="end")], ["retry"], "hand"),
    "garbage": ([Garbage()], ["retry"], "hand"),
    "garbage for ever": ([Loop(Garbage())], ["retry", "reroute"], "other"),
    "huge": ([Huge(2_500_000)], ["retry"], "hand"),
    "cut at the limit": ([Truncated("half")], ["retry"], "hand"),
    "wrong form twice": ([Use("finish", {"result": {}})] * 2, ["retry"], "hand"),
    "wrong data": ([Wrong(), Wrong()], ["retry"], "hand"),
    "key refused": ([Fail(401)], ["reroute"], "other"),
    "no credit": ([Fail(429, kind="quota")], ["reroute"], "other"),
    "no such model": ([Fail(404)], ["reroute"], "other"),
    "too long": ([Fail(400, kind="context_length")], ["reroute"], "other"),
    "a loop of tool calls": ([LOOK] * 4, ["reroute"], "other"),
    "refused": ([Refuse()], ["replan"], None),
}


@worker(effects=())
async def look(at: str) -> str:
    return "always the same"


@worker(effects=())
async def other(task: str = "") -> dict:
    return {"n": 2}


async def plan(view):
    """One step, and nothing to say when it has failed."""
    if view.call > 1:
        return GiveUp("there is no other way")
    step = {
        "id": "one",
        "worker": "hand",
        "parameters": {"task": "count"},
        "alternatives": ["other"],
    }
    return Propose((step,), final=True)


@pytest.mark.parametrize("case", CASES)
async def test_each_has_its_strategy_and_none_is_a_false_success(case):
    bad, strategies, done_by = CASES[case]
    async with Endpoint([*bad, GOOD, GOOD]) as endpoint:
        agent = Agent(
            "hand",
            f"anthropic:m@{endpoint.url}",
            idempotent=True,
            tools=[look],
            returns=FORM,
            timeout=3 if case == "hang" else 60,
        )
        store = MemoryStore()
        lead = Lead([agent, other], ScriptPlanner(plan, consult="on_surprise"), store, policy=QUICK)
        outcome = await lead.run(Goal(text="count"))
    bodies = [msgspec.json.decode(entry.body) for entry in store.read(outcome.run)]
    decided = [body["strategy"] for body in bodies if body["type"] == "RecoveryDecided"]
    assert decided == strategies
    if done_by is None:
        assert outcome.status == "failed"
        return
    assert outcome.status == "succeeded"
    assert outcome.steps[0].worker == done_by
    assert outcome.result == {"n": 1 if done_by == "hand" else 2}


async def test_a_plain_text_is_no_result_where_a_form_was_declared():
    async with Endpoint([Loop(Say("It is 1, I think."))]) as endpoint:
        agent = Agent("hand", f"chat:m@{endpoint.url}/v1", returns=FORM)
        lead = Lead([agent], store=MemoryStore(), policy=QUICK)
        outcome = await lead.run({"goal": "g", "steps": [{"id": "one", "worker": "hand"}]})
    assert outcome.status == "waiting"
    assert outcome.steps[0].error.failure_class == "invalid_output"
