"""Schema migrations: any older file is brought up to date, whatever happens on the way."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from leadhand.errors import Fenced, StoreError, UsageError
from leadhand.stores import sql
from leadhand.stores.location import there
from leadhand.stores.sql import SchemaMigration
from leadhand.stores.sqlite.store import SqliteReader, SqliteStore
from tests.stores.entries import chained
from tests.support.disk import ENV

ROOT = Path(__file__).resolve().parents[2]

# A history to come: each step needs the one before, and the last changes what is stored.
FUTURE = (
    SchemaMigration(2, "notes", "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT);"),
    SchemaMigration(
        3,
        "copies",
        """
        -- A trigger has semicolons of its own; a comment may have one; too.
        CREATE TRIGGER notes_copy AFTER INSERT ON notes BEGIN
            INSERT INTO copies VALUES (NEW.text); INSERT INTO copies VALUES ('again');
        END;
        CREATE TABLE copies (text TEXT);
        """,
    ),
    SchemaMigration(
        4,
        "fill",
        "INSERT INTO notes (text) SELECT run FROM runs;"
        + "".join(f"CREATE TABLE filler_{i} (x); INSERT INTO filler_{i} VALUES ({i});\n"
                  for i in range(30)),
    ),
)  # fmt: skip
ALL = (*sql.migrations(), *FUTURE)


def schema(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return sql.version(connection, path)
    finally:
        connection.close()


async def filled(path: Path) -> None:
    """A file of today's version, with a log in it."""
    store = SqliteStore(path)
    store.claim()
    await store.append("r", 0, chained("r", 5))
    await store.close()


