"""Opening a log in PostgreSQL that is not as it should be: said at once, with the fix."""

import asyncio
import time

import pytest

from leadhand.app.reader import Reader
from leadhand.app.verification import verify_database
from leadhand.audit.anchors import Anchoring
from leadhand.engine.host import EmbeddedHost
from leadhand.errors import Conflict, StoreError
from leadhand.stores.copy import LogScan, copy
from leadhand.stores.postgres import host_messages, schema, session, writer
from leadhand.stores.postgres.address import address_of
from leadhand.stores.postgres.lock import PostgresLock
from leadhand.stores.postgres.reader import PostgresReader
from leadhand.stores.postgres.store import PostgresStore, migrated
from leadhand.stores.sql import SchemaMigration
from leadhand.stores.sqlite.store import SqliteStore
from tests.support.postgres import free_port


@pytest.fixture
def admin(postgres, address):
    with postgres.connect(address.dsn.rpartition("/")[2]) as connection:
        yield connection


def violations(place):
    reader = Reader(place)
    try:
        return verify_database(reader, place, Anchoring()).problems
    finally:
        reader.store.close_reader()


async def test_a_host_does_not_wait_for_minutes_for_a_server_that_takes_no_writes(
    address, admin, monkeypatch
):
    """One that hosts already does; one that is only beginning has nothing to lose."""
    migrated(address)
    admin.execute(f'ALTER DATABASE "{admin.info.dbname}" SET default_transaction_read_only = on')
    for module in (session, writer):
        monkeypatch.setattr(module, "OPEN_PATIENCE_S", 0.5)
    store = PostgresStore(address)
    began = time.monotonic()
    for begin in (PostgresLock(store).acquire, store.claim):
        with pytest.raises(StoreError, match=r"takes no writes .* Fix: name the primary"):
            begin()
    assert time.monotonic() - began < 60
    await store.close()


@pytest.mark.parametrize(
    "theirs",
    [
        "CREATE TABLE leadhand.meta (a int)",
        "CREATE TABLE leadhand.events (a int)",
        "CREATE VIEW leadhand.meta AS SELECT 'schema' AS key, '7x' AS value",
    ],
)
def test_what_others_keep_under_our_name_is_left_alone(address, admin, theirs):
    admin.execute("CREATE SCHEMA leadhand")
    admin.execute(theirs)
    for opening in (PostgresStore, PostgresReader, migrated, schema.is_there):
        with pytest.raises(StoreError, match=r"something else .* Fix: name another database"):
            opening(address)


async def test_tables_are_brought_up_to_date_without_a_host_and_the_log_verifies(
    address, monkeypatch
):
    """An upgrade is no owner: the log would know of one less than there were."""
    store = PostgresStore(address)
    lock = PostgresLock(store)
    lock.acquire()
    host = EmbeddedHost(store)
    await host.open()
    first = schema.migrations()
    later = (SchemaMigration(2, "more", "COMMENT ON TABLE leadhand.meta IS 'more'"),)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "migrations", lambda: first + later)
        with pytest.raises(Conflict, match="Fix: end that host first"):
            migrated(address)
    await host.close()
    monkeypatch.setattr(schema, "migrations", lambda: first + later)
    assert migrated(address) == 1
    assert violations(address) == []


async def test_a_log_that_never_had_a_host_verifies_wherever_it_is_copied(address, tmp_path, admin):
    """As those that only engines of Temporal write; older versions counted their tables."""
    migrated(address)
    admin.execute("UPDATE leadhand.tail SET epoch = 2")
    source = PostgresReader(address)
    assert violations(address) == []
    target = SqliteStore(tmp_path / "copy.db", copying=True)
    look = LogScan(source, address)
    copy(source, look.prove(), look.names, target, lambda _done, _all: None)
    assert violations(tmp_path / "copy.db") == []
    await target.close()
    source.close_reader()


async def test_a_word_that_was_not_answered_is_told_from_one_that_was_never_said(
    postgres, address, admin, tmp_path
):
    """Whoever said it must know whether it may still be carried out."""
    nowhere = address_of(f"postgres://me@127.0.0.1:{free_port()}/d", tmp_path)
    with pytest.raises(StoreError, match="cannot be reached"):
        await host_messages.ask(nowhere, b"pause", 5)
    store = PostgresStore(address)
    PostgresLock(store).acquire()  # a host that listens to nobody
    asking = asyncio.create_task(host_messages.ask(address, b"pause", 60))
    while not admin.execute("SELECT FROM leadhand.words").fetchall():
        await asyncio.sleep(0.01)
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
    admin.execute(end, ("leadhand speaker",))
    with pytest.raises(Conflict, match="may still be carried out"):
        await asyncio.wait_for(asking, 30)
    await store.close()
