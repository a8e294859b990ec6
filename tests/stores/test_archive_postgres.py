"""Archives of a log in PostgreSQL: the same promises as in a file."""

from pathlib import Path

import pytest

from leadhand.app import archive as operation
from leadhand.app.archive import Archiving
from leadhand.app.export import export_run
from leadhand.app.migration import move
from leadhand.app.reader import reading
from leadhand.app.verification import VerificationScope, verify_database
from leadhand.audit.anchors import Anchoring
from leadhand.audit.bundle import verify_bundle
from leadhand.errors import ArchiveMissing, Conflict, StoreCorrupt
from leadhand.stores.postgres.store import PostgresStore
from tests.audit.test_archive import views
from tests.support.histories import SECRET, make

pytest.importorskip("zstandard")


@pytest.fixture
def moved(address, tmp_path):
    """A history in a file, moved to PostgreSQL."""
    history = make(tmp_path / "log.db", 7)
    move(history.path, address, Anchoring())
    return history, address


def verified(place, **scope):
    with reading(place) as reader:
        return verify_database(reader, place, Anchoring(), VerificationScope(**scope))


def archiving(place):
    return Archiving(place, Anchoring(), "ann")


def test_every_view_is_the_same_after_archiving(moved, monkeypatch):
    history, place = moved
    monkeypatch.setattr(operation, "BUNDLE_BYTES", 9000)
    before = views(place)
    middle = history.archivable[len(history.archivable) // 2]
    for moment in (middle, 1 << 60):
        report = archiving(place).archive(moment, None)
        assert report.runs > 0
        assert views(place) == before
        for full in (False, True):
            assert verified(place, full=full).problems == []
    run = next(run for run, at in history.ended.items() if at)
    assert verify_bundle(export_run(place, run, Anchoring())).problems == []
    assert archiving(place).archive(1 << 60, None).runs == 0


def test_what_is_not_archived_cannot_be_removed(moved):
    history, place = moved
    archiving(place).archive(history.archivable[3], None)
    store = PostgresStore(place)
    try:
        for statement in (
            "DELETE FROM leadhand.events",
            "DELETE FROM leadhand.batches",
            "DELETE FROM leadhand.artifacts",
        ):
            with pytest.raises(StoreCorrupt, match="append-only"):
                store._reading.do(lambda connection, s=statement: connection.execute(s))
    finally:
        store.close_now()
    assert verified(place, full=True).problems == []


def test_a_host_keeps_archiving_away_and_archived_runs_take_nothing(moved):
    history, place = moved
    store = PostgresStore(place)
    from leadhand.stores.postgres.lock import PostgresLock

    PostgresLock(store).acquire()
    with pytest.raises(Conflict, match="needs the database for itself"):
        archiving(place).archive(1 << 60, None)
    store.close_now()
    archiving(place).archive(1 << 60, None)
    run = next(run for run, at in history.ended.items() if at)
    store = PostgresStore(place)
    with pytest.raises(Conflict, match=f"leadhand rerun {run}"):
        store.read(run)
    store.close_now()


def test_a_commit_that_fails_removes_nothing(moved, monkeypatch):
    _, place = moved
    before = views(place)
    file_away = PostgresStore.file_away

    def broken(self, filing):
        file_away(self, filing._replace(record=filing.record.__class__(
            **{**{f: getattr(filing.record, f) for f in filing.record.__struct_fields__},
               "commit": 1 << 70}
        )))  # fmt: skip

    monkeypatch.setattr(PostgresStore, "file_away", broken)
    with pytest.raises(Exception, match=r"out of range|bigint"):
        archiving(place).archive(1 << 60, None)
    assert views(place) == before
    assert list(Path(f"{place.home}.archives").iterdir()) == []
    monkeypatch.setattr(PostgresStore, "file_away", file_away)
    archiving(place).archive(1 << 60, None)
    assert views(place) == before
    assert verified(place, full=True).problems == []


def test_secrets_are_erased_and_archives_end_by_policy(moved):
    history, place = moved
    archiving(place).archive(1 << 60, None)
    assert archiving(place).erase("TOKEN", SECRET, "found later").rewritten
    assert verified(place, full=True).problems == []
    report = archiving(place).archive(1 << 60, None, 1 << 60)
    assert len(report.deleted) == 1
    assert verified(place, full=True).problems == []
    run = next(run for run, at in history.ended.items() if at)
    with reading(place) as reader, pytest.raises(ArchiveMissing, match="ann deleted"):
        reader.state(run)


def test_a_log_with_archives_is_moved(address, tmp_path):
    history = make(tmp_path / "log.db", 7)
    before = views(history.path)
    archiving(history.path).archive(history.archivable[-3], None)
    done = move(history.path, address, Anchoring())
    assert done.source == done.target
    assert views(address) == before
    assert verified(address, full=True).problems == []
    archiving(address).archive(1 << 60, None)
    assert views(address) == before
    assert verified(address, full=True).problems == []