def check_future(path: Path) -> None:
    """The newest schema, and the old log."""
    connection = sqlite3.connect(path)
    try:
        assert sql.version(connection, path) == 4
        assert connection.execute("SELECT text FROM copies").fetchall() == [("r",), ("again",)]
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (5,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finally:
        connection.close()


def test_the_numbers_have_no_holes():
    """Each migration follows the one before."""
    assert [step.number for step in sql.migrations()] == list(range(1, len(sql.migrations()) + 1))
    assert all(step.title for step in sql.migrations())


async def test_a_new_file_has_the_newest_schema(path):
    """And opening it again changes nothing."""
    await filled(path)
    assert schema(path) == sql.migrations()[-1].number
    before = path.read_bytes()
    store = SqliteStore(path)
    await store.close()
    assert path.read_bytes() == before


async def test_an_old_file_is_brought_up_to_date(path, monkeypatch):
    """Through every version between, keeping its log and its name."""
    await filled(path)
    monkeypatch.setattr(sql, "migrations", lambda: ALL[:2])
    store = SqliteStore(path)
    name = store.database_id
    assert store.read("r") == chained("r", 5)
    await store.close()
    assert schema(path) == 2
    connection = sqlite3.connect(path, isolation_level=None)
    assert sql.migrate(connection, ALL, path) == 2
    assert sql.migrate(connection, ALL, path) == 0
    assert connection.execute("SELECT value FROM meta WHERE key = 'database'").fetchone() == (name,)
    connection.close()
    check_future(path)


async def test_a_newer_file_is_refused(path):
    """For writing and for reading; it stays as it is."""
    await filled(path)
    connection = sqlite3.connect(path, isolation_level=None)
    sql.migrate(connection, ALL, path)
    connection.close()
    for opening in (SqliteStore, SqliteReader):
        with pytest.raises(StoreError, match=r"newer Leadhand \(schema 4, this one knows 1\)"):
            opening(path)
    check_future(path)


def test_a_reader_does_not_migrate(path, monkeypatch):
    """It says what would."""
    connection = sqlite3.connect(path, isolation_level=None)
    sql.migrate(connection, sql.migrations(), path)
    connection.close()
    monkeypatch.setattr(sql, "migrations", lambda: ALL)
    with pytest.raises(StoreError, match="older than 4"):
        SqliteReader(path)
    assert schema(path) == 1


@pytest.mark.parametrize("mode", ["", "PRAGMA journal_mode = WAL"])
def test_a_file_that_is_being_made_holds_no_log_yet(path, mode):
    """A host makes it now, or died before it had made the tables: that is no damage."""
    path.touch()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(mode)
    assert not there(path)
    with pytest.raises(UsageError, match="no log in this database yet"):
        SqliteReader(path)
    sql.migrate(connection, sql.migrations(), path)
    connection.close()
    assert there(path)
    SqliteReader(path).close_reader()


def test_a_reader_beside_whoever_makes_the_file(path):
    """It finds nothing, or all of it, wherever the tables come between its questions."""
    for turn in range(1, 3):
        path.unlink(missing_ok=True)
        reading = sqlite3.connect(path, isolation_level=None)
        making = sqlite3.connect(path, isolation_level=None)
        asked = []

        def ask(*words, asked=asked, turn=turn, reading=reading, making=making):
            if len(asked) == turn:
                sql.migrate(making, sql.migrations(), path)
            asked.append(words)
            return reading.execute(*words)

        assert sql.version(SimpleNamespace(execute=ask), path) in {0, 1}
        reading.close()
        making.close()


async def test_a_migration_fences_a_host_of_the_old_version(path):
    """It does not know the tables it would write to."""
    old = SqliteStore(path)
    old.claim()
    await old.append("r", 0, chained("r"))
    connection = sqlite3.connect(path, isolation_level=None)
    sql.migrate(connection, ALL, path)
    connection.close()
    with pytest.raises(Fenced):
        await old.append("r", 1, chained("r", 2)[1:])
    await old.close()


@pytest.mark.parametrize(
    "bad",
    ["CREATE TABLE broken (x); CREATE TABLE broken (x);", "CREATE TABLE broken (x", "nonsense;"],
)
async def test_a_migration_that_fails_changes_nothing(path, monkeypatch, bad):
    """The versions before it stay, its own first statements do not."""
    await filled(path)
    monkeypatch.setattr(sql, "migrations", lambda: (*ALL[:2], SchemaMigration(3, "bad", bad)))
    with pytest.raises(StoreError):
        SqliteStore(path)
    assert schema(path) == 2
    connection = sqlite3.connect(path)
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    connection.close()
    assert "notes" in tables
    assert "broken" not in tables


def test_a_hole_in_the_numbers_is_refused(path):
    """Rather than skipping what is missing."""
    connection = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(StoreError, match="does not follow"):
        sql.migrate(connection, (ALL[0], ALL[2]), path)
    connection.close()
    assert schema(path) == 1


def test_two_that_migrate_at_once(path):
    """The second finds it done."""
    one = sqlite3.connect(path, isolation_level=None)
    two = sqlite3.connect(path, isolation_level=None)
    assert sql._apply(one, ALL[0], path)
    assert not sql._apply(two, ALL[0], path)
    assert not two.in_transaction
    one.close()
    two.close()


def test_statements_are_split_as_sqlite_would():
    """Triggers stay whole; comments at the end are nothing."""
    found = list(sql.statements(FUTURE[1].text + "\n-- the end\n"))
    assert len(found) == 2
    assert "again" in found[0]


def test_queries_have_names():
    """One statement each, and none by accident."""
    for file in ("queries", "writer"):
        for name, text in sql.queries(file).items():
            assert sqlite3.complete_statement(text), name
            assert len(list(sql.statements(text))) == 1, name


KILLED = """
import sys
from pathlib import Path
from tests.support.disk import install_from_env
from tests.stores.test_migrations import ALL
install_from_env()
from leadhand.stores import sql
from leadhand.stores.sqlite.store import SqliteStore
sql.migrations = lambda: ALL
SqliteStore(Path(sys.argv[1]))
print("done", flush=True)
"""


@pytest.mark.real
@pytest.mark.slow
async def test_a_kill_at_any_write_of_a_migration(tmp_path):
    """The file has one schema or the other, and the next start finishes the work."""
    await filled(tmp_path / "old" / "log.db")
    killed = 0
    for number in range(1, 400, 3):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "old", folder)
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(folder / "log.db")],
            cwd=ROOT,
            env={**os.environ, ENV: json.dumps({"kill_at": number})},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.stdout == "done\n":
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        killed += 1
        assert 1 <= schema(folder / "log.db") <= 4
        connection = sqlite3.connect(folder / "log.db", isolation_level=None)
        sql.migrate(connection, ALL, folder / "log.db")
        connection.close()
        check_future(folder / "log.db")
    assert killed > 5
