"""A machine that was frozen and wakes when its lease is over: nothing that it still does counts.

Its thread goes on where it stood: it pushes to a repository, keeps a large result, and reports. The
push is to a branch of that attempt, and only the commit that a current report names is landed; the
result is not referred to by any event; the report is not of the current attempt.
"""

import json
import os
import signal
import subprocess

import pytest

from leadhand.engine.fold import fold
from leadhand.stores.sqlite.store import SqliteStore
from tests.support.cli import Folder, finished
from tests.temporal.test_processes import configure, events, serving

pytestmark = [pytest.mark.real, pytest.mark.slow]

WORKERS = '''
"""Work that ends in a push."""

import subprocess
import time
from pathlib import Path

from leadhand import Context, worker

HUB = Path(__file__).parent / "hub.git"
WHO = ["-c", "user.name=a", "-c", "user.email=a@example.org"]


def git(*args, cwd):
    done = subprocess.run(["git", *args], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@worker(idempotent=True)
def make(context: Context) -> dict:
    (HUB.parent / f"begun-{context.attempt}").touch()
    slot = HUB.parent / f"slot-{context.attempt}"
    git("clone", "-q", str(HUB), str(slot), cwd=HUB.parent)
    (slot / "file").write_text(f"by attempt {context.attempt}")
    git("add", "file", cwd=slot)
    git(*WHO, "commit", "-q", "-m", f"attempt {context.attempt}", cwd=slot)
    if context.attempt == 1:
        time.sleep(6)
    git("push", "-q", "origin", f"HEAD:refs/heads/attempt-{context.attempt}", cwd=slot)
    (HUB.parent / f"pushed-{context.attempt}").touch()
    return {"commit": git("rev-parse", "HEAD", cwd=slot), "log": str(context.attempt) * 200_000}


@worker(idempotent=True)
def land(made: dict) -> str:
    git("update-ref", "refs/heads/main", made["commit"], cwd=HUB)
    return made["log"][:1]
'''


def git(hub, *args):
    done = subprocess.run(["git", *args], cwd=hub, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path, temporal):
    folder = Folder(tmp_path)
    folder.write("workers.py", WORKERS)
    configure(folder, temporal.address, "[policy]\nattempts = 8\n")
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "hub.git"], check=True)
    return folder


def test_what_a_machine_does_after_its_lease_changes_nothing(project):
    hub, here = project.path / "hub.git", project.path
    plan = project.plan(
        {"id": "make", "worker": "make"},
        {"id": "land", "worker": "land", "parameters": {"made": "${{ steps.make.data }}"}},
    )
    with serving(project, "--engine-only"), serving(project, "--kinds", "make") as first:
        with project.start("run", plan, "--json") as running:
            project.until((here / "begun-1").exists, "the first attempt")
            os.kill(first.pid, signal.SIGSTOP)
            with serving(project):
                done = finished(running)
                assert done.code == 0, done
                run = json.loads(done.out)["run"]
                before, main = events(project, run), git(hub, "rev-parse", "main")
                os.kill(first.pid, signal.SIGCONT)
                project.until((here / "pushed-1").exists, "the late push", 60)
                first.send_signal(signal.SIGTERM)  # it drains: what it still does, it does now
                assert finished(first).code == 143
        assert events(project, run) == before
        shown = project.run("show", run, "--json").doc
        assert {step["id"]: step["status"] for step in shown["steps"]} == {
            "make": "succeeded",
            "land": "succeeded",
        }
    # An attempt may have gone to the frozen machine, which had asked for work: it never began.
    landed = max(int(each.name.rpartition("-")[2]) for each in here.glob("pushed-*"))
    assert landed > 1
    assert git(hub, "rev-parse", "main") == main == git(hub, "rev-parse", f"attempt-{landed}")
    assert git(hub, "rev-parse", "attempt-1") != main
    store = SqliteStore.open_reader(project.path / ".leadhand" / "leadhand.db")
    state = fold(store.read(run))
    assert state.steps["land"].data == str(landed)
    kept = json.loads(store.get_artifact(state.steps["make"].data_ref))
    assert set(kept["log"]) == {str(landed)}
    store.close_reader()
    assert project.run("verify", "--all").code == 0
