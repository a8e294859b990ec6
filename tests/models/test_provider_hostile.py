"""A server that sends what it likes, byte for byte: an answer is whole and sane, or it fails."""

import asyncio
import json
import os

import pytest

from leadhand.models import transport as wire
from leadhand.models.failures import ModelFailure
from leadhand.models.messages import ModelRequest, ToolDef, UserMessage
from leadhand.models.names import ModelName
from leadhand.models.registry import ModelRegistry

ADD = ToolDef("add", "adds", {"type": "object", "properties": {"x": {}}})
KEY = "zebra giraffe hippo"


class Server:
    """Answers every request with the same bytes."""

    def __init__(self, reply):
        self.reply, self.asked = reply, 0

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def answer(self, reader, writer):
        self.asked += 1
        head = await reader.readuntil(b"\r\n\r\n")
        length = [line for line in head.lower().split(b"\r\n") if b"content-length" in line]
        await reader.readexactly(int(length[0].split(b":")[1]))
        try:
            for part in self.reply if isinstance(self.reply, list) else [self.reply]:
                writer.write(part)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()


def sent(body, status="200 OK", extra=""):
    body = body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/event-stream\r\n{extra}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def chat(delta, finish="stop", usage=None):
    def event(**more):
        common = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return f"data: {json.dumps(common | more)}\n\n"

    begun = event(choices=[{"index": 0, "delta": delta, "finish_reason": None}])
    ended = event(choices=[{"index": 0, "delta": {}, "finish_reason": finish}])
    counted = event(choices=[], usage=usage) if usage is not None else ""
    return sent(f"{begun}{ended}{counted}data: [DONE]\n\n")


def call(arguments):
    function = {"name": "add", "arguments": arguments}
    return chat({"tool_calls": [{"index": 0, "id": "t", "function": function}]}, "tool_calls")


async def asked(reply, provider="chat", **more):
    async with Server(reply) as server:
        os.environ["ODD_KEY"] = KEY
        url = f"http://127.0.0.1:{server.port}/v1"
        name = ModelName(provider, "m", url, "ODD_KEY", 1.0, 2.0)
        request = ModelRequest(
            system="s" * 4000, turns=(UserMessage("hello"),), timeout_s=20, **more
        )
        try:
            return await ModelRegistry(models={"x": name}).client("x").ask(request)
        finally:
            assert server.asked == 1


USAGES = {
    "none": None,
    "null": {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None},
    "negative": {"prompt_tokens": -(10**6), "completion_tokens": -5, "total_tokens": 0},
    "words": {"prompt_tokens": "many", "completion_tokens": "few", "total_tokens": 0},
    "no number": {"prompt_tokens": float("nan"), "completion_tokens": 1, "total_tokens": 0},
    "zero": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("usage", USAGES)
async def test_what_a_provider_does_not_count_is_not_free(usage):
    answer = await asked(chat({"content": "word " * 100}, usage=USAGES[usage]))
    assert 900 < answer.usage.input < 2000
    assert 100 <= answer.usage.output < 200
    assert answer.cost == pytest.approx((answer.usage.input + 2 * answer.usage.output) / 1e6)


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"x":' + "[" * 900 + "]" * 900 + "}"])
async def test_arguments_without_a_bottom_are_no_object(arguments):
    answer = await asked(call(arguments), tools=(ADD,))
    assert isinstance(answer.calls[0].arguments, str)


async def test_data_without_a_bottom_is_no_data():
    with pytest.raises(ModelFailure, match="no JSON") as caught:
        await asked(chat({"content": "[" * 100_000}), schema={"type": "object"})
    assert caught.value.failure_class == "invalid_output"


async def test_half_a_character_is_replaced():
    assert (await asked(chat({"content": "a\ud800b"}))).text == "a?b"
    answer = await asked(call('{"x": "\ud800"}'), tools=(ADD,))
    assert answer.calls[0].arguments == {"x": "?"}
    answer = await asked(chat({"content": '{"x": "\ud800"}'}), schema={"type": "object"})
    assert answer.data == {"x": "?"}


@pytest.mark.parametrize("status", ["401 Unauthorized", "500 Broken", "400 Bad"])
@pytest.mark.parametrize("provider", ["chat", "anthropic", "responses"])
async def test_a_server_that_says_our_key_back_gets_it_into_no_message(provider, status):
    body = json.dumps({"error": {"message": f"wrong key {KEY}", "type": "x"}})
    reply = sent(body, status).replace(b"text/event-stream", b"application/json")
    with pytest.raises(ModelFailure, match=r"wrong key \[secret\]") as caught:
        await asked(reply, provider)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("provider", ["chat", "anthropic", "responses"])
@pytest.mark.parametrize("status", ["301 Moved", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_not_followed_and_not_tried_again(provider, status):
    with pytest.raises(ModelFailure, match="elsewhere") as caught:
        await asked(sent("", status, "Location: /evil\r\n"), provider)
    assert caught.value.failure_class == "unavailable"


@pytest.mark.parametrize("status", ["200 OK", "500 Broken"])
async def test_an_answer_without_an_end_is_not_kept_in_memory(status, monkeypatch):
    monkeypatch.setattr(wire, "BYTES_MAX", 1 << 20)
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/event-stream\r\n\r\ndata: ".encode()
    with pytest.raises(ModelFailure, match="longer than 1 MiB") as caught:
        await asked([head, *[b"x" * 65536] * 100])
    assert caught.value.failure_class == "invalid_output"


async def test_what_cannot_be_unpacked_is_a_failure():
    with pytest.raises(ModelFailure) as caught:
        await asked(sent("xx", "500 Broken", "Content-Encoding: gzip\r\n"))
    assert caught.value.failure_class == "invalid_output"
