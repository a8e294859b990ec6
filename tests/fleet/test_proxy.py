"""The one door: what is on the list comes through, with the credentials; the rest is refused."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from leadhand.testing.endpoint import Cut, Endpoint, Fail, Say
from leadhand.workers.sandbox import proxy as proxies
from leadhand.workers.sandbox.proxy import Proxy, Route, Upstream
from leadhand.workers.sandbox.sandbox import Sandbox

PYTHON = str(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))


async def ask(path, head, body=b""):
    """One request over the proxy's socket, and all that comes back."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(head.replace("\n", "\r\n").encode() + b"\r\n" + body)
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return answer.decode()


def status(answer):
    return int(answer.split()[1])


def place(endpoint):
    return endpoint.url.removeprefix("http://")


BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
MESSAGE = (
    "POST {} HTTP/1.1\nHost: whatever\nx-api-key: of-the-agent\nConnection: keep-alive\n"
    f"anthropic-version: 1\nContent-Length: {len(BODY)}\n"
)


async def test_a_route_adds_what_the_agent_never_holds():
    """Its own header of that name is replaced, its body is passed on."""
    async with (
        Endpoint([Say("hello")]) as endpoint,
        Proxy(routes={"llm": Route(endpoint.url, {"X-Api-Key": "the-real-one"})}) as proxy,
    ):
        answer = await ask(proxy.socket, MESSAGE.format("/llm/v1/messages?beta=true"), BODY)
        (request,) = endpoint.requests
    assert status(answer) == 200
    assert "hello" in answer
    assert request.headers["x-api-key"] == "the-real-one"
    assert request.headers["host"] == place(endpoint)
    assert request.path.startswith("/v1/messages")
    assert not proxy.socket.exists()


async def test_a_request_on_a_route_is_written_anew():
    """Each header once: two keys, or two ways to end, are read as it pleases the reader."""
    seen = []

    async def listen(reader, writer):
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        routes = {"llm": Route(f"http://127.0.0.1:{port}/base", {"X-Api-Key": "the-real-one"})}
        async with Proxy(routes=routes) as proxy:
            head = "GET /llm/a?b=c HTTP/1.1\nHost: evil.test\nx-api-KEY: mine\nAccept: x\n"
            answer = await ask(
                proxy.socket, head + "Connection: keep-alive\nProxy-Authorization: x\n"
            )
    assert status(answer) == 204
    assert seen[0].decode().split("\r\n") == [
        "GET /base/a?b=c HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Accept: x",
        "X-Api-Key: the-real-one",
        "Connection: close",
        "",
        "",
    ]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Say("hello"), (200, None)),
        (Fail(429, retry_after_s=90), (429, "90")),
        (Cut(Say("hello"), size=5), (200, None)),
    ],
)
async def test_how_a_service_answers_is_told(reply, expected):
    """Whose account is limited, and until when; the agent gets every byte all the same."""
    told = []
    async with Endpoint([reply, reply]) as endpoint:
        routes = {"llm": Route(endpoint.url)}
        async with Proxy(routes=routes, answered=told.append) as proxy:
            heard = await ask(proxy.socket, MESSAGE.format("/llm/v1/messages"), BODY)
        async with Proxy(routes=routes) as proxy:
            plain = await ask(proxy.socket, MESSAGE.format("/llm/v1/messages"), BODY)
    (answer,) = told
    assert (answer.route, answer.status) == ("llm", expected[0])
    assert answer.headers.get("retry-after") == expected[1]
    assert bool(answer.body) == (answer.status == 429), "only refusals are read"
    assert len(heard) == len(plain)


async def test_credentials_are_not_shown():
    """Not in a trace, not in a log."""
    assert "secret" not in repr(Route("https://example.com", {"authorization": "secret"}))


