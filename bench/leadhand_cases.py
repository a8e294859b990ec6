"""Leadhand's own cases. The one file here that imports it.

Every shape is a plan document run from start to verified end in a fresh database, with
synchronous=FULL read back from the writer's own connection. What is timed is `lead.run` alone;
the database is opened before and closed after, as for the peers. Up to 1,000 steps of a run may
be in flight (the default is 100): the sleepers need it, and no peer has a limit.
By hand, from `bench/`: `python -m leadhand_cases chain --size 1000`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from argparse import Namespace
from contextlib import closing
from pathlib import Path
from typing import Any

from frame import arguments, durability, emit, expect

from leadhand import Lead, Outcome, worker
from leadhand.app.reader import reading
from leadhand.core.policy import Policy
from leadhand.stores.sqlite import lock  # noqa: F401 - imported late otherwise, inside the time

RUN = "bench"
"""The run that is killed and resumed."""
LANES = 10
"""Parallel chains of the growth and resume plans: the same frontier whatever the plan's size."""


@worker(idempotent=True)
async def noop() -> None:
    """The step that does nothing."""


@worker(idempotent=True)
async def sleep_1s() -> None:
    """The step that waits."""
    await asyncio.sleep(1)


called: list[float] = []
"""When the last step of the resume plan was called."""


@worker(idempotent=True)
async def last() -> None:
    """The first time it cuts the power to its own process; resumed, it notes when it was called."""
    if os.environ.get("BENCH_KILL"):
        os.kill(os.getpid(), signal.SIGKILL)
    called.append(time.perf_counter())


def plan(shape: str, size: int, name: str = "bench") -> dict[str, Any]:
    """The plan document of a shape."""
    apart = {"chain": 1, "lanes": LANES, "unfinished": LANES}.get(shape, size)
    does = "sleep_1s" if shape == "sleepers" else "noop"
    steps: list[dict[str, Any]] = [
        {"id": f"s{n}", "worker": does, "depends_on": [f"s{n - apart}"] if n >= apart else []}
        for n in range(size)
    ]
    if shape == "unfinished":
        ends = [f"s{n}" for n in range(size - 1 - LANES, size - 1)]
        steps[-1] = {"id": "last", "worker": "last", "depends_on": ends}
    return {"plan_id": name, "goal": f"{shape} of {size}", "steps": steps}


def lead_on(db: Path) -> Lead:
    """A lead on that database. No backoff: a resumed run would wait it out before its step."""
    policy = Policy(max_concurrency=1000, backoff_s=0, jitter=0)
    return Lead(workers=[noop, sleep_1s, last], store=db, policy=policy)


def synced(store: Any) -> str:
    """How the connection that wrote the log syncs, asked in the thread that owns it."""

    def read_back(connection: sqlite3.Connection) -> str:
        return durability(lambda name: connection.execute(f"PRAGMA {name}").fetchone()[0])

    return str(store._writer.ask(read_back).result())  # noqa: SLF001 - no public way, nor a need


def counted(db: Path, table: str = "events") -> int:
    """How many events, or commits (`batches`), the log holds."""
    with closing(sqlite3.connect(db)) as log:
        return int(log.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def succeeded(outcome: Outcome, size: int) -> None:
    """Fail the case unless every step was done."""
    if not outcome.ok:
        raise SystemExit(f"the run {outcome.status}: {outcome.reason}")
    expect("steps", len(outcome.steps), size)


async def run(given: Namespace, db: Path) -> None:
    """Chain, fan-out, sleepers: one run, timed by the clock."""
    lead, document = lead_on(db), plan(given.shape, given.size)
    async with lead.hosting() as host:
        began = time.perf_counter()
        outcome = await lead.run(document)
        seconds = time.perf_counter() - began
        durable = synced(host.store)
    # Leadhand leaves the checkpoint of a short log to the close: show what that would add.
    closed = {"with_close_s": round(time.perf_counter() - began, 4)}
    succeeded(outcome, given.size)
    rows, commits = counted(db), counted(db, "batches")
    emit(given.size, seconds, durable=durable, rows=rows, commits=commits, **closed)


async def service(given: Namespace, db: Path) -> None:
    """Runs that all begin at once on one host, of five steps one after another; runs a second."""
    lead, document = lead_on(db), plan("chain", 5)
    async with lead.hosting():
        succeeded(await lead.run(plan("chain", 5, "warm-up")), 5)
        cpu, began = time.process_time(), time.perf_counter()
        outcomes = await asyncio.gather(*(lead.run(document) for _ in range(given.size)))
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
    for outcome in outcomes:
        succeeded(outcome, 5)
    emit(given.size, seconds, runs_per_cpu_s=round(given.size / cpu, 1))


async def lanes(given: Namespace, db: Path) -> None:
    """CPU time (all threads) per event, over one or more runs, after one run to warm up."""
    lead = lead_on(db)
    async with lead.hosting():
        await lead.run(plan("lanes", 100, "warm-up"))
        documents = [plan("lanes", given.size, f"bench-{n}") for n in range(given.repeat)]
        before, cpu, began = counted(db), time.process_time(), time.perf_counter()
        for document in documents:
            succeeded(await lead.run(document), given.size)
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
    rows = counted(db) - before
    emit(given.size * given.repeat, seconds, cpu_us_per_event=cpu / rows * 1e6, rows=rows)


async def unfinished(given: Namespace, db: Path) -> None:
    """Leave the log of a run that was killed in its last step."""
    os.environ["BENCH_KILL"] = "1"
    await lead_on(db).run(plan("unfinished", given.size), run_id=RUN)


async def resume(given: Namespace, db: Path) -> None:
    """From nothing in memory to the call of the step that was in flight; and to the end."""
    began = time.perf_counter()
    outcome = await lead_on(db).resume(RUN)
    finished = time.perf_counter() - began
    succeeded(outcome, given.size)
    expect("calls of the last step", len(called), 1)
    emit(given.size, called[0] - began, finished_s=finished)


async def read(given: Namespace, db: Path) -> None:
    """The yardstick of resume: read the log, verify its chain and decode every event."""
    began = time.perf_counter()
    with reading(db) as reader:
        decoded = reader.events(RUN)
        took = time.perf_counter() - began
    emit(given.size, took, rows=len(decoded))


async def main() -> None:
    """Run one shape."""
    shapes = {
        "service": service,
        "lanes": lanes,
        "unfinished": unfinished,
        "resume": resume,
        "read": read,
    }
    shapes |= dict.fromkeys(("chain", "fanout", "sleepers"), run)
    given = arguments(list(shapes), repeat={"type": int, "default": 1})
    await shapes[given.shape](given, given.dir / "leadhand.db")


if __name__ == "__main__":
    asyncio.run(main())
