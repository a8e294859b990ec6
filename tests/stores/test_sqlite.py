"""The SQLite store beyond the contract: grouping, limits, readers, files that are not ours."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import pytest

from leadhand.audit.chain import verify, verify_batches, verify_head
from leadhand.errors import (
    Bug,
    Conflict,
    Fenced,
    LeadhandError,
    NotAllowed,
    StoreCorrupt,
    StoreError,
    UsageError,
)
from leadhand.stores import group_commit, sql
from leadhand.stores.sqlite import connection as connect
from leadhand.stores.sqlite import reader, writer
from leadhand.stores.sqlite.store import BUSY_S, SqliteReader, SqliteStore
from tests.stores.entries import chained
from tests.support.disk import Disk


@pytest.fixture
async def store(path):
    store = SqliteStore(path)
    store.claim()
    yield store
    await store.close()


def raw(path: Path, *statements: str) -> list[tuple]:
    """What another program could do to the file."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return [row for text in statements for row in connection.execute(text).fetchall()]
    finally:
        connection.close()


# --- writing -------------------------------------------------------------------------------


async def test_appends_that_wait_are_committed_together(store):
    """A thousand at once cost a handful of commits; one alone has its own."""
    log = chained("r", 1000)
    await asyncio.gather(*[store.append("r", i, log[i : i + 1]) for i in range(1000)])
    assert len(store.batches()) < 100
    before = len(store.batches())
    for run in ("a", "b", "c"):
        await store.append(run, 0, chained(run))
    assert len(store.batches()) == before + 3


@pytest.mark.parametrize(("pragma", "value"), [("synchronous", 2), ("wal_autocheckpoint", 0)])
async def test_the_writer_syncs_every_commit(store, pragma, value):
    """Nobody turned FULL into something else on the way; checkpoints are not SQLite's to make."""
    asked = store._writer.ask(lambda c: c.execute(f"PRAGMA {pragma}").fetchone()[0])
    assert asked.result() == value
    assert raw(store.path, "PRAGMA journal_mode") == [("wal",)]


async def test_a_lone_append_is_committed_at_once(store):
    """Before `append` returns, when the caller says that nothing else is to be done."""
    log = chained("r", 3)
    for i in range(3):
        assert store.append("r", i, log[i : i + 1], alone=True).done()
    assert store.read("r") == log
    assert store.room()
    assert len(store.batches()) == 3


async def test_a_lone_append_does_not_overtake(store):
    """Whatever is queued, or in the writer's hands, goes first."""
    log = chained("r", 2000)
    appends = [store.append("r", i, log[i : i + 1], alone=i % 3 == 2) for i in range(2000)]
    await asyncio.gather(*appends)
    assert store.read("r") == log


async def test_a_lone_append_does_not_wait_for_a_busy_writer(path):
    """It is queued like any other, and the event loop goes on."""
    with Disk() as disk:
        store = SqliteStore(path)
        store.claim()
        go = threading.Event()
        disk.hook = lambda number, operation: go.wait(10)
        first = store.append("a", 0, chained("a"))
        time.sleep(0.05)
        second = store.append("b", 0, chained("b"), alone=True)
        assert not second.done()
        go.set()
        await asyncio.gather(first, second)
        await store.close()


async def test_a_lone_append_meets_the_same_refusals(store):
    """Conflict, a wrong entry, and another owner."""
    log = chained("r", 2)
    with pytest.raises(Conflict):
        await store.append("r", 1, log[1:], alone=True)
    with pytest.raises(Bug):
        await store.append("r", 0, [log[0]._replace(body="text")], alone=True)
    other = SqliteStore(store.path)
    other.claim()
    with pytest.raises(Fenced):
        await store.append("r", 0, log[:1], alone=True)
    await other.append("r", 0, log, alone=True)
    await other.close()
    assert store.read("r") == log


