"""Where the bytes of a database go: by table and index, by kind of event, by what an event holds.

    python -m bench.room                      100,000 finished runs of five steps
    python -m bench.room --runs 1000 --real   real runs one after another, each with its own commits
    python -m bench.room --file leadhand.db   a database that is there

The made runs are those of `bench.history`: copies of one real run, 200 in a commit. Needs a SQLite
with `dbstat`, as most systems have.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

import msgspec

from bench.history import PLAN, fill, note
from leadhand import Lead
from leadhand.stores.body_form import expand

STEPS = len(PLAN["steps"])  # type: ignore[arg-type]
DIGITS = re.compile(rb"[0-9a-f]{64}|[0-9a-f]{32}|[0-9]{16}")


def print_table(title: str, rows: list[tuple[str, float]], steps: int) -> None:
    """Print parts, the largest first, in bytes for each step."""
    print(f"\n{title}")
    for name, size in sorted(rows, key=lambda row: -row[1]):
        if size / steps >= 0.05:
            print(f"  {name:<44}{size / steps:>9.1f}")


async def live(path: Path, runs: int) -> None:
    """Write the log of real runs, one after another on one host."""
    lead = Lead([note], store=path)
    async with lead.hosting():
        for _ in range(runs):
            await lead.run(PLAN)


def tables(database: sqlite3.Connection) -> list[tuple[str, float]]:
    """Return the size of each table and index."""
    return database.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall()


def kinds(database: sqlite3.Connection) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Return what events take, by their kind: as they are hashed and as stored; and what they hold.

    A sample: up to 20,000 events.
    """
    whole: Counter[str] = Counter()
    stored: Counter[str] = Counter()
    parts: Counter[str] = Counter()
    for (form,) in database.execute("SELECT body FROM events ORDER BY position DESC LIMIT 20000"):
        body = expand(form)
        doc = msgspec.json.decode(body)
        kind = str(doc["type"])
        whole[kind] += len(body)
        stored[kind] += len(form)
        digits = sum(map(len, DIGITS.findall(body)))
        names = sum(len(name) + 3 for name in _names(doc))
        parts["digests and times, as text"] += digits
        parts["names of fields, and of the kind"] += names + len(kind)
        parts["values"] += len(body) - digits - names - len(kind)
    return whole, stored, parts


def _names(doc: object) -> list[str]:
    if isinstance(doc, dict):
        return [*doc, *(name for value in doc.values() for name in _names(value))]
    return [name for value in doc for name in _names(value)] if isinstance(doc, list) else []


def report(path: Path, steps: int | None) -> None:
    """Print all about a database."""
    with closing(sqlite3.connect(path)) as database:
        (events,) = database.execute("SELECT count(*) FROM events").fetchone()
        (runs,) = database.execute("SELECT count(*) FROM listed").fetchone()
        steps = STEPS * runs if steps is None else steps
        print(f"{runs:,} runs, {steps:,} steps, {events:,} events: {path.stat().st_size:,} bytes")
        print(f"bytes for each step: {path.stat().st_size / steps:.1f}")
        print_table("tables and indexes", tables(database), steps)
        (summaries,) = database.execute("SELECT sum(length(summary)) FROM runs").fetchone()
        whole, stored, parts = kinds(database)
        share = min(20000, events) / events
        print_table("bodies of events, as hashed", list(whole.items()), round(steps * share))
        print_table("bodies of events, as stored", list(stored.items()), round(steps * share))
        print_table("what the bodies hold, as hashed", list(parts.items()), round(steps * share))
        beside = [("hashes of events", 32 * events), ("summaries", summaries)]
        print_table("beside them", beside, steps)


def main() -> None:
    """Fill, measure, print."""
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("--runs", type=int, default=100_000, help="how many finished runs")
    given.add_argument("--real", action="store_true", help="run them, instead of copying one")
    given.add_argument("--file", type=Path, help="a database that is there")
    given.add_argument("--steps", type=int, help="how many steps its runs have in all")
    options = given.parse_args()
    if options.file:
        report(options.file, options.steps)
        return
    with tempfile.TemporaryDirectory(prefix="room-") as folder:
        path = Path(folder) / "leadhand.db"
        if options.real:
            asyncio.run(live(path, options.runs))
        else:
            fill(path, options.runs)
        report(path, None)


if __name__ == "__main__":
    main()
