"""A scripted endpoint in trouble: each misbehaviour is what the real SDKs take it for."""

import asyncio
import time

import anthropic
import httpx2
import openai
import pytest

from leadhand.testing.endpoint import Cut, Data, Endpoint, Fail, Garbage, Hang, Say, Slow, Use
from tests.support.providers import SCHEMA, STREAMS, WAYS, WHOLE, Ask, ask

every_way = pytest.mark.parametrize("way", WAYS)
LONG = Use("write", {"path": "notes.txt", "text": "once upon a time " * 10})

# What a body that ends too early looks like. One SDK wraps it, the other lets it through.
BROKEN = (anthropic.APIConnectionError, openai.APIConnectionError, httpx2.RemoteProtocolError)


async def raised(reply, way, what=None):
    async with Endpoint([reply]) as endpoint:
        try:
            seen = await ask(endpoint, way, what)
        except Exception as error:
            return error
    pytest.fail(f"no error but {seen}")


def sdk(way):
    return anthropic if way.startswith("anthropic") else openai


# --- statuses ------------------------------------------------------------------------------

STATUSES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    413: "APIStatusError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "InternalServerError",
    529: "InternalServerError",
}


@every_way
@pytest.mark.parametrize("status", STATUSES)
async def test_a_status_is_an_error_of_its_kind(status, way):
    """As the SDK has one for each."""
    error = await raised(Fail(status), way)
    assert isinstance(error, getattr(sdk(way), STATUSES[status]))
    assert error.status_code == status
    assert isinstance(error.body, dict)


@every_way
async def test_when_to_come_again(way):
    """A number of seconds in a header; or whatever the script puts there."""
    error = await raised(Fail(429, retry_after_s=7), way)
    assert error.response.headers["retry-after"] == "7"
    error = await raised(Fail(503, retry_after_s=0.25), way)
    assert error.response.headers["retry-after"] == "0.25"
    date = "Fri, 31 Dec 2999 23:59:59 GMT"
    error = await raised(Fail(429, headers={"retry-after": date}), way)
    assert error.response.headers["retry-after"] == date


NAMES = [
    ("anthropic", Fail.too_long(), "invalid_request_error", "prompt is too long"),
    ("anthropic", Fail.no_credit(), "billing_error", "credit balance"),
    ("anthropic", Fail(529), "overloaded_error", "Overloaded"),
    ("anthropic", Fail(429), "rate_limit_error", "rate limit"),
    ("anthropic", Fail(413), "request_too_large", "maximum size"),
    ("openai", Fail.too_long(), "context_length_exceeded", "context"),
    ("openai", Fail.no_credit(), "insufficient_quota", "quota"),
    ("openai", Fail(503), "server_is_overloaded", "overloaded"),
    ("openai", Fail(429), "rate_limit_exceeded", "Rate limit"),
    ("openai", Fail(401), "invalid_api_key", "API key"),
]


@every_way
async def test_each_provider_names_its_errors(way):
    """By the words that clients look for."""
    for provider, fail, kind, message in NAMES:
        if provider == sdk(way).__name__:
            said = str((await raised(fail, way)).body)
            assert kind in said
            assert message in said


@every_way
async def test_an_error_with_a_body_of_its_own(way):
    """A proxy in between answers in HTML; another one in its own JSON."""
    error = await raised(Fail(502, "<html>Bad Gateway</html>"), way)
    assert error.status_code == 502
    assert "Bad Gateway" in error.response.text
    error = await raised(Fail(500, {"reason": "disk full"}, message="unused"), way)
    assert "disk full" in str(error.body)


@pytest.mark.parametrize("way", ["anthropic-stream", "chat-stream"])
async def test_an_error_inside_a_stream(way):
    """The status was 200, and yet it failed."""
    error = await raised(Fail(529, message="no room", streamed=True), way)
    assert isinstance(error, sdk(way).APIError)
    assert "no room" in str(error)


async def test_a_response_that_fails_in_its_stream():
    """Responses says so in an event that ends the stream; the SDK raises nothing."""
    async with Endpoint([Fail.too_long(), Fail(503, streamed=True)]) as endpoint:
        with pytest.raises(openai.BadRequestError):
            await ask(endpoint, "responses-stream")
        seen = await ask(endpoint, "responses-stream")
    assert seen.stop == "failed"


# --- silence -------------------------------------------------------------------------------


@every_way
async def test_nothing_comes(way):
    """The client's own limit ends it, and the endpoint notices that the client left."""
    async with Endpoint([Hang()]) as endpoint:
        with pytest.raises(sdk(way).APITimeoutError):
            await ask(endpoint, way, Ask(timeout=0.2))
        await settled(endpoint)
        assert endpoint.connections == 0


async def settled(endpoint):
    async with asyncio.timeout(60):
        while endpoint.connections:
            await asyncio.sleep(0.01)