async def test_lone_appends_are_checkpointed_too(store, monkeypatch):
    """By the writer's thread, later."""
    monkeypatch.setattr(writer, "CHECKPOINT_BYTES", 200_000)
    log = chained("r", 300, body=b"x" * 1000)
    for i in range(300):
        await store.append("r", i, log[i : i + 1], alone=True)
        await asyncio.sleep(0)
    assert Path(f"{store.path}-wal").stat().st_size < 2_500_000
    assert store.read("r") == log


async def test_a_follower_in_the_host_is_woken(store, monkeypatch):
    """It does not have to ask."""
    monkeypatch.setattr(reader, "POLL_S", 60)
    stream = store.follow()
    for i, alone in enumerate([False, True]):
        following = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.05)
        await store.append("r", i, chained("r", 2)[i : i + 1], alone=alone)
        async with asyncio.timeout(60):
            assert (await following)[0] == i + 1
    await stream.aclose()


async def test_a_follower_that_is_woken_for_what_it_has_seen_waits_on(store, monkeypatch):
    """It may read a commit before it is told of it; being told must not set it spinning."""
    looks, found, rows = [], [], SqliteReader._rows

    def counted(self, name, values=()):
        looks.append(name)
        if len(looks) > 100:
            raise RuntimeError("it spins")
        return rows(self, name, values)

    monkeypatch.setattr(SqliteReader, "_rows", counted)

    async def follow():
        async for position, _ in store.follow():
            found.append(position)

    following = asyncio.create_task(follow())
    told = store.append("r", 0, chained("r", 1))
    time.sleep(0.1)  # committed, before anything can be said in this loop
    await told
    await asyncio.sleep(0.05)
    assert found == [1]
    assert not following.done()
    await store.append("r", 1, chained("r", 2)[1:])
    await asyncio.sleep(0.05)
    assert found == [1, 2]
    following.cancel()


async def test_a_follower_may_let_commits_gather(store, monkeypatch):
    """It reads once for all that came together, and misses none."""
    over, pages, sleep, rows = asyncio.Event(), [], asyncio.sleep, store._rows

    async def gather(delay_s):
        await (over.wait() if delay_s == 7.0 else sleep(delay_s))

    def read(query, *args):
        found = rows(query, *args)
        if query == "page":
            pages.append([position for position, *_ in found])
        return found

    async def follow():
        async for _ in store.follow(0, 7.0):
            pass

    monkeypatch.setattr(asyncio, "sleep", gather)
    monkeypatch.setattr(store, "_rows", read)
    following = asyncio.create_task(follow())
    while not pages:
        await sleep(0.01)
    log = chained("r", 5)
    for i in range(5):
        await store.append("r", i, log[i : i + 1], alone=i % 2 == 1)
    assert pages == [[]], "it waits for others to follow the first"
    over.set()
    while len(pages) < 2:
        await sleep(0.01)
    following.cancel()
    assert pages[1] == [1, 2, 3, 4, 5]


async def test_a_group_has_a_limit(store, monkeypatch):
    """What is over it waits for the next one."""
    monkeypatch.setattr(group_commit, "GROUP_ROWS_MAX", 10)
    log = chained("r", 95)
    await asyncio.gather(*[store.append("r", i, log[i : i + 5]) for i in range(0, 95, 5)])
    assert max(batch.last - batch.first + 1 for batch in store.batches()) <= 10
    assert store.read("r") == log


async def test_one_append_may_be_larger_than_a_group(store):
    """It is all or nothing, so it cannot be split."""
    log = chained("r", group_commit.GROUP_ROWS_MAX + 1)
    await store.append("r", 0, log)
    assert len(store.batches()) == 1
    assert store.header("r").seq == group_commit.GROUP_ROWS_MAX + 1
    assert store.read("r", group_commit.GROUP_ROWS_MAX) == log[-1:]


async def test_a_large_body(store):
    """Twenty megabytes, and small ones around it in the same group."""
    big = chained("big", 1, body=os.urandom(20_000_000))
    small = [store.append(run, 0, chained(run)) for run in "abc"]
    await asyncio.gather(*small, store.append("big", 0, big), store.append("z", 0, chained("z")))
    assert store.read("big") == big
    assert len(store.runs()) == 5


