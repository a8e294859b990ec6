"""What a server, its disk or the way to it may do to a log in PostgreSQL."""

import asyncio
import contextlib
import logging
import traceback

import pytest

from leadhand.audit.chain import verify, verify_batches
from leadhand.errors import (
    Conflict,
    Fenced,
    LeadhandError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    UsageError,
)
from leadhand.stores.location import place_of
from leadhand.stores.postgres import reader
from leadhand.stores.postgres import reader as blobs
from leadhand.stores.postgres.address import address_of
from leadhand.stores.postgres.lock import PostgresLock
from leadhand.stores.postgres.reader import PostgresReader
from leadhand.stores.postgres.store import PostgresStore
from tests.stores.entries import chained
from tests.support.cutting import Link
from tests.support.postgres import PASSWORD

CUT = """\
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE %s"""


@pytest.fixture
def admin(postgres, address):
    with postgres.connect(address.dsn.rpartition("/")[2].partition("?")[0]) as connection:
        yield connection


@contextlib.asynccontextmanager
async def opened(address, **more):
    store = PostgresStore(address, debug=True, **more)
    try:
        store.claim()
        yield store
    finally:
        await store.close()


def whole(log, run, entries):
    """What was acknowledged is there, once, and both chains hold."""
    assert log.read(run) == entries
    assert verify(entries) == []
    assert verify_batches(log.batches(), log.positions()) == []


async def hear(log, count):
    found = []
    follower = log.follow()
    try:
        while len(found) < count:
            found.append(await asyncio.wait_for(anext(follower), 60))
    finally:
        await follower.aclose()
    return found


# --- following -----------------------------------------------------------------------------


async def test_a_follower_whose_calls_are_lost_looks_by_itself(address, monkeypatch):
    """As behind a pooler that does not pass notifications on: later, and nothing is missed."""
    monkeypatch.setattr(reader, "CHANNEL", "SELECT 1")
    monkeypatch.setattr(reader, "POLL_S", 0.2)
    async with opened(address) as store:
        hearing = asyncio.create_task(hear(store, 20))
        for at, entry in enumerate(log := chained("r", 20)):
            await store.append("r", at, [entry])
            await asyncio.sleep(0.02)
        assert [entry for _, entry in await hearing] == log


async def test_a_follower_that_is_cut_off_catches_up(address, admin):
    """Again and again, by the server; each entry comes once, in order."""
    async with opened(address) as store:
        log = PostgresReader(address)
        hearing = asyncio.create_task(hear(log, 60))
        for at, entry in enumerate(entries := chained("r", 60)):
            await store.append("r", at, [entry])
            if at % 10 == 5:
                admin.execute(CUT, ("leadhand follower",))
        heard = await hearing
        assert [position for position, _ in heard] == list(range(1, 61))
        assert [entry for _, entry in heard] == entries
        log.close_reader()


async def test_a_cancelled_follower_ends_though_its_connection_is_lost(
    postgres, address, monkeypatch
):
    """The driver raises the loss in place of the cancellation; that must not keep us here."""
    monkeypatch.setattr(reader, "POLL_S", 0.05)
    monkeypatch.setattr(reader, "LOOK_S", 0.05)
    with Link(postgres.port) as link:
        database = address.dsn.rpartition("/")[2]
        url = postgres.url(database).replace(f":{postgres.port}/", f":{link.port}/")
        async with opened(address) as store:
            await store.append("r", 0, chained("r"))
            log = PostgresReader(address_of(url, address.home.parent))
            for _ in range(3):
                hearing = asyncio.create_task(hear(log, 2))
                await asyncio.sleep(0.2)
                link.silent = True  # whatever it asks now is never answered
                await asyncio.sleep(0.3)
                hearing.cancel()
                asyncio.get_running_loop().call_later(0.2, link.cut)
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.wait_for(asyncio.shield(hearing), 30)
            log.close_reader()


async def test_others_transactions_delay_and_break_nothing(postgres, address, admin):
    """One that holds the log's end makes appends wait; one that only looks is nobody's matter."""
    async with opened(address) as store:
        entries = chained("r", 3)
        await store.append("r", 0, entries[:1])
        database = address.dsn.rpartition("/")[2]
        with postgres.connect(database) as idle, postgres.connect(database) as holder:
            idle.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            idle.execute("SELECT count(*) FROM leadhand.events")
            await store.append("r", 1, entries[1:2])
            holder.execute("BEGIN")
            holder.execute("SELECT * FROM leadhand.tail FOR UPDATE")
            waiting = store.append("r", 2, entries[2:])
            await asyncio.sleep(0.3)
            assert not waiting.done()
            assert store.read("r") == entries[:2]
            holder.execute("ROLLBACK")
            await asyncio.wait_for(waiting, 30)
            assert [entry for _, entry in await hear(store, 3)] == entries
            idle.execute("ROLLBACK")
        whole(store, "r", entries)


