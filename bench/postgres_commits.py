"""What a durable append to a log in PostgreSQL costs, beside the driver's bare commits.

One server with `fsync` on, its files on a disk. Three things take turns on it:

    raw        psycopg, one INSERT of an event's size per commit, into a table with our columns
    one        appends one after the other, as a chain of steps makes them
    together   appends of many runs at once: one commit holds whatever has gathered

`ratio` is how many of ours, one by one, fit into the time of one of the driver's; `together` how
many of ours at once. Medians of the ratios within each turn.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from frame import arguments, emit, expect  # noqa: E402 - where cases run, tests are elsewhere

from leadhand.audit.chain import GENESIS, link  # noqa: E402
from leadhand.ports import Entry  # noqa: E402
from leadhand.stores.postgres.store import PostgresStore  # noqa: E402
from tests.support.postgres import Server, find_programs, reachable  # noqa: E402

TURNS = 5
RUNS = 200
TABLE = """CREATE TABLE raw (
    position bigint PRIMARY KEY, run_id bigint NOT NULL, seq bigint NOT NULL, at bigint NOT NULL,
    version bigint NOT NULL, body bytea NOT NULL, hash bytea NOT NULL, UNIQUE (run_id, seq))"""
INSERT = "INSERT INTO raw VALUES (%s, 1, %s, 1, 1, %s, %s)"


def entries(run: str, count: int) -> list[Entry]:
    """Entries that chain, with bodies that do not compress."""
    made, prev = [], GENESIS
    for seq in range(1, count + 1):
        body = os.urandom(200)
        prev = link(prev, run, seq, seq, 1, body)
        made.append(Entry(run, seq, seq, 1, body, prev))
    return made


def raw(server: Server, size: int, turn: int) -> float:
    """Seconds for so many bare commits."""
    rows = [
        (turn * size + n, turn * size + n, os.urandom(200), os.urandom(32)) for n in range(size)
    ]
    with server.connect("bench") as connection:
        (durable,) = connection.execute("SHOW synchronous_commit").fetchone() or ("?",)
        expect("synchronous_commit is on", int(durable == "on"), 1)
        began = time.perf_counter()
        for row in rows:
            connection.execute(INSERT, row, binary=True)
        return time.perf_counter() - began


async def one(store: PostgresStore, size: int, turn: int) -> float:
    """Seconds for so many appends, each after the other."""
    log = entries(f"one-{turn}", size)
    began = time.perf_counter()
    for at, entry in enumerate(log):
        await store.append(entry.run, at, [entry])
    return time.perf_counter() - began


async def together(store: PostgresStore, size: int, turn: int) -> float:
    """Seconds for so many appends of each of many runs, all runs at once."""
    logs = [entries(f"many-{turn}-{run}", size) for run in range(RUNS)]

    async def write(log: list[Entry]) -> None:
        for at, entry in enumerate(log):
            await store.append(entry.run, at, [entry])

    began = time.perf_counter()
    await asyncio.gather(*map(write, logs))
    return time.perf_counter() - began


async def measure(server: Server, size: int, folder: Path) -> None:
    """All three in turns, on one server."""
    address = server.new(folder)
    with server.connect() as connection:
        connection.execute("CREATE DATABASE bench")
    with server.connect("bench") as connection:
        connection.execute(TABLE)
    store = PostgresStore(address)
    store.claim()
    each = max(5, size // 20)
    times = []
    for turn in range(TURNS):
        bare = raw(server, size, turn) / size
        alone = await one(store, size, turn) / size
        many = await together(store, each, turn) / (each * RUNS)
        times.append((bare, alone, many))
    written = TURNS * (size + each * RUNS)
    expect("entries", store.last_position(), written)
    commits = store.commits()
    await store.close()
    bare, alone, many = (median(column) for column in zip(*times, strict=True))
    emit(
        size,
        alone * size,
        ratio=round(median(b / a for b, a, _ in times), 2),
        together=round(median(b / m for b, _, m in times), 1),
        raw_per_s=round(1 / bare),
        together_per_s=round(1 / many),
        entries_per_commit=round(written / commits, 1),
        durable="fsync on, synchronous_commit on",
    )


def main() -> None:
    """Start a server on a disk, measure, and remove it."""
    given = arguments(["postgres"])
    folder = Path(tempfile.mkdtemp(prefix="leadhand-bench-pg-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        with reachable(find_programs()) as programs:
            server = Server(programs, folder, sync=True)
            server.start()
            try:
                asyncio.run(measure(server, given.size, given.dir))
            finally:
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
