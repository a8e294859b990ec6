"""The event stream: every event once and in order, whoever reads, however slowly."""

import asyncio
import contextlib
import signal
import socket
import threading
import time
from itertools import pairwise

import httpx2
import pytest

from leadhand.server import stream
from leadhand.server.gate import RequestLimits
from leadhand.server.routes import events
from leadhand.stores.sqlite.store import SqliteStore
from tests.support.serving import TOKENS, ended, plan_of, process, project, rss_mb, served, sse

SAY = {"id": "a", "worker": "say"}


def many(count, worker="say"):
    return plan_of(*({"id": f"s{number}", "worker": worker} for number in range(count)))


def positions(store):
    reader = SqliteStore.open_reader(store)
    try:
        return [position for position, _ in reader.positions()]
    finally:
        reader.close_reader()


def listen(client, until, **how):
    """Read a stream until something was seen; all positions and data."""
    found = []
    with client.stream("GET", "/events", timeout=120, **how) as response:
        assert response.status_code == 200
        for position, kind, data in sse(response.iter_lines()):
            found.append((position, kind, data))
            if until(kind, data):
                break
    return found


def run_over(run):
    return lambda kind, data: kind == "RunEnded" and data["run"] == run


def test_a_stream_tells_everything_with_what_changed(server):
    """Positions, ledger lines, and patches that need no second look."""
    with server.client("operator") as client:
        after = server.call(_head(server))
        run = client.post("/runs", json={"plan": plan_of(SAY, SAY | {"id": "b"})}).json()["run"]
        found = listen(client, run_over(run), params={"after": after})
        mine = [(kind, data) for _, kind, data in found if data["run"] == run]
        assert [data["seq"] for _, data in mine] == list(range(1, len(mine) + 1))
        started = next(data for kind, data in mine if kind == "AttemptStarted")
        assert started["patch"]["step"]["id"] == started["step"]
        assert started["ledger"] == "execution"
        last = mine[-1][1]["patch"]
        assert (last["status"], last["counts"]["succeeded"]) == ("succeeded", 2)
        only = listen(client, run_over(run), params={"after": after, "run": run})
        assert {data["run"] for _, _, data in only} == {run}
        assert [position for position, _, _ in only] == [
            position for position, _, data in found if data["run"] == run
        ]


async def _head(server):
    return server.up.app_state.host.store.last_position()


def test_a_live_reader_gets_everything_as_it_comes(server):
    """From the ring: without holes from where it began, in several goes."""
    with server.client("operator") as client, client.stream("GET", "/events") as response:
        lines = response.iter_lines()
        begun = next(int(line[4:]) for line in lines if line.startswith("id: "))
        found = []
        for _ in range(3):
            run = client.post("/runs", json={"plan": many(20)}).json()["run"]
            for position, kind, data in sse(lines):
                found.append(position)
                if run_over(run)(kind, data):
                    break
        assert found == list(range(begun + 1, begun + 1 + len(found)))


def test_a_reader_goes_on_where_it_was(server):
    """Last-Event-ID: nothing twice, nothing left out, wherever it broke off."""
    with server.client("operator") as client:
        first = server.call(_head(server))
        run = client.post("/runs", json={"plan": many(20)}).json()["run"]
        ended(client, run)
        whole = [p for p, _, _ in listen(client, run_over(run), params={"after": first})]
        assert whole == list(range(first + 1, whole[-1] + 1))
        seen = []
        for _ in range(5):
            last = {"Last-Event-ID": str(seen[-1] if seen else first)}
            count = len(seen)
            part = listen(client, lambda *_: True, headers=last)
            seen += [position for position, _, _ in part]
            assert len(seen) == count + 1
        rest = listen(client, run_over(run), headers={"Last-Event-ID": str(seen[-1])})
        assert seen + [position for position, _, _ in rest] == whole
        assert client.get("/events", headers={"Last-Event-ID": "x"}).status_code == 400


def test_who_was_away_for_too_long_looks_at_everything_again(server, monkeypatch):
    """A reset carries the position from which it goes on."""
    with server.client("operator") as client:
        ended(client, client.post("/runs", json={"plan": many(20)}).json()["run"])
        monkeypatch.setattr(stream, "CATCH_UP_MAX", 5)
        (found,) = listen(client, lambda *_: True, params={"after": 0})
        assert found[1] == "reset"
        assert found[0] == server.call(_head(server))
        beyond = listen(client, lambda *_: True, params={"after": 10**9})
        assert beyond[0][1] == "reset"


