"""A run that no engine begins: whoever started it knows its id, and may leave or withdraw it."""

import signal
import subprocess
import sys

import pytest

from leadhand.app.store_factory import open_store
from tests.support.cli import WORKERS, Done, Folder, environment, finished
from tests.support.temporal import free_port
from tests.temporal.test_processes import serving

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def project(tmp_path, temporal):
    """A project whose log is there, and nobody who serves it."""
    folder = Folder(tmp_path)
    folder.write("workers.py", WORKERS)
    folder.write(
        "leadhand.toml",
        f'[project]\nworkers = ["workers.py"]\n[temporal]\naddress = "{temporal.address}"\n',
    )
    folder.plan({"id": "a", "worker": "say"})
    (tmp_path / ".leadhand").mkdir()
    store, lock = open_store(tmp_path / ".leadhand" / "leadhand.db")
    store.close_now()
    lock.release()
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_the_wait_for_an_engine(project, number):
    with project.start("run", "plan.json", "--json") as waits:
        assert "no process serves runs" in waits.stderr.readline()
        known = waits.stderr.readline().split()[1]
        waits.send_signal(number)
        done = finished(waits)
    assert done.code == 128 + number, done
    assert "no longer waiting" in done.err, done
    assert done.doc == {"run": known, "status": "queued"}
    assert f"leadhand cancel {done.doc['run']}" in done.err, done


def test_a_plan_with_steps_of_a_caller_is_refused(project):
    """A workflow hands nothing out; the step is named, and nothing was started."""
    project.plan({"id": "a", "worker": "say"}, {"id": "mine", "worker": "caller"})
    done = project.run("run", "plan.json", "--json")
    assert (done.code, "step mine: runs on Temporal hand out no steps" in done.err) == (2, True)
    assert project.run("ls", "--json").doc == []


IMPATIENT = """
import sys
from leadhand.temporal import run as temporal_run
temporal_run.BEGIN_WAIT_S = 1.0
from leadhand.cli.main import main
main(sys.argv[1:])
"""


def left(project) -> Done:
    """`leadhand run`, where a minute takes a second."""
    command = [sys.executable, "-c", IMPATIENT, "run", "plan.json", "--json"]
    more = {"cwd": project.path, "env": environment(project.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **more)
    return Done(done.returncode, done.stdout, done.stderr)


def queued(project) -> set[str]:
    rows = project.run("ls", "--status", "queued", "--json").doc
    return {row["run"] for row in rows}


def test_a_run_that_is_queued_has_not_failed_and_can_be_withdrawn(project):
    goes, stays = left(project), left(project)
    for done in (goes, stays):
        assert done.code == 8, done
        assert "it begins when an engine is there" in done.err, done
        assert f"leadhand cancel {done.doc['run']}" in done.err, done
    runs = {done.doc["run"] for done in (goes, stays)}
    project.until(lambda: queued(project) == runs, "both in the list")  # which is a moment late
    listed = project.run("ls")
    assert all(f"{run}  queued" in listed.out for run in runs), listed
    assert "no engine is there" in listed.err, listed
    withdrawn = project.run("cancel", goes.doc["run"], "--reason", "not now")
    assert withdrawn.code == 0, withdrawn
    assert "is withdrawn" in withdrawn.err, withdrawn
    again = project.run("cancel", goes.doc["run"])
    assert again.code == 2, again
    assert "there is no run" in again.err, again
    project.until(lambda: queued(project) == {stays.doc["run"]}, "it to be gone")
    with serving(project, "--engine"):
        project.until(lambda: not queued(project), "the start")
        watched = project.run("watch", stays.doc["run"], "--exit-status")
        assert watched.code == 0, watched
    (row,) = project.run("ls", "--json").doc
    assert (row["run"], row["status"]) == (stays.doc["run"], "succeeded")


def test_a_log_that_no_engine_has_made_yet_is_said_and_a_server_that_is_away_first(
    tmp_path, temporal
):
    folder = Folder(tmp_path)
    folder.write("workers.py", WORKERS)
    folder.write("leadhand.toml", '[project]\nworkers = ["workers.py"]\n')
    folder.plan({"id": "a", "worker": "say"})
    away = f"127.0.0.1:{free_port()}"
    done = folder.run("run", "plan.json", "--temporal", away)
    assert (done.code, f"no Temporal server at {away}" in done.err) == (2, True), done
    done = folder.run("run", "plan.json", "--temporal", temporal.address)
    assert (done.code, "there is no log yet: an engine makes it" in done.err) == (2, True), done
    assert "leadhand worker --engine" in done.err
