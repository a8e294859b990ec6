"""How long the loop of a server is held up, beside how long it is when nothing happens.

    python bench/stalls.py

A task of the loop looks at the clock every 5 ms; what it is late by is a stall. Said for each case:
the longest one, and its ratio to the longest one while nothing was asked.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.serving import TOKENS, project, served

if TYPE_CHECKING:
    from collections.abc import Callable

TICK_S = 0.005


class Watch:
    """Sees how long a loop does not come round."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def look(self) -> None:
        """For ever."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(TICK_S)
            self.longest = max(self.longest, time.perf_counter() - before - TICK_S)


def post(server: Any, path: str, body: bytes) -> int:
    """The status of an answer."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    bearer = {"Authorization": f"Bearer {TOKENS['approver']}", "Content-Type": "application/json"}
    connection.request("POST", f"/api/v1{path}", body, bearer)
    return connection.getresponse().status


def at_once(count: int, work: Callable[[], Any]) -> list[Any]:
    """Several threads that do the same."""
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(work())) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


def keys(count: int) -> bytes:
    """A plan with so many keys that nobody knows."""
    plan = {f"k{n}": 1 for n in range(count)}
    return json.dumps({"plan": plan}, separators=(",", ":")).encode()


def steps(count: int) -> bytes:
    """A plan of so many steps."""
    plan = {"goal": "x", "steps": [{"id": f"s{n}", "worker": "say"} for n in range(count)]}
    return json.dumps({"plan": plan}).encode()


def readers(server: Any, count: int) -> list[socket.socket]:
    """Streams that are opened and hardly read."""
    host, port = server.url.removeprefix("http://").split(":")
    found = []
    for _ in range(count):
        each = socket.create_connection((host, int(port)))
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        bearer = f"Authorization: Bearer {TOKENS['viewer']}"
        each.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: {host}\r\n{bearer}\r\n\r\n".encode())
        found.append(each)
    return found


def main() -> None:
    """Print a row for each case."""
    with tempfile.TemporaryDirectory() as scratch:
        project(Path(scratch))
        with served(Path(scratch)) as server:
            watch = Watch()
            asyncio.run_coroutine_threadsafe(watch.look(), server.loop)
            many, most, large = keys(600_000), keys(19_000), steps(50_000)

            def crowd() -> int:
                open_ = readers(server, 250)
                told = post(server, "/runs", steps(2_000))
                time.sleep(10)
                for each in open_:
                    each.close()
                return told

            cases: dict[str, Callable[[], Any]] = {
                "nothing": lambda: time.sleep(5),
                "600,000 keys": lambda: post(server, "/plans/lint", many),
                "six of these at once": lambda: at_once(
                    6, lambda: post(server, "/plans/lint", many)
                ),
                "19,000 keys, six at once": lambda: at_once(
                    6, lambda: post(server, "/plans/lint", most)
                ),
                "50,000 steps linted": lambda: post(server, "/plans/lint", large),
                "250 slow readers, 2,000 steps": crowd,
            }
            least = 0.0
            for name, work in cases.items():
                watch.longest = 0.0
                told = work()
                least = least or watch.longest
                row = (
                    f"{name:<32} {watch.longest * 1e3:8.0f} ms  {watch.longest / least:6.1f} times"
                )
                print(f"{row}  {told if told is not None else ''}", flush=True)


if __name__ == "__main__":
    main()
