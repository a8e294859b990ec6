"""Anchors, keys and exports from the command line."""

import json
import shutil
import zipfile

import pytest

from tests.support.cli import WORKERS

pytestmark = pytest.mark.real


FILES = {"workers.py": WORKERS}


@pytest.fixture
def folder(folder):
    folder.plan({"id": "a", "worker": "say"}, {"id": "b", "worker": "say", "depends_on": ["a"]})
    return folder


def test_a_run_taken_off_the_end_shows(folder):
    """Also when everything that is left fits together."""
    store = folder.path / ".leadhand" / "leadhand.db"
    assert folder.run("run", "plan.json").code == 0
    shutil.copy(store, folder.path / "early.db")
    assert folder.run("run", "plan.json").code == 0
    done = folder.run("verify", "--all", "--json")
    assert done.code == 0, done
    assert done.doc["anchors"]["lines"] == 2
    assert done.doc["cannot_be_shown"] == []
    shutil.copy(folder.path / "early.db", store)
    done = folder.run("verify", "--all")
    assert done.code == 1, done
    assert "is gone: the log ended at entry" in done.out
    (folder.path / ".leadhand" / "leadhand.db.anchors").unlink()
    done = folder.run("verify", "--all")
    assert done.code == 1, done  # the last verification was of a longer log
    assert "that commit is no longer as it was" in done.out
    (folder.path / ".leadhand" / "leadhand.db.verified").unlink()
    done = folder.run("verify", "--all")
    assert done.code == 0, done
    assert "not proven: that the log was not truncated" in done.err
    assert "there is no anchor" in done.err


def test_signed_anchors_are_checked_with_the_public_key(folder):
    made = folder.run("audit-key", "--json")
    assert made.code == 0, made
    key, public = made.doc["key"], made.doc["public"]
    assert key.startswith(str(folder.path / ".config"))
    assert folder.run("audit-key").code == 2
    settings = "[project]\nworkers = ['workers.py']\n[audit]\n"
    anchors = folder.path / "elsewhere.anchors"
    folder.write("leadhand.toml", f"{settings}key = {key!r}\nanchor = {anchors.name!r}\n")
    assert folder.run("run", "plan.json").code == 0
    assert json.loads(anchors.read_bytes())["key"] == made.doc["name"]
    done = folder.run("verify", "--all")
    assert done.code == 0, done
    assert f"signed by {made.doc['name']}" in done.err
    other = folder.run("audit-key", "other.key", "--json").doc
    done = folder.run("verify", "--all", "--key", other["public"])
    assert done.code == 1, done
    assert "is not signed by this key" in done.out
    assert folder.run("verify", "--all", "--key", "missing.pub").code == 2
    assert folder.run("verify", "--all", "--key", public).code == 0


def test_a_key_that_others_may_read_is_refused(folder):
    made = folder.run("audit-key", "a.key", "--json").doc
    (folder.path / "a.key").chmod(0o644)
    folder.write(
        "leadhand.toml", f"[project]\nworkers=['workers.py']\n[audit]\nkey={made['key']!r}\n"
    )
    done = folder.run("run", "plan.json")
    assert done.code == 4, done
    assert "other accounts can read this key" in done.err


def test_words_of_people_are_anchored_without_a_host_too(folder):
    folder.plan({"id": "a", "worker": "danger"}, name="open.json")
    assert folder.run("run", "open.json").code == 5
    run = folder.latest()["run"]
    assert folder.run("cancel", run).code == 0
    done = folder.run("verify", "--all", "--json")
    assert (done.code, done.doc["anchors"]["entries_since"]) == (0, 0), done


def test_an_anchor_that_cannot_be_written_is_said_and_harms_nothing(folder):
    folder.write(
        "leadhand.toml", "[project]\nworkers=['workers.py']\n[audit]\nanchor='no/such/folder'\n"
    )
    done = folder.run("run", "plan.json")
    assert done.code == 0, done
    assert "the anchor could not be written" in done.err


