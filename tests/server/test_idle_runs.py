"""Runs in which nothing happens do not stay in memory, and miss nothing."""

import datetime as dt
import time

import pytest

from leadhand.server import run_supervisor
from tests.support.serving import plan_of, project, served

LIMIT_S = 60


@pytest.fixture
def quick(monkeypatch):
    for name, value in {"SWEEP_S": 0.05, "IDLE_S": 0.1, "AHEAD_S": 1.0, "EARLY_S": 0.5}.items():
        monkeypatch.setattr(run_supervisor, name, value)


def until(condition, what):
    """Wait for something."""
    limit = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < limit, what
        time.sleep(0.05)
    return found


def asleep(server, *runs):
    """Whether none of these is in memory, and all are known to sleep."""
    host = server.up.app_state.host
    return all(run in host.asleep and run not in host.runs for run in runs)


def begun(client, *steps, **more):
    told = client.post("/runs", json={"plan": plan_of(*steps, **more)})
    assert told.status_code == 201, told.text
    return told.json()["run"]


def status(client, run):
    return client.get(f"/runs/{run}").json()["status"]


RISKY = ({"id": "a", "worker": "danger"}, {"id": "b", "worker": "say", "depends_on": ["a"]})


def approve(client, run):
    shown = client.get(f"/runs/{run}/review").json()
    told = client.post(f"/runs/{run}/review/approve", json={"digest": shown["binding"]})
    assert told.status_code == 200, told.text


def test_a_run_that_waits_for_a_person_sleeps_until_it_is_answered(tmp_path, quick):
    project(tmp_path)
    with served(tmp_path) as server, server.client() as client:
        runs = [begun(client, *RISKY) for _ in range(5)]
        until(lambda: asleep(server, *runs), "sleep")
        assert len(client.get("/inbox").json()["items"]) == 5
        rows = {row["run"]: row for row in client.get("/runs").json()["items"]}
        assert {(rows[run]["status"], bool(rows[run]["host"])) for run in runs} == {
            ("waiting", True)
        }
        approve(client, runs[2])
        until(lambda: status(client, runs[2]) == "succeeded", "the end")
        assert client.post(f"/runs/{runs[3]}/cancel", json={"reason": "x"}).status_code == 200
        until(lambda: status(client, runs[3]) == "cancelled", "the cancellation")
        until(lambda: asleep(server, runs[0], runs[1], runs[4]), "sleep again")
        told = client.get("/metrics").text
        assert told


def test_a_run_that_waits_for_its_time_is_taken_up_for_it(tmp_path, quick):
    """The timer of a run that is not in memory rings."""
    project(tmp_path)
    with served(tmp_path) as server, server.client() as client:
        at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=8)
        step = {"id": "late", "worker": "say", "not_before": at.isoformat()}
        run = begun(client, {"id": "first", "worker": "say"}, step)
        until(lambda: asleep(server, run), "sleep")
        assert dt.datetime.now(dt.UTC) < at, "the machine is too slow for this test"
        until(lambda: status(client, run) == "succeeded", "the end")
        shown = client.get(f"/runs/{run}/steps/late").json()
        assert dt.datetime.fromisoformat(shown["started"]) >= at


def test_a_default_counts_though_its_run_sleeps(tmp_path, quick):
    """A question that nobody answers in time, of a run that is not in memory."""
    project(tmp_path)
    file = tmp_path / "workers.py"
    words = 'editor = Human("editor", "Who?", timeout="8s", default="me")'
    file.write_text(f"{file.read_text()}\n\nfrom leadhand import Human\n\n{words}\n")
    with served(tmp_path) as server, server.client() as client:
        run = begun(client, {"id": "ask", "worker": "editor"})
        until(lambda: asleep(server, run), "sleep")
        until(lambda: status(client, run) == "succeeded", "the end")
        assert client.get(f"/runs/{run}").json()["result"] == "me"


def test_the_next_server_lets_them_sleep_too(tmp_path, quick):
    """And goes on with what is answered there."""
    project(tmp_path)
    with served(tmp_path) as server, server.client() as client:
        runs = [begun(client, *RISKY) for _ in range(3)]
    with served(tmp_path) as server, server.client() as client:
        until(lambda: asleep(server, *runs), "sleep")
        approve(client, runs[0])
        until(lambda: status(client, runs[0]) == "succeeded", "the end")
    with served(tmp_path) as server, server.client() as client:
        assert status(client, runs[0]) == "succeeded"
        assert status(client, runs[1]) == "waiting"


def test_what_is_at_work_stays(tmp_path, quick):
    project(tmp_path)
    with served(tmp_path) as server, server.client() as client:
        nap = {"id": "nap", "worker": "nap", "parameters": {"seconds": 1.5}}
        run = begun(client, nap)
        host = server.up.app_state.host
        until(lambda: host.runs[run].tasks, "the nap")
        for _ in range(10):
            assert run not in host.asleep
            time.sleep(0.05)
        until(lambda: status(client, run) == "succeeded", "the end")


def test_a_paused_run_sleeps_and_goes_on(tmp_path, quick):
    project(tmp_path)
    with served(tmp_path) as server, server.client() as client:
        steps = [{"id": "nap", "worker": "nap", "parameters": {"seconds": 0.5}}]
        run = begun(client, *steps, {"id": "b", "worker": "say", "depends_on": ["nap"]})
        assert client.post(f"/runs/{run}/pause", json={"reason": ""}).status_code == 200
        until(lambda: asleep(server, run), "sleep")
        assert status(client, run) == "paused"
        assert client.post(f"/runs/{run}/resume", json={"reason": ""}).status_code == 200
        until(lambda: status(client, run) == "succeeded", "the end")
