"""The scripted endpoint as a server: its bounds, its end, and as a process of its own."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest

from leadhand.testing.endpoint import Cut, Endpoint, Fail, Hang, Huge, Loop, Say, Usage, Use, Uses
from leadhand.testing.endpoint.replies import KINDS, Reply, reply_from, script_from
from tests.support.providers import WAYS, ask, clients

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


async def talk(endpoint, *sent):
    """Bytes to the endpoint, and all that comes back."""
    host, port = endpoint.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for part in sent:
        writer.write(part)
    async with asyncio.timeout(60):
        got = await reader.read()
    writer.close()
    await writer.wait_closed()
    return got.decode()


def post(body, *headers, path="/v1/chat/completions"):
    lines = [f"POST {path} HTTP/1.1", "host: here", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


CLOSE = "connection: close"
BODY = json.dumps(CHAT).encode()


# --- bounds --------------------------------------------------------------------------------


async def test_a_body_that_is_too_large_is_not_read():
    """413, and the connection is closed; the script is not asked."""
    async with Endpoint([Say("ok")], body_bytes_max=100) as endpoint:
        got = await talk(endpoint, post(BODY + b" " * 100))
        chunked = b"POST /v1/responses HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nFFFFFF\r\n"
        got_chunked = await talk(endpoint, chunked)
        got_below = await talk(endpoint, post(b"{}", "content-length: -5"))
    for each in (got, got_chunked, got_below):
        assert each.startswith("HTTP/1.1 413 ")
    assert endpoint.requests == []


async def test_connections_are_counted():
    """One too many is turned away, and there is room again when another ends."""
    async with Endpoint(lambda _request: Hang(), connections_max=3) as endpoint:
        waiting = [asyncio.create_task(talk(endpoint, post(BODY))) for _ in range(3)]
        while len(endpoint.requests) < 3:
            await asyncio.sleep(0.01)
        assert (await talk(endpoint, post(BODY))).startswith("HTTP/1.1 503 ")
    assert [await task for task in waiting] == ["", "", ""]


async def test_requests_are_counted():
    """What is remembered is bounded."""
    async with Endpoint([Loop(Say("ok"))], requests_max=2) as endpoint:
        got = [await talk(endpoint, post(BODY, CLOSE)) for _ in range(3)]
    assert [each.split()[1] for each in got] == ["200", "200", "429"]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nlong: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (post(b"{"), 400),
        (post(b"[]"), 400),
        (post(b'{"messages": [{"content": "nobody said this"}]}'), 400),
        (post(BODY, CLOSE, path="/v1/completions"), 404),
        (post(BODY, "content-length: many"), 400),
    ],
)
async def test_what_is_not_a_request_is_refused(sent, status):
    """And takes no reply from the script."""
    async with Endpoint([Say("ok")]) as endpoint:
        assert (await talk(endpoint, sent)).startswith(f"HTTP/1.1 {status} ")
        assert endpoint.requests == []
        assert (await ask(endpoint, "chat")).text == "ok"


async def test_a_client_that_waits_to_be_asked_for_its_body():
    """As command-line clients do with large ones; and bodies may come in chunks."""
    half = len(BODY) // 2
    chunks = b"%x\r\n%b\r\n%x;x=1\r\n%b\r\n0\r\ntrailer: 1\r\n\r\n" % (
        half,
        BODY[:half],
        len(BODY) - half,
        BODY[half:],
    )
    head = b"POST /chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n"
    async with Endpoint([Say("one"), Say("two")]) as endpoint:
        got = await talk(endpoint, post(BODY, "expect: 100-continue", CLOSE))
        assert got.startswith("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
        assert "two" in await talk(endpoint, head + b"connection: close\r\n\r\n" + chunks)
    assert endpoint.requests[1].body == CHAT


# --- aside ---------------------------------------------------------------------------------


async def test_what_clients_ask_besides():
    """Which models there are, how many tokens something has, whether anybody is there."""
    async with Endpoint([Say("ok")], models=["small", "large"]) as endpoint:
        async with clients(endpoint.url) as (anthropic, openai):
            assert [each.id async for each in openai.models.list()] == ["small", "large"]
            assert [each.id async for each in anthropic.models.list()] == ["small", "large"]
            counted = await anthropic.messages.count_tokens(model="m", messages=CHAT["messages"])
            assert counted.input_tokens > 5
        got = await talk(endpoint, b"HEAD / HTTP/1.1\r\nconnection: close\r\n\r\n")
        assert got.startswith("HTTP/1.1 200 OK")
        assert endpoint.requests == []


async def test_one_connection_for_many_requests():
    """It is kept open, as with a real server."""
    async with Endpoint([Loop(Say("ok"))]) as endpoint, clients(endpoint.url) as (_, openai):
        for _ in range(5):
            await openai.chat.completions.create(**CHAT)
        assert endpoint.connections == 1


async def test_a_thousand_at_once():
    """Each gets its answer."""
    async with Endpoint(lambda request: Say(request.text)) as endpoint:
        said = [
            json.dumps(CHAT | {"messages": [{"role": "user", "content": f"no. {n}."}]})
            for n in range(1000)
        ]
        got = await asyncio.gather(*(talk(endpoint, post(each.encode(), CLOSE)) for each in said))
    assert all(f"no. {n}." in each for n, each in enumerate(got))


# --- its end -------------------------------------------------------------------------------


async def test_nothing_is_left_of_it():
    """Not a task and not a connection, whatever was going on."""
    before = asyncio.all_tasks()
    async with Endpoint([Hang(), Cut(Say("hello"), how="hang"), Hang(60)]) as endpoint:
        waiting = [asyncio.create_task(talk(endpoint, post(BODY))) for _ in range(3)]
        while len(endpoint.requests) < 3:
            await asyncio.sleep(0.01)
    await asyncio.gather(*waiting)
    assert endpoint.connections == 0
    assert asyncio.all_tasks() == before
    with pytest.raises(ConnectionRefusedError):
        await talk(endpoint, b"")


async def test_a_client_that_comes_while_it_ends_or_never_reads():
    """Neither keeps it from ending, nor is kept waiting."""
    endpoint = await Endpoint([Huge(20_000_000), Loop(Hang())]).__aenter__()
    port = int(endpoint.url.rpartition(":")[2])
    _, deaf = await asyncio.open_connection("127.0.0.1", port)
    deaf.transport.pause_reading()
    deaf.write(post(BODY))
    while not endpoint.requests:
        await asyncio.sleep(0.01)
    late = [asyncio.create_task(talk(endpoint, post(BODY))) for _ in range(20)]
    while len(endpoint.requests) < 2:
        await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await endpoint.close()
        await asyncio.gather(*late, return_exceptions=True)
    assert endpoint.connections == 0
    deaf.close()


async def test_what_is_no_reply_is_an_error_of_the_script():
    """The client is refused; the test that wrote the script fails."""
    endpoint = await Endpoint(lambda _request: None).__aenter__()
    with pytest.raises(Exception, match="which is no reply"):
        await ask(endpoint, "anthropic")
    with pytest.raises(TypeError, match="which is no reply"):
        await endpoint.__aexit__(None, None, None)


# --- documents -----------------------------------------------------------------------------


def test_a_document_can_say_every_reply():
    """The first key is the kind; replies may hold replies."""
    assert set(KINDS.values()) == set(Reply.__args__)
    given = [
        {"say": "hello", "usage": {"input": 7}},
        {"use": "census", "arguments": {"city": "Ulm"}},
        {"uses": [{"use": "a"}, {"use": "b"}], "text": "both"},
        {"hang": 2, "then": {"fail": 503}},
        {"loop": {"cut": {"say": "x"}, "at": "end", "how": "end"}},
    ]
    assert script_from(given) == [
        Say("hello", Usage(input=7)),
        Use("census", {"city": "Ulm"}),
        Uses((Use("a"), Use("b")), "both"),
        Hang(2, Fail(503)),
        Loop(Cut(Say("x"), at="end", how="end")),
    ]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("hello", "not an object"),
        ({}, "not an object"),
        ({"shout": "HELLO"}, "'shout' is none of say, use"),
        ({"say": "hello", "loudly": True}, "say has no 'loudly', only usage"),
        ({"cut": "hello"}, "not an object"),
    ],
)
def test_a_document_that_is_wrong_says_where(wrong, why):
    """And what would be right."""
    with pytest.raises(ValueError, match=why):
        reply_from(wrong)
    with pytest.raises(ValueError, match="a list"):
        script_from({"say": "hello"})


def start(*arguments, **more):
    command = [sys.executable, "-m", "leadhand.testing.endpoint", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **more)


def asked(url):
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        BODY,
        {"content-type": "application/json", "authorization": "Bearer secret"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read())["choices"][0]["message"]["content"]


@pytest.mark.real
@pytest.mark.parametrize("end", ["signal", "input"])
def test_as_a_process_of_its_own(tmp_path, end):
    """It says where it is, answers, logs without secrets, and ends when told or left."""
    script, log = tmp_path / "script.json", tmp_path / "log.jsonl"
    script.write_text('[{"say": "one"}, {"fail": 529}, {"loop": {"say": "more"}}]')
    with start(script, "--log", log, "--while-read") as process:
        url = process.stdout.readline().strip()
        assert asked(url) == "one"
        with pytest.raises(HTTPError, match="529"):
            asked(url)
        assert [asked(url), asked(url)] == ["more", "more"]
        process.send_signal(signal.SIGTERM) if end == "signal" else process.stdin.close()
        assert process.wait(10) == 0
        assert process.stderr.read() == ""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [entry["number"] for entry in entries] == [0, 1, 2, 3]
    assert entries[0]["body"] == CHAT
    assert "secret" not in log.read_text()


@pytest.mark.real
def test_a_process_with_a_wrong_script_ends_at_once(tmp_path):
    """With the file and the reason."""
    script = tmp_path / "script.json"
    script.write_text('[{"say": "one"}, {"sing": "two"}]')
    with start(script) as process:
        said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "reply 1: 'sing' is none of" in said[1]


async def test_every_way_is_listed():
    """The table of ways in these tests is all that an endpoint speaks."""
    async with Endpoint([Loop(Say("ok"))]) as endpoint:
        for way in WAYS:
            await ask(endpoint, way)
    seen = {(request.protocol, request.stream) for request in endpoint.requests}
    assert len(seen) == len(WAYS)


def test_the_example_of_a_script_is_one():
    """The one in the documents is read as it stands."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "testing.md"
    (block,) = re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)
    assert [type(each).__name__ for each in script_from(json.loads(block))] == [
        "Use",
        "Cut",
        "Loop",
    ]
    for kind in KINDS.values():
        assert f"`{kind.__name__}(" in page.read_text()
