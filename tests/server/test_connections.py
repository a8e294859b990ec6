"""What stays open: streams end with the right to them, and connections are few and not for ever."""

import json
import socket
import threading
import time
from contextlib import contextmanager

import httpx2
import pytest

from leadhand.server import connections
from leadhand.server.accounts import digest_of
from leadhand.server.gate import RequestLimits
from leadhand.server.routes import events
from leadhand.server.service import Serve
from leadhand.server.service import listening as open_socket
from tests.support.serving import TOKENS, project, served, settings_in

SITE = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(events, "LOOK_S", 0.1)


def listening(server, role="viewer", browser=None):
    """A stream that is read in a thread; the thread ends when the stream does."""
    begun = threading.Event()
    client = server.client("" if browser else role)
    client.cookies.update(browser.cookies if browser else {})

    def read():
        with client, client.stream("GET", "/events", timeout=60) as response:
            for _ in response.iter_lines():
                begun.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert begun.wait(20)
    return thread


@contextmanager
def signed_in(server, role="viewer"):
    with server.client("") as browser:
        browser.post("/session", json={"token": TOKENS[role]}, headers=SITE).raise_for_status()
        yield browser


def test_signing_out_ends_the_streams_of_that_session_alone(tmp_path, quick):
    """Also those of other tabs, which nobody told; and nothing of anybody else."""
    project(tmp_path)
    with served(tmp_path) as server, signed_in(server) as browser, signed_in(server) as other:
        mine, theirs = listening(server, browser=browser), listening(server, browser=other)
        token = listening(server)
        assert browser.delete("/session", headers=SITE).status_code == 204
        mine.join(20)
        assert not mine.is_alive()
        time.sleep(0.3)
        assert theirs.is_alive()
        assert token.is_alive()


def test_whoever_is_taken_out_hears_no_more(tmp_path, quick):
    """By token and by session; those who stay go on."""
    project(tmp_path)
    with served(tmp_path) as server, signed_in(server) as browser:
        gone = [listening(server, browser=browser), listening(server)]
        stays = listening(server, "operator")
        table = (
            f'[server.people.viewer]\nrole = "viewer"\ntoken = "{digest_of(TOKENS["viewer"])}"\n'
        )
        path = tmp_path / "leadhand.toml"
        text = path.read_text()
        assert table in text
        path.write_text(text.replace(table, ""))
        for thread in gone:
            thread.join(20)
            assert not thread.is_alive()
        assert stays.is_alive()
        assert browser.get("/session").status_code == 401


# Connections.


def connected(server):
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), 20)


def cut(sock, seconds=20.0):
    """Whether the other side closes within a time."""
    sock.settimeout(seconds)
    try:
        while sock.recv(2000):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


HEAD = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def test_a_head_has_a_deadline(tmp_path, monkeypatch):
    """Nothing, half a head, a byte now and then, also after an answer: cut off."""
    monkeypatch.setattr(connections, "HEAD_S", 0.5)
    project(tmp_path)
    with served(tmp_path) as server:
        silent, half, drip, second = (connected(server) for _ in range(4))
        half.sendall(HEAD)
        second.sendall(HEAD + b"\r\n")
        assert second.recv(2000).startswith(b"HTTP/1.1 200")
        second.sendall(HEAD)
        until, dripped = time.monotonic() + 20, 0
        while time.monotonic() < until:
            try:
                drip.sendall(HEAD[dripped % len(HEAD) :][:1])
            except OSError:
                break
            dripped += 1
            time.sleep(0.1)
        assert dripped < 100
        for sock in (silent, half, second):
            assert cut(sock)
            sock.close()
        drip.close()


def everything(sock):
    """What a server says until it hangs up."""
    sock.settimeout(30)
    parts = []
    try:
        while part := sock.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass  # it had not read all that was sent
    return b"".join(parts)


def test_many_connections_are_no_wall(tmp_path):
    """The one that was idle for longest makes room; those at work are left alone."""
    project(tmp_path)
    with served(tmp_path, RequestLimits(connections=20)) as server:
        work = listening(server)
        idle = [connected(server) for _ in range(60)]
        with server.client("viewer") as client:
            assert client.get("/runs").status_code == 200
        assert len(server.up.server.server_state.connections) <= 20
        assert cut(idle[0], 8)
        assert not cut(idle[-1], 0.2)
        assert work.is_alive()
        for sock in idle:
            sock.close()


def test_when_all_are_at_work_a_new_one_is_told_to_come_again(tmp_path):
    """Before it has said anything."""
    project(tmp_path)
    with served(tmp_path, RequestLimits(connections=3)) as server:
        threads = [listening(server) for _ in range(3)]
        with connected(server) as sock:
            told = sock.recv(2000)
        assert told.startswith(b"HTTP/1.1 503")
        assert b"Retry-After: " in told
        assert all(thread.is_alive() for thread in threads)