def test_a_run_is_exported_and_checked_alone(folder):
    assert folder.run("run", "plan.json").code == 0
    run = folder.latest()["run"]
    done = folder.run("export", run[:5], "--json")
    assert done.code == 0, done
    file = folder.path / done.doc["file"]
    assert (done.doc["run"], file.name) == (run, f"run-{run}.zip")
    (folder.path / ".leadhand").rename(folder.path / "gone")
    done = folder.run("verify", file.name)
    assert done.code == 0, done
    assert "all hashes and rules verified" in done.err
    assert "not proven: who made it" in done.err
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    done = folder.run("verify", file.name, "--json")
    assert (done.code, done.doc["valid"]) == (1, False), done
    folder.write("text.zip", "this is no bundle")
    assert folder.run("verify", "text.zip").code == 2
    assert folder.run("verify", "missing.zip").code == 2


def test_show_says_whether_planning_or_execution_failed(folder):
    folder.plan({"id": "a", "worker": "broken", "failure_action": "abort"}, name="bad.json")
    assert folder.run("run", "bad.json").code == 1
    run = folder.latest()["run"]
    assert "The execution failed: step a" in folder.run("show", run).out
    assert folder.run("show", run, "--json").doc["fault"]["where"] == "execution"


def test_secrets_from_the_command_line(folder):
    folder.plan(
        {"id": "a", "worker": "broken", "parameters": {"message": "no ${{ params.t }}"}},
        params={"t": {"type": "secret"}},
        name="secret.json",
    )
    value = "a-secret-of-the-tests"
    done = folder.run("run", "secret.json", "--set", f"t={value}")
    assert done.code == 3, done
    assert value not in done.err + done.out
    done = folder.run("run", "secret.json", "--set", "t=env:IT", IT=value)
    assert done.code == 5, done
    assert "no [secret:t]" in done.err
    shown = folder.run("show", folder.latest()["run"], "--json", IT=value)
    assert shown.doc["params"] == {"t": {"$secret": "t", "source": "env:IT"}}
    assert folder.run("verify", "--all").code == 0
    for file in folder.path.rglob("*"):
        assert not file.is_file() or value.encode() not in file.read_bytes()


def test_what_never_was_a_bundle_is_no_violation(folder):
    """One line and exit code 2; what was cut or emptied is evidence, and 1."""
    folder.plan({"id": "a", "worker": "say"})
    assert folder.run("run", "plan.json").code == 0
    folder.write("notes.txt", "hello")
    folder.write("named.zip", "hello")
    database = ".leadhand/leadhand.db"
    said = {"notes.txt": "no file that", "named.zip": "no file that", database: "is a database"}
    for name, words in said.items():
        done = folder.run("verify", name)
        assert (done.code, done.out) == (2, ""), done
        assert words in done.err
    folder.run("export", folder.latest()["run"], "-o", "run.zip")
    whole = (folder.path / "run.zip").read_bytes()
    (folder.path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    assert folder.run("verify", "cut.zip").code == 1
    with zipfile.ZipFile(folder.path / "other.zip", "w") as other:
        other.writestr("a", "b")
    done = folder.run("verify", "other.zip")
    assert done.code == 1, done
    assert "has no manifest.json" in done.out


def test_an_export_writes_over_nothing_else(folder):
    """The same once more is fine; what somebody else wrote stays, unless they say so."""
    folder.plan({"id": "a", "worker": "say"})
    assert folder.run("run", "plan.json").code == 0
    run = folder.latest()["run"]
    folder.write("thesis.txt", "ten years")
    refused = folder.run("export", run, "-o", "thesis.txt")
    assert refused.code == 7, refused
    assert "--force" in refused.err
    assert (folder.path / "thesis.txt").read_text() == "ten years"
    assert folder.run("export", run, "-o", "thesis.txt", "--force").code == 0
    assert folder.run("export", run, "-o", "thesis.txt").code == 0
    assert folder.run("verify", "thesis.txt").code == 0
