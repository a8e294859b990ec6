"""What readers of the event stream cost those who commit: 200 of them, one of which is stalled.

A server starts small runs at a steady pace and times each append until it is durable: without
readers, with 199 that read and one that does not, and without again. The readers are a process of
their own. What counts is the median with readers against the mean of the medians without: a ratio
of one run on one machine. The 95th and 99th of a hundred stand beside it, and how late readers
hear of an event, since that is what a quick commit must not be paid with. Every reader must get
every event once and in order, or there is no figure.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from frame import arguments, emit, memory

PACE_S = 0.05
"""A run of four steps so often: some 240 events a second."""
STEPS = 4
QUIET = 100
SHARES = (0.5, 0.95, 0.99)


def main() -> None:
    """Serve and measure; or read, as the other process."""
    given = arguments(
        ["streaming", "readers"],
        url={"default": ""},
        token={"default": ""},
        seconds={"type": float, "default": 8.0},
    )
    asyncio.run(read_all(given) if given.shape == "readers" else measured(given))


# Reading.


async def read_one(given: Any, found: list[int], late: list[float] | None) -> None:
    """Everything from the beginning, by position; and how long after its moment it came."""
    host, port = given.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(asked(host, port, given.token))
    try:
        async for line in reader:
            if line.startswith(b"id: "):
                number = int(line[4:])
            elif line.startswith(b"event: "):
                found.append(number)
            elif late is not None and line.startswith(b"data: "):
                at = datetime.fromisoformat(json.loads(line[6:])["at"])
                late.append(time.time() - at.timestamp())
    except (OSError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


def asked(host: str, port: str, token: str) -> bytes:
    """A request for the stream from now on."""
    lines = (
        *("GET /api/v1/events HTTP/1.1", f"Host: {host}:{port}"),
        *(f"Authorization: Bearer {token}", "", ""),
    )
    return "\r\n".join(lines).encode()


async def read_all(given: Any) -> None:
    """All readers, and one that never reads; ends when its standard input does."""
    host, port = given.url.removeprefix("http://").split(":")
    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    stalled.connect((host, int(port)))
    stalled.sendall(asked(host, port, given.token))
    found: list[list[int]] = [[] for _ in range(given.size - 1)]
    late: list[float] = []
    tasks = [
        asyncio.create_task(read_one(given, each, None if index % 10 else late))
        for index, each in enumerate(found)
    ]
    print("reading", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await caught_up(found)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    stalled.close()
    whole = all(each == list(range(each[0], each[0] + len(each))) for each in found if each)
    last = {each[-1] for each in found if each}
    same = len(last) == 1 and all(found)
    told = {"late_ms": [round(of(late, share) * 1e3) for share in (0.5, 0.99)]}
    print(json.dumps({"whole": whole, "same": same, "events": len(found[0]), **told}), flush=True)


async def caught_up(found: list[list[int]]) -> None:
    """Until nothing has come to anybody for two seconds; a busy machine takes a while."""
    for _ in range(30):
        before = [len(each) for each in found]
        await asyncio.sleep(2)
        if before == [len(each) for each in found]:
            return


def of(values: list[float], share: float) -> float:
    """The value below which a share of them lies."""
    return sorted(values)[int(share * (len(values) - 1))]


# Serving.


async def measured(given: Any) -> None:
    """Three phases on one server."""
    from leadhand.server.gate import RequestLimits
    from leadhand.server.service import Serve, running
    from leadhand.settings import load_settings

    folder = given.dir.resolve() / "served"
    folder.mkdir(parents=True)
    (folder / "workers.py").write_text(
        "from leadhand import worker\n\n\n@worker(name='say')\n"
        "async def say(text: str = 'x') -> str:\n    return text\n"
    )
    (folder / "leadhand.toml").write_text('[project]\nworkers = ["workers.py"]\n')
    settings = load_settings(environ={}, folder=folder)
    wanted = Serve(
        settings=settings,
        actor="bench",
        bind="127.0.0.1",
        port=0,
        limits=RequestLimits(streams=given.size + 10),
        tell=lambda _text: None,
    )
    async with running(wanted) as up:
        taken: list[float] = []
        timed(up.app_state.host.store, taken)
        before = await phase(up, taken, given.seconds)
        readers = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "streaming", "readers", "--size", str(given.size)),
            *("--url", up.url, "--token", token_of(settings.store)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert readers.stdout is not None
        await readers.stdout.readline()
        while up.app_state.hub.readers < given.size:
            await asyncio.sleep(0.05)
        rested = memory()["rss_mb"]
        among = await phase(up, taken, given.seconds)
        grown = memory()["rss_mb"] - rested
        said, _ = await readers.communicate(b"")
        after = await phase(up, taken, given.seconds)
    verdict = json.loads(said.splitlines()[-1])
    if not (verdict["whole"] and verdict["same"]):
        raise SystemExit(f"a reader missed something: {verdict}")
    alone = [(a + b) / 2 for a, b in zip(before, after, strict=True)]
    emit(
        given.size,
        3 * given.seconds,
        ratio=round(among[0] / alone[0], 3),
        events=verdict["events"],
        late_ms=shown(verdict["late_ms"]),
        grown_mb=round(grown, 1),
        alone_ms=shown(round(each * 1e3, 2) for each in alone),
        among_ms=shown(round(each * 1e3, 2) for each in among),
    )


def shown(values: Iterable[float]) -> str:
    """The median and the tail."""
    return "/".join(f"{value:g}" for value in values)


def token_of(store: Path) -> str:
    """The owner's token."""
    return store.with_name(f"{store.name}.token").read_text().strip()


def timed(store: Any, taken: list[float]) -> None:
    """Time every append until it is durable."""
    append = store.append

    def timing(*args: Any, **more: Any) -> Any:
        began = time.perf_counter()
        future = append(*args, **more)
        future.add_done_callback(lambda _: taken.append(time.perf_counter() - began))
        return future

    store.append = timing


async def phase(up: Any, taken: list[float], seconds: float) -> list[float]:
    """Start runs at a steady pace; how long appends took: the median, p95 and p99."""
    from leadhand.app.lead import Lead

    supervisor = up.app_state.supervisor
    lead = Lead(supervisor.registry, store=up.app_state.settings.store, actor="bench")
    plan = {"goal": "x", "steps": [{"id": f"s{n}", "worker": "say"} for n in range(STEPS)]}
    until = time.monotonic() + seconds
    del taken[:]
    while time.monotonic() < until:
        began = time.monotonic()
        await lead.begin(up.app_state.host, plan)
        await asyncio.sleep(max(0.0, PACE_S - (time.monotonic() - began)))
    await asyncio.sleep(0.5)
    if len(taken) < QUIET:
        raise SystemExit(f"only {len(taken)} commits: too few to say anything")
    return [of(taken[QUIET // 10 :], share) for share in SHARES]


if __name__ == "__main__":
    main()
