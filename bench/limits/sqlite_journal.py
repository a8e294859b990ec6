"""What SQLite alone can do, with the durability Leadhand promises: WAL and synchronous=FULL.

`commits`: one row of about an event's size per commit, the limit for a chain, in which a step
must be durable before the next may start.

`journal`: the limit for a fan-out: one writer, group commit, no engine. With `--source` it
reads the events of a finished Leadhand run and writes the same rows and bytes into a fresh
database that has the same table, index and triggers, in the same commits (the source's
`batches` table says which). `--maximal` puts everything into one commit, for reference. Reading
the source is outside the time. Without a source the rows come from a recipe: so many for each
step, of so many bytes, so many in a commit. Only events are written, not the row or two that
Leadhand adds to each commit (`batches`, `runs`): strict on us, not on SQLite.

By hand, from `bench/`: `python -m limits.sqlite_journal journal --size 10000 --source FILE`.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from frame import arguments, durability, emit, expect

TABLE = """CREATE TABLE events (
    position INTEGER PRIMARY KEY, run TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL,
    v INTEGER NOT NULL, body BLOB NOT NULL, hash BLOB NOT NULL, UNIQUE (run, seq))"""
Rows = Sequence[tuple[Any, ...]]


def recipe(rows: int, body_bytes: int) -> Rows:
    """Rows such as ours, with bodies and hashes that do not compress."""
    now = time.time_ns() // 1000
    return [
        (n, "bench", n, now + n, 1, os.urandom(body_bytes), os.urandom(32))
        for n in range(1, rows + 1)
    ]


def read(source: Path) -> tuple[list[str], Rows, list[int]]:
    """The table's own definition, its rows in the order they were written, rows per commit."""
    with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as found:
        made = "SELECT sql FROM sqlite_master WHERE tbl_name = 'events' AND sql IS NOT NULL"
        tables = [sql for (sql,) in found.execute(made)]
        rows = found.execute("SELECT * FROM events ORDER BY position").fetchall()
        batches = [
            size
            for (size,) in found.execute("SELECT last - first + 1 FROM batches ORDER BY number")
        ]
    expect("rows in batches", sum(batches), len(rows))
    return tables, rows, batches


def even(rows: int, batch: int) -> list[int]:
    """Rows per commit when every commit but the last holds `batch`."""
    return [min(batch, rows - start) for start in range(0, rows, batch)]


def write(db: Path, tables: Iterable[str], rows: Rows, batches: Sequence[int]) -> tuple[float, str]:
    """Write the rows, one commit for each batch; the time it took and how it was synced."""
    with closing(sqlite3.connect(db, isolation_level=None)) as journal:
        journal.execute("PRAGMA journal_mode=WAL")
        journal.execute("PRAGMA synchronous=FULL")
        for table in tables:
            journal.execute(table)
        insert = f"INSERT INTO events VALUES ({', '.join('?' * len(rows[0]))})"
        waiting = iter(rows)
        began = time.perf_counter()
        for size in batches:
            journal.execute("BEGIN IMMEDIATE")
            journal.executemany(insert, islice(waiting, size))
            journal.execute("COMMIT")
        seconds = time.perf_counter() - began
        expect("rows", journal.execute("SELECT count(*) FROM events").fetchone()[0], len(rows))
        return seconds, durability(lambda name: journal.execute(f"PRAGMA {name}").fetchone()[0])


def main() -> None:
    """Time one of the two limits."""
    number = {"type": int}
    given = arguments(
        ["commits", "journal"],
        source={"type": Path, "help": "database of a finished Leadhand run of --size steps"},
        rows_per_step=number | {"default": 2},
        body_bytes=number | {"default": 200},
        batch=number | {"default": 200},
        maximal={"action": "store_true"},
    )
    tables, rows_from = [TABLE], "a recipe"
    if given.shape == "commits":
        rows = recipe(given.size, given.body_bytes)
        batches = even(len(rows), 1)
    elif given.source and given.source.exists():
        tables, rows, batches = read(given.source)
        rows_from = "a Leadhand run"
    else:
        rows = recipe(given.size * given.rows_per_step, given.body_bytes)
        batches = even(len(rows), given.batch)
    if given.maximal:
        batches = [len(rows)]
    # A fan-out's journal is written in a tenth of a second: five fresh ones, the median counts.
    turns = 1 if given.shape == "commits" else 5
    written = [write(given.dir / f"{n}.db", tables, rows, batches) for n in range(turns)]
    durable = written[0][1]
    emit(
        given.size,
        median(seconds for seconds, _ in written),
        durable=durable,
        rows=len(rows),
        commits=len(batches),
        bytes=sum(len(cell) for row in rows for cell in row if isinstance(cell, bytes)),
        rows_from=rows_from,
    )


if __name__ == "__main__":
    main()