@every_way
async def test_nothing_comes_and_then_something(way):
    """Late, but whole; or the connection is closed after all."""
    async with Endpoint([Hang(0.2, Say("Sorry!")), Hang(0.05)]) as endpoint:
        began = time.monotonic()
        assert (await ask(endpoint, way)).text == "Sorry!"
        assert time.monotonic() - began >= 0.2
        with pytest.raises(sdk(way).APIConnectionError):
            await ask(endpoint, way)


@pytest.mark.parametrize("way", STREAMS)
async def test_a_slow_stream(way):
    """Piece by piece; all of it arrives."""
    text = "once upon a time " * 3
    async with Endpoint([Slow(Say(text), 0.02), Slow(Say(text), 30)]) as endpoint:
        began = time.monotonic()
        seen = await ask(endpoint, way)
        assert seen.text == text
        assert time.monotonic() - began >= 0.02 * seen.pieces
        with pytest.raises((sdk(way).APITimeoutError, httpx2.ReadTimeout)):
            await ask(endpoint, way, Ask(timeout=0.3))
        await settled(endpoint)


@pytest.mark.parametrize("way", STREAMS)
async def test_a_stream_that_stops_moving(way):
    """Half of it came; the client's limit for a silence ends it."""
    reply = Cut(LONG, at="arguments", how="hang")
    error = await raised(reply, way, Ask(timeout=0.3))
    assert isinstance(error, (sdk(way).APITimeoutError, httpx2.ReadTimeout))


# --- halves --------------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("after", [0.0, 0.1, 0.5, 0.9, 1.0])
async def test_a_connection_that_is_cut(way, after):
    """Wherever it is cut, the client gets an error and no answer."""
    for reply in (Say("once upon a time " * 10), LONG, Data({"city": "Ulm", "people": 1})):
        assert isinstance(await raised(Cut(reply, after), way), BROKEN)


@pytest.mark.parametrize("way", STREAMS)
@pytest.mark.parametrize("at", ["text", "arguments", "end"])
async def test_a_stream_is_cut_where_the_script_says(way, at):
    """In the middle of the text or of a call's arguments, or just before its end."""
    reply = Use(LONG.tool, LONG.arguments, "I write it down now, as you asked me to.")
    assert isinstance(await raised(Cut(reply, at=at), way), BROKEN)


@pytest.mark.parametrize("way", STREAMS)
async def test_half_a_stream_that_looks_whole(way):
    """The body ends in due form and the answer does not: only the missing reason tells."""
    whole = Say("Everything is fine, nothing went wrong at all.")
    async with Endpoint([Cut(whole, at="end", how="end")] * 2) as endpoint:
        seen = await ask(endpoint, way)
    assert seen.stop is None
    if way == "chat-stream":
        assert seen.text == whole.text
        assert seen.tokens is None


@pytest.mark.parametrize("way", ["anthropic-stream", "chat-stream"])
async def test_half_of_the_arguments_that_look_whole(way):
    """A client that ran this tool would run it with half of what was meant."""
    async with Endpoint([Cut(LONG, at="arguments", how="end")]) as endpoint:
        seen = await ask(endpoint, way)
    assert seen.stop is None
    assert [name for name, _ in seen.calls] == ["write"]
    assert seen.calls[0][1] != LONG.arguments


@pytest.mark.parametrize("way", STREAMS)
async def test_so_many_events_and_so_many_bytes(way):
    """A cut can be said exactly."""
    for cut in (Cut(LONG, events=3), Cut(LONG, size=10), Cut(LONG, events=0)):
        assert isinstance(await raised(cut, way), BROKEN)
    async with Endpoint([Cut(Say("word " * 30), events=4, how="end")]) as endpoint:
        assert (await ask(endpoint, way)).pieces in {0, 1, 3}


@pytest.mark.parametrize("way", WHOLE)
async def test_half_a_body_that_claims_to_be_whole(way):
    """JSON without its second half."""
    assert isinstance(await raised(Cut(Say("hello"), how="end"), way), ValueError)


# --- not the protocol ----------------------------------------------------------------------


@pytest.mark.parametrize("way", WHOLE)
async def test_a_body_that_is_not_json(way):
    """The SDKs raise what the decoder raised."""
    assert isinstance(await raised(Garbage(), way), ValueError)
    assert isinstance(await raised(Garbage(b"\xff\xfe{"), way), ValueError)


@pytest.mark.parametrize("way", STREAMS)
async def test_a_stream_that_is_broken(way):
    """An event whose data is no JSON; no event at all."""
    broken = Garbage('event: message_start\ndata: {"type": oops\n\n')
    assert isinstance(await raised(broken, way), ValueError)
    async with Endpoint([Garbage()]) as endpoint:
        try:
            seen = await ask(endpoint, way)
        except AssertionError:
            return
        assert (seen.text, seen.calls, seen.stop) == ("", [], None)


@every_way
async def test_json_that_keeps_to_no_schema(way):
    """Well formed and useless: the SDKs let it through, and the caller must look."""
    async with Endpoint([Data(["not", "a", "place"])]) as endpoint:
        seen = await ask(endpoint, way, Ask(schema=SCHEMA))
    assert seen.text == '["not","a","place"]'