async def test_what_is_no_entry_fails_alone(store):
    """A caller's mistake does not end the writer or spoil the group."""
    good = chained("good", 1)
    text = [chained("text")[0]._replace(body="not bytes")]
    digits = [chained("digits")[0]._replace(at=10**25)]
    short = [chained("short")[0]._replace(hash=b"short")]
    results = await asyncio.gather(
        store.append("text", 0, text),
        store.append("digits", 0, digits),
        store.append("good", 0, good),
        store.append("short", 0, short),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [Bug, Bug, type(None), Bug]
    assert [header.run for header in store.runs()] == ["good"]


async def test_debug_refuses_a_wrong_hash(path):
    """Where time does not matter, the store checks what it is given."""
    store = SqliteStore(path, debug=True)
    store.claim()
    log = chained("r", 3)
    await store.append("r", 0, log[:1])
    with pytest.raises(Bug, match="hash"):
        await store.append("r", 1, [log[1]._replace(hash=bytes(32))])
    await store.append("r", 1, log[1:])
    await store.close()


async def test_remembered_heads_are_bounded(store, monkeypatch):
    """And learned again when needed."""
    monkeypatch.setattr(writer, "HEADS_MAX", 5)
    logs = [chained(f"r{i}", 3) for i in range(20)]
    for i in range(3):
        for log in logs:
            await store.append(log[0].run, i, log[i : i + 1])
    assert all(store.read(log[0].run) == log for log in logs)
    assert len(store._writer._heads) <= 6


async def test_room_ends_when_much_is_queued(path):
    """But an append is always taken."""
    store = SqliteStore(path, queue_bytes_max=10_000)
    store.claim()
    assert store.room()
    log = chained("r", 20, body=b"x" * 1000)
    appends = [store.append("r", i, log[i : i + 1]) for i in range(20)]
    assert not store.room()
    await asyncio.gather(*appends)
    assert store.room()
    await store.close()


async def test_the_log_is_moved_into_the_file_now_and_then(store, monkeypatch):
    """So the write-ahead log stays small however long a host lives."""
    monkeypatch.setattr(writer, "CHECKPOINT_BYTES", 200_000)
    log = chained("r", 600, body=b"x" * 1000)
    for i in range(0, 600, 4):
        await store.append("r", i, log[i : i + 4])
    assert Path(f"{store.path}-wal").stat().st_size < 1_500_000
    assert store.read("r") == log


async def test_the_log_stays_bounded_under_readers(store, monkeypatch):
    """Readers that come and go, so that there is always one; the log begins again all the same."""
    monkeypatch.setattr(writer, "CHECKPOINT_BYTES", 200_000)
    over = threading.Event()
    reads = []

    def read(number):
        beside = SqliteReader(store.path)
        while not over.is_set():
            with beside.snapshot():
                reads.append(beside.last_position())
                over.wait(0.01 + number / 300)
        beside.close_reader()

    readers = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for each in readers:
        each.start()
    log = chained("r", 3000, body=b"x" * 2000)
    wal, most = Path(f"{store.path}-wal"), 0
    for i in range(0, 3000, 4):
        await store.append("r", i, log[i : i + 4])
        most = max(most, wal.stat().st_size)
    over.set()
    for each in readers:
        each.join()
    assert len(reads) > 20
    assert most < 3_000_000, f"{most:,} bytes, of {3000 * 2000:,} that were written"
    assert store.read("r") == log


async def test_a_log_that_one_long_reader_held_is_given_back(store, monkeypatch):
    """Nothing is lost meanwhile, and the reader sees its moment."""
    monkeypatch.setattr(writer, "CHECKPOINT_BYTES", 200_000)
    quick = {**sql.queries(), "wait_for_readers": "PRAGMA busy_timeout = 1"}
    monkeypatch.setattr(store._writer, "_sql", quick)
    log = chained("r", 1200, body=b"x" * 2000)
    await store.append("r", 0, log[:4])
    beside = SqliteReader(store.path)
    wal = Path(f"{store.path}-wal")
    with beside.snapshot():
        assert beside.last_position() == 4
        for i in range(4, 800, 4):
            await store.append("r", i, log[i : i + 4])
        assert beside.last_position() == 4
        held = wal.stat().st_size
    for i in range(800, 1200, 4):
        await store.append("r", i, log[i : i + 4])
    store._writer.ask(lambda _: None).result()
    beside.close_reader()
    assert held > 1_500_000
    assert wal.stat().st_size < 1_500_000
    assert store.read("r") == log


async def test_a_store_on_two_loops_one_after_the_other(path):
    """The blocking twins run a loop for each call."""
    store = SqliteStore(path)
    store.claim()
    log = chained("r", 2)

    def turn(number: int) -> None:
        async def append() -> None:
            await store.append("r", number, log[number : number + 1])

        asyncio.run(append())

    await asyncio.to_thread(turn, 0)
    await asyncio.to_thread(turn, 1)
    assert store.read("r") == log
    await store.close()


async def test_a_loop_that_is_gone_is_not_waited_for(path):
    """Whoever asked has left; the entries are stored and the writer lives."""
    store = SqliteStore(path)
    store.claim()

    def leave() -> None:
        async def append() -> None:
            store.append("r", 0, chained("r"))

        asyncio.run(append())

    await asyncio.to_thread(leave)
    await store.append("s", 0, chained("s"))
    assert store.read("r") == chained("r")
    assert store.read("s") == chained("s")
    await store.close()


# --- the file ------------------------------------------------------------------------------


async def test_events_cannot_be_changed_by_accident(store):
    """The file itself says no."""
    await store.append("r", 0, chained("r", 2))
    for statement in (
        "UPDATE events SET at = 0",
        "DELETE FROM events",
        "UPDATE batches SET first = 0",
        "DELETE FROM batches",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            raw(store.path, statement)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET body = X'7B7D' WHERE position = 2",
        "UPDATE events SET at = at + 1 WHERE position = 2",
        "UPDATE events SET run_id = 2 WHERE position = 3",
        "DELETE FROM events WHERE position = 2",
        "DELETE FROM events WHERE position = 3",
        "DELETE FROM events WHERE run_id = 2",
        "UPDATE events SET hash = zeroblob(32) WHERE position = 1",
    ],
)
async def test_tampering_shows(store, change):
    """By the run's chain, or by the chain over commits."""
    await store.append("r", 0, chained("r", 3))
    await store.append("s", 0, chained("s", 1))
    drops = [f"DROP TRIGGER events_no_{what}" for what in ("update", "delete")]
    raw(store.path, *drops, change)
    found = verify_batches(store.batches(), store.positions())
    for header in store.runs():
        entries = store.read(header.run)
        found += verify(entries) + verify_head(entries, header)
    assert found


