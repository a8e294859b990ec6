"""Proof that the recording and faulty disk records, cuts and breaks as it says."""

import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
import types
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support import disk as module
from tests.support.disk import (
    ENV,
    Delete,
    Disk,
    DiskUnavailable,
    Entry,
    Mark,
    Operation,
    Sync,
    Truncate,
    Write,
    rebuild,
)

ROOT = Path(__file__).resolve().parents[2]


def connect(path: Path, synchronous: str = "FULL", journal_mode: str = "WAL") -> sqlite3.Connection:
    con = sqlite3.connect(path, isolation_level=None)
    con.execute(f"PRAGMA journal_mode={journal_mode}")
    con.execute(f"PRAGMA synchronous={synchronous}")
    con.execute("PRAGMA wal_autocheckpoint=12")  # so that a run sees several checkpoints
    con.execute("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, body BLOB)")
    return con


def body(number: int) -> bytes:
    return bytes([number % 251]) * (number * 97 % 3000)


def insert(con: sqlite3.Connection, number: int) -> None:
    con.execute("INSERT INTO t VALUES(?, ?)", (number, body(number)))


def insert_all(con: sqlite3.Connection, numbers: Iterable[int]) -> None:
    for number in numbers:
        insert(con, number)


def record(path: Path, commits: int = 40, **modes: str) -> list[Entry]:
    with Disk() as disk:
        con = connect(path, **modes)
        disk.mark("ready")
        for number in range(1, commits + 1):
            insert(con, number)
            disk.mark(f"acked {number}")
        con.close()
        disk.mark("closed")
    return disk.journal


def rows(path: Path) -> list[int]:
    """The ids in the database, after checking that it is sound and each body is whole."""
    con = sqlite3.connect(path)
    try:
        assert con.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not con.execute("SELECT 1 FROM sqlite_schema WHERE name='t'").fetchall():
            return []
        found = con.execute("SELECT id, body FROM t ORDER BY id").fetchall()
    finally:
        con.close()
    assert found == [(number, body(number)) for number, _ in found]
    return [number for number, _ in found]


def acked(journal: list[Entry], upto: int) -> int:
    labels = [entry.label for entry in journal[:upto] if isinstance(entry, Mark)]
    return max([int(label.split()[1]) for label in labels if label.startswith("acked")], default=0)


def lost(journal: list[Entry], upto: int, folder: Path, torn: random.Random | None = None) -> int:
    """How many acknowledged rows are missing after a cut; what is there must be a prefix."""
    rebuild(journal, upto, folder, torn=torn)
    found = rows(folder / "a.db") if (folder / "a.db").exists() else []
    assert found == list(range(1, len(found) + 1))
    return max(0, acked(journal, upto) - len(found))


def marks(journal: list[Entry]) -> list[int]:
    return [at + 1 for at, entry in enumerate(journal) if isinstance(entry, Mark)]


def test_full_loses_no_acknowledged_commit_at_any_cut(tmp_path: Path) -> None:
    journal = record(tmp_path / "a.db")
    cuts = range(marks(journal)[0], len(journal) + 1)
    assert len(cuts) >= 60
    for upto in cuts:
        assert lost(journal, upto, tmp_path / f"plain{upto}") == 0, upto
        for seed in range(3):
            rng = random.Random(f"{seed} {upto}")
            assert lost(journal, upto, tmp_path / f"torn{upto}-{seed}", rng) == 0, (upto, seed)


def test_normal_loses_acknowledged_commits_in_most_cuts(tmp_path: Path) -> None:
    journal = record(tmp_path / "a.db", synchronous="NORMAL")
    acks = marks(journal)[1:-1]
    plain = [lost(journal, upto, tmp_path / f"plain{upto}") for upto in acks]
    assert sum(count > 0 for count in plain) > len(acks) / 2
    torn = [lost(journal, upto, tmp_path / f"torn{upto}", random.Random(upto)) for upto in acks]
    assert any(torn)


