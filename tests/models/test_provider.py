"""What a provider sends, good and bad, as an answer or as a failure of the right class."""

import asyncio

import pytest

from leadhand.models.failures import ModelFailure
from leadhand.models.messages import ModelRequest, Result, ToolDef, UserMessage
from leadhand.models.names import ModelName
from leadhand.models.registry import ModelRegistry
from leadhand.testing.endpoint import (
    Cut,
    Data,
    Endpoint,
    Fail,
    Garbage,
    Hang,
    Huge,
    Refuse,
    Say,
    Truncated,
    Usage,
    Use,
    Uses,
)

PROVIDERS = ("anthropic", "chat", "responses")
FORM = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "free": {"type": "object"}},
    "required": ["a"],
}
ADD = ToolDef(
    "add", "adds", {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
)


def client(provider, endpoint):
    return ModelRegistry().client(f"{provider}:m@{endpoint.url.rstrip('/')}/v1")


async def asked(provider, *replies, heard=None, **more):
    async with Endpoint(list(replies)) as endpoint:
        request = ModelRequest(
            system="be brief", turns=(UserMessage("hello"),), timeout_s=5, **more
        )
        return await client(provider, endpoint).ask(request, heard), endpoint


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_text_comes_whole_and_in_pieces(provider):
    pieces = []
    answer, endpoint = await asked(
        provider, Say("well, hello there", usage=Usage(31, 7)), heard=pieces.append
    )
    assert answer.text == "".join(pieces) == "well, hello there"
    assert (answer.usage.input, answer.usage.output) == (31, 7)
    assert endpoint.requests[0].system == "be brief"
    assert endpoint.requests[0].stream


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_tools_are_offered_called_and_answered(provider):
    answer, endpoint = await asked(
        provider, Uses((Use("add", {"x": 1}), Use("add", {"x": 2}))), tools=(ADD,)
    )
    assert [(call.tool, call.arguments) for call in answer.calls] == [
        ("add", {"x": 1}),
        ("add", {"x": 2}),
    ]
    assert [tool.name for tool in endpoint.requests[0].tools] == ["add"]
    results = tuple(Result(call.id, call.tool, "three") for call in answer.calls)
    async with Endpoint([Say("done")]) as second:
        turns = (UserMessage("hello"), answer.turn(), *results)
        await client(provider, second).ask(ModelRequest(system="", turns=turns, tools=(ADD,)))
        heard = [result for message in second.requests[0].messages for result in message.results]
    assert [result.text for result in heard] == ["three", "three"]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_data_comes_in_the_form_that_was_asked_for(provider):
    answer, _ = await asked(provider, Data({"a": 1, "free": {"b": [2]}}), schema=FORM)
    assert answer.data == {"a": 1, "free": {"b": [2]}}
    assert answer.calls == ()


FAILURES = {
    "429": (Fail(429, retry_after_s=7), "rate_limited"),
    "500": (Fail(500), "transient"),
    "503": (Fail(503), "transient"),
    "529": (Fail(529), "transient"),
    "overloaded in the stream": (Fail(529, streamed=True), "transient"),
    "quota": (Fail(429, kind="quota"), "unavailable"),
    "401": (Fail(401), "denied"),
    "404": (Fail(404), "unavailable"),
    "413": (Fail(413), "context_overflow"),
    "too long": (Fail(400, kind="context_length"), "context_overflow"),
    "cut off": (Cut(Say("a few words are said"), at="text"), "transient"),
    "cut off cleanly": (Cut(Say("a few words are said"), at="text", how="end"), "transient"),
    "cut off in a call": (Cut(Use("add", {"x": 1234}), at="arguments"), "transient"),
    "ended in a call": (Cut(Use("add", {"x": 1234}), at="arguments", how="end"), "transient"),
    "ended before the end": (Cut(Use("add", {"x": 1234}), at="end", how="end"), "transient"),
    "garbage": (Garbage(), "invalid_output"),
    "huge": (Huge(2_500_000), "invalid_output"),
    "refused": (Refuse(), "policy"),
    "at the limit of tokens": (Truncated("half a"), "invalid_output"),
    "a call at the limit": (Truncated("", call=Use("add", '{"x": 1')), "invalid_output"),
    "empty": (Say("  "), "invalid_output"),
}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("case", FAILURES)
async def test_whatever_goes_wrong_has_its_class(provider, case):
    reply, expected = FAILURES[case]
    with pytest.raises(ModelFailure) as caught:
        await asked(provider, reply, tools=(ADD,))
    assert caught.value.failure_class == expected, str(caught.value)
    assert caught.value.effect == "none"
    assert caught.value.retry_after_s == (7 if case == "429" else None)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_no_answer_in_time(provider):
    async with Endpoint([Hang(30)]) as endpoint:
        request = ModelRequest(system="", turns=(UserMessage("hello"),), timeout_s=0.3)
        with pytest.raises(ModelFailure) as caught:
            await client(provider, endpoint).ask(request)
    assert caught.value.failure_class == "timeout"


async def test_nobody_is_there():
    request = ModelRequest(system="", turns=(UserMessage("hello"),), timeout_s=5)
    with pytest.raises(ModelFailure) as caught:
        await ModelRegistry().client("chat:m@http://127.0.0.1:9/v1").ask(request)
    assert caught.value.failure_class == "transient"


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_nothing_is_asked_twice_of_its_own_accord(provider):
    async with Endpoint([Fail(500), Say("late")]) as endpoint:
        with pytest.raises(ModelFailure):
            await client(provider, endpoint).ask(
                ModelRequest(system="", turns=(UserMessage("hello"),))
            )
        assert len(endpoint.requests) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_data_that_is_no_json_keeps_its_words(provider):
    with pytest.raises(ModelFailure) as caught:
        await asked(provider, Say("1. fetch it\n2. read it"), schema=FORM)
    assert caught.value.failure_class == "invalid_output"
    assert "fetch it" in caught.value.text


async def test_a_call_can_be_cancelled():
    async with Endpoint([Hang(30)]) as endpoint:
        task = asyncio.create_task(
            client("chat", endpoint).ask(ModelRequest(system="", turns=(UserMessage("hello"),)))
        )
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_key_comes_from_its_variable_and_is_not_told(monkeypatch):
    monkeypatch.setenv("OUR_KEY", "canary-key-0123456789")
    async with Endpoint([Fail(401)]) as endpoint:
        name = ModelName("chat", "m", f"{endpoint.url.rstrip('/')}/v1", key="OUR_KEY")
        book = ModelRegistry(models={"mine": name})
        with pytest.raises(ModelFailure) as caught:
            await book.client("mine").ask(ModelRequest(system="", turns=(UserMessage("hello"),)))
        assert endpoint.requests[0].headers["authorization"] == "Bearer canary-key-0123456789"
    assert "canary" not in str(caught.value)
    monkeypatch.delenv("OUR_KEY")
    with pytest.raises(ModelFailure, match="OUR_KEY") as caught:
        await (
            ModelRegistry(models={"mine": name})
            .client("mine")
            .ask(ModelRequest(system="", turns=(UserMessage("hello"),)))
        )
    assert caught.value.failure_class == "denied"


CLAUDE = ("claude-opus-4-5", "claude-sonnet-5", "claude-haiku-4-5", "claude-opus-5-5")
CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


async def asked_as(name, form, reply, **more):
    """One question to a real model name, and the request that arrived."""
    async with Endpoint([reply]) as endpoint:
        book = ModelRegistry(
            models={"mine": ModelName(*name.split(":"), f"{endpoint.url}/v1", **more)}
        )
        request = ModelRequest(
            system="be brief", turns=(UserMessage("hello"),), timeout_s=5, schema=form
        )
        return await book.client("mine").ask(request), endpoint.requests[0]


@pytest.mark.parametrize("model", CLAUDE)
async def test_an_open_form_is_asked_of_claude_with_a_tool_that_keeps_it_open(model):
    reply = Data({"a": 1, "free": {"b": 2}}, tool="answer")
    answer, request = await asked_as(f"anthropic:{model}", FORM, reply)
    assert answer.data == {"a": 1, "free": {"b": 2}}
    assert request.schema is None
    assert request.tools[0].schema == FORM
    assert "strict" not in request.body["tools"][0]
    # Those that think before they speak are not forced: some refuse it, others would not think.
    assert request.forced == ("*" if "-4-" in model else "")


@pytest.mark.parametrize("model", CLAUDE)
async def test_data_that_comes_as_words_instead_of_the_tool_is_taken(model):
    reply = Say('Here it is:\n```json\n{"a": 1, "free": {"b": 2}}\n```')
    answer, _ = await asked_as(f"anthropic:{model}", FORM, reply)
    assert answer.data == {"a": 1, "free": {"b": 2}}


@pytest.mark.parametrize("model", CLAUDE)
async def test_a_closed_form_is_asked_of_claude_natively(model):
    answer, request = await asked_as(f"anthropic:{model}", CLOSED, Data({"a": 1}))
    assert (answer.data, request.schema, request.tools) == ({"a": 1}, CLOSED, ())


@pytest.mark.parametrize("model", CLAUDE)
async def test_native_that_was_wished_for_asks_for_open_parts_as_a_text(model):
    reply = Data({"a": 1, "free": '{"b": 2}'})
    answer, request = await asked_as(f"anthropic:{model}", FORM, reply, schema="native")
    assert answer.data == {"a": 1, "free": {"b": 2}}
    assert request.schema["properties"]["free"]["type"] == "string"
    assert request.schema["additionalProperties"] is False


@pytest.mark.parametrize("model", CLAUDE)
async def test_an_agent_that_must_call_a_tool_can_be_any_claude(model):
    async with Endpoint([Use("add", {"x": 1})]) as endpoint:
        asking = ModelRegistry().client(f"anthropic:{model}@{endpoint.url}/v1")
        request = ModelRequest(
            system="", turns=(UserMessage("hello"),), tools=(ADD,), must_call=True
        )
        answer = await asking.ask(request)
    assert answer.calls[0].tool == "add"