async def test_rows_written_behind_the_owners_back_stop_it(store):
    """It cannot know what else is not as it thinks."""
    await store.append("r", 0, chained("r"))
    raw(store.path, "INSERT INTO events VALUES (2, 9, 9, 0, 0, 0, X'', X'')")
    with pytest.raises(StoreCorrupt):
        await store.append("r", 1, chained("r", 2)[1:])
    with pytest.raises(StoreCorrupt):
        await store.append("s", 0, chained("s"))


async def test_a_database_has_a_name_for_life(path):
    """The same after reopening, another in another file."""
    ids = []
    for place in (path, path, path.with_name("other.db")):
        store = SqliteStore(place)
        ids.append(store.database_id)
        await store.close()
    assert ids[0] == ids[1] != ids[2]
    assert len(ids[0]) == 32


async def test_the_folder_is_made(tmp_path):
    """With its parents."""
    store = SqliteStore(tmp_path / "a" / "b" / "log.db")
    await store.close()
    assert (tmp_path / "a" / "b" / "log.db").exists()


async def test_one_database_under_two_names(path, tmp_path):
    """A link leads to the same log, lock and artifacts."""
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    store = SqliteStore(link)
    ref = store.put_artifact(b"data")
    await store.close()
    assert store.path == path
    reading = SqliteReader(path)
    assert reading.get_artifact(ref) == b"data"
    reading.close_reader()