async def test_hosts_on_the_list_are_reached_by_tunnel_and_by_plain_requests():
    """By their exact name and port."""
    async with Endpoint([Say("one"), Say("two")]) as endpoint:
        listed = [place(endpoint)]
        async with Proxy(listed) as proxy:
            reader, writer = await asyncio.open_unix_connection(proxy.socket)
            writer.write(f"CONNECT {place(endpoint)} HTTP/1.1\r\n\r\n".encode())
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            writer.write(MESSAGE.format("/v1/messages").replace("\n", "\r\n").encode())
            writer.write(b"\r\n" + BODY)
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            writer.close()
            plain = await ask(proxy.socket, MESSAGE.format(f"{endpoint.url}/v1/messages"), BODY)
    assert "two" in plain


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("CONNECT example.com:443 HTTP/1.1\n", 403),
        ("CONNECT allowed.test:444 HTTP/1.1\n", 403),
        ("CONNECT sub.allowed.test:443 HTTP/1.1\n", 403),
        ("CONNECT allowed.test.evil.test:443 HTTP/1.1\n", 403),
        ("CONNECT allowed.test@evil.test:443 HTTP/1.1\n", 403),
        ("CONNECT 127.0.0.1:22 HTTP/1.1\n", 403),
        ("GET http://evil.test/ HTTP/1.1\n", 403),
        ("GET http://allowed.test:443@evil.test/ HTTP/1.1\n", 403),
        ("GET http://allowed.test/ HTTP/1.1\n", 403),
        ("GET https://allowed.test/ HTTP/1.1\n", 403),
        ("GET /other/x HTTP/1.1\n", 403),
        ("GET / HTTP/1.1\n", 403),
        ("GET ftp://allowed.test/ HTTP/1.1\n", 403),
        ("CONNECT :0 HTTP/1.1\n", 400),
        ("CONNECT allowed.test:99999 HTTP/1.1\n", 400),
        ("nonsense\n", 400),
        ("GET /llm/x HTTP/1.1\nbad header\n", 400),
        ("GET /llm/x HTTP/1.1\n folded: x\n", 400),
        ("GET /llm/x HTTP/2\n", 505),
        ("GET /llm/x HTTP/1.1\nlong: " + "x" * (128 << 10) + "\n", 400),
    ],
)
async def test_what_is_not_on_the_list_is_refused(head, expected):
    """Exactly, whatever it looks like; and it is told of."""
    refused = []
    routes = {"llm": Route("http://127.0.0.1:1")}
    async with Proxy(["allowed.test:443"], routes, refused=refused.append) as proxy:
        assert status(await ask(proxy.socket, head)) == expected
    assert len(refused) == (expected == 403)