def test_strangers_who_dawdle_keep_nobody_out(tmp_path):
    """Sign-ins whose body never comes hold up neither requests nor sign-ins nor connections."""
    project(tmp_path)
    limits = RequestLimits(requests=2, sign_ins=2, connections=8)
    head = (
        b"POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    with served(tmp_path, limits) as server:
        slow = [connected(server) for _ in range(12)]
        for sock in slow:
            sock.sendall(head)
        for _ in range(12):
            with server.client("viewer") as client:
                assert client.get("/runs").status_code == 200
                signed_in = client.post("/session", json={"token": TOKENS["viewer"]})
                assert signed_in.status_code == 200
                long = client.post("/session", json={"token": "x" * 5000})
                assert long.status_code == 413
        for sock in slow:
            sock.close()


AMBIGUOUS = {
    "length and chunks": b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
    "chunks and length": b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
    "two lengths": b"Content-Length: 2\r\nContent-Length: 2\r\n",
    "two other lengths": b"Content-Length: 2\r\nContent-Length: 5\r\n",
    "a list of lengths": b"Content-Length: 2, 2\r\n",
    "a length with a sign": b"Content-Length: +2\r\n",
    "another coding": b"Transfer-Encoding: xchunked\r\n",
    "two codings": b"Transfer-Encoding: gzip, chunked\r\n",
    "chunks twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "a fold": b"X-Odd: a\r\n b\r\nContent-Length: 2\r\n",
    "a folded length": b"Content-Length:\r\n 2\r\n",
    "a bare line feed": b"X-Odd: a\nContent-Length: 2\r\n",
    "a bare return": b"X-Odd: a\rX: b\r\nContent-Length: 2\r\n",
    "white space before the colon": b"Content-Length : 2\r\n",
}


def test_a_head_that_can_be_read_in_two_ways_is_refused(server):
    """With 400, and nothing that comes behind it is read as a second request."""
    line = b"POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    behind = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    for body in (b"{}", b"2\r\n{}\r\n0\r\n\r\n"):
        for name, odd in AMBIGUOUS.items():
            with connected(server) as sock:
                sock.sendall(line + odd + b"\r\n" + body + behind)
                told = everything(sock)
            assert told.startswith(b"HTTP/1.1 400"), (name, told[:200])
            assert told.count(b"HTTP/1.1 ") == 1, (name, told)
            assert b"connection: close" in told.lower(), name


def test_a_head_is_looked_at_also_behind_another_request(server):
    """Pipelined, and behind one that was answered before its body was read."""
    first = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    early = b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}"
    odd = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n" + AMBIGUOUS["length and chunks"] + b"\r\n"
    for before in (first, early):
        with connected(server) as sock:
            sock.sendall(before + odd + b"0\r\n\r\n" + first)
            told = everything(sock)
        assert told.count(b"HTTP/1.1 ") == 2, told
        assert b"HTTP/1.1 400" in told


def test_a_document_that_holds_too_much_is_refused_with_the_bound(server):
    """Before it is parsed: it would hold up the loop, which is the engine's."""
    keys = ",".join(f'"k{n}":1' for n in range(600_000))
    wide = ",".join(f'"k{n}":1' for n in range(20_001))
    lines = json.dumps("steps:\n" + "- {id: a}\n" * 200_000)
    with server.client("operator", **{"Content-Type": "application/json"}) as client:
        for body, bound in (
            (f'{{"plan":{{{keys}}}}}', "300,000 values"),
            (f'{{"plan":{{"steps":[{{"id":"a","x":{{{wide}}}}}]}}}}', "20,000 keys"),
            (f'{{"plan":{lines}}}', "300,000 values"),
        ):
            for path in ("/plans/lint", "/runs"):
                told = client.post(path, content=body.encode())
                assert (told.status_code, bound in told.json()["detail"]) == (413, True), told.text
        few = ",".join(f'"k{n}":1' for n in range(19_000))
        told = client.post("/plans/lint", content=f'{{"plan":{{{few}}}}}'.encode())
        assert (told.status_code, told.json()["valid"]) == (200, False)


def test_whoever_sends_too_much_hears_why(tmp_path):
    """Also while still sending; the connection is good for more, unless it takes for ever."""
    project(tmp_path)
    with (
        served(tmp_path, RequestLimits(body_bytes=1000)) as server,
        server.client("operator") as client,
    ):
        for size in (5000, 5_000_000):
            for _ in range(5):
                told = client.post("/plans/lint", json={"plan": "x" * size})
                assert told.status_code == 413
        assert client.get("/runs").status_code == 200


def test_what_is_no_http_is_told_so(tmp_path, capfd):
    """And makes no noise where people look."""
    project(tmp_path)
    with served(tmp_path) as server:
        for rubbish in (
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"GET / HTTP/9.9\r\n\r\n",
            b"\r\n" * 50 + b"x\r\n\r\n",
        ):
            with connected(server) as sock:
                sock.sendall(rubbish + b"\r\n\r\n")
                assert sock.recv(100)[:12] in (b"HTTP/1.1 400", b"")
        assert httpx2.get(f"{server.url}/livez").status_code == 200
    assert capfd.readouterr().err == ""


def test_the_body_of_a_response_does_not_wait_for_its_headers_to_be_acknowledged(tmp_path):
    """asyncio sets TCP_NODELAY only on sockets whose protocol is named."""
    project(tmp_path)
    wanted = Serve(settings=settings_in(tmp_path), actor="owner", bind="127.0.0.1", port=0)
    with open_socket(wanted) as sock:
        assert sock.proto == socket.IPPROTO_TCP
