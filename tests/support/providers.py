"""The real SDKs of two providers, asked in six ways; what they give, in the same words."""

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from leadhand.testing.endpoint import Endpoint

KEY = "sk-not-a-real-key"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}


@dataclass
class Seen:
    """An answer as a caller of an SDK gets it."""

    text: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    """Tools with their arguments; arguments that are no JSON stay text."""
    ids: list[str] = field(default_factory=list)
    stop: str | None = None
    refusal: str = ""
    tokens: tuple[int, int, int] | None = None
    """Read (all of them), from a cache, written."""
    pieces: int = 0


@dataclass
class Ask:
    """What to ask for, in nobody's dialect."""

    text: str = "What is it like?"
    system: str = ""
    tools: tuple[str, ...] = ()
    force: str = ""
    schema: Any = None
    timeout: float = 20.0


@asynccontextmanager
async def clients(url: str):
    """Both clients; they never try again by themselves."""
    options: dict[str, Any] = {"api_key": KEY, "max_retries": 0}
    async with (
        AsyncAnthropic(base_url=url, **options, http_client=_plain()) as anthropic,
        AsyncOpenAI(base_url=f"{url}/v1", **options, http_client=_plain()) as openai,
    ):
        yield anthropic, openai


def _plain() -> httpx2.AsyncClient:
    """Nothing here is encrypted, and to load certificates takes longer than to ask."""
    return httpx2.AsyncClient(verify=False)


async def ask(endpoint: Endpoint, way: str, what: Ask | None = None) -> Seen:
    """Ask in one of the six ways."""
    what = what or Ask()
    async with clients(endpoint.url) as (anthropic, openai):
        match way:
            case "anthropic":
                return _message(await anthropic.messages.create(**_anthropic(what)))
            case "anthropic-stream":
                return await _anthropic_stream(anthropic, what)
            case "chat":
                return _completion(await openai.chat.completions.create(**_chat(what)))
            case "chat-stream":
                return await _chat_stream(openai, what)
            case "responses":
                return _response(await openai.responses.create(**_responses(what)))
            case "responses-stream":
                return await _responses_stream(openai, what)
    raise AssertionError(way)


WAYS = [
    f"{protocol}{stream}"
    for protocol in ("anthropic", "chat", "responses")
    for stream in ("", "-stream")
]
STREAMS = [way for way in WAYS if "-" in way]
WHOLE = [way for way in WAYS if "-" not in way]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


# --- Anthropic -----------------------------------------------------------------------------


def _anthropic(what: Ask) -> dict[str, Any]:
    given: dict[str, Any] = {
        "model": "a-model",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": what.text}],
        "timeout": what.timeout,
    }
    if what.system:
        given["system"] = what.system
    if what.tools:
        given["tools"] = [{"name": each, "input_schema": SCHEMA} for each in what.tools]
    if what.force:
        given["tool_choice"] = {"type": "tool", "name": what.force}
    if what.schema:
        given["output_config"] = {"format": {"type": "json_schema", "schema": what.schema}}
    return given


def _message(message: Any) -> Seen:
    usage = message.usage
    calls = [block for block in message.content if block.type == "tool_use"]
    return Seen(
        text="".join(block.text for block in message.content if block.type == "text"),
        calls=[(block.name, block.input) for block in calls],
        ids=[block.id for block in calls],
        stop=message.stop_reason,
        refusal=(message.stop_details and message.stop_details.explanation) or "",
        tokens=(
            usage.input_tokens + usage.cache_read_input_tokens,
            usage.cache_read_input_tokens,
            usage.output_tokens,
        ),
    )


async def _anthropic_stream(client: AsyncAnthropic, what: Ask) -> Seen:
    pieces = 0
    async with client.messages.stream(**_anthropic(what)) as stream:
        async for event in stream:
            pieces += event.type == "content_block_delta"
        seen = _message(await stream.get_final_message())
    seen.pieces = pieces
    return seen


# --- OpenAI Chat Completions ---------------------------------------------------------------