# --- commits that nobody answered ----------------------------------------------------------


async def test_a_commit_that_was_not_answered_is_found(postgres, address):
    """The link lets the append through and not its answer, then breaks: it is there once."""
    database = address.dsn.rpartition("/")[2]
    with Link(postgres.port) as link:
        url = postgres.url(database).replace(f":{postgres.port}/", f":{link.port}/")
        async with opened(address_of(url, address.home.parent), patience_s=60) as store:
            entries = chained("r", 30)
            for at in range(30):
                if at % 3 == 1:
                    link.silent = True
                waiting = store.append("r", at, entries[at : at + 1])
                if at % 3 == 1:
                    await asyncio.sleep(0.15)
                    assert not waiting.done()
                    link.cut()
                await asyncio.wait_for(waiting, 60)
            whole(store, "r", entries)


async def test_appends_survive_cuts_at_any_moment(address, admin):
    """Many runs at once, while the writer's connection is ended again and again."""
    async with opened(address, patience_s=60) as store:
        logs = {f"r{number}": chained(f"r{number}", 15) for number in range(10)}

        async def write(run):
            for at, entry in enumerate(logs[run]):
                await store.append(run, at, [entry])

        writing = asyncio.gather(*map(write, logs))
        pause_s = 0.05
        while not writing.done():
            admin.execute(CUT, ("leadhand writer",))
            await asyncio.sleep(pause_s)
            pause_s *= 1.1  # a busy machine may need longer than that for a connection and a commit
        await writing
        for run, entries in logs.items():
            whole(store, run, entries)


# --- a disk that is full, a server that takes no writes -------------------------------------


async def test_a_full_disk_is_said_and_loses_nothing(address, admin):
    """What was acknowledged stays, what was refused is not there, and space mends it."""
    admin.execute("CREATE SCHEMA IF NOT EXISTS trouble")
    async with opened(address) as store:
        entries = chained("r", 3)
        await store.append("r", 0, entries[:1])
        admin.execute(
            "CREATE FUNCTION trouble.full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
        )
        admin.execute(
            "CREATE TRIGGER full_disk BEFORE INSERT ON leadhand.batches "
            "FOR EACH ROW EXECUTE FUNCTION trouble.full_disk()"
        )
        with pytest.raises(StoreFull, match="free some space"):
            await store.append("r", 1, entries[1:2])
        assert store.read("r") == entries[:1]
        admin.execute("DROP TRIGGER full_disk ON leadhand.batches")
        await store.append("r", 1, entries[1:])
        whole(store, "r", entries)


async def test_a_server_that_takes_no_writes_is_waited_for(address, admin):
    """As during a failover; when it lasts, the refusal says what to do."""
    database = address.dsn.rpartition("/")[2]
    async with opened(address, patience_s=30) as store:
        entries = chained("r", 2)
        await store.append("r", 0, entries[:1])
        admin.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
        admin.execute(CUT, ("leadhand writer",))
        waiting = store.append("r", 1, entries[1:])
        await asyncio.sleep(0.5)
        assert not waiting.done()
        admin.execute("SET default_transaction_read_only = off")
        admin.execute(f'ALTER DATABASE "{database}" RESET default_transaction_read_only')
        await asyncio.wait_for(waiting, 60)
        whole(store, "r", entries)
    async with opened(address, patience_s=0.5) as store:
        admin.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
        admin.execute(CUT, ("leadhand writer",))
        with pytest.raises(StoreError, match="takes no writes"):
            await store.append("r", 2, chained("r", 3)[2:])
        admin.execute("SET default_transaction_read_only = off")
        admin.execute(f'ALTER DATABASE "{database}" RESET default_transaction_read_only')
        await store.append("r", 2, chained("r", 3)[2:])
        whole(store, "r", chained("r", 3))


# --- two hosts -----------------------------------------------------------------------------


async def test_a_host_that_lost_its_place_cannot_write(address, admin):
    """It is refused while the other lives, and fenced when it comes back to a log with another."""
    first = PostgresStore(address, patience_s=10)
    PostgresLock(first).acquire()
    first.claim()
    entries = chained("r", 2)
    await first.append("r", 0, entries[:1])
    second = PostgresStore(address)
    with pytest.raises(Conflict, match="is the host of this database"):
        PostgresLock(second).acquire()
    await second.close()  # the cut is for the first alone
    admin.execute(CUT, ("leadhand writer",))
    second = PostgresStore(address)
    second.writer.lock().result()
    second.claim()
    with pytest.raises(Fenced):
        await first.append("r", 1, entries[1:])
    await second.append("r", 1, entries[1:])
    whole(second, "r", entries)
    await first.close()
    await second.close()


