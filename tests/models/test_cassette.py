"""Traffic on tape: recorded from a real endpoint, played without one."""

import json

import pytest

from leadhand.errors import UsageError
from leadhand.models.failures import ModelFailure
from leadhand.models.messages import ModelRequest, UserMessage
from leadhand.models.recordings import Tape, playing, recording
from leadhand.models.registry import ModelRegistry
from leadhand.testing.endpoint import Endpoint, Fail, Say, Usage

KEY = "sk-ant-" + "a1b2c3d4" * 4


def question(text="hello"):
    return ModelRequest(system="s", turns=(UserMessage(text),))


async def test_what_was_recorded_is_played(tmp_path):
    tape = tmp_path / "tapes" / "one.json"
    heard = []
    async with Endpoint([Say("first", usage=Usage(5, 6)), Say("second"), Fail(429)]) as endpoint:
        client = ModelRegistry().client(f"chat:m@{endpoint.url}/v1")
        with recording(tape):
            for _ in range(2):
                await client.ask(question())
            with pytest.raises(ModelFailure):
                await client.ask(question("more"))
    with playing(tape):
        answers = [await client.ask(question(), heard.append) for _ in range(3)]
        with pytest.raises(ModelFailure) as caught:
            await client.ask(question("more"))
    assert [answer.text for answer in answers] == ["first", "second", "second"]
    assert heard == ["first", "second", "second"]
    assert (answers[0].usage.input, answers[0].usage.output) == (5, 6)
    assert caught.value.failure_class == "rate_limited"


async def test_what_is_not_on_the_tape_is_a_failure_with_a_fix(tmp_path):
    tape = tmp_path / "one.json"
    async with Endpoint([Say("first")]) as endpoint:
        client = ModelRegistry().client(f"chat:m@{endpoint.url}/v1")
        with recording(tape):
            await client.ask(question())
        with playing(tape), pytest.raises(ModelFailure, match="differs in turns") as caught:
            await client.ask(question("something else"))
        assert len(endpoint.requests) == 1, "nobody was asked"
    assert "record:" in str(caught.value)


async def test_no_secret_gets_onto_a_tape(tmp_path):
    tape = tmp_path / "one.json"
    async with Endpoint([Say(f"the key is {KEY}")]) as endpoint:
        client = ModelRegistry().client(f"chat:m@{endpoint.url}/v1")
        with recording(tape):
            await client.ask(question(f"use {KEY}"))
    assert KEY not in tape.read_text()
    assert "authorization" not in tape.read_text().lower()
    with playing(tape):
        assert (await client.ask(question(f"use {KEY}"))).text == "the key is [secret]"


async def test_the_environment_can_name_a_tape(tmp_path, monkeypatch):
    tape = tmp_path / "one.json"
    async with Endpoint([Say("first")]) as endpoint:
        client = ModelRegistry().client(f"chat:m@{endpoint.url}/v1")
        monkeypatch.setenv("LEADHAND_TAPE", f"record:{tape}")
        await client.ask(question())
    monkeypatch.setenv("LEADHAND_TAPE", str(tape))
    assert (await client.ask(question())).text == "first"


@pytest.mark.parametrize("content", [None, "{", "[]", json.dumps({"format": "other"})])
def test_what_is_no_tape_is_refused(tmp_path, content):
    path = tmp_path / "tape.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match="tape"):
        Tape(path)


async def test_words_that_could_not_be_used_are_on_the_tape_too(tmp_path):
    tape = tmp_path / "one.json"
    form = ModelRequest(system="s", turns=(UserMessage("plan"),), schema={"type": "object"})
    async with Endpoint([Say("1. fetch\n2. write")]) as endpoint:
        client = ModelRegistry().client(f"chat:m@{endpoint.url}/v1")
        with recording(tape), pytest.raises(ModelFailure) as first:
            await client.ask(form)
    with playing(tape), pytest.raises(ModelFailure) as again:
        await client.ask(form)
    assert again.value.text == first.value.text == "1. fetch\n2. write"


@pytest.mark.parametrize(
    "change",
    [{"answer": None}, {"failed": {"failure": "nonsense", "message": "x"}, "answer": None}],
)
def test_a_tape_that_was_edited_wrongly_says_where(tmp_path, change):
    exchange = {"key": "k", "model": "m", "request": {"system": "s", "turns": []}}
    exchange |= {"answer": {"text": "x"}} | change
    tape = tmp_path / "one.json"
    tape.write_text(json.dumps({"format": "leadhand-tape/1", "exchanges": [exchange]}))
    with pytest.raises(UsageError, match=r"exchanges\[0\]"):
        Tape(tape)
