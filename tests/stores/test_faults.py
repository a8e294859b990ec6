"""A disk that is full, fails, or fails to sync: no acknowledged entry is lost, none is guessed."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from leadhand.audit.chain import verify, verify_batches, verify_head
from leadhand.errors import LeadhandError, StoreBroken, StoreFull
from leadhand.ports import Entry
from leadhand.stores.sqlite import writer
from leadhand.stores.sqlite.store import SqliteStore
from tests.stores.entries import chained
from tests.support.disk import Disk

LOG = chained("r", 40, body=b"x" * 700)


def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    store.claim()
    return store


async def check(path: Path, acked: list[Entry]) -> list[Entry]:
    """Open the file anew: the log holds at least what was acknowledged, and verifies."""
    store = opened(path)
    log = store.read("r")
    assert log[: len(acked)] == acked
    assert verify(log) == []
    assert verify_batches(store.batches(), store.positions()) == []
    for header in store.runs():
        assert verify_head(store.read(header.run), header) == []
    await store.close()
    return log


async def test_a_full_disk_by_the_files_limit(path):
    """Everyone in the group hears it, nothing is written, and when there is space it goes on."""
    store = opened(path)
    await store.append("r", 0, LOG[:2])
    pages = store._writer.ask(lambda c: c.execute("PRAGMA page_count").fetchone()[0]).result()
    store._writer.ask(lambda c: c.execute(f"PRAGMA max_page_count = {pages}")).result()
    big = chained("big", 1, body=bytes(100_000))
    results = await asyncio.gather(
        store.append("r", 2, LOG[2:30]), store.append("big", 0, big), return_exceptions=True
    )
    assert [type(result) for result in results] == [StoreFull, StoreFull]
    assert "free some space" in str(results[0])
    assert store.read("r") == LOG[:2]
    assert store.header("big") is None
    store._writer.ask(lambda c: c.execute("PRAGMA max_page_count = 1000000")).result()
    await store.append("r", 2, LOG[2:])
    await store.append("big", 0, big)
    await store.close()
    assert await check(path, LOG) == LOG


async def test_a_full_disk_by_the_operating_system(path):
    """As it comes from a write to the write-ahead log."""
    with Disk() as disk:
        store = opened(path)
        await store.append("r", 0, LOG[:2])
        disk.fail_write(2, "full", match="*-wal")
        for alone in (False, True, False):
            with pytest.raises(StoreFull):
                await store.append("r", 2, LOG[2:4], alone=alone)
        assert store.read("r") == LOG[:2]
        disk.heal()
        await store.append("r", 2, LOG[2:])
        await store.close()
    assert await check(path, LOG) == LOG


async def test_an_append_behind_a_failed_one_never_makes_a_hole(path):
    """It expects what is not there."""
    with Disk() as disk:
        store = opened(path)
        disk.fail_write(1, "full", sticky=False, match="*-wal")
        results = await asyncio.gather(
            *[store.append("r", i, LOG[i : i + 1]) for i in range(40)], return_exceptions=True
        )
        assert isinstance(results[0], StoreFull)
        assert None not in results
        assert store.read("r") == []
        await store.append("r", 0, LOG)
        await store.close()
    assert await check(path, LOG) == LOG


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("how", ["sync", "write"])
async def test_after_an_unclear_commit_nothing_is_taken(path, how, alone):
    """Not even when the disk is well again: the host must stop and read what is there."""
    with Disk() as disk:
        store = opened(path)
        await store.append("r", 0, LOG[:2])
        if how == "sync":
            disk.fail_sync(1, sticky=False, match="*-wal")
        else:
            disk.fail_write(1, "ioerr", sticky=False, match="*-wal")
        results = await asyncio.gather(
            store.append("r", 2, LOG[2:4], alone=alone), store.append("s", 0, chained("s")),
            return_exceptions=True,
        )  # fmt: skip
        assert [type(result) for result in results] == [StoreBroken, StoreBroken]
        for _ in range(2):
            with pytest.raises(StoreBroken, match="not known"):
                await store.append("t", 0, chained("t"))
        with pytest.raises(StoreBroken):
            store.claim()
        assert store.read("r")[:2] == LOG[:2]
        await store.close()
    await check(path, LOG[:2])


async def test_a_checkpoint_that_cannot_sync_is_not_hidden(path, monkeypatch):
    """What was acknowledged before it is safe in the log; later appends are refused."""
    monkeypatch.setattr(writer, "CHECKPOINT_BYTES", 1)
    with Disk() as disk:
        store = opened(path)
        disk.fail_sync(1, sticky=False, match="*log.db")
        await store.append("r", 0, LOG[:2])
        store._writer.ask(lambda _: None).result()
        with pytest.raises(StoreBroken):
            await store.append("r", 2, LOG[2:])
        await store.close()
    assert await check(path, LOG[:2]) == LOG[:2]


async def test_a_checkpoint_on_a_full_disk_waits(path, monkeypatch):
    """As long as the log itself can be written, appends go through."""
    monkeypatch.setattr(writer, "CHECKPOINT_BYTES", 1)
    with Disk() as disk:
        store = opened(path)
        disk.fail_write(1, "full", match="*log.db")
        for i in range(0, 40, 10):
            await store.append("r", i, LOG[i : i + 10])
        disk.heal()
        await store.close()
    assert await check(path, LOG) == LOG


async def scenario(path: Path, acked: list[Entry], errors: list[LeadhandError]) -> None:
    """Open, claim, append one by one with checkpoints between; stop as a host would."""
    store = None
    try:
        store = opened(path)
        for entry in LOG[:12]:
            try:
                await store.append("r", entry.seq - 1, [entry])
                acked.append(entry)
            except StoreFull as error:
                errors.append(error)
                break
    except LeadhandError as error:
        errors.append(error)
    finally:
        if store is not None:
            await store.close()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["full", "ioerr", "sync"])
async def test_every_operation_fails_once(quick_folder, monkeypatch, fault):
    """SQLite's own method: fail the first operation, then the second, until none is left."""
    monkeypatch.setattr(writer, "CHECKPOINT_BYTES", 60_000)
    seen: Counter[str] = Counter()
    for number in range(1, 500):
        path = quick_folder / str(number) / "log.db"
        acked: list[Entry] = []
        errors: list[LeadhandError] = []
        with Disk() as disk:
            if fault == "sync":
                disk.fail_sync(number)
            else:
                disk.fail_write(number, fault)
            await scenario(path, acked, errors)
            failed = len(disk.failed)
            disk.heal()
        log = await check(path, acked)
        if isinstance(errors[-1] if errors else None, StoreFull):
            assert log == acked, "full means that nothing was written"
        seen.update(type(error).__name__ for error in errors)
        if not failed:
            assert acked == LOG[:12]
            break
    assert number > 15, "the scenario has become too short to mean anything"
    assert seen["StoreFull" if fault == "full" else "StoreBroken"] > 5, seen
