"""The proof of a copy: whatever was changed in a log, it is not proved."""

import sqlite3
from contextlib import closing

import pytest

from leadhand.app.migration import move
from leadhand.app.store_factory import open_reader
from leadhand.audit.anchors import Anchoring
from leadhand.errors import StoreCorrupt, StoreError
from leadhand.stores.copy import LogScan, copy
from leadhand.stores.sqlite.reader import SqliteReader
from leadhand.stores.sqlite.store import SqliteStore
from tests.stores.entries import BODY, chained

CHANGES = {
    "a body": "UPDATE events SET body = body || ' ' WHERE position = 3",
    "a time": "UPDATE events SET at = at + 1 WHERE position = 3",
    "a hash": "UPDATE events SET hash = zeroblob(32) WHERE position = 3",
    "a missing event": "DELETE FROM events WHERE position = 3",
    "the last event": "DELETE FROM events WHERE position = 8",
    "an event too many": (
        "INSERT INTO events SELECT 9, run_id, 5, at, version, 1, body, hash FROM events"
        " WHERE position = 8"
    ),
    "an event of no run": "UPDATE events SET run_id = 77 WHERE position = 8",
    "two events exchanged": "UPDATE events SET seq = 99 - seq WHERE position IN (1, 3)",
    "a commit's hash": "UPDATE batches SET hash = zeroblob(32) WHERE number = 2",
    "a commit's place": "UPDATE batches SET last = last + 1 WHERE number = 4",
    "a missing commit": "DELETE FROM batches WHERE number = 4",
    "a header": "UPDATE runs SET seq = 3 WHERE run = 'one'",
    "a header's hash": "UPDATE runs SET hash = zeroblob(32) WHERE run = 'one'",
    "a missing run": "DELETE FROM runs WHERE run = 'one'",
    "a run without a log": (
        "INSERT INTO runs SELECT 9, 'three', created, updated, seq, hash, last, summary FROM runs"
        " WHERE run = 'one'"
    ),
}


async def written(path, body=BODY):
    store = SqliteStore(path, synchronous="NORMAL")
    store.claim()
    logs = {run: chained(run, 4, body=body) for run in ("one", "two")}
    for at in range(4):
        for run, log in logs.items():
            await store.append(run, at, log[at : at + 1], b"{}")
    name = store.put_artifact(b"a result")
    await store.close()
    return name


def change(path, statement):
    with closing(sqlite3.connect(path)) as file, file:
        for (trigger,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            file.execute(f"DROP TRIGGER {trigger}")
        assert file.execute(statement).rowcount > 0


def proved(path):
    log = SqliteReader(path)
    try:
        return LogScan(log, path).prove()
    finally:
        log.close_reader()


@pytest.mark.parametrize("what", CHANGES)
async def test_a_changed_log_is_not_proved(tmp_path, what):
    """One change in any table; the error names the file and the way to see more."""
    path = tmp_path / "log.db"
    await written(path)
    assert proved(path).events == 8
    change(path, CHANGES[what])
    with pytest.raises(StoreCorrupt, match=r"log\.db: .*leadhand verify --all"):
        proved(path)


async def test_a_changed_result_is_not_proved(tmp_path):
    """Its name is the hash of its bytes."""
    path = tmp_path / "log.db"
    name = await written(path)
    digest = name.removeprefix("sha256:")
    (tmp_path / "log.db.artifacts" / digest[:2] / digest[2:]).write_bytes(b"another")
    with pytest.raises(StoreCorrupt, match="do not match its name"):
        proved(path)


@pytest.mark.parametrize("body", [b'{"type":"FromTheFuture"}', b"[]"])
async def test_an_event_nobody_can_read_is_not_left_out(tmp_path, body):
    """It may name a result, which would stay behind."""
    await written(tmp_path / "log.db", body)
    with pytest.raises(StoreError, match=r"log\.db: one 1: "):
        proved(tmp_path / "log.db")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET summary = x'7b7d20' WHERE run = 'one'",
        "UPDATE runs SET created = created + 1 WHERE run = 'one'",
        "UPDATE meta SET value = 99 WHERE key = 'epoch'",
        "UPDATE meta SET value = 'another' WHERE key = 'database'",
    ],
)
async def test_what_no_chain_is_over_is_compared_too(tmp_path, statement):
    """Summaries, times, the count of owners, the name: two logs that differ there differ."""
    path = tmp_path / "log.db"
    await written(path)
    before = proved(path)
    change(path, statement)
    assert proved(path) != before


async def test_half_a_copy_cannot_be_opened(tmp_path):
    """Until it is whole; then it is equal, commit for commit."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    await written(old)
    source, target = SqliteReader(old), SqliteStore(new, copying=True)
    look = LogScan(source, old)
    proof = look.prove()

    def told(_done, _whole):
        with pytest.raises(StoreError, match="was not finished"):
            SqliteStore(new)

    copied = copy(source, proof, look.names, target, told)
    assert (copied.resumed, copied.commits, copied.artifacts) == (0, 8, 1)
    await target.close()
    assert proved(new) == proof
    await SqliteStore(new).close()
    source.close_reader()


async def test_a_copy_that_is_not_equal_stays_closed(tmp_path):
    """The mark goes when the proof was made, and not before."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    await written(old)
    source, target = SqliteReader(old), SqliteStore(new, copying=True)
    look = LogScan(source, old)
    proof = look.prove()._replace(headers="others")
    with pytest.raises(StoreCorrupt, match="the copy is not equal to its source: headers"):
        copy(source, proof, look.names, target, lambda _done, _all: None)
    await target.close()
    with pytest.raises(StoreError, match="was not finished"):
        SqliteStore(new)
    source.close_reader()


async def test_what_a_shared_folder_keeps_is_equal_though_it_is_not_listed(tmp_path, postgres):
    """What crosses to other machines is kept with the log, and no event speaks of it."""
    old = tmp_path / "old.db"
    await written(old)
    store = SqliteStore(old)
    ref = store.put_artifact(b"x" * (2 << 20))
    await store.close()
    target = postgres.new(tmp_path, artifacts=str(tmp_path / "shared"))
    assert move(old, target, Anchoring()).document()["equal"]
    reader = open_reader(target)
    assert len(reader.get_artifact(ref)) == 2 << 20
    reader.close_reader()