def test_a_folder_is_no_database(tmp_path):
    """Said in words."""
    with pytest.raises(UsageError, match="folder"):
        SqliteStore(tmp_path)


@pytest.mark.parametrize("opening", [SqliteStore, SqliteReader])
def test_a_file_that_is_no_database(path, opening):
    """Said in words, and left as it was."""
    path.write_bytes(b"My shopping list:\n" * 100)
    with pytest.raises(StoreCorrupt, match="not a database"):
        opening(path)
    assert path.read_bytes() == b"My shopping list:\n" * 100


@pytest.mark.parametrize("opening", [SqliteStore, SqliteReader])
def test_somebody_elses_database(path, opening):
    """Ours are not the only SQLite files in the world."""
    raw(path, "CREATE TABLE recipes (name TEXT)")
    with pytest.raises(StoreError, match="not one of Leadhand's"):
        opening(path)
    assert raw(path, "SELECT name FROM sqlite_master") == [("recipes",)]


@pytest.mark.parametrize("change", ["DROP TABLE listed", "ALTER TABLE runs DROP COLUMN last"])
def test_a_database_of_a_development_version_is_refused(tmp_path, change):
    """For writing and for reading."""
    path = tmp_path / "old.db"
    asyncio.run(SqliteStore(path).close())
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    for opening in (SqliteStore, SqliteReader):
        with pytest.raises(StoreError, match="development version"):
            opening(path)


async def test_a_damaged_page(path):
    """Found when it is read, and named."""
    store = SqliteStore(path)
    store.claim()
    await store.append("r", 0, chained("r", 2000))
    await store.close()
    data = bytearray(path.read_bytes())
    data[8192:40960] = os.urandom(32768)
    path.write_bytes(data)
    reading = SqliteReader(path)
    with pytest.raises(StoreCorrupt, match=r"log\.db"):
        reading.read("r")
    reading.close_reader()


def test_a_reader_needs_a_file(path):
    """It makes none."""
    with pytest.raises(UsageError, match="no database"):
        SqliteStore.open_reader(path)
    assert not path.exists()


# --- locked --------------------------------------------------------------------------------


async def test_a_lock_that_is_let_go_is_waited_for(store):
    """Another program holds the file for a second; the caller notices nothing."""
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    append = store.append("r", 0, chained("r"))
    await asyncio.sleep(1)
    assert not append.done()
    other.execute("COMMIT")
    other.close()
    await append


async def test_a_lone_append_does_not_block_the_loop_on_a_lock(store):
    """It is left to the writer; the accounts stay right."""
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    start = time.monotonic()
    append = store.append("r", 0, chained("r"), alone=True)
    assert time.monotonic() - start < BUSY_S, "the loop waited for the lock"
    await asyncio.sleep(0.1)
    assert not append.done()
    other.execute("COMMIT")
    other.close()
    await append
    assert store.append("r", 1, chained("r", 2)[1:], alone=True).done()
    assert store._queued_bytes == store._writer.settled_bytes


async def test_a_lock_that_stays_is_an_error(path):
    """After the time allowed; nothing was written, and later appends go through."""
    store = SqliteStore(path, busy_s=0.2)
    store.claim()
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        await store.append("r", 0, chained("r"))
    with pytest.raises(StoreError, match="locked"):
        store.claim()
    other.execute("COMMIT")
    other.close()
    assert store.runs() == []
    await store.append("r", 0, chained("r"))
    await store.close()


# --- reading beside a host -----------------------------------------------------------------