def _chat(what: Ask) -> dict[str, Any]:
    given: dict[str, Any] = {
        "model": "a-model",
        "messages": [{"role": "user", "content": what.text}],
        "timeout": what.timeout,
    }
    if what.system:
        given["messages"].insert(0, {"role": "system", "content": what.system})
    if what.tools:
        given["tools"] = [
            {"type": "function", "function": {"name": each, "parameters": SCHEMA}}
            for each in what.tools
        ]
    if what.force:
        given["tool_choice"] = {"type": "function", "function": {"name": what.force}}
    if what.schema:
        wanted = {"name": "answer", "schema": what.schema, "strict": True}
        given["response_format"] = {"type": "json_schema", "json_schema": wanted}
    return given


def _completion(completion: Any) -> Seen:
    choice, usage = completion.choices[0], completion.usage
    calls = choice.message.tool_calls or ()
    return Seen(
        text=choice.message.content or "",
        calls=[(call.function.name, _json(call.function.arguments)) for call in calls],
        ids=[call.id for call in calls],
        stop=choice.finish_reason,
        refusal=choice.message.refusal or "",
        tokens=_chat_tokens(usage),
    )


def _chat_tokens(usage: Any) -> tuple[int, int, int]:
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    cached = usage.prompt_tokens_details.cached_tokens
    return usage.prompt_tokens, cached, usage.completion_tokens


async def _chat_stream(client: AsyncOpenAI, what: Ask) -> Seen:
    """Chunk by chunk: the SDK's own accumulation raises where an answer is merely unwelcome."""
    seen, arguments = Seen(), {}
    stream = await client.chat.completions.create(
        **_chat(what), stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        if chunk.usage:
            seen.tokens = _chat_tokens(chunk.usage)
        for choice in chunk.choices:
            delta = choice.delta
            seen.text += delta.content or ""
            seen.refusal += delta.refusal or ""
            seen.stop = choice.finish_reason or seen.stop
            seen.pieces += bool(delta.content or delta.refusal or delta.tool_calls)
            for call in delta.tool_calls or ():
                if call.id:
                    seen.ids.append(call.id)
                    arguments[call.index] = [call.function.name, ""]
                arguments[call.index][1] += call.function.arguments
    seen.calls = [(name, _json(text)) for name, text in arguments.values()]
    return seen


# --- OpenAI Responses ----------------------------------------------------------------------


def _responses(what: Ask) -> dict[str, Any]:
    given: dict[str, Any] = {"model": "a-model", "input": what.text, "timeout": what.timeout}
    if what.system:
        given["instructions"] = what.system
    if what.tools:
        given["tools"] = [
            {"type": "function", "name": each, "parameters": SCHEMA, "strict": True}
            for each in what.tools
        ]
    if what.force:
        given["tool_choice"] = {"type": "function", "name": what.force}
    if what.schema:
        wanted = {"type": "json_schema", "name": "answer", "schema": what.schema}
        given["text"] = {"format": wanted}
    return given


def _response(response: Any) -> Seen:
    calls = [item for item in response.output if item.type == "function_call"]
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    usage, details = response.usage, response.incomplete_details
    tokens = None
    if usage is not None:
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens
        tokens = (usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens)
    return Seen(
        text="".join(part.text for part in parts if part.type == "output_text"),
        calls=[(call.name, _json(call.arguments)) for call in calls],
        ids=[call.call_id for call in calls],
        stop=details.reason if details else response.status,
        refusal="".join(part.refusal for part in parts if part.type == "refusal"),
        tokens=tokens,
    )


async def _responses_stream(client: AsyncOpenAI, what: Ask) -> Seen:
    pieces, numbers, last = 0, [], None
    async with client.responses.stream(**_responses(what)) as stream:
        async for event in stream:
            pieces += event.type.endswith(".delta")
            numbers.append(event.sequence_number)
            last = event
    assert numbers == list(range(len(numbers)))
    ended = last is not None and hasattr(last, "response") and last.response.status
    if ended in {None, False, "in_progress"}:
        return Seen(stop=None, pieces=pieces)
    seen = _response(last.response)
    seen.pieces = pieces
    return seen
