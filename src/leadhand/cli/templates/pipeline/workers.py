"""The workers of the pipeline: plain functions that plans call by name.

A worker gets the parameters of its step and returns data. The class of the exception that it
raises (`Transient`, `RateLimited`, `Permanent`, ...) decides what follows: a retry, another
worker, a question to a person.
"""

from __future__ import annotations

import csv
import sqlite3
from contextlib import closing
from pathlib import Path

from leadhand import Context, Transient, worker

HERE = Path(__file__).resolve().parent
WAREHOUSE = HERE / "out" / "warehouse.db"
Row = dict[str, str]


@worker(effects=(), idempotent=True)
def extract(source: str, token: str | None, context: Context) -> dict[str, list[Row]]:
    """Read the orders. A real source would be called with the token."""
    if context.attempt == 1:  # an unreliable source; remove these two lines
        raise Transient("the export is not ready yet")
    context.progress("with a token" if token else "without a token")
    with (HERE / source).open(newline="", encoding="utf-8") as file:
        return {"rows": list(csv.DictReader(file))}


def no_duplicates(data: dict[str, list[Row]]) -> bool:
    """Return whether each order number occurs once: a check that plans name."""
    numbers = [row["order"] for row in data["accepted"]]
    return len(numbers) == len(set(numbers))


@worker(effects=(), idempotent=True, checks={"no_duplicates": no_duplicates})
def validate(rows: list[Row]) -> dict[str, list[Row]]:
    """Separate the rows that can be loaded from those that cannot."""
    accepted = [row for row in rows if row["amount"].replace(".", "", 1).isdigit()]
    return {"accepted": accepted, "rejected": [row for row in rows if row not in accepted]}


@worker(effects=["warehouse"], idempotent=True, writes="out/warehouse.db", timeout="5 minutes")
def load(rows: list[Row]) -> dict[str, int]:
    """Insert or replace the rows: loading them twice changes nothing, so it is idempotent."""
    WAREHOUSE.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(WAREHOUSE)) as database, database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS orders (number TEXT PRIMARY KEY, country TEXT, amount REAL)"
        )
        database.executemany(
            "INSERT OR REPLACE INTO orders VALUES (:order, :country, :amount)", rows
        )
        (count,) = database.execute("SELECT count(*) FROM orders").fetchone()
    return {"rows": count}


@worker(effects=(), idempotent=True, reads="out/warehouse.db")
def report(rejected: list[Row]) -> str:
    """Sum the orders up by country. The data of the last step is the result of the run."""
    query = "SELECT country, count(*), sum(amount) FROM orders GROUP BY country ORDER BY 3 DESC"
    with closing(sqlite3.connect(WAREHOUSE)) as database:
        lines = [f"{name}: {n} orders, {total:.2f}" for name, n, total in database.execute(query)]
    return "\n".join([*lines, f"rejected: {len(rejected)}"])
