"""A real language model behind a real endpoint: its words, streams, counts and schemas.

Temperature 0 and few tokens: what it says does not matter here, only that every way of asking
gives the same words and the same counts.
"""

import json
import subprocess
import sys
import urllib.request

import openai
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.support.providers import clients
from tests.support.smollm import END_SECONDS_MAX, MODEL, NoModel, answers, hold, let_go, within

pytestmark = [pytest.mark.real, pytest.mark.slow]

HELLO = [{"role": "user", "content": "Say hello."}]
FEW = 12
PLACE = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "country": {"enum": ["Germany", "France", "Spain"]},
        "people": {"type": "integer", "minimum": 1, "maximum": 999_999},
    },
    "required": ["city", "country", "people"],
    "additionalProperties": False,
}


def post(url, path, body):
    request = urllib.request.Request(
        f"{url}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read())


def tokens(url, text):
    """How many tokens a text has, as the model's own tokenizer counts."""
    return len(post(url, "/tokenize", {"content": text, "parse_special": True})["tokens"])


def prompt_tokens(url, messages=HELLO):
    """How many tokens the model reads: the messages in its template."""
    return tokens(url, post(url, "/apply-template", {"messages": messages})["prompt"])


@pytest.fixture
async def both(smollm):
    async with clients(smollm) as both:
        yield both


@pytest.fixture
def anthropic(both):
    return both[0]


@pytest.fixture
def chat(both):
    return both[1].chat.completions


@pytest.fixture
def responses(both):
    return both[1].responses


async def completed(chat, messages=HELLO, **more):
    return await chat.create(
        **{"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": FEW} | more
    )


async def streamed(chat, messages=HELLO, **more):
    usage = {"stream_options": {"include_usage": True}}
    stream = await completed(chat, messages, stream=True, **usage, **more)
    return [chunk async for chunk in stream]


# --- Chat Completions ----------------------------------------------------------------------


async def test_an_answer_and_its_counts(smollm, chat):
    """As many tokens as were allowed, and as many as its own tokenizer counts."""
    done = await completed(chat)
    text = done.choices[0].message.content
    assert text.strip()
    assert done.choices[0].finish_reason == "length"
    assert done.usage.completion_tokens == FEW == tokens(smollm, text)
    assert done.usage.prompt_tokens == prompt_tokens(smollm)
    assert done.usage.total_tokens == done.usage.prompt_tokens + FEW


async def test_an_answer_that_ends_by_itself(smollm, chat):
    """What ends it is a token too, and is counted."""
    done = await completed(chat, max_tokens=60)
    assert done.choices[0].finish_reason == "stop"
    assert done.usage.completion_tokens == tokens(smollm, done.choices[0].message.content) + 1


async def test_the_pieces_of_a_stream_are_the_whole(chat):
    """Same words, same reason, same counts."""
    whole = await completed(chat)
    chunks = await streamed(chat)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    pieces = [choice.delta.content for choice in choices if choice.delta.content]
    assert len(pieces) > FEW / 2
    assert "".join(pieces) == whole.choices[0].message.content
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["length"]
    (usage,) = [chunk.usage for chunk in chunks if chunk.usage]
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    assert usage.completion_tokens == whole.usage.completion_tokens


async def test_a_schema_is_kept(chat):
    """By constrained decoding, whole and streamed, whatever the model thinks of it."""
    asked = [{"role": "user", "content": "Where is Ulm, and how many people live there?"}]
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE}}
    whole = await completed(chat, asked, response_format=form, max_tokens=80)
    place = json.loads(whole.choices[0].message.content)
    assert place.keys() == PLACE["properties"].keys()
    assert place["country"] in PLACE["properties"]["country"]["enum"]
    assert 1 <= place["people"] <= 999_999
    chunks = await streamed(chat, asked, response_format=form, max_tokens=80)
    pieces = [each.delta.content or "" for chunk in chunks for each in chunk.choices]
    assert json.loads("".join(pieces)) == place


