"""The scripted endpoint, as the real SDKs see it: whole and streamed, in each protocol."""

import json

import pytest

from leadhand.testing.endpoint import (
    Data,
    Endpoint,
    Huge,
    Loop,
    Refuse,
    Say,
    ToolCall,
    ToolResult,
    Truncated,
    Usage,
    Use,
    Uses,
    Wrong,
)
from tests.support.providers import KEY, SCHEMA, STREAMS, WAYS, Ask, ask, clients

every_way = pytest.mark.parametrize("way", WAYS)
ULM = {"city": "Ulm", "people": 129_942}
STOPS = {
    "end": {"end_turn", "stop", "completed"},
    "tools": {"tool_use", "tool_calls", "completed"},
    "length": {"max_tokens", "length", "max_output_tokens"},
    "refusal": {"refusal", "content_filter", "completed"},
}


async def answer(reply, way, what=None):
    async with Endpoint([reply]) as endpoint:
        return await ask(endpoint, way, what)


@every_way
async def test_words(way):
    """What the script says is what comes out, with umlauts, line ends and all."""
    text = 'Grüße,\n\nline\u2028two; "quotes", \\ and 漢字.\r\n' * 9
    seen = await answer(Say(text), way)
    assert seen.text == text
    assert seen.stop in STOPS["end"]
    assert not seen.calls


@every_way
async def test_a_tool_is_called(way):
    """With its arguments, after some words."""
    seen = await answer(Use("census", ULM, "Let me look."), way, Ask(tools=("census",)))
    assert seen.calls == [("census", ULM)]
    assert seen.text == "Let me look."
    assert seen.stop in STOPS["tools"]


@every_way
async def test_several_tools_are_called_at_once(way):
    """Each with an identity of its own."""
    calls = (Use("census", ULM), Use("census", {"city": "Jena", "people": 1}), Use("map"))
    seen = await answer(Uses(calls), way)
    assert seen.calls == [(each.tool, each.arguments) for each in calls]
    assert len(set(seen.ids)) == 3


@every_way
async def test_data_is_text_for_a_schema(way):
    """Native structured output."""
    seen = await answer(Data(ULM), way, Ask(schema=SCHEMA))
    assert seen.text == '{"city":"Ulm","people":129942}'
    assert not seen.calls


@every_way
async def test_data_is_a_call_when_a_tool_is_forced(way):
    """Structured output by way of a tool."""
    seen = await answer(Data(ULM), way, Ask(tools=("map", "place"), force="place"))
    assert seen.calls == [("place", ULM)]
    assert not seen.text


@every_way
async def test_data_goes_to_the_tool_for_results(way):
    """Where several tools may be called and one is known to take the result."""
    seen = await answer(Data(ULM), way, Ask(tools=("map", "final_result")))
    assert seen.calls == [("final_result", ULM)]
    assert (await answer(Wrong(), way, Ask(schema=SCHEMA))).text.startswith('{"nobody')


@every_way
async def test_tokens_as_given(way):
    """Read, from a cache, written: the same numbers in each protocol, streamed or not."""
    seen = await answer(Say("hello", Usage(input=1200, output=34, cached=1000)), way)
    assert seen.tokens == (1200, 1000, 34)


@every_way
async def test_tokens_as_computed(way):
    """They grow with what was asked and with what was said."""
    little = await answer(Say("hello"), way)
    asked_more = await answer(Say("hello"), way, Ask(text="well " * 1000))
    said_more = await answer(Say("hello " * 1000), way)
    assert asked_more.tokens[0] - little.tokens[0] > 1000
    assert said_more.tokens[2] == 1500


@every_way
async def test_a_refusal(way):
    """Each provider has its own word for it, and none is an ordinary answer."""
    seen = await answer(Refuse("That I will not do."), way)
    assert seen.refusal == "That I will not do."
    assert seen.stop in STOPS["refusal"]


@every_way
async def test_an_answer_that_ran_out_of_tokens(way):
    """Also in the middle of a call's arguments."""
    seen = await answer(Truncated("And so it was th"), way)
    assert (seen.text, seen.stop in STOPS["length"]) == ("And so it was th", True)
    seen = await answer(Truncated("", Use("census", ULM)), way)
    assert seen.stop in STOPS["length"]
    assert seen.calls != [("census", ULM)]


@every_way
async def test_a_huge_answer(way):
    """Three million characters, in a bounded number of pieces."""
    seen = await answer(Huge(3_000_000), way)
    assert len(seen.text) == 3_000_000
    assert seen.pieces <= 101


@pytest.mark.parametrize("way", STREAMS)
async def test_a_stream_comes_in_pieces(way):
    """Text and arguments alike."""
    assert (await answer(Say("once upon a time " * 5), way)).pieces > 3
    assert (await answer(Use("write", {"text": "once upon a time " * 5}), way)).pieces > 3


async def test_a_tool_that_takes_a_text_as_it_stands():
    """Responses has them; their input is no JSON."""
    patch = "*** Begin Patch\n+once upon a time\n*** End Patch"
    given = {"model": "m", "input": "go", "tools": [{"type": "custom", "name": "patch"}]}
    async with Endpoint([Loop(Use("patch", patch))]) as endpoint, clients(endpoint.url) as both:
        whole = await both[1].responses.create(**given)
        async with both[1].responses.stream(**given) as stream:
            last = await stream.get_final_response()
    for response in (whole, last):
        assert [(each.type, each.input) for each in response.output] == [
            ("custom_tool_call", patch)
        ]


