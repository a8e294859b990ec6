"""Power cuts: only what was synced is left of the files. Nothing acknowledged may be missing.

The disk of tests/support records every write and sync of a real store, and each
acknowledgement as it reaches the caller. Cutting the recording at any point gives the files
as they are after a power cut there; each must open, verify, and hold what was acknowledged.
"""

import asyncio
import os
import random
import shutil
from pathlib import Path

import pytest

from leadhand.audit.chain import verify, verify_batches, verify_head
from leadhand.stores import artifacts
from leadhand.stores.sqlite import writer
from leadhand.stores.sqlite.store import SqliteStore
from tests.stores.entries import chained
from tests.support.disk import Disk, Mark, rebuild

RUNS = 4
EACH = 30


async def record(path: Path, synchronous: str) -> Disk:
    """Several runs that append at once, with checkpoints; marks "acked RUN SEQ"."""
    with Disk() as disk:
        store = SqliteStore(path, synchronous=synchronous)
        store.claim()

        async def run(name: str) -> None:
            log = chained(name, EACH, body=name.encode() * 300)
            for i in range(0, EACH, 2):
                await store.append(name, i, log[i : i + 2], b'{"at":%d}' % i)
                disk.mark(f"acked {name} {i + 2}")
                await asyncio.sleep(0)

        await asyncio.gather(*[run(f"run-{i}") for i in range(RUNS)])
        await store.close()
    return disk


def acked(journal: list, upto: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in journal[:upto]:
        if isinstance(entry, Mark):
            _, name, seq = entry.label.split(" ")
            found[name] = int(seq)
    return found


def cuts(journal: list) -> list[int]:
    """After every operation and every acknowledgement."""
    return list(range(1, len(journal) + 1))


async def lost(folder: Path, expected: dict[str, int]) -> int:
    """How many acknowledged entries are missing; what is there must be sound."""
    store = SqliteStore(folder / "log.db")
    store.claim()
    missing = 0
    for name, seq in expected.items():
        log = store.read(name)
        assert verify(log) == []
        missing += max(0, seq - len(log))
    for header in store.runs():
        assert verify_head(store.read(header.run), header) == []
    assert verify_batches(store.batches(), store.positions()) == []
    await store.append("after", 0, chained("after"))
    await store.close()
    return missing


async def cut_everywhere(
    quick_folder: Path, synchronous: str, torn: random.Random | None
) -> tuple[int, int]:
    """(cuts, cuts that lost something)."""
    disk = await record(quick_folder / "live" / "log.db", synchronous)
    places, losses = cuts(disk.journal), 0
    for place in places:
        folder = quick_folder / f"cut-{place}"
        rebuild(disk.journal, place, folder, torn=torn)
        losses += bool(await lost(folder, acked(disk.journal, place)))
        shutil.rmtree(folder)
    return len(places), losses


@pytest.fixture
def checkpoints(monkeypatch):
    """Often enough that cuts fall into them."""
    monkeypatch.setattr(writer, "CHECKPOINT_BYTES", 150_000)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 1, 2])
async def test_nothing_acknowledged_is_lost(quick_folder, checkpoints, seed):
    """Cut after every write, sync and acknowledgement; unsynced bytes gone, or torn."""
    torn = None if seed is None else random.Random(seed)
    count, losses = await cut_everywhere(quick_folder, "FULL", torn)
    assert count >= 200
    assert losses == 0


@pytest.mark.real
@pytest.mark.slow
async def test_the_test_can_see_a_loss(quick_folder, checkpoints):
    """The same with synchronous=NORMAL loses entries, which kill -9 would never show."""
    count, losses = await cut_everywhere(quick_folder, "NORMAL", None)
    assert count >= 200
    assert losses > count // 4


async def test_an_artifact_is_durable_before_its_name_is_known(tmp_path, monkeypatch):
    """Written, synced, renamed, folder synced, and only then appended to a log."""
    calls: list[tuple[str, int]] = []
    fsync, rename = os.fsync, Path.rename

    def spy_fsync(handle: int) -> None:
        calls.append(("fsync", os.fstat(handle).st_ino))
        fsync(handle)

    def spy_rename(source: Path, target: Path) -> Path:
        calls.append(("rename", source.stat().st_ino))
        return rename(source, target)

    store = SqliteStore(tmp_path / "log.db")
    store.claim()
    monkeypatch.setattr(artifacts.os, "fsync", spy_fsync)
    monkeypatch.setattr(Path, "rename", spy_rename)
    ref = store.put_artifact(b"the same bytes")
    calls.append(("append", 0))
    await store.append("r", 0, chained("r", body=ref.encode()))
    await store.close()
    digest = ref.removeprefix("sha256:")
    everything = tmp_path / "log.db.artifacts"
    folder = everything / digest[:2]
    assert (
        calls
        == [
            ("fsync", tmp_path.stat().st_ino),  # it got a folder for artifacts
            ("fsync", everything.stat().st_ino),  # which got one for this hash
            ("fsync", (folder / digest[2:]).stat().st_ino),
            ("rename", (folder / digest[2:]).stat().st_ino),
            ("fsync", folder.stat().st_ino),
            ("append", 0),
        ]
    )


async def test_an_artifact_that_was_there_is_made_durable_again(tmp_path, monkeypatch):
    """Whoever renamed it may have died before the folder was synced."""
    store = SqliteStore(tmp_path / "log.db")
    ref = store.put_artifact(b"x")
    synced: list[Path] = []
    monkeypatch.setattr(artifacts, "sync_folder", synced.append)
    assert store.put_artifact(b"x") == ref
    assert [folder.name for folder in synced] == [ref.removeprefix("sha256:")[:2]]
    await store.close()
