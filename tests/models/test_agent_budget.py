"""A budget holds however many agents ask at once: the overrun is at most what was in flight."""

import asyncio

from leadhand import Agent, Lead, Policy
from leadhand.models.messages import Usage
from leadhand.stores.memory import MemoryStore
from leadhand.testing import ScriptedModel
from leadhand.testing.models import Price

CALLS = 1000
ALLOWED = 100
COST = 0.01
"""What one call comes to: a thousand tokens at ten dollars for a million."""


async def test_a_thousand_agents_with_money_for_a_hundred_calls():
    """More is set aside for a call than it comes to, so a few wait and still get their turn."""
    in_flight = most = 0

    async def answering(_request):
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0.01)
        in_flight -= 1
        return "done"

    model = ScriptedModel(answering, price=Price(0.0, 10.0), usage=Usage(1000, 1000))
    agent = Agent("clerk", model, answer_tokens=2000)
    policy = Policy(budget=ALLOWED * COST, max_concurrency=CALLS, attempts_max=1)
    lead = Lead([agent], store=MemoryStore(), policy=policy)
    steps = [{"id": f"s{i}", "worker": "clerk", "failure_action": "continue"} for i in range(CALLS)]
    outcome = await lead.run({"goal": "g", "steps": steps})
    assert 90 <= len(model.requests) <= ALLOWED
    assert most > 1
    assert outcome.cost <= ALLOWED * COST + 1e-9
    assert abs(outcome.cost - len(model.requests) * COST) < 1e-6
    refused = [step.error for step in outcome.steps if step.status != "succeeded"]
    assert len(refused) == CALLS - len(model.requests)
    assert {failure.failure_class for failure in refused} == {"budget"}


async def test_after_the_money_is_spent_no_call_is_made():
    model = ScriptedModel(lambda _request: "done", price=Price(0.0, 10.0), usage=Usage(1000, 1000))
    policy = Policy(budget=COST * 1.5, max_concurrency=1, attempts_max=1)
    lead = Lead([Agent("clerk", model, answer_tokens=1000)], store=MemoryStore(), policy=policy)
    steps = [{"id": f"s{i}", "worker": "clerk", "failure_action": "continue"} for i in range(20)]
    outcome = await lead.run({"goal": "g", "steps": steps})
    assert len(model.requests) <= 2
    assert outcome.cost <= COST * 2