async def test_too_long_a_question_is_refused(chat):
    """With words of its own: neither provider's."""
    endless = [{"role": "user", "content": "word " * 9000}]
    with pytest.raises(openai.BadRequestError) as raised:
        await completed(chat, endless)
    assert raised.value.type == "exceed_context_size_error"


# --- the other two -------------------------------------------------------------------------


async def test_messages(smollm, anthropic, chat):
    """The same model through Anthropic's protocol: the same words and counts."""
    known = await completed(chat)
    # The SDK itself no longer has a temperature; the model does.
    cold = {"temperature": 0}
    given = {"model": MODEL, "messages": HELLO, "max_tokens": FEW, "extra_body": cold}
    whole = await anthropic.messages.create(**given)
    async with anthropic.messages.stream(**given) as stream:
        pieces = [piece async for piece in stream.text_stream]
        last = await stream.get_final_message()
    assert len(pieces) > FEW / 2
    for message in (whole, last):
        assert message.content[0].text == "".join(pieces) == known.choices[0].message.content
        assert message.stop_reason == "max_tokens"
        read = message.usage.input_tokens + message.usage.cache_read_input_tokens
        assert (read, message.usage.output_tokens) == (prompt_tokens(smollm), FEW)


async def test_responses(smollm, responses, chat):
    """The same model through the Responses protocol: the same words and counts."""
    known = await completed(chat)
    given = {"model": MODEL, "input": "Say hello.", "temperature": 0, "max_output_tokens": FEW}
    whole = await responses.create(**given)
    events = [event async for event in await responses.create(**given, stream=True)]
    pieces = [each.delta for each in events if each.type == "response.output_text.delta"]
    assert len(pieces) > FEW / 2
    assert events[-1].type == "response.completed"
    for response in (whole, events[-1].response):
        assert response.output_text == "".join(pieces) == known.choices[0].message.content
        counted = response.usage.input_tokens, response.usage.output_tokens
        assert counted == (prompt_tokens(smollm), FEW)


# --- through the client layer --------------------------------------------------------------


class Place(BaseModel):
    """A place."""

    city: str
    country: str


async def test_the_client_layer_reads_it(smollm, both):
    """Structured output, streaming and counts, as pydantic-ai sees them."""
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=both[1]))
    settings = {"temperature": 0, "max_tokens": 60}
    placed = await Agent(model, output_type=NativeOutput(Place), model_settings=settings).run(
        "Name a city in Germany."
    )
    assert placed.output.city
    talker = Agent(model, model_settings={"temperature": 0, "max_tokens": FEW})
    whole = await talker.run("Say hello.")
    async with talker.run_stream("Say hello.") as stream:
        pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]
    assert "".join(pieces) == whole.output
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (prompt_tokens(smollm), FEW)
    assert stream.usage.input_tokens == whole.usage.input_tokens
    assert stream.usage.output_tokens == whole.usage.output_tokens


# --- the server itself ---------------------------------------------------------------------


def test_one_server_for_all_and_none_is_left(tmp_path, smollm):
    """Those who hold it share it; it ends with the last one, and with a killed test run."""
    run = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with run:
        url = hold(tmp_path, run.pid)
        assert url != smollm
        assert hold(tmp_path, run.pid) == url
        let_go(tmp_path)
        assert answers(url)
        run.kill()
    assert within(END_SECONDS_MAX, lambda: not answers(url))
    let_go(tmp_path)


def test_a_model_that_cannot_be_had_says_why_and_is_tried_once(tmp_path, monkeypatch):
    """Every worker gets the reason, and none waits for it again."""
    monkeypatch.setattr("tests.support.smollm._set_up", lambda: 1 / 0)
    (tmp_path / "smollm.failed").write_text("no weights")
    with pytest.raises(NoModel, match="no weights"):
        hold(tmp_path, 1)
