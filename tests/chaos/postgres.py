"""PostgreSQL restarted under many runs: every result right, nothing done twice, nothing lost.

    python -m tests.chaos.postgres --runs 2000

The server is ended and started again every 5 to 40 seconds, each time in one of three ways: in
order (all connections cut), at once (as after a crash of the server), and by kill -9 of all its
processes. One host runs all the while, as a role that may only append. Each run adds and
multiplies numbers of its own over five steps, one of them with a result large enough to be kept
beside the log. At the end:

    every run succeeded with the sum that arithmetic says
    every step was carried out once: its worker counted, outside of the database
    a follower that listened all the while heard each event once, in order, without a hole
    `verify --all` finds nothing

Ends with 1 if anything is wrong. Figures are printed as JSON.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leadhand import Lead, worker
from leadhand.app.reader import Reader
from leadhand.app.verification import verify_database
from leadhand.audit.anchors import Anchoring
from leadhand.stores.location import StoreLocation
from leadhand.stores.postgres.address import Address, address_of
from leadhand.stores.postgres.reader import PostgresReader
from leadhand.stores.postgres.schema import grant
from leadhand.stores.postgres.store import migrated
from tests.support.postgres import PASSWORD, Server, find_programs, reachable, serving

WAYS = ("in order", "at once", "kill -9")
LARGE = 100_000
FOLLOW_SECONDS_MAX = 120


@dataclass
class Campaign:
    """How many runs, how often the server is ended, how long a step takes."""

    runs: int
    between_s: tuple[float, float]
    step_s: tuple[float, float]
    at_once: int
    seed: int
    down_s: float = 1.0
    restarts: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    ended: int = 0
    longest_s: float = 0.0


def plan_of(number: int) -> dict[str, Any]:
    """(n + 1) * 2 and (n + 1) + 5, one after the other; then their sum."""

    def step(ident: str, action: str, *needs: str, **values: Any) -> dict[str, Any]:
        named = {"key": f"{number}/{ident}", **values}
        return {"id": ident, "worker": action, "parameters": named, "depends_on": list(needs)}

    return {
        "goal": f"number {number}",
        "steps": [
            step("first", "add", a=number, b=1),
            step("twice", "multiply", "first", a="${{ steps.first.data }}", b=2),
            step("more", "add", "first", a="${{ steps.first.data }}", b=5),
            step("large", "write", "more", size=LARGE),
            step(
                "sum",
                "add",
                "twice",
                "large",
                a="${{ steps.twice.data }}",
                b="${{ steps.more.data }}",
            ),
        ],
    }


def workers_of(campaign: Campaign) -> list[Any]:
    """Workers that count outside of the database what they did."""
    chance = random.Random(campaign.seed)

    async def did(key: str) -> None:
        campaign.done[key] += 1
        await asyncio.sleep(chance.uniform(*campaign.step_s))

    @worker(name="add")
    async def add(a: int, b: int, key: str) -> int:
        await did(key)
        return a + b

    @worker(name="multiply")
    async def multiply(a: int, b: int, key: str) -> int:
        await did(key)
        return a * b

    @worker(name="write")
    async def write(size: int, key: str) -> str:
        await did(key)
        return key.ljust(size, ".")

    return [add, multiply, write]


async def run_all(campaign: Campaign, place: StoreLocation) -> None:
    """All runs, some at a time."""
    room = asyncio.Semaphore(campaign.at_once)
    lead = Lead(workers_of(campaign), store=place, anchoring=Anchoring())

    async def one(number: int) -> None:
        async with room:
            began = time.monotonic()
            outcome = await lead.run(plan_of(number), run_id=f"run-{number:05}")
            campaign.longest_s = max(campaign.longest_s, time.monotonic() - began)
            campaign.ended += 1
            found = outcome.steps["sum"].data
            if not outcome.ok or found != 2 * (number + 1) + (number + 1) + 5:
                campaign.wrong.append(f"{outcome.run}: {outcome.status}, {found}: {outcome.reason}")

    async with lead.hosting():
        await asyncio.gather(*map(one, range(campaign.runs)))
    for number in range(campaign.runs):
        for step in plan_of(number)["steps"]:
            key = step["parameters"]["key"]
            if campaign.done[key] != 1:
                campaign.wrong.append(f"{key}: carried out {campaign.done[key]} times")


def restart_now_and_then(campaign: Campaign, server: Server, enough: threading.Event) -> None:
    """End the server and start it again. In a thread: the host's loop may wait for the server."""
    chance = random.Random(campaign.seed + 1)
    while not enough.wait(chance.uniform(*campaign.between_s)):
        way = WAYS[len(campaign.restarts) % len(WAYS)]
        ends: dict[str, Callable[[], None]] = {
            "in order": lambda: server.stop(signal.SIGINT),
            "at once": lambda: server.stop(signal.SIGQUIT),
            "kill -9": server.kill,
        }
        ends[way]()
        time.sleep(chance.uniform(0, campaign.down_s))
        server.start()
        campaign.restarts.append(way)