def test_the_run_covers_checkpoints_and_every_kind_of_record(tmp_path: Path) -> None:
    journal = record(tmp_path / "a.db")
    syncs = [entry for entry in journal if isinstance(entry, Sync)]
    assert sum(sync.path.endswith("a.db") for sync in syncs) > 3  # checkpoints
    assert sum(sync.path.endswith("-wal") for sync in syncs) >= 40
    assert Delete(str(tmp_path / "a.db-wal")) in journal
    assert not any("-shm" in entry.path for entry in journal if not isinstance(entry, Mark))
    assert journal[-1] == Mark("closed")


def test_whole_journal_rebuilds_the_very_files(tmp_path: Path) -> None:
    journal = record(tmp_path / "a.db")
    rebuild(journal, len(journal), tmp_path / "copy")
    assert [file.name for file in (tmp_path / "copy").iterdir()] == ["a.db"]
    assert (tmp_path / "copy/a.db").read_bytes() == (tmp_path / "a.db").read_bytes()


@pytest.mark.parametrize(("synchronous", "durable"), [("FULL", False), ("EXTRA", True)])
def test_rollback_journal_needs_its_delete_synced(
    tmp_path: Path, synchronous: str, durable: bool
) -> None:
    """As SQLite documents: in DELETE mode only EXTRA keeps the last commit for sure."""
    journal = record(tmp_path / "a.db", 12, synchronous=synchronous, journal_mode="DELETE")
    losses = 0
    for upto in range(marks(journal)[0], len(journal) + 1):
        assert lost(journal, upto, tmp_path / f"plain{upto}") == 0
        losses += lost(journal, upto, tmp_path / f"torn{upto}", random.Random(upto))
    assert (losses == 0) is durable


def test_what_was_there_before_counts_as_durable(tmp_path: Path) -> None:
    outside = connect(tmp_path / "a.db")
    insert(outside, 1)  # in the -wal, since `outside` stays open
    with Disk() as disk:
        inside = connect(tmp_path / "a.db")
        disk.mark("acked 1")
        insert(inside, 2)
        disk.mark("acked 2")
        inside.close()
    outside.close()
    for upto in marks(disk.journal):
        assert lost(disk.journal, upto, tmp_path / str(upto)) == 0
    assert any(isinstance(entry, Write) and entry.path.endswith("-wal") for entry in disk.journal)


def test_rebuild_model_on_a_journal_made_by_hand(tmp_path: Path) -> None:
    old, new = Write("/x/f", 0, b"o" * 1024), Write("/x/f", 256, b"n" * 1024)
    journal: list[Entry] = [
        old,
        Sync("/x/f"),
        new,
        Truncate("/x/f", 3),
        Write("/x/g", 2, b"g"),
        Delete("/x/f"),
    ]

    def cut(upto: int, seed: int | None = None) -> dict[str, bytes]:
        folder = tmp_path / f"{upto}-{seed}"
        rebuild(journal, upto, folder, torn=None if seed is None else random.Random(seed))
        return {file.name: file.read_bytes() for file in folder.iterdir()}

    assert cut(1) == {}
    assert cut(2) == cut(5) == {"f": old.data}
    assert cut(6) == {}
    seen = {cut(3, seed)["f"] for seed in range(60)}
    assert {old.data, b"o" * 256 + new.data} < seen  # lost and whole, and sectors:
    for data in seen:
        assert data[:256] == b"o" * 256
        for low, high in ((256, 512), (512, 1024), (1024, 1280)):
            assert len(set(data[low:high])) <= 1
    assert {len(cut(4, 100 + seed)["f"]) for seed in range(60)} >= {3, 1024, 1280}
    torn = [cut(6, 200 + seed) for seed in range(40)]
    assert {"f" in files for files in torn} == {True, False}
    assert {files.get("g") for files in torn} >= {None, b"\0\0g"}
    with pytest.raises(ValueError, match="not empty"):
        cut(2)