async def test_a_host_that_rests_keeps_its_place(address, admin):
    """Whatever the server does to connections that are idle: the lock must not go with them."""
    database = address.dsn.rpartition("/")[2]
    for name in ("idle_session_timeout", "idle_in_transaction_session_timeout"):
        admin.execute(f"ALTER DATABASE \"{database}\" SET {name} = '100ms'")
    first = PostgresStore(address)
    PostgresLock(first).acquire()
    first.claim()
    await asyncio.sleep(0.6)
    second = PostgresStore(address)
    with pytest.raises(Conflict, match="is the host of this database"):
        PostgresLock(second).acquire()
    await first.append("r", 0, chained("r"))
    await first.close()
    await second.close()


# --- large results -------------------------------------------------------------------------


async def test_large_results_go_to_the_shared_folder(postgres, tmp_path):
    """Small ones stay in the database; a second machine finds both by name."""
    folder = tmp_path / "shared"
    address = postgres.new(tmp_path, artifacts=str(folder))
    large, small = b"x" * (blobs.IN_DATABASE_MAX + 1), b"y" * 1000
    async with opened(address) as store:
        refs = [store.put_artifact(large), store.put_artifact(small)]
        assert store.put_artifact(large) == refs[0]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in files] == [large]
    log = PostgresReader(address)
    assert [log.get_artifact(ref) for ref in refs] == [large, small]
    assert log.artifacts() == [refs[1]]
    files[0].write_bytes(b"changed")
    with pytest.raises(StoreCorrupt):
        log.get_artifact(refs[0])
    log.close_reader()


async def test_without_a_shared_folder_large_results_are_in_the_database(address, monkeypatch):
    """Up to what a row can hold; beyond that the error names the way out."""
    monkeypatch.setattr(blobs, "ROW_MAX", 4 << 20)
    async with opened(address) as store:
        data = b"z" * (3 << 20)
        assert store.get_artifact(store.put_artifact(data)) == data
        with pytest.raises(StoreError, match=r"\?artifacts="):
            store.put_artifact(b"z" * (5 << 20))


# --- secrets -------------------------------------------------------------------------------


async def test_a_password_is_in_no_error_and_no_log(postgres, address, tmp_path, caplog):
    """Whatever goes wrong: in its text, in what caused it, in what was logged, in the server's."""
    caplog.set_level(logging.DEBUG)
    escaped = PASSWORD.replace(" ", "%20")
    name = address.dsn.rpartition("/")[2]
    wrong = {
        "no such database": address.secret.replace(name, "nowhere"),
        "no such role": postgres.url(name, "nobody_at_all"),
        "no server": postgres.url(name).replace(f":{postgres.port}/", ":1/"),
        "bad port": postgres.url(name).replace(f":{postgres.port}/", ":port/"),
        "bad option": postgres.url(name, nonsense="1"),
        "bad escape": postgres.url(name).replace("%20", "%2"),
        "as a parameter": f"postgres://127.0.0.1:1/{name}?user=me&password={escaped}",
    }
    said = [repr(address), str(address), f"{address!r}"]
    for what, url in wrong.items():
        try:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr("leadhand.stores.postgres.session.OPEN_PATIENCE_S", 0.1)
                PostgresStore(address_of(url, tmp_path))
        except LeadhandError as error:
            said += [str(error), *traceback.format_exception(error)]
        else:
            pytest.fail(what)
    async with opened(address) as store:
        await store.append("r", 0, chained("r"))
        said += [repr(store), repr(vars(store))]
    said += [caplog.text, (postgres.folder / "log").read_text()]
    text = "\n".join(said)
    assert PASSWORD not in text
    assert escaped not in text


def test_an_address_that_cannot_be_read_is_refused_without_repeating_it(tmp_path):
    """It may hold a password, wherever it went wrong."""
    urls = (
        *("postgres://a:hush hush@h/d", "postgres://a:hush#hush@h/d", "postgres://a:hush@h"),
        *("postgres://a:12/hush@h/d", "postgres://a:12@hush@h/d", "postgres://a:1/2?x=hush@h/d"),
        *("postgresql+psycopg://a:hush@h/d", "postgres:a:hush@h/d", "mysql://a:hush@h/d"),
    )
    for url in urls:
        with pytest.raises(UsageError) as caught:
            place_of(url, tmp_path, tmp_path)  # no file is named after a password either
        assert "hush" not in str(caught.value)
        assert "Fix: " in str(caught.value)
    shown = address_of(
        "Postgres://h/d?user=a@corp.example&PASSWORD=hush".replace("@", "%40"), tmp_path
    )
    assert str(shown) == "postgres://h/d?user=a%40corp.example"
