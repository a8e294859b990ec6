"""Leadhand on Temporal as people run it: an engine, machines, and the command line, in processes.

Machines are told to stop, killed, and left without their server. What a frozen one may do is in
`test_expired_lease.py`, a restart of everything in `test_serve.py`.
"""

import contextlib
import json
import signal
import time
import urllib.error
import urllib.request
import uuid

import pytest

from leadhand.temporal.commands import AWAY, AWAY_S
from tests.support.cli import WORKERS, Folder, finished
from tests.support.temporal import Server, free_port

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def project(tmp_path, temporal):
    folder = Folder(tmp_path)
    folder.write("workers.py", WORKERS)
    configure(folder, temporal.address)
    return folder


def configure(folder: Folder, address: str, more: str = "") -> None:
    folder.write(
        "leadhand.toml",
        f'[project]\nworkers = ["workers.py"]\n[temporal]\naddress = "{address}"\n'
        f'prefix = "p{uuid.uuid4().hex[:8]}"\nheartbeat = "2 s"\n{more}',
    )


@contextlib.contextmanager
def serving(folder: Folder, *args: str):
    """A `leadhand worker`, ready."""
    port = free_port()
    with folder.start("worker", *args, "--health", str(port)) as child:
        folder.until(lambda: answer(port, "readyz") == 200 or child.poll(), "a worker", 60)
        assert child.poll() is None, child.communicate()
        child.port = port
        yield child


def answer(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as got:
            return got.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def events(folder: Folder, run: str) -> list[str]:
    done = folder.run("logs", run, "--json")
    return [json.loads(line)["text"] for line in done.out.splitlines()]


def test_the_command_line_does_on_temporal_what_it_does_alone(project):
    project.plan(
        {"id": "a", "worker": "say", "parameters": {"text": "one"}},
        {"id": "b", "worker": "danger", "depends_on": ["a"]},
        name="risky.json",
    )
    with serving(project, "--engine-only"), serving(project, "--kinds", "say,danger"):
        seen = project.run("doctor").out
        assert "worker say" in seen
        assert "leadhand worker --kinds nap" in seen  # nobody serves it
        waits = project.run("run", "risky.json", "--json")
        assert waits.code == 5, waits
        run = waits.doc["run"]
        assert [row["run"] for row in project.run("inbox", "--json").doc] == [run]
        assert "danger" in project.run("review", run).out
        approved = project.run("review", run, "approve", "--yes")
        assert approved.code == 0, approved
        watched = project.run("watch", run, "--exit-status")
        assert watched.code == 0, watched
        shown = project.run("show", run, "--json").doc
        assert {step["id"]: step["status"] for step in shown["steps"]} == {
            "a": "succeeded",
            "b": "succeeded",
        }
        assert project.run("pause", run).code == 7  # it has ended
        broken = project.run("run", project.plan({"id": "x", "worker": "nobody"}))
        assert broken.code == 3
    assert project.run("verify", "--all").code == 0


def test_no_later_revision_brings_in_steps_of_a_caller(project):
    """An amendment is refused in the words of the start, as worker, alternative and undo."""
    project.plan({"id": "a", "worker": "danger"})
    words = "runs on Temporal hand out no steps to callers"
    with serving(project, "--engine-only"):
        run = project.run("run", "plan.json", "--json").doc["run"]
        changes = ("worker=caller", 'alternatives=["caller"]', 'undo={"worker": "caller"}')
        for change in changes:
            done = project.run("review", run, "amend", "--set", f"steps.a.{change}")
            assert (done.code, words in done.err) == (3, True), done
            assert "without [temporal] in the settings" in done.err, done
        assert project.run("inbox", "--json").doc[0]["run"] == run
        assert project.run("cancel", run).code == 0


def test_a_worker_drains_when_it_is_told_to_stop(project):
    plan = project.plan({"id": "a", "worker": "nap", "parameters": {"seconds": 3}})
    with serving(project, "--engine-only"), serving(project, "--kinds", "nap") as machine:
        assert answer(machine.port, "livez") == 200
        assert answer(machine.port, "anything") == 404
        with project.start("run", plan, "--json") as running:
            project.until(lambda: project.lines("naps.txt"), "the nap")
            machine.send_signal(signal.SIGTERM)
            project.until(lambda: answer(machine.port, "readyz") == 503, "draining", 3)
            assert finished(machine).code == 143
            assert finished(running).code == 0
    assert project.lines("naps.txt") == 1


def test_a_machine_takes_no_more_at_once_than_it_was_told_to(project):
    steps = [{"id": f"n{n}", "worker": "nap", "parameters": {"seconds": 1}} for n in range(4)]
    plan = project.plan(*steps)
    with serving(project, "--engine-only"), serving(project, "--concurrency", "1"):
        began = time.monotonic()
        done = project.run("run", plan, "--json")
        assert done.code == 0, done
        assert time.monotonic() - began >= 4
    assert project.lines("naps.txt") == 4


def test_a_machine_without_its_server_is_alive_and_not_ready(tmp_path, temporal):
    folder, server = Folder(tmp_path), Server(tmp_path / "temporal.db")
    folder.write("workers.py", WORKERS)
    server.start()
    configure(folder, server.address)
    try:
        with serving(folder, "--engine") as machine:
            server.stop()
            folder.until(lambda: answer(machine.port, "readyz") == 503, "that it is missed", 60)
            assert answer(machine.port, "livez") == 200
            server.start()
            folder.until(lambda: answer(machine.port, "readyz") == 200, "that it is back", 60)
            time.sleep(2 * AWAY_S)
            machine.send_signal(signal.SIGTERM)
            said = finished(machine).err.splitlines()
    finally:
        server.stop()
    told = [line for line in said if "Temporal server" in line]
    assert told == [f"the Temporal server {AWAY}", "the Temporal server answers again"]
    assert not [line for line in said if "temporalio" in line], said


def test_a_machine_that_is_killed_is_noticed_and_what_may_be_repeated_is(project):
    plan = project.plan({"id": "a", "worker": "nap", "parameters": {"seconds": 4}})
    with serving(project, "--engine-only"), serving(project, "--kinds", "nap") as first:
        with project.start("run", plan, "--json") as running:
            project.until(lambda: project.lines("naps.txt"), "the nap")
            first.kill()
            with serving(project, "--kinds", "nap"):
                done = finished(running)
        assert done.code == 0, done
        assert project.lines("naps.txt") == 2
        told = events(project, json.loads(done.out)["run"])
        assert any("fell silent" in each for each in told), told
    assert project.run("verify", "--all").code == 0


def test_what_must_not_be_repeated_is_asked_about_when_its_machine_is_killed(project):
    plan = project.plan({"id": "a", "worker": "once", "parameters": {"seconds": 60}})
    with serving(project, "--engine-only"), serving(project, "--kinds", "once") as first:
        with project.start("run", plan, "--json") as running:
            project.until(lambda: project.lines("once.txt"), "the step")
            first.kill()
            assert finished(running).code == 5
        rows = project.run("inbox", "--json").doc
        assert [row["kind"] for row in rows] == ["unseen"]
        assert project.run("answer", rows[0]["id"], "done").code == 0
        assert project.run("watch", rows[0]["run"], "--exit-status").code == 0
    assert project.lines("once.txt") == 1