def test_undone_delete_shows_the_old_file_until_the_new_one_is_synced(tmp_path: Path) -> None:
    journal: list[Entry] = [
        Write("f", 0, b"old file"), Sync("f"), Delete("f"), Write("f", 0, b"new"), Sync("f"),
    ]  # fmt: skip
    for upto, wanted in ((4, {b"old file", None, b"new", b""}), (5, {b"new"})):
        seen = set()
        for seed in range(40):
            folder = tmp_path / f"{upto}-{seed}"
            rebuild(journal, upto, folder, torn=random.Random(seed))
            seen.add((folder / "f").read_bytes() if (folder / "f").exists() else None)
        assert seen == wanted
    synced: list[Entry] = [*journal[:2], Delete("f", directory=True)]
    for seed in range(20):
        rebuild(synced, 3, tmp_path / f"s{seed}", torn=random.Random(seed))
        assert not list((tmp_path / f"s{seed}").iterdir())


@pytest.mark.parametrize("after_n", range(1, 5))
@pytest.mark.parametrize(
    ("code", "name", "text"),
    [
        ("full", "SQLITE_FULL", "database or disk is full"),
        ("ioerr", "SQLITE_IOERR_WRITE", "disk I/O error"),
    ],
)
def test_failed_write_surfaces_and_heals(
    tmp_path: Path, code: str, name: str, text: str, after_n: int
) -> None:
    with Disk() as disk:
        con = connect(tmp_path / "a.db")
        insert(con, 1)
        disk.fail_write(after_n, code)
        with pytest.raises(sqlite3.OperationalError, match=text) as caught:
            insert_all(con, range(2, 6))
        assert caught.value.sqlite_errorname == name
        assert disk.failed
        present = rows(tmp_path / "a.db")
        assert present in ([1], [1, 2])
        missing = range(len(present) + 1, 6)
        with pytest.raises(sqlite3.OperationalError, match=text):  # sticky
            insert_all(con, missing)
        disk.heal()
        insert_all(con, missing)
        con.close()
    assert rows(tmp_path / "a.db") == [1, 2, 3, 4, 5]


def test_fault_once_and_only_for_matching_files(tmp_path: Path) -> None:
    with Disk() as disk:
        con = connect(tmp_path / "a.db")
        disk.fail_write(match="*/other.db*")
        insert(con, 1)
        disk.fail_write(match="*-wal", sticky=False)
        with pytest.raises(sqlite3.OperationalError, match="full"):
            insert(con, 2)
        insert(con, 2)
        assert [operation.path for operation in disk.failed] == [str(tmp_path / "a.db-wal")]
        con.close()


def test_failed_sync_surfaces(tmp_path: Path) -> None:
    with Disk() as disk:
        con = connect(tmp_path / "a.db")
        insert(con, 1)
        disk.fail_sync(2, match="*-wal")
        insert(con, 2)
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error") as caught:
            insert(con, 3)
        assert caught.value.sqlite_errorname == "SQLITE_IOERR_FSYNC"
        assert disk.failed == [Sync(str(tmp_path / "a.db-wal"))]
        disk.heal()
        insert(con, 3)
        con.close()
    assert rows(tmp_path / "a.db") == [1, 2, 3]


