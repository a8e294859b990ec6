"""DBOS on SQLite: a chain of steps in one workflow, and a fan-out of steps in one workflow.

Fair, and where in doubt in the peer's favour:
- `--journal wal` puts the database into WAL before DBOS opens it, some 40 % faster than
  the rollback journal DBOS takes by itself (`--journal delete`); both keep synchronous=FULL, which
  is read back on every connection DBOS opens;
- the chain uses plain functions, which DBOS runs faster than coroutines;
- the fan-out is tried with `asyncio.gather` (its documented way) and on two threads. Threads
  are faster, though DBOS does not promise the same step numbers on a replay; the faster counts.
  Workflows of one step each, or a queue, are slower by a factor of three and more.

The step records found afterwards must account for every step. By hand, from `bench/`:
`python -m peers.dbos_sqlite chain --journal wal`.
"""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

import sqlalchemy
from dbos import DBOS
from frame import arguments, durability, emit, expect

seen: set[str] = set()


@sqlalchemy.event.listens_for(sqlalchemy.Engine, "connect")
def check_connection(connection: Any, _record: Any) -> None:
    """Every connection DBOS opens is FULL, and says how it journals."""
    connection.execute("PRAGMA synchronous=FULL")
    seen.add(durability(lambda name: connection.execute(f"PRAGMA {name}").fetchone()[0]))


@DBOS.step()
def step() -> None:
    """The no-op as a plain function."""


@DBOS.step()
async def astep() -> None:
    """The no-op as a coroutine."""


@DBOS.workflow()
def chain(size: int) -> None:
    """One step after the other."""
    for _ in range(size):
        step()


@DBOS.workflow()
async def gathered(size: int) -> None:
    """All steps at once, on the event loop."""
    await asyncio.gather(*(astep() for _ in range(size)))


@DBOS.workflow()
def threaded(size: int) -> None:
    """All steps as soon as one of two threads is free; more threads were no faster."""
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(contextvars.copy_context().run, step) for _ in range(size)]
    for call in calls:
        call.result()


def main() -> None:
    """Time one shape."""
    given = arguments(
        ["chain", "fanout"],
        journal={"choices": ["delete", "wal"], "default": "wal"},
        how={"choices": ["gather", "threads"], "default": "gather"},
    )
    db = given.dir / "dbos.sqlite"
    with sqlite3.connect(db) as before:
        before.execute(f"PRAGMA journal_mode={given.journal}")
    before.close()
    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{db}", "log_level": "ERROR"})
    DBOS.launch()
    began = time.perf_counter()
    if given.shape == "chain":
        chain(given.size)
    elif given.how == "threads":
        threaded(given.size)
    else:
        asyncio.run(gathered(given.size))
    seconds = time.perf_counter() - began
    DBOS.destroy()
    (steps,) = sqlite3.connect(db).execute("SELECT count(*) FROM operation_outputs").fetchone()
    expect("steps", steps, given.size)
    emit(given.size, seconds, durable="; ".join(sorted(seen)), version=version("dbos"))


if __name__ == "__main__":
    main()