async def test_who_cannot_be_reached_is_a_bad_gateway():
    """The agent hears of it, and goes on."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    async with Proxy(routes={"llm": Route(f"http://127.0.0.1:{port}")}) as proxy:
        assert status(await ask(proxy.socket, "GET /llm/x HTTP/1.1\n")) == 502


async def test_connections_are_bounded_and_end_with_the_proxy(monkeypatch):
    """An agent cannot use up the host's descriptors."""
    monkeypatch.setattr(proxies, "CONNECTIONS_MAX", 2)
    async with Proxy() as proxy:
        held = [await asyncio.open_unix_connection(proxy.socket) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert status(await ask(proxy.socket, "GET / HTTP/1.1\n")) == 503
    for reader, writer in held:
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("address", ["", "example.com", "ftp://example.com", "https://"])
def test_an_address_that_is_none_is_said_at_once(address):
    """When the fleet starts, not when an agent asks."""
    with pytest.raises(ValueError, match="no address"):
        Proxy(routes={"llm": Route(address)})


async def forwarders_end(door):
    """Whoever led to a door is gone once the agent is, whether or not others look after it."""
    for _ in range(500):
        lines = (each / "cmdline" for each in Path("/proc").iterdir() if each.name.isdigit())
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if not any(door.encode() in line.read_bytes() for line in lines):
                return
        await asyncio.sleep(0.02)
    raise AssertionError(f"somebody still leads to {door}")


@pytest.mark.real
async def test_from_inside_a_sandbox_only_the_door_is_open(kind, bwrap, tmp_path):
    """Loopback leads to the proxy; the endpoint itself, on the host's loopback, is not there."""
    (tmp_path / "slot").mkdir()
    script = """
import json, os, socket, sys, urllib.request as u
def ask(url, opener):
    try:
        return opener.open(u.Request(url, data=sys.argv[2].encode()), timeout=5).status
    except OSError as error:
        return getattr(error, "code", type(error).__name__)
direct = u.build_opener(u.ProxyHandler({}))
by_name = u.build_opener()
gateway = os.environ["HTTP_PROXY"]
os.environ["no_proxy"] = os.environ["NO_PROXY"] = ""
print(json.dumps([
    ask(gateway + "/llm/v1/messages", direct),
    ask(sys.argv[1] + "/v1/messages", by_name),
    ask(sys.argv[1] + "/v1/messages", direct),
    ask("http://192.0.2.1/", by_name),
]))
"""
    async with Endpoint([Say("a"), Say("b")]) as endpoint:
        routes = {"llm": Route(endpoint.url)}
        async with Proxy([place(endpoint)], routes) as proxy:
            sandbox = Sandbox(kind=kind, bwrap=bwrap, proxy=proxy.socket)
            argv = [PYTHON, "-c", script, endpoint.url, BODY.decode()]
            wrapped = sandbox.wrap(argv, tmp_path / "slot", home=tmp_path / "home", network=True)
            done = await asyncio.to_thread(
                subprocess.run,
                wrapped.argv,
                cwd=wrapped.cwd,
                env=wrapped.env,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            await forwarders_end(str(proxy.socket))
    assert done.stderr == ""
    assert json.loads(done.stdout) == [200, 200, "URLError", 403]


# --- a proxy that leads out of the network -------------------------------------------------


@contextlib.asynccontextmanager
async def company_proxy(status=200):
    """A proxy that tunnels, and what it was asked with."""
    heads, sides = [], set()

    async def serve(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        if status != 200:
            writer.write(f"HTTP/1.1 {status} No\r\n\r\n".encode())
            writer.close()
            return
        host, _, port = head.split()[1].rpartition(":")
        far, out = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        sides.add(asyncio.ensure_future(proxies._pump(reader, out)))
        await proxies._pump(far, writer)
        out.close()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield heads, server.sockets[0].getsockname()[1]
        for each in sides:
            each.cancel()
        await asyncio.gather(*sides, return_exceptions=True)


async def test_routes_and_hosts_go_through_the_proxy_of_the_network():
    """With its password, which is in no text of ours; exempt hosts are reached directly."""
    async with Endpoint([Say("one"), Say("two"), Say("three")]) as endpoint, company_proxy() as up:
        heads, port = up
        upstream = Upstream("127.0.0.1", port, "ann:open sesame")
        routes = {"llm": Route(endpoint.url, {"X-Api-Key": "the-real-one"})}
        async with Proxy([place(endpoint)], routes, upstream=upstream) as proxy:
            answer = await ask(proxy.socket, MESSAGE.format("/llm/v1/messages"), BODY)
            assert "one" in answer
            answer = await ask(proxy.socket, MESSAGE.format(f"{endpoint.url}/v1/messages"), BODY)
            assert "two" in answer
        assert [head.split()[1] for head in heads] == [place(endpoint)] * 2
        assert all("Proxy-Authorization: Basic YW5uOm9wZW4gc2VzYW1l" in head for head in heads)
        assert "the-real-one" not in "".join(heads), "it is for the service alone"
        assert "sesame" not in repr(upstream)
        direct = Upstream("127.0.0.1", port, exempt=("127.0.0.1",))
        async with Proxy(routes=routes, upstream=direct) as proxy:
            answer = await ask(proxy.socket, MESSAGE.format("/llm/v1/messages"), BODY)
        assert ("three" in answer, len(heads)) == (True, 2)


async def test_a_proxy_of_the_network_that_refuses_is_named_without_its_password():
    async with Endpoint([Say("never")]) as endpoint, company_proxy(407) as (_heads, port):
        upstream = Upstream("127.0.0.1", port, "ann:open sesame")
        async with Proxy([place(endpoint)], upstream=upstream) as proxy:
            answer = await ask(proxy.socket, f"CONNECT {place(endpoint)} HTTP/1.1\n\n")
        assert endpoint.requests == []
    assert status(answer) == 502
    assert f"the proxy 127.0.0.1:{port} answered 407" in answer
    assert "sesame" not in answer


def test_hosts_are_exempt_by_name_or_with_all_below():
    up = Upstream("p", 1, exempt=("a.example.com", ".internal"))
    assert [up.leads_to(each) for each in ("a.example.com", "x.internal", "internal")] == [
        False
    ] * 3
    assert [up.leads_to(each) for each in ("b.a.example.com", "xinternal", "b")] == [True] * 3