def test_threads_share_one_journal(tmp_path: Path) -> None:
    def work(name: str) -> None:
        con = connect(tmp_path / name)
        for number in range(1, 21):
            insert(con, number)
            disk.mark(f"{name} {number}")
        con.close()

    names = ["a.db", "b.db", "c.db", "d.db"]
    with Disk() as disk:
        threads = [threading.Thread(target=work, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    for name in names:
        mine = [e.label for e in disk.journal if isinstance(e, Mark) and e.label.startswith(name)]
        assert mine == [f"{name} {number}" for number in range(1, 21)]
    for upto in marks(disk.journal)[::8]:
        rebuild(disk.journal, upto, tmp_path / str(upto))
        labels = [entry.label for entry in disk.journal[:upto] if isinstance(entry, Mark)]
        for name in {label.split()[0] for label in labels}:
            count = sum(label.startswith(name) for label in labels)
            assert len(rows(tmp_path / str(upto) / name)) >= count


def test_hook_can_stall_the_disk(tmp_path: Path) -> None:
    reached, release, done = threading.Event(), threading.Event(), threading.Event()

    def stall(_number: int, operation: Operation) -> None:
        if isinstance(operation, Sync):
            reached.set()
            assert release.wait(30)

    def work() -> None:
        con = connect(tmp_path / "a.db")
        disk.hook = stall
        insert(con, 1)
        done.set()
        con.close()

    with Disk() as disk:
        thread = threading.Thread(target=work)
        thread.start()
        assert reached.wait(30)
        assert not done.wait(0.05)
        release.set()
        thread.join(30)
    assert done.is_set()
    assert rows(tmp_path / "a.db") == [1]


def test_an_exception_in_a_callback_is_not_swallowed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(_number: int, _operation: Operation) -> None:
        raise LookupError("a mistake in the test's hook")

    raises = pytest.raises(RuntimeError, match="callback failed")
    with raises as caught, Disk() as disk:
        con = connect(tmp_path / "a.db")
        disk.hook = broken
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            insert(con, 1)
        disk.hook = None
        con.close()
    assert isinstance(caught.value.__cause__, LookupError)
    assert "a mistake in the test's hook" in capfd.readouterr().err


def test_the_default_vfs_comes_back_and_late_connections_still_work(tmp_path: Path) -> None:
    with Disk() as first:
        late = connect(tmp_path / "a.db")
        with pytest.raises(RuntimeError, match="another Disk"):
            Disk().__enter__()
    size = len(first.journal)
    with pytest.raises(sqlite3.OperationalError, match="no such vfs"):
        sqlite3.connect("file::memory:?vfs=leadhand-test", uri=True)
    with Disk() as second:
        insert(late, 1)
    connect(tmp_path / "b.db").close()
    late.close()
    assert rows(tmp_path / "a.db") == [1]
    assert len(first.journal) == size
    assert second.journal == []


def test_unavailable_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    module._shim.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(module, "_sqlite3", types.SimpleNamespace(__file__="/nowhere.so"))
            with pytest.raises(DiskUnavailable, match=r"/nowhere\.so"):
                Disk().__enter__()
    finally:
        module._shim.cache_clear()


CHILD = """
import sqlite3, sys
from tests.support.disk import install_from_env
disk = install_from_env()
con = sqlite3.connect(sys.argv[1], isolation_level=None)
con.execute("PRAGMA journal_mode=WAL")
con.execute("PRAGMA synchronous=FULL")
con.execute("PRAGMA wal_autocheckpoint=6")
con.execute("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, body BLOB)")
for number in range(1, 9):
    body = bytes([number % 251]) * (number * 97 % 3000)
    con.execute("INSERT INTO t VALUES(?, ?)", (number, body))
    print(number, flush=True)
# The connection is left open: interpreter shutdown closes it, through our callbacks.
"""


def child(path: Path, spec: dict[str, object] | None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop(ENV, None)
    if spec is not None:
        env[ENV] = json.dumps(spec)
    command = [sys.executable, "-c", CHILD, str(path)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.real
def test_child_killed_at_the_nth_operation(tmp_path: Path) -> None:
    kills, at = 0, 1
    while True:
        path = tmp_path / f"{at}.db"
        run = child(path, {"kill_at": at})
        printed = run.stdout.split()
        if run.returncode == 0:
            break
        assert run.returncode == -9, run.stderr
        present = rows(path)
        assert len(printed) <= len(present) <= len(printed) + 1
        kills, at = kills + 1, at + 4
    assert kills >= 8
    assert len(printed) == 8
    assert run.stderr == ""
    assert rows(path) == list(range(1, 9))


@pytest.mark.real
def test_child_faults_from_the_environment(tmp_path: Path) -> None:
    run = child(tmp_path / "full.db", {"fail_write": {"after_n": 20, "code": "full"}})
    assert run.returncode == 1
    assert "database or disk is full" in run.stderr
    assert rows(tmp_path / "full.db") == [int(number) for number in run.stdout.split()]
    run = child(tmp_path / "sync.db", {"fail_sync": {"after_n": 6}})
    assert run.returncode == 1
    assert "disk I/O error" in run.stderr
    assert child(tmp_path / "none.db", None).returncode == 0
    run = child(tmp_path / "bad.db", {"kil_at": 3})
    assert run.returncode == 1
    assert "KeyError: 'kil_at'" in run.stderr