async def test_a_reader_beside_a_writer(store):
    """Sees what is committed, changes nothing, and the writer does not notice."""
    log = chained("r", 4)
    await store.append("r", 0, log[:2], b"{}")
    reading = SqliteStore.open_reader(store.path)
    assert reading.read("r") == log[:2]
    await store.append("r", 2, log[2:])
    assert reading.read("r") == log
    assert reading.header("r") == store.header("r")
    assert reading.runs() == store.runs()
    assert reading.get_artifact(store.put_artifact(b"x")) == b"x"
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reading._reading.execute("DELETE FROM runs")
    await reading.close()
    with pytest.raises(StoreError, match="closed"):
        reading.runs()


async def test_a_reader_follows_another_process(store, monkeypatch):
    """By asking now and then, in pages: everything once, in order."""
    monkeypatch.setattr(reader, "POLL_S", 0.01)
    monkeypatch.setattr(reader, "PAGE_ROWS", 7)
    reading = SqliteStore.open_reader(store.path)
    log = chained("r", 100)

    async def watch() -> list:
        seen = []
        async for position, entry in reading.follow():
            seen.append((position, entry))
            if position == 100:
                break
        return seen

    async with asyncio.timeout(30):
        watching = asyncio.ensure_future(watch())
        for i in range(0, 100, 5):
            await store.append("r", i, log[i : i + 5])
            await asyncio.sleep(0.005)
        assert await watching == list(enumerate(log, 1))
    await reading.close()


# --- not allowed ---------------------------------------------------------------------------

AS_NOBODY = """
import os, sys
from leadhand.errors import LeadhandError
from leadhand.stores.sqlite.lock import HostLock
from leadhand.stores.sqlite.store import SqliteStore
path = sys.argv[1]
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
try:
    {code}
except LeadhandError as error:
    print(f"{{type(error).__name__}}: {{error}}")
"""


def as_nobody(code: str, path: Path) -> str:
    """Run a line as a user without special rights (root may write anywhere)."""
    script = AS_NOBODY.format(code=textwrap.indent(code, "    ").strip())
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
async def public():
    """A closed store with one entry, in a folder others can reach (pytest's own they cannot)."""
    folder = Path(tempfile.mkdtemp(prefix="leadhand-public-")).resolve()
    folder.chmod(0o755)
    store = SqliteStore(folder / "log.db")
    store.claim()
    await store.append("r", 0, chained("r"))
    await store.close()
    yield folder / "log.db"
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.real
async def test_a_read_only_folder(public):
    """Is named, with what to do; reading works."""
    public.parent.chmod(0o555)
    public.chmod(0o666)
    said = as_nobody("SqliteStore(path)", public)
    assert said.startswith(f"NotAllowed: {public.parent}: this folder is read-only")
    assert "Fix: chmod u+w" in said
    said = as_nobody("HostLock(path).acquire()", public)
    assert said.startswith("NotAllowed: ")
    assert as_nobody("print(SqliteStore.open_reader(path).read('r')[0].seq)", public) == "1"
    said = as_nobody("SqliteStore(os.path.dirname(path) + '/new/log.db')", public)
    assert said.startswith("NotAllowed: ")
    public.parent.chmod(0o000)
    assert as_nobody("SqliteStore(path)", public).startswith("NotAllowed: ")
    assert as_nobody("SqliteStore.open_reader(path)", public).startswith("NotAllowed: ")


@pytest.mark.real
async def test_a_read_only_file(public):
    """Is named too."""
    public.parent.chmod(0o777)
    public.chmod(0o444)
    said = as_nobody("SqliteStore(path)", public)
    assert said.startswith(f"NotAllowed: {public}: this file is read-only")
    assert as_nobody("print(SqliteStore.open_reader(path).read('r')[0].seq)", public) == "1"


@pytest.mark.real
async def test_reading_in_a_read_only_folder_beside_a_host(public):
    """The host's shared memory is there to be used; whoever may not read it is told."""
    store = SqliteStore(public)
    store.claim()
    await store.append("r", 1, chained("r", 2)[1:])
    public.parent.chmod(0o555)
    for side in ("", "-wal", "-shm"):
        Path(f"{public}{side}").chmod(0o644)
    said = as_nobody("print(len(SqliteStore.open_reader(path).read('r')))", public)
    assert said == "2" or said.startswith("NotAllowed: ")
    await store.close()


