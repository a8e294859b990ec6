"""The release of examples/release, played through: night, two people, kill -9, rollback."""

import json
import shutil
import sqlite3
import subprocess
import sys
import urllib.request
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.cli import Folder, environment

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "release"
PEOPLE = [("Zoë",), ("ann",), ("bob",)]
pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "release", ignore=shutil.ignore_patterns("__pycache__"))
    return Folder(tmp_path / "release")


@pytest.fixture
def url(folder):
    """Production, with v2.1.3 live."""
    server = subprocess.Popen(
        [sys.executable, "server.py"],
        cwd=folder.path,
        env=environment(folder.path),
        stdout=subprocess.PIPE,
        text=True,
    )
    yield server.stdout.readline().strip()
    server.kill()
    server.wait()
    server.stdout.close()


def live(url):
    with urllib.request.urlopen(f"{url}/health", timeout=120) as answer:
        return json.load(answer)["version"]


def people(folder):
    with closing(sqlite3.connect(folder.path / "site" / "auth_prod.db")) as database:
        return database.execute("SELECT name FROM users ORDER BY name").fetchall()


def approve(folder, run, *names):
    return [
        folder.run("review", run, "approve", "--reason", "agreed", LEADHAND_ACTOR=name).code
        for name in names
    ]


def begun(folder, url, version):
    """A release that waits for two people."""
    sets = ("--set", f"version={version}", "--set", f"url={url}")
    done = folder.run("run", "plan.yaml", *sets, "--json", LEADHAND_ACTOR="dev")
    assert done.code == 5, done
    return done.doc["run"]


def status_of(folder, run, step):
    rows = {row["id"]: row for row in folder.run("show", run, "--json").doc["steps"]}
    return rows.get(step, {}).get("status")


def killed_when(folder, run, condition, what):
    """Resume a run, and kill the process that hosts it."""
    with folder.start("resume", run) as child:
        folder.until(condition, what, 120)
        child.kill()
        child.wait()


def amend(folder, run, when):
    done = folder.run("review", run, "amend", "--set", f"steps.step-3.not_before={when}")
    assert done.code == 0, done


def test_a_bad_release_at_night_is_taken_back_whole(folder, url):
    run = begun(folder, url, "v2.1.5")

    # To 2AM EST, by two people; one person twice is one.
    amend(folder, run, "02:00 America/New_York")
    assert "02:00 America/New_York" in folder.run("diff", run).out
    assert approve(folder, run, "ann", "Ann", "bob") == [0, 7, 0]

    # Killed while pytest runs, and once more while it waits for the night.
    killed_when(folder, run, lambda: status_of(folder, run, "step-1") == "running", "pytest")
    assert live(url) == "v2.1.3"
    killed_when(folder, run, lambda: status_of(folder, run, "step-2") == "succeeded", "the backup")
    shown = folder.run("show", run, "--json").doc
    attempts = {row["id"]: row["attempts"] for row in shown["steps"]}
    assert (attempts["step-1"], attempts["step-3"]) == (2, 0)
    assert len(list((folder.path / "site" / "backups").iterdir())) == 1
    assert live(url) == "v2.1.3"

    # The window is moved: nothing starts on the old approvals.
    amend(folder, run, datetime.now(UTC).isoformat())
    assert approve(folder, run, "bob") == [0]
    with folder.start("resume", run) as child:
        folder.until(lambda: folder.run("inbox", "--json").doc, "the review")
        assert "1 more person must" in folder.run("show", run).err
        child.kill()
        child.wait()
    assert status_of(folder, run, "step-3") == "scheduled"
    assert live(url) == "v2.1.3"
    assert approve(folder, run, "ann") == [0]

    # It fails where its tests were blind, and both version and data are put back.
    done = folder.run("resume", run, timeout_s=180)
    assert done.code == 1, done
    assert "Zoë cannot log in" in done.err
    assert live(url) == "v2.1.3"
    assert people(folder) == PEOPLE
    shown = folder.run("show", run, "--json").doc
    assert (shown["status"], shown["origin"]) == ("failed", "execution")
    assert folder.run("show", f"{run}-rollback", "--json").doc["status"] == "succeeded"

    # Export, and verify: the bundle alone, and the database.
    assert folder.run("export", run, "-o", "run.zip").code == 0
    assert folder.run("verify", "run.zip").code == 0
    assert folder.run("verify", "--all").code == 0


def test_a_good_release_goes_through(folder, url):
    run = begun(folder, url, "v2.1.4")
    assert approve(folder, run, "ann", "bob") == [0, 0]
    done = folder.run("resume", run, timeout_s=180)
    assert done.code == 0, done
    assert "v2.1.4 is live in slot green (blue_green)" in done.out
    assert live(url) == "v2.1.4"
    assert people(folder) == PEOPLE


def test_a_version_whose_tests_fail_changes_nothing(folder, url):
    broken = folder.path / "versions" / "v2.1.6"
    shutil.copytree(folder.path / "versions" / "v2.1.4", broken)
    run = begun(folder, url, "v2.1.6")  # it calls itself v2.1.4: its own test says so
    assert approve(folder, run, "ann", "bob") == [0, 0]
    done = folder.run("resume", run, timeout_s=180)
    assert done.code == 1, done
    assert "all_tests_pass does not hold" in done.err
    assert live(url) == "v2.1.3"
    assert not (folder.path / "site" / "backups").exists()
