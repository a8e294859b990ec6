"""The scripted endpoint behind pydantic-ai, the client layer: its models take it for real."""

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelHTTPError, NativeOutput, ToolOutput
from pydantic_ai.exceptions import ModelAPIError, UnexpectedModelBehavior
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from leadhand.testing.endpoint import (
    Cut,
    Data,
    Endpoint,
    Fail,
    Garbage,
    Loop,
    Refuse,
    Say,
    Truncated,
    Usage,
    Use,
    Wrong,
)
from tests.support.providers import clients

MODELS = ["anthropic", "chat", "responses"]
every_model = pytest.mark.parametrize("kind", MODELS)
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


class Place(BaseModel):
    """A place."""

    city: str
    people: int


ULM = Place(city="Ulm", people=129_942)


def model_of(kind, both):
    anthropic, openai = both
    match kind:
        case "anthropic":
            provider = AnthropicProvider(anthropic_client=anthropic)
            return AnthropicModel("claude-opus-4-6", provider=provider)
        case "chat":
            return OpenAIChatModel("gpt-5.1", provider=OpenAIProvider(openai_client=openai))
        case "responses":
            return OpenAIResponsesModel("gpt-5.1", provider=OpenAIProvider(openai_client=openai))
    raise AssertionError(kind)


async def run(kind, stream, script, *, output_type=str, tools=()):
    """An agent's run against a script: its result, and the endpoint."""
    async with Endpoint(script) as endpoint, clients(endpoint.url) as both:
        agent = Agent(
            model_of(kind, both),
            instructions="Be brief.",
            output_type=output_type,
            tools=list(tools),
            retries=1,
        )
        if not stream:
            return await agent.run("How many people?"), endpoint
        async with agent.run_stream_events("How many people?") as events:
            async for event in events:
                last = event
        return last.result, endpoint


@every_model
@streamed
async def test_words_and_counts(kind, stream):
    """With the tokens of the script, those from a cache included."""
    given = Say("About 130,000.", Usage(input=50, output=7, cached=20))
    result, endpoint = await run(kind, stream, [given])
    assert result.output == "About 130,000."
    usage = result.usage
    assert (usage.input_tokens, usage.output_tokens) == (50, 7)
    assert usage.cache_read_tokens == 20
    assert endpoint.requests[0].system.endswith("Be brief.")
    # For Anthropic the client layer streams in any case, lest a long answer run into a limit.
    assert endpoint.requests[0].stream is (stream or kind == "anthropic")


@every_model
@streamed
async def test_a_tool_is_run_and_its_result_comes_back(kind, stream):
    """Once, with the arguments of the script."""
    calls = []

    def census(city: str) -> int:
        calls.append(city)
        return 129_942

    script = [Use("census", {"city": "Ulm"}, "Let me look."), Say("129,942.")]
    result, endpoint = await run(kind, stream, script, tools=[census])
    assert result.output == "129,942."
    assert calls == ["Ulm"]
    first, second = endpoint.requests
    assert [tool.name for tool in first.tools] == ["census"]
    assert [each.text for each in second.results] == ["129942"]
    assert second.turns == 1


@every_model
@streamed
@pytest.mark.parametrize("form", [NativeOutput, ToolOutput])
async def test_a_structured_answer(kind, stream, form):
    """As text for a schema, or as a call of the output tool: the script says the same."""
    result, endpoint = await run(kind, stream, [Data(ULM.model_dump())], output_type=form(Place))
    assert result.output == ULM
    assert (endpoint.requests[0].schema is not None) is (form is NativeOutput)


@every_model
@pytest.mark.parametrize("form", [NativeOutput, ToolOutput])
async def test_a_wrong_schema_is_sent_back_once(kind, form):
    """And then it is an error."""
    script = [Wrong(), Data(ULM.model_dump())]
    result, endpoint = await run(kind, False, script, output_type=form(Place))
    assert result.output == ULM
    assert len(endpoint.requests) == 2
    with pytest.raises(UnexpectedModelBehavior):
        await run(kind, False, [Loop(Wrong())], output_type=form(Place))


@every_model
@streamed
async def test_a_refusal_is_no_answer(kind, stream):
    """Nor is a filtered one."""
    script = [Loop(Refuse("I will not."))]
    try:
        result, _ = await run(kind, stream, script)
    except UnexpectedModelBehavior:
        return
    assert result.response.finish_reason == "content_filter"


@every_model
@streamed
async def test_an_answer_that_ran_out_of_tokens_says_so(kind, stream):
    """Its text is there, and so is the reason."""
    result, _ = await run(kind, stream, [Truncated("And so it was th")])
    assert result.response.finish_reason == "length"


@every_model
@streamed
@pytest.mark.parametrize("status", [400, 401, 429, 500, 503, 529])
async def test_a_status(kind, stream, status):
    """Is an error with that status."""
    with pytest.raises(ModelHTTPError) as raised:
        await run(kind, stream, [Fail(status, retry_after_s=3)])
    assert raised.value.status_code == status


@every_model
@pytest.mark.parametrize("how", ["close", "end"])
async def test_a_call_that_is_cut_runs_no_tool(kind, how):
    """In the middle of its arguments: an error, or a call that is sent back as not valid."""
    ran = []

    def write(text: str) -> str:
        ran.append(text)
        return "written"

    cut = Cut(Use("write", {"text": "once upon a time " * 10}), at="arguments", how=how)
    if how == "close":
        with pytest.raises(ModelAPIError):
            await run(kind, True, [cut], tools=[write])
    else:
        result, _ = await run(kind, True, [cut, Say("sorry")], tools=[write])
        assert result.output == "sorry"
    assert ran == []


@every_model
async def test_half_an_answer_that_looks_whole(kind):
    """Nothing is raised. Where half an answer must not count, the reason has to be looked at;
    and Chat Completions must be told that a stream without one is an error."""
    half = Cut(Say("Everything is fine, nothing went wrong."), at="text", how="end")
    result, _ = await run(kind, True, [half])
    assert result.output == "Everything is fine, noth"
    assert result.response.finish_reason == ("stop" if kind == "chat" else None)
    async with Endpoint([half]) as endpoint, clients(endpoint.url) as (_, openai):
        strict = OpenAIChatModel(
            "gpt-5.1",
            provider=OpenAIProvider(openai_client=openai),
            profile={"openai_chat_streaming_requires_finish_reason": True},
        )
        agent = Agent(strict)
        with pytest.raises(ModelAPIError, match="without a `finish_reason`"):
            async with agent.run_stream("How is it?") as stream:
                await stream.get_output()


@every_model
@streamed
async def test_garbage(kind, stream):
    """Is an error, however it is asked for."""
    with pytest.raises((ModelAPIError, UnexpectedModelBehavior, ValueError)):
        await run(kind, stream, [Garbage()] * 3)