async def follow(log: PostgresReader, heard: list[tuple[int, bytes]]) -> None:
    """Hear everything, in the order of commits."""
    async for position, entry in log.follow():
        heard.append((position, entry.hash))


def working_as(server: Server, folder: Path) -> Address:
    """A new log, as a role that may append and no more."""
    owner = server.new(folder)
    migrated(owner)
    with server.connect() as connection:
        connection.execute(f"CREATE ROLE app LOGIN PASSWORD '{PASSWORD}'")
    grant(owner, [], ["app"])
    return address_of(server.url(owner.dsn.rpartition("/")[2], "app"), folder)


async def chaos(campaign: Campaign, server: Server, folder: Path) -> dict[str, Any]:
    """One campaign on one server; what was found."""
    address = working_as(server, folder)
    began = time.monotonic()
    async with Lead([], store=address).hosting():
        pass
    log, heard = PostgresReader(address), []
    follower = asyncio.create_task(follow(log, heard))
    enough = threading.Event()
    restarts = asyncio.create_task(
        asyncio.to_thread(restart_now_and_then, campaign, server, enough)
    )
    try:
        await run_all(campaign, address)
    finally:
        enough.set()
        await restarts
    seconds = time.monotonic() - began
    events = compare(campaign, address)
    end = time.monotonic() + FOLLOW_SECONDS_MAX
    while len(heard) < len(events) and time.monotonic() < end:
        await asyncio.sleep(0.1)
    if heard != events:
        campaign.wrong.append(f"the follower heard {len(heard)} of {len(events)} events")
    log.close_reader()
    await follower
    return {
        "runs": campaign.ended,
        "steps": sum(campaign.done.values()),
        "events": len(events),
        "seconds": round(seconds, 1),
        "restarts": dict(Counter(campaign.restarts)),
        "longest_run_s": round(campaign.longest_s, 1),
        "wrong": campaign.wrong,
    }


def compare(campaign: Campaign, place: StoreLocation) -> list[tuple[int, bytes]]:
    """What the log holds in the end, with all that is wrong with it."""
    reader = Reader(place)
    try:
        verdict = verify_database(reader, place, Anchoring())
        campaign.wrong += [str(problem) for problem in verdict.problems]
        if verdict.runs != campaign.runs:
            campaign.wrong.append(f"the log holds {verdict.runs} runs")
        return [(int(position), bytes(digest)) for position, digest in reader.store.positions()]
    finally:
        reader.store.close_reader()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--between", type=float, nargs=2, default=(5, 40), help="seconds")
    parser.add_argument("--step", type=float, nargs=2, default=(0.2, 3.0), help="seconds")
    parser.add_argument("--at-once", type=int, default=20, help="runs at a time")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    campaign = Campaign(given.runs, given.between, given.step, given.at_once, given.seed)
    with (
        reachable(find_programs()) as programs,
        serving(programs, sync=True) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        figures = asyncio.run(chaos(campaign, server, Path(folder)))
    print(json.dumps(figures, indent=2))
    return 1 if figures["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