async def test_tools_in_a_group_of_responses():
    """As Codex offers those of an MCP server: `GROUP__NAME` in the script, apart on the wire."""
    tool = {"type": "function", "name": "propose", "parameters": {"type": "object"}}
    group = {"type": "namespace", "name": "mcp__x", "description": "", "tools": [tool]}
    given = {"model": "m", "input": "go", "tools": [group]}
    script = [Use("mcp__x__propose", {"a": 1})]
    async with Endpoint(script) as endpoint, clients(endpoint.url) as both:
        said = await both[1].responses.create(**given)
        (request,) = endpoint.requests
    (called,) = said.output
    assert (called.namespace, called.name) == ("mcp__x", "propose")
    assert json.loads(called.arguments) == {"a": 1}
    assert [each.name for each in request.tools] == ["mcp__x__propose"]


# --- what the script sees ------------------------------------------------------------------


@every_way
async def test_a_request_is_seen_alike(way):
    """System text, messages, tools, schema, model: whoever sent them."""
    async with Endpoint(lambda _request: Say("ok")) as endpoint:
        wanted = Ask("How many?", "Be brief.", ("census", "map"), "map", SCHEMA)
        await ask(endpoint, way, wanted)
        await ask(endpoint, way)
    full, bare = endpoint.requests
    assert full.protocol == way.partition("-")[0]
    assert full.stream is way.endswith("-stream")
    assert (full.model, full.system, full.text) == ("a-model", "Be brief.", "How many?")
    assert [tool.name for tool in full.tools] == ["census", "map"]
    assert full.tools[0].schema == full.schema == SCHEMA
    assert full.forced == "map"
    assert (bare.system, bare.tools, bare.forced, bare.schema) == ("", (), "", None)
    assert (full.number, bare.number) == (0, 1)
    assert full.at < bare.at


async def test_a_conversation_is_seen_alike():
    """Earlier calls and what the tools gave."""
    call, result = ToolCall("t1", "census", ULM), ToolResult("t1", "129942")
    async with Endpoint([Say("ok")] * 3) as endpoint, clients(endpoint.url) as both:
        anthropic, openai = both
        await anthropic.messages.create(
            model="m",
            max_tokens=9,
            messages=[
                {"role": "user", "content": "go"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "I look."},
                        {"type": "tool_use", "id": "t1", "name": "census", "input": ULM},
                    ],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "129942"}],
                },
            ],
        )
        arguments = '{"city": "Ulm", "people": 129942}'
        await openai.chat.completions.create(
            model="m",
            messages=[
                {"role": "user", "content": "go"},
                {
                    "role": "assistant",
                    "content": "I look.",
                    "tool_calls": [
                        {
                            "id": "t1",
                            "type": "function",
                            "function": {"name": "census", "arguments": arguments},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "t1", "content": "129942"},
            ],
        )
        await openai.responses.create(
            model="m",
            input=[
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": "I look."},
                {
                    "type": "function_call",
                    "call_id": "t1",
                    "name": "census",
                    "arguments": arguments,
                },
                {"type": "function_call_output", "call_id": "t1", "output": "129942"},
            ],
        )
    for request in endpoint.requests:
        first, said, _ = request.messages
        assert (first.role, first.text) == ("user", "go")
        assert (said.role, said.text, said.calls) == ("assistant", "I look.", (call,))
        assert request.results == (result,)
        assert request.turns == 1


async def test_a_script_that_decides():
    """A function sees the request; it may also take its time."""

    async def script(request):
        return Say("done") if request.results else Use("census", ULM)

    async with Endpoint(script) as endpoint:
        seen = await ask(endpoint, "chat")
    assert seen.calls == [("census", ULM)]


async def test_secrets_are_not_shown():
    """A key is there for who looks at it, and in no text of a request."""
    async with Endpoint(lambda _request: Say("ok")) as endpoint:
        for way in WAYS:
            await ask(endpoint, way)
    for request in endpoint.requests:
        assert KEY in request.headers["Authorization"] + request.headers.get("X-Api-Key", "")
    assert KEY not in repr(endpoint.requests)


# --- scripts -------------------------------------------------------------------------------


async def test_a_script_that_is_used_up_answers_no_more():
    """It is refused with a status nobody tries again, and counted."""
    async with Endpoint([Say("one")]) as endpoint:
        await ask(endpoint, "anthropic")
        for way in WAYS:
            with pytest.raises(Exception, match="no reply left") as raised:
                await ask(endpoint, way)
            assert raised.value.status_code == 400
    assert endpoint.unanswered == 6


async def test_a_loop_never_ends():
    """The same call for ever; what stands behind it is not reached."""
    async with Endpoint([Say("first"), Loop(Use("census", ULM)), Say("never")]) as endpoint:
        seen = [await ask(endpoint, way) for way in [*WAYS, *WAYS]]
    assert seen[0].text == "first"
    assert all(each.calls == [("census", ULM)] for each in seen[1:])
    assert len({id_ for each in seen[1:] for id_ in each.ids}) == 11


async def test_an_error_in_a_script_is_not_lost():
    """The client is refused, and the test that wrote the script fails."""

    def script(request):
        assert request.model == "another"

    endpoint = await Endpoint(script).__aenter__()
    with pytest.raises(Exception, match="the script failed"):
        await ask(endpoint, "chat")
    with pytest.raises(AssertionError):
        await endpoint.__aexit__(None, None, None)
