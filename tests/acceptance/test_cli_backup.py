"""A backup is the log at one moment, taken while its host works; a restore proves its copy."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.support.cli import WORKERS

FILES = {"workers.py": WORKERS}
LOG = ".leadhand/leadhand.db"


def lived_in(folder, runs=2):
    folder.plan(
        {"id": "a", "worker": "say"},
        {"id": "b", "worker": "big", "parameters": {"size": 200_000}, "depends_on": ["a"]},
    )
    for _ in range(runs):
        assert folder.run("run", "plan.json").code == 0


def names(folder, *more):
    return [each["run"] for each in folder.run("ls", "--json", *more).doc]


def test_a_backup_of_a_hosted_log_is_read_like_any_log(folder):
    lived_in(folder)
    folder.plan({"id": "n", "worker": "nap", "parameters": {"seconds": 600}}, name="nap.json")
    assert folder.run("run", "nap.json", "--detach").code == 0
    folder.until(lambda: folder.lines("naps.txt"), "the step starts")
    done = folder.run("backup", "copies.db", "--json")
    assert done.code == 0, done
    assert done.doc["equal"]
    assert done.doc["source"]["runs"] == 3
    assert names(folder, "--store", "copies.db") == names(folder)
    assert folder.run("verify", "--all", "--store", "copies.db").code == 0
    assert folder.latest()["status"] == "running"  # its host went on undisturbed
    assert folder.run("cancel", folder.latest()["run"]).code == 0
    again = folder.run("backup", "copies.db", "--json")
    assert again.code == 0, again
    assert again.doc["resumed_at"] == done.doc["source"]["commits"]
    assert again.doc["source"]["commits"] > again.doc["resumed_at"]
    folder.end_host()
    assert folder.run("verify", "--all", "--store", "copies.db").code == 0


def test_a_restored_log_is_the_one_that_was_backed_up(folder):
    lived_in(folder)
    before = names(folder)
    assert folder.run("backup", "copies.db").code == 0
    refused = folder.run("restore", "copies.db")
    assert refused.code == 7, refused
    assert "there is a log here already, which is not touched" in refused.err
    shutil.rmtree(folder.path / ".leadhand")
    restored = folder.run("restore", "copies.db")
    assert restored.code == 0, restored
    assert "every hash holds on both sides" in restored.err
    assert names(folder) == before
    assert folder.run("verify", "--all").code == 0
    assert (
        "x" * 1000
        in folder.run("logs", before[0], "b").out + folder.run("show", before[0], "--json").out
    )
    assert folder.run("run", "plan.json").code == 0  # and it goes on


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_what_cannot_be_copied_is_said(folder, command):
    nothing = folder.run(command, "copies.db")
    assert nothing.code == 2, nothing
    assert "there is no" in nothing.err
    assert "Traceback" not in nothing.err
    assert not (folder.path / "copies.db").exists()


def test_a_backup_never_overwrites_another_log(folder):
    lived_in(folder, 1)
    assert folder.run("backup", "copies.db").code == 0
    shutil.rmtree(folder.path / ".leadhand")
    lived_in(folder, 1)
    before = (folder.path / "copies.db").read_bytes()
    refused = folder.run("backup", "copies.db")
    assert refused.code == 7, refused
    assert "holds another log" in refused.err
    assert (folder.path / "copies.db").read_bytes() == before


def test_an_altered_backup_is_not_restored(folder):
    lived_in(folder, 1)
    assert folder.run("backup", "copies.db").code == 0
    shutil.rmtree(folder.path / ".leadhand")
    connection = sqlite3.connect(folder.path / "copies.db")
    connection.execute("DROP TRIGGER events_no_update")
    connection.execute("UPDATE events SET at = at + 1 WHERE position = 5")
    connection.commit()
    connection.close()
    refused = folder.run("restore", "copies.db")
    assert refused.code == 1, refused
    assert "does not match its hash" in refused.err
    assert not names_of_runs(folder.path / LOG)


@pytest.mark.parametrize("unfinished", ["INSERT INTO meta VALUES ('copying', 'x')", "empty"])
def test_an_unfinished_backup_is_not_restored(folder, unfinished):
    """Its copy would be equal to it, which says nothing of the log."""
    lived_in(folder, 1)
    assert folder.run("backup", "copies.db").code == 0
    shutil.rmtree(folder.path / ".leadhand")
    connection = sqlite3.connect(folder.path / "copies.db")
    if unfinished == "empty":
        for table in ("events", "batches"):
            connection.execute(f"DROP TRIGGER {table}_no_delete")
            connection.execute(f"DELETE FROM {table}")
    else:
        connection.execute(unfinished)
    connection.commit()
    connection.close()
    refused = folder.run("restore", "copies.db")
    assert refused.code in (1, 2), refused
    assert ("not finished" in refused.err) or ("no commit" in refused.err)
    assert not (folder.path / LOG).exists()


def test_another_name_of_the_log_is_no_backup(folder):
    lived_in(folder, 1)
    (folder.path / "copies.db").hardlink_to(folder.path / LOG)
    refused = folder.run("backup", "copies.db")
    assert refused.code == 2, refused
    assert "are the same log" in refused.err


def names_of_runs(path: Path):
    if not path.exists():
        return []
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT run FROM runs").fetchall()
    finally:
        connection.close()