def test_a_small_ring_loses_nothing(tmp_path, monkeypatch):
    """What the ring has let go comes from the store."""
    monkeypatch.setattr(stream, "RING_FRAMES", 8)
    monkeypatch.setattr(stream, "SLICE", 4)
    project(tmp_path)
    with served(tmp_path) as server, server.client("operator") as client:
        runs = [client.post("/runs", json={"plan": many(30)}).json()["run"] for _ in range(3)]
        found = []
        with client.stream("GET", "/events", params={"after": 0}) as response:
            for position, _, data in sse(response.iter_lines()):
                found.append(position)
                if len(found) % 50 == 0:
                    time.sleep(0.02)
                if data["type"] == "RunEnded" and data["run"] == runs[-1]:
                    break
        for run in runs:
            ended(client, run)
        assert found == positions(server.store)[: len(found)]


def test_what_comes_while_readers_are_woken_in_turn_reaches_all(tmp_path, monkeypatch):
    """Also those whose turn was over, and without a later event."""
    monkeypatch.setattr(stream, "TICK_S", 0.1)
    monkeypatch.setattr(stream, "ROUND_S", 2.0)  # A busy machine must not end the turn too soon.
    project(tmp_path)
    found = [[] for _ in range(12)]

    async def read(hub, kinds):
        async for chunk in hub.events(None, ""):
            kinds += [line[7:] for line in chunk.splitlines() if line.startswith(b"event: ")]

    async def begin(hub):
        return [asyncio.create_task(read(hub, each)) for each in found]

    async def end(tasks):
        for task in tasks:
            task.cancel()

    def seen(each):
        return each.count(b"RunEnded")

    with served(tmp_path) as server, server.client("operator") as client:
        tasks = server.call(begin(server.up.app_state.hub))
        client.post("/runs", json={"plan": plan_of(SAY)})
        within(5, lambda: any(map(seen, found)))
        client.post("/runs", json={"plan": plan_of(SAY)})
        assert not all(map(seen, found)), "no turn is under way any more: the test shows nothing"
        within(30, lambda: all(seen(each) == 2 for each in found))
        server.call(end(tasks))


class Trickle:
    """A log that grows when a test says so."""

    def __init__(self):
        self.queue = asyncio.Queue()

    def last_position(self):
        return 0

    async def follow(self, _after, _gather):
        while True:
            yield await self.queue.get(), None


async def test_an_event_in_the_middle_of_a_turn_is_nobodys_loss(monkeypatch):
    """Those who were woken before it came are woken again, though nothing follows it."""
    monkeypatch.setattr(stream, "TICK_S", 0.2)
    monkeypatch.setattr(stream, "ROUND_S", 2.0)
    log, found = Trickle(), [b"" for _ in range(10)]
    hub = stream.StreamHub(log, None)

    async def frame(position, _entry):
        return stream.Frame("run", b"event %d\n\n" % position)

    async def read(place):
        async for chunk in hub.events(None, ""):
            found[place] += chunk

    monkeypatch.setattr(hub, "_frame", frame)
    tasks = [asyncio.create_task(read(place)) for place in range(len(found))]
    try:
        async with asyncio.timeout(60):
            for number, enough in ((1, any), (2, all)):
                log.queue.put_nowait(number)
                while not enough(b"event %d" % number in each for each in found):
                    await asyncio.sleep(0.01)
                if number == 1:
                    assert not all(b"event 1" in each for each in found)
    finally:
        await hub.close()
        await asyncio.gather(*tasks)
    assert all(each.count(b"event") == 2 for each in found)


def within(seconds, true):
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.01)
    assert true()


class Stalled:
    """A reader that asks and never reads."""

    def __init__(self, url):
        host, port = url.removeprefix("http://").split(":")
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self.sock.connect((host, int(port)))
        request = (
            f"GET /api/v1/events?after=0 HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"Authorization: Bearer {TOKENS['viewer']}\r\n\r\n"
        )
        self.sock.sendall(request.encode())

    def close(self):
        self.sock.close()


async def _read(client, last, found):
    """Read to the event `last`. A reader that is let go comes back, as pages do."""
    while not found or found[-1] < last:
        try:
            await _read_once(client, last, found)
        except httpx2.RemoteProtocolError:
            continue


