"""`leadhand archive`, through the command line and a server."""

import shutil
import sqlite3

import pytest

from leadhand.errors import ArchiveMissing
from tests.support.cli import WORKERS, Folder
from tests.support.serving import project, served

pytest.importorskip("zstandard")
SECRET = "tok-0815-found-later"
NOW = ("--older-than", "0s")


def run(folder, *steps, code=0):
    folder.plan(*steps)
    done = folder.run("run", "plan.json", "--workers", "workers.py", "--json")
    assert done.code == code, done
    return folder.latest()["run"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three runs that have ended: one with a large result, one that failed, one with a secret."""
    folder = Folder(tmp_path_factory.mktemp("made"))
    folder.write("workers.py", WORKERS)
    large = run(folder, {"id": "a", "worker": "big", "parameters": {"size": 200_000}})
    failed = run(folder, {"id": "a", "worker": "broken", "failure_action": "abort"}, code=1)
    secret = run(folder, {"id": "a", "worker": "say", "parameters": {"text": SECRET}})
    return folder, large, failed, secret


@pytest.fixture
def folder(made, tmp_path):
    """A copy of them."""
    source, large, failed, secret = made
    shutil.copytree(source.path, tmp_path / "copy")
    copied = Folder(tmp_path / "copy")
    copied.large, copied.failed, copied.secret = large, failed, secret
    return copied


def files(folder):
    return sorted((folder.path / ".leadhand" / "leadhand.db.archives").iterdir())


VIEWS = (
    ("metrics",),
    ("show", "{}"),
    ("show", "{}", "--timeline"),
    ("logs", "{}"),
    ("logs", "{}", "a", "--json"),
)


def test_every_command_shows_archived_runs_as_before(folder):
    runs = (folder.large, folder.failed, folder.secret)

    def views():
        return [
            folder.run(*[word.format(each) for word in words]) for words in VIEWS for each in runs
        ] + [folder.run("compare", *runs[:2])]

    before = views()
    assert all(each.code in (0, 1) for each in before)
    assert folder.run("archive", *NOW, "--dry-run").err.startswith("would archive 3 runs")
    done = folder.run("archive", *NOW, "--json")
    assert done.code == 0, done
    assert (done.doc["runs"], done.doc["artifacts"]) == (3, 1)
    assert [each["file"] for each in done.doc["archives"]] == [str(files(folder)[0])]
    assert [(each.code, each.out) for each in views()] == [(e.code, e.out) for e in before]
    listed = folder.run("ls")
    assert listed.out.count("(archived)") == 3
    assert {row["archive"] for row in folder.run("ls", "--json").doc} == {1}
    for each in runs:
        assert folder.run("verify", each).code == 0
        assert folder.run("export", each, "-o", f"{each}.zip").code == 0
        assert folder.run("verify", f"{each}.zip").code == 0
    (file,) = files(folder)
    shutil.copy(file, folder.path / "whole")
    assert "archive 1 with 3 runs" in folder.run("verify", str(file)).err
    file.write_bytes(file.read_bytes()[:-30])
    assert folder.run("verify", str(file)).code == 1
    assert folder.run("verify", str(file), "--json").doc["valid"] is False
    shutil.copy(folder.path / "whole", file)
    told = folder.run("verify", "--all", "--full", "--json").doc
    assert (told["valid"], told["archives"], told["archived_runs"]) == (True, 1, 3)
    assert "no run to archive" in folder.run("archive", *NOW).err


def test_nothing_is_added_to_an_archived_run_and_it_can_be_run_again(folder):
    assert folder.run("archive", *NOW).code == 0
    for words in (
        ("redo", folder.failed, "a", "--reason", "again"),
        ("cancel", folder.failed),
    ):
        refused = folder.run(*words)
        assert (refused.code, f"leadhand rerun {folder.failed}" in refused.err) == (7, True), words
    again = folder.run("rerun", folder.secret, "--workers", "workers.py", "--json")
    assert again.code == 0, again
    assert again.doc["run"] != folder.secret
    assert folder.run("verify", "--all", "--full").code == 0


def test_a_file_that_is_away_is_named(folder):
    assert folder.run("archive", *NOW, "--to", "away").code == 0
    (file,) = (folder.path / "away").iterdir()
    assert folder.run("show", folder.large).code == 0
    file.rename(folder.path / "elsewhere")
    for words in (("show",), ("logs",), ("export",), ("verify",)):
        done = folder.run(*words, folder.large)
        assert done.code == ArchiveMissing.exit_code == 1, done
        assert file.name in done.out + done.err
    assert folder.run("ls").out.count("(archived)") == 3
    assert folder.run("metrics").code == 0
    beside = folder.path / ".leadhand" / "leadhand.db.archives"
    beside.mkdir()
    (folder.path / "elsewhere").rename(beside / file.name)
    assert folder.run("show", folder.large).code == 0


def test_retention_is_a_policy(folder):
    assert folder.run("archive").code == 2
    folder.write("leadhand.toml", '[archive]\nolder_than = "90 days"\ndelete_after = "1 day"\n')
    wrong = folder.run("archive")
    assert (wrong.code, "longer than --older-than" in wrong.err) == (2, True)
    folder.write("leadhand.toml", '[archive]\nolder_than = "90 days"\nfolder = "kept"\n')
    assert "no run to archive" in folder.run("archive").err
    assert folder.run("archive", *NOW).code == 0
    (file,) = (folder.path / "kept").iterdir()
    folder.write("leadhand.toml", '[archive]\nolder_than = "0.1s"\ndelete_after = "0.2s"\n')
    folder.until(lambda: folder.run("archive").code == 0 and not file.exists(), "the deletion")
    gone = folder.run("show", folder.large)
    assert gone.code == 1
    assert "deleted" in gone.err
    assert folder.run("ls").out.count("(archived)") == 3
    assert folder.run("verify", "--all", "--full").code == 0
    settings = folder.run("doctor", "--json").doc["settings"]
    assert settings["archive.delete_after"]["value"] == 0.2


def test_a_secret_is_erased_and_never_named_on_the_command_line(folder):
    assert SECRET in folder.run("logs", folder.secret, "--json").out
    assert folder.run("archive", *NOW).code == 0
    plain = folder.run("archive", "--erase", SECRET)
    assert (plain.code, SECRET in plain.err + plain.out) == (2, False)
    assert folder.run("archive", "--erase", "env:NOT_THERE").code == 2
    done = folder.run("archive", "--erase", "env:FOUND", "--reason", "late", FOUND=SECRET)
    assert (done.code, "archive 1: changed in" in done.out) == (0, True), done
    shown = folder.run("logs", folder.secret, "--json").out
    assert SECRET not in shown
    assert "[secret:FOUND]" in shown
    assert folder.run("verify", "--all", "--full").code == 0
    refused = folder.run("export", folder.secret)
    assert (refused.code, "erased" in refused.err) == (7, True)
    # The lists are derived from the summaries, which hold the goal and no result.
    with sqlite3.connect(folder.path / ".leadhand" / "leadhand.db") as connection:
        dump = "\n".join(map(str, connection.iterdump()))
    assert SECRET not in dump


def test_a_server_shows_archived_runs(tmp_path):
    project(tmp_path)
    folder = Folder(tmp_path)
    ident = run(folder, {"id": "a", "worker": "big", "parameters": {"size": 200_000}})
    parts = ("", "/graph", "/rows", "/steps/a", "/ledger", "/revisions")
    paths = [f"/runs/{ident}{each}" for each in parts]
    with served(tmp_path) as up, up.client() as client:
        before = {path: client.get(path) for path in [*paths, "/overview", "/usage?by=plan"]}
    assert before[f"/runs/{ident}"].status_code == 200
    assert folder.run("archive", *NOW).code == 0
    with served(tmp_path) as up, up.client() as client:
        for path, answer in before.items():
            now = client.get(path)
            assert (now.status_code, path) == (200, path)
            if path.endswith(("/graph", "/rows", "/ledger", "/revisions")):
                assert now.json() == answer.json()
        assert client.post(f"/runs/{ident}/export", json={}).status_code == 200
        assert client.post(f"/runs/{ident}/verify", json={}).json()["valid"] is True
        (row,) = client.get("/runs").json()["items"]
        assert (row["run"], row["archive"]) == (ident, 1)
    (file,) = files(folder)
    file.unlink()
    with served(tmp_path) as up, up.client() as client:
        gone = client.get(f"/runs/{ident}")
        assert (gone.status_code, file.name in gone.text) == (409, True)
        assert client.get("/runs").status_code == 200
