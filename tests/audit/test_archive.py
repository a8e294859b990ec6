"""Archives: what goes out of the database is whole, checked and readable as before."""

import os
import random
import shutil
import signal
import sqlite3
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from leadhand.app import archive as operation
from leadhand.app.anchors import append as append_anchor
from leadhand.app.archive import Archiving
from leadhand.app.archive_check import _differs
from leadhand.app.export import export_run
from leadhand.app.migration import back_up
from leadhand.app.reader import reading
from leadhand.app.verification import VerificationScope, verify_database
from leadhand.audit.anchors import Anchoring
from leadhand.audit.bundle import verify_bundle
from leadhand.audit.chain import GENESIS, START, link
from leadhand.audit.keys import PrivateKey
from leadhand.codec.events import decode
from leadhand.core.carried import CarriedResult
from leadhand.core.host_events import HOST_STREAM, RunsArchived
from leadhand.errors import ArchiveMissing, Conflict, StoreCorrupt, StoreFull
from leadhand.ports import RunQuery
from leadhand.stores import archive as archive_file
from leadhand.stores.archive import intent_file, prove
from leadhand.stores.sqlite.store import SqliteStore
from tests.support.histories import DAY_US, SECRET, History, make

SEEDS = range(12)
WITH_ENTRIES = "SELECT run FROM runs JOIN events ON run_id = runs.id"
TRIGGERS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
pytest.importorskip("zstandard")


@pytest.fixture
def history(quick_folder):
    return make(quick_folder / "log.db", 7)


