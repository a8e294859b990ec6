"""An agent against a real endpoint that behaves badly: nothing happens on half an answer."""

import asyncio

import pytest

from leadhand import Agent, Lead, Policy, worker
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
    Uses,
)

PROTOCOLS = ["anthropic", "chat", "responses"]
ONCE = Policy(attempts_max=1)

pytest.importorskip("pydantic_ai")


class Mails:
    """Tools that remember."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def tool(self):
        @worker(effects="mail")
        async def send(to: str, text: str) -> str:
            """Send a mail."""
            self.sent.append(to)
            return "sent"

        return send


async def run(endpoint, protocol, tools=(), policy=ONCE, **options):
    model = f"{protocol}:scripted@{endpoint.url}"
    agent = Agent("hand", model, tools=tools, **options)
    lead = Lead(workers=[agent], store=MemoryStore(), policy=policy)
    step = {"id": "one", "worker": "hand", "parameters": {"task": "write to ada"}}
    return await lead.run({"goal": "g", "steps": [step]})


SEND = Use("send", {"to": "ada@example.org", "text": "a text that is long enough to be cut" * 5})


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_tool_is_called_and_its_result_read(protocol):
    mails = Mails()
    done = Use("finish", {"result": {"sent": 1}})
    returns = {"type": "object", "properties": {"sent": {"type": "integer"}}, "required": ["sent"]}
    async with Endpoint([SEND, done]) as endpoint:
        outcome = await run(endpoint, protocol, [mails.tool()], returns=returns)
    assert outcome.result == {"sent": 1}
    assert mails.sent == ["ada@example.org"]
    assert "sent" in endpoint.requests[1].results[0].text


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("at", ["arguments", "end"])
@pytest.mark.parametrize("how", ["close", "end"])
async def test_a_stream_that_is_cut_in_a_tool_call_runs_no_tool(protocol, at, how):
    mails = Mails()
    async with Endpoint(always(Cut(SEND, at=at, how=how))) as endpoint:
        outcome = await run(endpoint, protocol, [mails.tool()])
    assert mails.sent == []
    assert outcome.status == "waiting"
    failure = outcome.steps["one"].error
    assert failure.failure_class in ("transient", "invalid_output")
    assert failure.effect == "none"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_stream_that_is_cut_in_the_second_of_two_calls_runs_neither(protocol):
    mails = Mails()
    two = Uses((Use("send", {"to": "a", "text": "b"}), SEND))
    async with Endpoint(always(Cut(two, after=0.8))) as endpoint:
        outcome = await run(endpoint, protocol, [mails.tool()])
    assert mails.sent == []
    assert outcome.status == "waiting"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Fail(500), "transient"),
        (Fail(529), "transient"),
        (Fail(401), "denied"),
        (Fail(404), "unavailable"),
        (Fail.too_long(), "context_overflow"),
        (Fail.no_credit(), "unavailable"),
        (Refuse(), "policy"),
        (Truncated("half of", SEND), "invalid_output"),
        (Garbage(), "invalid_output transient"),
        (Huge(3_000_000), "invalid_output"),
        (Hang(), "timeout"),
    ],
)
async def test_every_misbehaviour_has_its_class_and_none_is_a_success(reply, kind):
    mails = Mails()
    async with Endpoint(always(reply)) as endpoint:
        outcome = await run(endpoint, "anthropic", [mails.tool()], timeout=3)
    assert outcome.status == "waiting"
    assert outcome.steps["one"].error.failure_class in kind.split()
    assert outcome.steps["one"].error.effect == "none"
    assert mails.sent == []


async def test_too_many_calls_are_waited_out_as_long_as_was_asked():
    async with Endpoint([Fail(429, retry_after_s=1), Say("done")]) as endpoint:
        began = asyncio.get_running_loop().time()
        outcome = await run(endpoint, "anthropic", policy=Policy(backoff_s=0.01))
        took = asyncio.get_running_loop().time() - began
    assert outcome.result == "done"
    assert outcome.steps["one"].attempts == 2
    assert took >= 1


async def test_a_long_outage_parks_the_step():
    async with Endpoint(always(Fail(429, retry_after_s=3600))) as endpoint:
        model = f"chat:scripted@{endpoint.url}"
        lead = Lead(workers=[Agent("hand", model)], store=MemoryStore())
        async with lead.hosting() as host:
            hosted = await lead.begin(
                host, {"goal": "g", "steps": [{"id": "one", "worker": "hand"}]}
            )
            async with asyncio.timeout(20):
                while not hosted.state.steps["one"].parked_s:
                    await asyncio.sleep(0.02)
            assert hosted.state.steps["one"].parked_s == 3600


async def test_cancelling_in_the_middle_of_an_answer_ends_the_call():
    async with Endpoint(always(Hang())) as endpoint:
        model = f"chat:scripted@{endpoint.url}"
        lead = Lead(workers=[Agent("hand", model)], store=MemoryStore())
        async with lead.hosting() as host:
            plan = {"goal": "g", "steps": [{"id": "one", "worker": "hand"}]}
            hosted = await lead.begin(host, plan)
            async with asyncio.timeout(20):
                while not endpoint.requests:
                    await asyncio.sleep(0.02)
                from leadhand.core import commands

                await hosted.submit_and_wait(
                    lambda s, now: commands.cancel(s, "ada", "enough", now)
                )
                assert await hosted.wait_idle() == "cancelled"
            async with asyncio.timeout(60):
                while endpoint.connections:
                    await asyncio.sleep(0.02)


def always(reply):
    return [Loop(reply)]
