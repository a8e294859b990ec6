"""What is kept is for the account that hosts it, whatever the umask says."""

import contextlib
import os
import sqlite3
import stat
from pathlib import Path

import pytest

from leadhand.errors import StoreError
from leadhand.stores.permissions import open_to_others
from leadhand.stores.sqlite.lock import HostLock
from leadhand.stores.sqlite.store import SqliteStore
from tests.support.cli import WORKERS, Folder

pytestmark = pytest.mark.real


@pytest.fixture(params=[0o000, 0o022])
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


def loose(folder):
    """All that others could read or write."""
    return sorted(str(each) for each in [folder, *folder.rglob("*")] if mode(each) & 0o077)


@pytest.mark.usefixtures("umask")
async def test_a_database_is_for_one_account(tmp_path):
    path = tmp_path / ".leadhand" / "leadhand.db"
    with HostLock(path):
        store = SqliteStore(path)
        store.put_artifact(b"x" * 100_000)
        assert loose(path.parent) == []
        assert mode(f"{path}-wal") == mode(path) == 0o600
        await store.close()


async def test_what_was_open_is_tightened(tmp_path):
    """Rights of the owner stay as they are, and so does a folder that is not ours."""
    path = tmp_path / ".leadhand" / "leadhand.db"
    store = SqliteStore(path)
    store.put_artifact(b"x" * 100_000)
    await store.close()
    for each in [path.parent, *path.parent.rglob("*")]:
        each.chmod(0o755 if each.is_dir() else 0o644)
    Path(f"{path}.lock").write_text("")
    assert set(open_to_others(path)) >= {path.parent, path, Path(f"{path}.lock")}
    store = SqliteStore(path)
    assert open_to_others(path) == []
    for each in (path.parent, f"{path}.artifacts"):
        assert mode(each) == 0o700
    assert mode(f"{path}.lock") == mode(path) == 0o600
    await store.close()
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o755)
    mine.chmod(0o755)
    store = SqliteStore(mine / "runs.db")
    await store.close()
    assert (mode(mine), mode(mine / "runs.db")) == (0o755, 0o600)


@pytest.mark.parametrize("kind", ["sqlite", "text"])
def test_a_foreign_file_is_refused_and_unchanged(tmp_path, kind):
    """Its rights, and the mode of its journal, are its owner's choice."""
    file = tmp_path / "other.db"
    if kind == "text":
        file.write_text("notes\n" * 1000)
    else:
        with contextlib.closing(sqlite3.connect(file)) as other:
            other.execute("CREATE TABLE of_others (x)")
            other.commit()
    file.chmod(0o644)
    before = file.read_bytes()
    with pytest.raises(StoreError, match=r"not one of Leadhand's|not a database"):
        SqliteStore(file)
    assert (mode(file), file.read_bytes()) == (0o644, before)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other.db"]


@pytest.mark.usefixtures("umask")
def test_all_that_commands_leave_behind(tmp_path):
    folder = Folder(tmp_path)
    folder.write("workers.py", WORKERS)
    folder.plan({"id": "a", "worker": "big", "parameters": {"size": 200_000}})
    done = folder.run("run", "plan.json", "--workers", "workers.py", "--detach", "--json")
    assert done.code == 0, done
    run = done.doc["run"]
    folder.until(lambda: folder.latest()["status"] == "succeeded", "the run")
    assert folder.run("export", run, "-o", "run.bundle").code == 0
    assert loose(tmp_path / ".leadhand") == [str(tmp_path / ".leadhand" / ".gitignore")]
    assert mode(tmp_path / "run.bundle") == 0o600
    looks = {each["what"]: each for each in folder.run("doctor", "--json").doc["checks"]}
    assert looks["permissions"]["status"] == "ok"
    (tmp_path / ".leadhand").chmod(0o755)
    (tmp_path / ".leadhand" / "leadhand.db").chmod(0o644)
    looks = {each["what"]: each for each in folder.run("doctor", "--json").doc["checks"]}
    assert looks["permissions"]["status"] == "warning"
    assert "leadhand.db" in looks["permissions"]["fix"]