def test_a_network_file_system_is_refused(tmp_path, monkeypatch):
    """Locks there are a rumour; whoever knows better says so."""
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/vda / ext4 rw 0 0\n"
        "server:/x /mnt/team\\040share nfs4 rw 0 0\n"
        "tmpfs /mnt/team\\040share/fast tmpfs rw 0 0\n"
    )
    shared = Path("/mnt/team share/log.db")
    assert connect.file_system(Path("/var/log.db"), mounts) == "ext4"
    assert connect.file_system(Path("/mnt/team share/fast/log.db"), mounts) == "tmpfs"
    assert connect.file_system(shared, mounts) == "nfs4"
    assert connect.file_system(shared, tmp_path / "none") == ""
    connect.refuse_network(Path("/var/log.db"), mounts)
    with pytest.raises(NotAllowed, match=r"network file system \(nfs4\)"):
        connect.refuse_network(shared, mounts)
    monkeypatch.setenv(connect.NETWORK_ENV, "1")
    connect.refuse_network(shared, mounts)


def test_every_error_at_opening_is_ours(tmp_path):
    """A file in the place of a folder, for one."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(LeadhandError):
        SqliteStore(tmp_path / "file" / "log.db")


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ("UPDATE events SET back = 2 WHERE position = 6", [1, 2, 3, 4]),
        ("UPDATE events SET back = 0 WHERE position = 6", [1, 2, 3, 4]),
        ("UPDATE events SET back = 'x' WHERE position = 6", [1, 2, 3, 4]),
        ("UPDATE runs SET last = 1 WHERE run = 'r'", [1, 2, 3, 4]),
        ("UPDATE runs SET last = 77 WHERE run = 'r'", [1, 2, 3, 4]),
        ("DELETE FROM events WHERE position = 8", [1, 2, 3]),
        ("DELETE FROM events WHERE position = 4", [1, 3, 4]),
        ("UPDATE events SET run_id = 1 WHERE position = 4", [1, 3, 4]),
    ],
)
async def test_what_is_left_of_a_damaged_run_is_read(store, change, left):
    """The entries of a run are found from the last one backwards; not so if a link is wrong."""
    for seq in range(4):  # positions 2, 4, 6 and 8
        for run in "sr":
            await store.append(run, seq, [chained(run, seq + 1)[seq]])
    assert (store.places("r"), [e.seq for e in store.read("r", 2)]) == ([2, 4, 6, 8], [3, 4])
    drops = [f"DROP TRIGGER events_no_{what}" for what in ("update", "delete")]
    raw(store.path, *drops, change)
    assert [entry.seq for entry in store.read("r")] == left
    assert len(store.places("r")) == len(left)
    assert [entry.seq for entry in store.read("s")][:4] == [1, 2, 3, 4]


@pytest.mark.parametrize("value", [0, 1, 2, 3, -1, "'x'", "1.5", "x'02'", 1 << 62])
async def test_a_wrong_link_between_entries_is_found(store, value):
    """Nothing is read wrongly because of it; but no row may be another one unnoticed."""
    for seq in range(3):  # r at 1, 3 and 5
        for run in "rs":
            await store.append(run, seq, [chained(run, seq + 1)[seq]])
    assert store.damage() == []
    raw(store.path, "DROP TRIGGER events_no_update", f"UPDATE events SET back = {value}")
    wrong = {0: [3, 4, 5, 6], 2: [1, 2]}.get(value, [1, 2, 3, 4, 5, 6])
    told = [f"events: {place} does not name the one before it" for place in wrong]
    assert store.damage()[: len(wrong)] == told
    assert store.damage()[len(wrong) :] == ["trigger events_no_update is not as it was made"]
    raw(store.path, f"UPDATE runs SET last = {value} WHERE run = 'r'")
    assert "runs: r does not name its last event" in store.damage()
    assert [entry.seq for entry in store.read("r")] == [1, 2, 3]
