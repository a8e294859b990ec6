"""Artifacts in files: whole or not at all, and checked when read."""

import errno
import os
import threading

import pytest

from leadhand.errors import NotAllowed, StoreBroken, StoreCorrupt, StoreError, StoreFull
from leadhand.stores import artifacts
from leadhand.stores.artifacts import ArtifactFolder


@pytest.fixture
def kept(tmp_path):
    return ArtifactFolder(tmp_path / "log.db.artifacts")


def test_the_file_is_named_by_its_hash(kept, tmp_path):
    """Two letters, then the rest."""
    digest = kept.put(b"hello").removeprefix("sha256:")
    place = tmp_path / "log.db.artifacts" / digest[:2] / digest[2:]
    assert place.read_bytes() == b"hello"


@pytest.mark.parametrize("damage", [b"", b"hellp", b"hello and more"])
def test_damage_is_found_and_healed(kept, tmp_path, damage):
    """Reading says so; putting the same bytes again mends it."""
    ref = kept.put(b"hello")
    (place,) = (path for path in tmp_path.rglob("*") if path.is_file())
    place.write_bytes(damage)
    with pytest.raises(StoreCorrupt, match="do not match"):
        kept.get(ref)
    assert kept.put(b"hello") == ref
    assert kept.get(ref) == b"hello"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EIO, StoreBroken),
        (errno.EROFS, NotAllowed),
        (errno.EACCES, NotAllowed),
        (errno.ENAMETOOLONG, StoreError),
    ],
)
def test_a_failed_write_leaves_nothing(kept, tmp_path, monkeypatch, number, kind):
    """Neither a half file nor a temporary one."""

    def fail(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(artifacts.os, "fsync", fail)
    monkeypatch.setattr("leadhand.stores.sqlite.connection.sync_folder", lambda folder: None)
    with pytest.raises(kind):
        kept.put(b"hello")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    monkeypatch.undo()
    assert kept.get(kept.put(b"hello")) == b"hello"


def test_many_threads_put_the_same_bytes(kept, tmp_path):
    """One file, whole, and no temporary ones left."""
    data = os.urandom(200_000)
    refs: list[str] = []
    threads = [threading.Thread(target=lambda: refs.append(kept.put(data))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refs) == 8
    assert len(set(refs)) == 1
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1
    assert kept.get(refs[0]) == data
