"""The statements in `sql/` by name, and the numbered migrations.

A file of queries is a list of `-- name: …` lines, each followed by comments and one statement. A
migration is a file `NNN-title.sql` with any number of statements; the highest number is the schema
version this code writes. A migration runs in one transaction with the change of version, so that a
crash leaves the one schema or the other.
"""

from __future__ import annotations

import re
import sqlite3
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leadhand.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FOLDER = Path(__file__).with_name("sql")


class SchemaMigration(NamedTuple):
    """One step from a schema version to the next."""

    number: int
    """The schema version of the file afterwards."""
    title: str
    text: str


@cache
def queries(file: str = "queries") -> dict[str, str]:
    """Return the statements of a file by name, in the file's order."""
    return queries_in(_FOLDER / f"{file}.sql")


@cache
def queries_in(file: Path) -> dict[str, str]:
    """Return the statements of a file at any path."""
    named: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("-- name: "):
            lines = named.setdefault(line.removeprefix("-- name: ").strip(), [])
        elif line.strip() and not line.startswith("--"):
            lines.append(line)
    return {name: "\n".join(lines) for name, lines in named.items()}


@cache
def migrations() -> tuple[SchemaMigration, ...]:
    """Return all migrations, in order."""
    return migrations_in(_FOLDER)


@cache
def schema() -> tuple[tuple[str, str, str], ...]:
    """Return every table, index and trigger of the newest schema: kind, name and statement."""
    connection = sqlite3.connect(":memory:")
    try:
        for step in migrations():
            for statement in statements(step.text):
                connection.execute(statement)
        rows = connection.execute(queries()["schema"]).fetchall()
    finally:
        connection.close()
    return tuple((str(kind), str(name), str(text)) for kind, name, text in rows)


@cache
def migrations_in(folder: Path) -> tuple[SchemaMigration, ...]:
    """Return all migrations in any folder."""
    found = []
    for path in sorted(folder.glob("[0-9][0-9][0-9]-*.sql")):
        number, _, title = path.stem.partition("-")
        found.append(SchemaMigration(int(number), title, path.read_text(encoding="utf-8")))
    return tuple(found)


def version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the file's schema version; 0 for a new file. Raise `StoreError` if it is not ours."""
    sql = queries()
    # In this order: all tables of a new file come in one commit, perhaps between the two queries.
    if connection.execute(sql["schema_objects"]).fetchone()[0] == 0:
        return 0
    if connection.execute(sql["has_meta"]).fetchone()[0]:
        row = connection.execute(sql["meta"], ("schema",)).fetchone()
        if row is not None and isinstance(row[0], int):
            if row[0] and not connection.execute(sql["has_lists"]).fetchone()[0]:
                raise StoreError(
                    f"{path}: made by a development version of Leadhand, or altered: its tables "
                    "are not as they are now. Fix: move it away and start with a new database."
                )
            return row[0]
    raise StoreError(
        f"{path}: this is a SQLite database, but not one of Leadhand's. "
        "Fix: give the path of another file."
    )


def migrate(connection: sqlite3.Connection, steps: Sequence[SchemaMigration], path: Path) -> int:
    """Migrate the file to the newest version; return how many migrations ran.

    Each migration raises the owner's epoch: a host of the older version that still has the file
    open cannot append to tables it does not know.
    """
    newest = steps[-1].number
    found = version(connection, path)
    refuse_newer(found, newest, path)
    return sum(_apply(connection, step, path) for step in steps if step.number > found)


def refuse_newer(found: int, newest: int, path: object) -> None:
    """Raise `StoreError` if the file's schema is newer than the known ones."""
    if found > newest:
        raise StoreError(
            f"{path}: written by a newer Leadhand (schema {found}, this one knows {newest}). "
            "Fix: upgrade Leadhand."
        )


def _apply(connection: sqlite3.Connection, step: SchemaMigration, path: Path) -> bool:
    sql = queries()
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Checked again under the lock: another process may have been faster.
        if (found := version(connection, path)) >= step.number:
            connection.execute("ROLLBACK")
            return False
        if found != step.number - 1:
            raise StoreError(f"{path}: schema {found}; migration {step.number} does not follow it.")
        for statement in statements(step.text):
            connection.execute(statement)
        connection.execute(sql["set_meta"], (step.number, "schema"))
        connection.execute(sql["raise_epoch"])
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return True


def statements(text: str) -> Iterator[str]:
    """Yield the statements of a script, one by one. (executescript would commit on its own.)"""
    gathered = ""
    for piece in re.split("(?<=;)", text):
        gathered += piece
        if sqlite3.complete_statement(gathered):
            yield gathered
            gathered = ""
    if any(not line.lstrip().startswith("--") for line in gathered.split("\n") if line.strip()):
        raise StoreError(f"a migration ends in the middle of a statement: {gathered.strip()}")