@pytest.fixture
def quick_folder(tmp_path):
    """A folder in memory where there is one."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    folder = memory / f"leadhand-archive-{os.getpid()}-{random.randrange(1 << 30)}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def archiving(path: Path, key: Path | None = None) -> Archiving:
    return Archiving(path, Anchoring(key=key), "ann")


def verified(path: Path, key=None, **scope):
    with reading(path) as reader:
        return verify_database(reader, path, Anchoring(), VerificationScope(**scope), key=key)


def views(path: Path):
    """All that readers can see of the runs."""
    found = {}
    with reading(path) as reader:
        every = reader.find_runs(RunQuery(limit=1000)).headers
        found["list"] = every
        found["totals"] = reader.store.totals(0, 1 << 30, plans=True)
        for header in every:
            run = header.run
            events = reader.events(run)
            found[run] = events
            found[run, "places"] = reader.store.places(run)
            for entry, _ in events:
                for ref in operation._ARTIFACT.findall(entry.body):
                    found[ref] = reader.store.get_artifact(ref.decode())
    return found


def left(path: Path) -> list[str]:
    """What stands beside a database."""
    return sorted(each.name for each in path.parent.iterdir() if "-" not in each.name)


def rows(path: Path, statement: str, *values):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_view_of_a_random_history_is_the_same_after_archiving(
    quick_folder, monkeypatch, seed
):
    """Some runs, then more, in archives of any size; both chains hold each time."""
    history = make(quick_folder / "log.db", seed)
    rng = random.Random(seed)
    monkeypatch.setattr(operation, "BUNDLE_BYTES", rng.choice((1, 9000, 1 << 30)))
    before = views(history.path)
    assert verified(history.path, full=True).problems == []
    gone = set()
    for before_us in sorted(rng.sample(history.archivable, 2)):
        report = archiving(history.path).archive(before_us, None)
        expected = {run for run, at in history.ended.items() if 0 < at < before_us}
        assert report.runs == len(expected - gone)
        gone |= expected
        assert views(history.path) == before
        for full in (False, True):
            assert verified(history.path, full=full).problems == []
        names = {run for (run,) in rows(history.path, WITH_ENTRIES)}
        assert names.isdisjoint(gone)
        assert names >= history.ended.keys() - gone
    for run in random.Random(seed).sample(sorted(history.ended), 3):
        assert verified(history.path, run=run).problems == []
        assert verify_bundle(export_run(history.path, run, Anchoring())).problems == []
    assert "log.db.archiving" not in left(history.path)


def test_an_export_is_the_same_bytes_before_and_after(history):
    with reading(history.path) as reader:
        head, database = reader.store.batches()[-1], reader.store.database_id
    append_anchor(Path(f"{history.path}.anchors"), head, database, None)
    run = next(run for run, at in history.ended.items() if at)
    before = export_run(history.path, run, Anchoring())
    archiving(history.path).archive(1 << 60, None)
    assert export_run(history.path, run, Anchoring()) == before


def test_the_database_gets_smaller_and_artifacts_move(history):
    folder = Path(f"{history.path}.artifacts")
    size, held = history.path.stat().st_size, len(list(folder.glob("??/*")))
    report = archiving(history.path).archive(1 << 60, None)
    assert history.path.stat().st_size < size
    assert report.freed > 0
    assert 0 < report.artifacts <= held
    assert archiving(history.path).archive(1 << 60, None).runs == 0


def test_an_artifact_that_an_open_run_names_stays(quick_folder):
    for seed in range(40):
        history = make(quick_folder / f"{seed}.db", seed)
        with reading(history.path) as reader:
            named = {
                ref.decode()
                for run, at in history.ended.items()
                if not at
                for entry in reader.entries(run)
                for ref in operation._ARTIFACT.findall(entry.body)
            }
        if named:
            break
    archiving(history.path).archive(1 << 60, None)
    with reading(history.path) as reader:
        assert named <= set(reader.store.artifacts())


def test_runs_that_open_runs_repeat_stay(history, monkeypatch):
    wanted = next(run for run, at in history.ended.items() if at)
    carried = {"a": CarriedResult(run=wanted, attempt=1, entry=1, digest="")}
    monkeypatch.setattr(operation, "carried_results", lambda _plan: carried)
    assert any(not at for at in history.ended.values()), "an open run"
    report = archiving(history.path).archive(1 << 60, None)
    assert report.stay["needed by an open run"] == 1
    with reading(history.path) as reader:
        assert reader.store.archive_number(wanted) == 0


def test_a_dry_run_changes_nothing(history):
    before = history.path.read_bytes()
    report = archiving(history.path).preview(1 << 60, None)
    assert report.runs == len(history.archivable)
    assert history.path.read_bytes() == before
    assert "log.db.archives" not in left(history.path)


def test_a_host_at_work_keeps_archiving_away(history):
    from leadhand.stores.sqlite.lock import HostLock

    with HostLock(history.path), pytest.raises(Conflict, match="needs the database for itself"):
        archiving(history.path).archive(1 << 60, None)


def test_nothing_can_be_added_to_an_archived_run(history):
    archiving(history.path).archive(1 << 60, None)
    run = next(run for run, at in history.ended.items() if at)
    store = SqliteStore(history.path)
    with pytest.raises(Conflict, match=f"leadhand rerun {run}"):
        store.read(run)
    store.close_now()


def swap(one: Path, two: Path) -> None:
    first = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(first)


# What is found.


def archived(history: History, key: Path | None = None) -> list[Path]:
    middle = history.archivable[len(history.archivable) // 2]
    archiving(history.path, key).archive(middle, None)
    archiving(history.path, key).archive(1 << 60, None)
    with reading(history.path) as reader:
        found = [reader.store.shelf.place(each) for each in reader.store.archives()]
    assert len(found) == 2
    return found


def messages(verdict):
    return " | ".join(each.message for each in verdict.problems)


def test_every_changed_byte_of_a_file_is_found(history, tmp_path):
    """By the file alone, without the database."""
    for file in archived(history):
        data = bytearray(file.read_bytes())
        copy = tmp_path / "copy.archive"
        step = max(1, len(data) // 1500)
        for place in [*range(0, len(data), step), *range(len(data) - 400, len(data))]:
            data[place] ^= 1 << (place % 8)
            copy.write_bytes(data)
            with pytest.raises(StoreCorrupt):
                prove(copy)
            data[place] ^= 1 << (place % 8)
        copy.write_bytes(data)
        prove(copy)


@pytest.mark.parametrize(
    "change",
    [
        lambda one, _two: one.write_bytes(one.read_bytes()[:-7]),
        lambda one, _two: one.write_bytes(one.read_bytes() + b"x"),
        lambda one, _two: one.write_bytes(b""),
        swap,
        lambda one, two: shutil.copy(two, one),
        lambda one, _two: one.unlink(),
    ],
    ids=["cut", "longer", "empty", "swapped", "copied", "missing"],
)  # fmt: skip
def test_a_file_that_is_not_the_recorded_one_is_found(history, change):
    one, two = archived(history)
    assert verified(history.path, full=True).problems == []
    change(one, two)
    verdict = verified(history.path, full=True)
    assert {each.rule for each in verdict.problems} == {"archive"}
    with suppress(FileNotFoundError):
        Path(f"{history.path}.verified").unlink()
    assert verified(history.path).problems, "made since the last verification, so it is read"


def test_a_missing_file_is_named_and_the_rest_can_be_read(history):
    one, _ = archived(history)
    assert verified(history.path).problems == []
    away = one.rename(one.with_suffix(".away"))
    with reading(history.path) as reader:
        run = next(run for run in history.ended if reader.store.archive_number(run) == 1)
        with pytest.raises(ArchiveMissing, match=one.name):
            reader.state(run)
        assert reader.find_runs(RunQuery(limit=100)).headers
    verdict = verified(history.path)
    assert verdict.problems == []
    assert any(str(one) in text for text in verdict.unshown())
    assert one.name in messages(verified(history.path, full=True))
    away.rename(one)
    assert verified(history.path, full=True).problems == []


def test_files_beside_the_database_are_found_wherever_it_is(history, tmp_path):
    archived(history)
    moved = tmp_path / "elsewhere" / "log.db"
    moved.parent.mkdir()
    for each in history.path.parent.iterdir():
        target = moved.parent / each.name
        shutil.copytree(each, target) if each.is_dir() else shutil.copy(each, target)
    shutil.rmtree(f"{history.path}.archives")
    assert verified(moved, full=True).problems == []


def alter(path: Path, *statements: str) -> None:
    """Change a database as its attacker would: nothing guards it."""
    connection = sqlite3.connect(path, isolation_level=None)
    triggers = connection.execute(TRIGGERS).fetchall()
    for name, _ in triggers:
        connection.execute(f'DROP TRIGGER "{name}"')
    for statement in statements:
        connection.execute(statement)
    for _, text in triggers:
        connection.execute(text)
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM archived WHERE run_id = (SELECT min(run_id) FROM archived)",
        (
            "UPDATE archived SET archive = 3 - archive"
            " WHERE run_id = (SELECT min(run_id) FROM archived)"
        ),
        "UPDATE archives SET made = (SELECT made FROM archives WHERE number = 2) WHERE number = 1",
        "UPDATE archives SET rewritten = made WHERE number = 1",
        "DELETE FROM archives WHERE number = 2",
        "DELETE FROM archives",
        "UPDATE runs SET hash = zeroblob(32) WHERE id = (SELECT min(run_id) FROM archived)",
        "UPDATE runs SET seq = seq + 1 WHERE id = (SELECT min(run_id) FROM archived)",
        "DELETE FROM runs WHERE id = (SELECT min(run_id) FROM archived)",
        (
            "INSERT INTO archived SELECT id, 1 FROM runs"
            " WHERE id NOT IN (SELECT run_id FROM archived) AND run <> '$host' LIMIT 1"
        ),
        "DELETE FROM batches WHERE number = (SELECT min(number) FROM batches)",
        "DELETE FROM events WHERE position = (SELECT min(position) FROM events)",
    ],
)  # fmt: skip
def test_a_changed_table_is_found_without_reading_the_files(history, statement):
    archived(history)
    assert verified(history.path).problems == []
    Path(f"{history.path}.verified").unlink()
    alter(history.path, statement)
    with reading(history.path) as reader:  # as if all files had been read long ago
        verdict = operation_check(reader)
    assert verdict, statement


def operation_check(reader):
    """What the records alone show, with the rest of the database."""
    from leadhand.app.archive_check import check_archives
    from leadhand.app.verification import Verification, _check_commits
    from leadhand.audit.signatures import Signatures

    verdict = Verification(signatures=Signatures())
    verdict.archives = check_archives(reader, (), 1 << 60, None)
    verdict.problems += verdict.archives.problems
    try:
        _check_commits(reader, verdict)
    except Exception as error:
        verdict.problems.append(error)
    for header in reader.runs():
        if not reader.store.archive_number(header.run) and not reader.entries(header.run):
            verdict.problems.append("a run without entries")
    return verdict.problems


def forge(path: Path, *, signed_by: PrivateKey | None = None) -> None:
    """Remove the oldest runs, and write a record of an archive that never was."""
    import time

    from leadhand.app.archive import _Writing
    from leadhand.stores.archive import ArchiveFiling, heads_digest, signed_record

    store = SqliteStore(path)
    writing = _Writing(store, None)
    ended = [h.run for h in reversed(store.find_runs(RunQuery(limit=1000)).headers)]
    with reading(path) as reader:
        goes = [run for run in ended if b"RunEnded" in reader.entries(run)[-1].body][:3]
        headers = [reader.store.header(run) for run in goes]
    heads = sorted((each.run, each.seq, each.hash) for each in headers)
    taken = {run: store.places(run)[-1] for run in goes}
    end, _lasts, _others, kept = operation._span(store, store.archived_until(), taken)
    record = RunsArchived(
        1, "ann", time.time_ns() // 1000, str(path.parent), "gone.archive", 1000, "0" * 64,
        end.number, end.last, end.hash.hex(), len(goes), sum(seq for _, seq, _ in heads),
        heads_digest(heads), tuple(kept),
    )  # fmt: skip
    record = signed_record(store.database_id, record, signed_by)
    store.file_away(ArchiveFiling(record, writing.entry(record), goes))
    store.close_now()


def test_a_forged_record_is_found(history):
    """Runs were removed, and the log says that they are in an archive."""
    assert verified(history.path).problems == []
    forge(history.path)
    assert "gone.archive" in messages(verified(history.path))
    assert "gone.archive" in messages(verified(history.path, full=True))


def test_a_forged_record_is_found_by_its_signature_though_files_are_away(history, tmp_path):
    key = PrivateKey.new()
    forge(history.path, signed_by=PrivateKey.new())
    assert "is not signed by" in messages(verified(history.path, key=key.public))


def test_records_and_files_are_signed(history, tmp_path):
    file = tmp_path / "mine.key"
    key = PrivateKey.new()
    file.write_bytes(key.pem())
    file.chmod(0o600)
    one, _ = archived(history, file)
    assert prove(one, key=key.public).signed_by == key.name
    other = PrivateKey.new()
    with pytest.raises(StoreCorrupt, match="is not signed by"):
        prove(one, key=other.public)
    verdict = verified(history.path, key=key.public, full=True)
    assert {each.rule for each in verdict.problems} <= {"anchor"}  # those before the key
    assert "not signed" in messages(verified(history.path, key=other.public, full=True))


def test_a_made_up_file_with_fitting_hashes_is_found(history):
    """It proves itself, but leads to another hash than the one from which the chain goes on."""
    one, _ = archived(history)
    with reading(history.path) as reader:
        record = reader.store.archives()[0]
    other = make(history.path.parent / "other.db", 99)
    archiving(other.path).archive(1 << 60, None)
    (file,) = Path(f"{other.path}.archives").iterdir()
    one.write_bytes(file.read_bytes())
    alter(history.path, "UPDATE meta SET value = value")  # the record itself is in the chain
    assert record.digest != prove(one).digest
    assert verified(history.path, full=True).problems


def test_a_file_with_the_same_content_and_other_bytes_is_found(history):
    """The record is of exactly one file."""
    one, _ = archived(history)
    with reading(history.path) as reader:
        record = reader.store.archives()[0]
    proof = prove(one)
    assert _differs(proof, record, START) is None
    assert "another" in _differs(proof._replace(digest="0" * 64), record, START)


def test_commits_that_do_not_lead_to_the_recorded_hash_are_not_archived(history, monkeypatch):
    """The file is proved before it gets its name: nothing is removed."""
    seen, span = views(history.path), operation._span

    def elsewhere(*given):
        end, *rest = span(*given)
        return end._replace(hash=bytes(32)), *rest

    monkeypatch.setattr(operation, "_span", elsewhere)
    with pytest.raises(StoreCorrupt, match="do not lead to the hash"):
        archiving(history.path).archive(1 << 60, None)
    assert views(history.path) == seen
    assert list(Path(f"{history.path}.archives").iterdir()) == []


def test_a_log_that_stayed_and_was_written_anew_is_found(quick_folder):
    """Its commits are in an archive, so no chain of the database covers it: the record does."""
    for seed in range(60):
        history = make(quick_folder / f"{seed}.db", seed)
        archiving(history.path).archive(1 << 60, None)
        with reading(history.path) as reader:
            end = reader.store.archived_until().last
            behind = [
                r for r, at in history.ended.items() if not at if reader.store.places(r)[-1] <= end
            ]
            if behind:
                entries = reader.entries(behind[0])
                places = reader.store.places(behind[0])
                break
    prev, statements = GENESIS, []
    for place, entry in zip(places, entries, strict=True):
        prev = link(prev, entry.run, entry.seq, entry.at + 1, entry.version, entry.body)
        statements.append(
            f"UPDATE events SET at = at + 1, hash = x'{prev.hex()}' WHERE position = {place}"
        )
    statements.append(
        "UPDATE runs SET created = created + 1, updated = updated + 1,"
        f" hash = x'{prev.hex()}' WHERE run = '{behind[0]}'"
    )
    assert verified(history.path).problems == []
    Path(f"{history.path}.verified").unlink()
    alter(history.path, *statements)
    assert "not what it was when archive 1 was made" in messages(verified(history.path))


# Retention, and erasing.


def test_archives_end_by_policy_and_the_record_stays(history):
    one, two = archived(history)
    with reading(history.path) as reader:
        middle = reader.store.archives()[0].made.before
    report = archiving(history.path).archive(1, None, middle)
    assert [each.number for each in report.deleted] == [1]
    assert (one.exists(), two.exists()) == (False, True)
    verdict = verified(history.path, full=True)
    assert verdict.problems == []
    assert any("ann deleted it" in text for text in verdict.unshown())
    with reading(history.path) as reader:
        run = next(run for run in history.ended if reader.store.archive_number(run) == 1)
        with pytest.raises(ArchiveMissing, match="which ann deleted"):
            reader.state(run)
        assert reader.store.header(run) is not None
    assert archiving(history.path).archive(1, None, middle).deleted == []


def test_a_secret_is_erased_from_archives(history):
    files = archived(history)
    raw = SECRET.encode()
    assert any(holds(file, raw) for file in files)
    report = archiving(history.path).erase("TOKEN", SECRET, "found later")
    assert report.rewritten
    assert not any(file.exists() and holds(file, raw) for file in files)
    with reading(history.path) as reader:
        now = [reader.store.shelf.place(each) for each in reader.store.archives()]
        assert not any(holds(file, raw) for file in now)
        for run, at in history.ended.items():
            if at:
                entries = reader.verified(run)
                assert raw not in b"".join(entry.body for entry in entries)
                [decode(entry.version, entry.body) for entry in entries]
    verdict = verified(history.path, full=True)
    assert verdict.problems == []
    assert any("ann erased secrets from it" in text for text in verdict.unshown())
    assert archiving(history.path).erase("TOKEN", SECRET, "again").rewritten == []


def holds(file: Path, raw: bytes) -> bool:
    with archive_file.Archive(file) as archive:
        every = [archive.frame(place) for place in range(len(archive.index.frames))]
    return any(raw in each for each in every)


def test_an_erasure_without_a_record_is_found(history):
    """A person who rewrites a file as erasing does, without saying so."""
    archived(history)
    with reading(history.path) as reader:
        records = reader.store.archives()
    before = {record.number: (record.folder / record.file).read_bytes() for record in records}
    (first, *_) = archiving(history.path).erase("TOKEN", SECRET, "").rewritten
    new = first.folder / first.file
    data = new.read_bytes()
    new.write_bytes(before[first.number])  # the old file in place of the new one
    assert "archive" in {each.rule for each in verified(history.path, full=True).problems}
    new.write_bytes(data)
    assert verified(history.path, full=True).problems == []


# Crashes and full disks.


def counted(work, stop: int | None = None) -> int:
    """Run `work`, and die at its line number `stop`; return how many lines it has."""
    lines = 0
    modules = ("app/archive.py", "stores/archive.py", "sqlite/writer.py", "stores/artifacts.py")

    def trace(frame, event, _arg):
        nonlocal lines
        if not frame.f_code.co_filename.endswith(modules):
            return None
        if event == "line":
            lines += 1
            if lines == stop:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
        threading.settrace(None)
    return lines


def in_child(work) -> int:
    child = os.fork()
    if not child:
        with suppress(BaseException):
            work()
            os._exit(0)
        os._exit(1)
    return os.waitpid(child, 0)[1]


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source.parent, target)
    return target / source.name


@pytest.mark.parametrize("what", ["archive", "erase", "delete"])
def test_a_kill_at_any_point_loses_nothing_and_doubles_nothing(quick_folder, monkeypatch, what):
    monkeypatch.setattr(operation, "BUNDLE_BYTES", 9000)
    (quick_folder / "one").mkdir()
    history = make(quick_folder / "one" / "log.db", 3, runs=8)
    seen = views(history.path)
    if what != "archive":
        archiving(history.path).archive(1 << 60, None)
    raw = SECRET.encode()

    def work(path):
        if what == "erase":
            archiving(path).erase("TOKEN", SECRET, "")
        else:
            archiving(path).archive(1 << 60, None, None if what == "archive" else 1 << 60)

    measured = copied(history.path, quick_folder / "measured")
    lines = counted(lambda: work(measured))
    points = sorted(random.Random(5).sample(range(1, lines), 45))
    for number, point in enumerate(points):
        path = copied(history.path, quick_folder / f"k{number}")
        status = in_child(lambda path=path, point=point: counted(lambda: work(path), point))
        assert os.WIFSIGNALED(status)
        if what == "archive":
            assert views(path) == seen, point
            found = verified(path, full=True).problems
            assert {each.rule for each in found} <= {"owner"}, point  # it died as it opened
        work(path)
        assert not intent_file(path).exists()
        with reading(path) as reader:
            records = reader.store.archives()
            known = {each.file for each in records if each.deleted is None}
        assert {each.name for each in Path(f"{path}.archives").iterdir()} == known, point
        assert verified(path, full=True).problems == [], point
        if what == "archive":
            assert views(path) == seen
        if what == "erase":
            assert not any(holds(each, raw) for each in Path(f"{path}.archives").iterdir())
        shutil.rmtree(path.parent)


def test_a_full_disk_leaves_everything_as_it_was(history, monkeypatch):
    """Whichever write fails, the database holds all, and no file is left."""
    import errno

    seen = views(history.path)
    written = archive_file.ArchiveWriter._write
    for failing in range(1, 7):
        calls = 0

        def write(self, data, failing=failing):
            nonlocal calls
            calls += 1
            if calls == failing:
                self._file.write(data[: len(data) // 2])
                raise archive_file.explain_os(OSError(errno.ENOSPC, "full"), self._path)
            written(self, data)

        monkeypatch.setattr(archive_file.ArchiveWriter, "_write", write)
        with pytest.raises(StoreFull):
            archiving(history.path).archive(1 << 60, None)
        assert views(history.path) == seen
        assert list(Path(f"{history.path}.archives").iterdir()) == []
    monkeypatch.setattr(archive_file.ArchiveWriter, "_write", written)
    assert archiving(history.path).archive(1 << 60, None).runs == len(history.archivable)
    assert views(history.path) == seen


def test_a_database_that_cannot_record_an_archive_keeps_its_runs(history, monkeypatch):
    """The commit fails for want of space: nothing is removed, and the file goes again."""
    seen = views(history.path)
    file_away = SqliteStore.file_away

    def full(self, filing):
        pages = self._writer.ask(lambda c: c.execute("PRAGMA page_count").fetchone()[0]).result()
        self._writer.ask(lambda c: c.execute(f"PRAGMA max_page_count = {pages}")).result()
        big = filing.record.kept * 3000
        record = archive_file.msgspec.structs.replace(filing.record, kept=big)
        body = operation.encode(record)
        entry = filing.entry._replace(body=body * 9)
        file_away(self, filing._replace(entry=entry))

    monkeypatch.setattr(SqliteStore, "file_away", full)
    with pytest.raises(StoreFull):
        archiving(history.path).archive(1 << 60, None)
    assert views(history.path) == seen
    assert list(Path(f"{history.path}.archives").iterdir()) == []
    monkeypatch.setattr(SqliteStore, "file_away", file_away)
    assert archiving(history.path).archive(1 << 60, None).runs == len(history.archivable)
    assert verified(history.path, full=True).problems == []


def test_the_days_of_a_history_are_as_said():
    """The helper above spreads runs over several weeks, so that any share of them can go."""
    assert DAY_US == 24 * 3600 * 1_000_000
    assert HOST_STREAM == "$host"


# Copies.


def test_a_backup_of_a_log_with_archives_is_equal_and_goes_on(history, tmp_path):
    """Its first commits are in archives; the backup knows them, and finds the files."""
    seen = views(history.path)
    archived(history)
    with reading(history.path) as reader:
        kept = [run for run, at in history.ended.items() if not at]
        assert len(kept) > 0
        assert reader.store.archived_until().number > 0
    backup = tmp_path / "backup.db"
    done = back_up(history.path, backup, Anchoring())
    assert done.source == done.target
    assert views(backup) == seen
    assert verified(backup, full=True).problems == []
    archiving(history.path).archive(1, None)
    again = back_up(history.path, backup, Anchoring())
    assert again.copied.resumed > 0


def test_a_backup_from_before_an_archive_is_not_added_to(history, tmp_path):
    backup = tmp_path / "backup.db"
    back_up(history.path, backup, Anchoring())
    archived(history)
    with pytest.raises(Conflict, match="archives were made or changed"):
        back_up(history.path, backup, Anchoring())
    assert verified(backup, full=True).problems == []


def test_a_backup_that_was_cut_off_at_its_start_goes_on(history, tmp_path, monkeypatch):
    archived(history)
    backup = tmp_path / "backup.db"
    begin, commit = SqliteStore.begin_after, SqliteStore.commit_together

    def cut(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(SqliteStore, "commit_together", cut)
    with pytest.raises(KeyboardInterrupt):
        back_up(history.path, backup, Anchoring())
    monkeypatch.setattr(SqliteStore, "commit_together", commit)
    assert SqliteStore.begin_after is begin
    done = back_up(history.path, backup, Anchoring())
    assert done.source == done.target
    assert verified(backup, full=True).problems == []