async def _read_once(client, last, found):
    after = {"after": found[-1] if found else 0}
    async with client.stream("GET", "/events", params=after) as response:
        text = b""
        async for chunk in response.aiter_raw():
            text += chunk
            while (end := text.find(b"\n\n")) >= 0:
                block, text = text[:end], text[end + 2 :]
                if block.startswith(b"id: ") and b"\nevent: " in block:
                    found.append(int(block[4 : block.index(b"\n")]))
            if found and found[-1] >= last:
                return


@pytest.mark.slow
def test_200_readers_one_stalled(tmp_path, monkeypatch):
    """All others get everything in order; the stalled one is let go, and memory stays bounded."""
    monkeypatch.setattr(events, "STALL_S", 3.0)
    project(tmp_path)
    limits = RequestLimits(streams=220)
    with (
        served(tmp_path, limits) as server,
        server.client("operator") as client,
        contextlib.closing(Stalled(server.url)),
    ):
        runs = [client.post("/runs", json={"plan": many(150)}).json()["run"] for _ in range(4)]

        async def read_all():
            bearer = {"Authorization": f"Bearer {TOKENS['viewer']}"}
            pool = httpx2.Limits(max_connections=None)
            found = [[] for _ in range(199)]
            async with httpx2.AsyncClient(
                base_url=server.api, headers=bearer, timeout=480, limits=pool
            ) as reader:
                for run in runs:
                    while (await reader.get(f"/runs/{run}")).json()["status"] == "running":
                        await asyncio.sleep(0.2)
                last = positions(server.store)[-1]
                before = rss_mb()
                await asyncio.gather(*(_read(reader, last, each) for each in found))
                return found, rss_mb() - before

        found, grown = asyncio.run(read_all())
        everything = positions(server.store)
        for each in found:
            assert each == everything[: len(each)]
            assert len(each) >= len(everything) - 1
        assert grown < 150, f"{grown:.0f} MB for 199 readers and their clients"
        hub, gate = server.up.app_state.hub, server.up.gate
        until = time.monotonic() + 120
        while gate.streams and time.monotonic() < until:
            time.sleep(0.1)
        assert (gate.streams, hub.readers) == (0, 0), "the stalled reader is still there"


def test_nothing_is_made_for_nobody(server):
    """Without readers there is no follower."""
    hub = server.up.app_state.hub
    with server.client("viewer") as client, client.stream("GET", "/events") as response:
        lines = response.iter_lines()  # kept: letting go of it would end the stream
        next(lines)
        assert hub.readers >= 1
    until = time.monotonic() + 120
    while (hub.readers or hub._follower) and time.monotonic() < until:
        time.sleep(0.02)
    assert (hub.readers, hub._follower, hub._ring) == (0, None, {})


@pytest.mark.real
@pytest.mark.slow
def test_a_stream_across_kills_and_restarts(tmp_path):
    """Killed three times in the middle of work: nothing is missing and nothing comes twice."""
    project(tmp_path)
    seen, stop = [], threading.Event()
    server = process(tmp_path)
    port, token = server.port, server.token

    def read():
        bearer = {"Authorization": f"Bearer {token}"}
        while not stop.is_set():
            last = {"Last-Event-ID": str(seen[-1] if seen else 0)}
            with (
                contextlib.suppress(httpx2.HTTPError),
                httpx2.Client(
                    base_url=f"http://127.0.0.1:{port}/api/v1", headers=bearer, timeout=5
                ) as client,
                client.stream("GET", "/events", headers=last) as response,
            ):
                for position, _, _ in sse(response.iter_lines()):
                    seen.append(position)
            time.sleep(0.05)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        steps = [
            {"id": f"n{n}", "worker": "nap", "parameters": {"seconds": 0.3}} for n in range(30)
        ]
        limits = {"limits": {"concurrency": 4}}
        with server.client() as client:
            run = client.post("/runs", json={"plan": plan_of(*steps, **limits)}).json()["run"]
        for _ in range(3):
            time.sleep(0.7)
            server.stop(signal.SIGKILL)
            server = process(tmp_path, "--port", str(port))
        with server.client() as client:
            assert ended(client, run, 60)["status"] == "succeeded"
        store = tmp_path / ".leadhand" / "leadhand.db"
        until = time.monotonic() + 20
        while (not seen or seen[-1] < positions(store)[-1]) and time.monotonic() < until:
            time.sleep(0.1)
        assert seen == positions(store)
        assert all(later == earlier + 1 for earlier, later in pairwise(seen))
    finally:
        stop.set()
        server.stop()
        thread.join(30)
