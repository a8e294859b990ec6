"""A server dies and its follower takes over: what was acknowledged is there, or it is said."""

import asyncio
import time

import pytest

from leadhand.audit.chain import verify_batches
from leadhand.errors import StoreBroken, StoreError
from leadhand.stores.postgres.address import address_of
from leadhand.stores.postgres.reader import PostgresReader
from leadhand.stores.postgres.store import PostgresStore
from tests.stores.entries import chained
from tests.support.postgres import serving

pytestmark = [pytest.mark.real, pytest.mark.slow]


def until(server, question, wanted):
    end = time.monotonic() + 60
    with server.connect() as connection:
        while (found := connection.execute(question).fetchone()) != (wanted,):
            assert time.monotonic() < end, (question, found)
            time.sleep(0.05)


@pytest.fixture
def pair(postgres_programs, tmp_path):
    """A primary and its follower, and the address of a log that names both."""
    with (
        serving(postgres_programs) as primary,
        serving(postgres_programs, primary=primary) as follower,
    ):
        name = primary.new(tmp_path).dsn.rpartition("/")[2]
        until(primary, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", 1)
        here = f":{primary.port}/"
        url = primary.url(name, target_session_attrs="read-write")
        both = url.replace(here, f":{primary.port},127.0.0.1:{follower.port}/")
        yield primary, follower, address_of(both, tmp_path)


async def test_a_follower_that_has_everything_takes_over(pair):
    """Writer, reader and follower of the log go on there; nothing acknowledged is lost."""
    primary, follower, address = pair
    with primary.connect() as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        connection.execute("SELECT pg_reload_conf()")
    until(primary, "SELECT sync_state FROM pg_stat_replication", "sync")
    store = PostgresStore(address, debug=True, patience_s=90)
    store.claim()
    log, heard = PostgresReader(address), []
    entries = chained("r", 60)

    async def hear():
        async for position, entry in log.follow():
            heard.append((position, entry))
            if len(heard) == 60:
                return

    async def write():
        for at, entry in enumerate(entries):
            await store.append("r", at, [entry])
            await asyncio.sleep(0.02)

    hearing, writing = asyncio.create_task(hear()), asyncio.create_task(write())
    await asyncio.sleep(0.5)
    primary.kill()
    with follower.connect() as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("SELECT pg_promote(true, 60)")
    await asyncio.wait_for(writing, 120)
    await asyncio.wait_for(hearing, 120)
    assert heard == list(enumerate(entries, 1))
    assert log.read("r") == entries
    assert verify_batches(log.batches(), log.positions()) == []
    log.close_reader()
    await store.close()


async def test_a_follower_that_lacks_the_last_commit_is_not_written_to(pair):
    """The host stops and says so: going on would do again what was done."""
    primary, follower, address = pair
    store = PostgresStore(address, debug=True, patience_s=90)
    store.claim()
    entries = chained("r", 3)
    await store.append("r", 0, entries[:1])
    until(primary, "SELECT sent_lsn = replay_lsn FROM pg_stat_replication", True)
    with follower.connect() as connection:
        connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
        connection.execute("SELECT pg_reload_conf()")
    until(follower, "SELECT count(*) FROM pg_stat_wal_receiver", 0)
    await store.append("r", 1, entries[1:2])
    primary.kill()
    with follower.connect() as connection:
        connection.execute("SELECT pg_promote(true, 60)")
    with pytest.raises(StoreBroken, match="lost what it had confirmed"):
        await asyncio.wait_for(store.append("r", 2, entries[2:]), 120)
    await store.close()


async def test_a_log_that_is_a_copy_is_written_again_after_its_server_was_away_too_long(
    postgres_programs, tmp_path
):
    """Whoever writes it compares first, so that a commit nobody saw end is no reason to stop."""
    with serving(postgres_programs) as server:
        address = server.new(tmp_path)
        store = PostgresStore(address, shared=True, patience_s=1)
        one, two = chained("r", 2)
        other = server.connect(address.dsn.rpartition("/")[2])
        other.execute("BEGIN")
        other.execute("SELECT * FROM leadhand.tail FOR UPDATE")  # so that it is under way
        first = store.append("r", 0, [one])
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        await asyncio.to_thread(until, server, waits, 1)
        server.kill()
        other.close()
        with pytest.raises(StoreError):
            await first
        assert store.refusal is None
        server.start()
        await store.append("r", 0, [one])
        await store.append("r", 1, [two])
        assert [entry.seq for entry in store.read("r")] == [1, 2]
        await store.close()
