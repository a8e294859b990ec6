"""`leadhand serve` with Temporal behind it and the log in PostgreSQL: the page's API, unchanged."""

import os
import signal

import pytest

from leadhand.settings import load_settings
from leadhand.stores.location import home
from tests.support.cli import Folder
from tests.support.postgres import serving as database
from tests.support.serving import ended, plan_of, process, project, sse
from tests.support.temporal import Server
from tests.temporal.test_processes import serving

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def distributed(tmp_path, temporal, postgres):
    """A folder whose runs Temporal hosts; a machine for its steps, and a server."""
    configured(tmp_path, postgres.new(tmp_path).secret, temporal.address)
    return tmp_path


def configured(path, store, address):
    more = f'store = "{store}"\n[temporal]\naddress = "{address}"\n'
    more += f'prefix = "s{os.getpid()}-{path.name[-12:]}"\nheartbeat = "2 s"\n'
    project(path, more)


def up(path):
    settings = load_settings(environ={"HOME": str(path)}, folder=path)
    return process(path, "--port", "0", store=home(settings.store))


def test_all_that_the_page_does_goes_to_temporal(distributed):
    folder, server = Folder(distributed), up(distributed)
    risky = plan_of({"id": "a", "worker": "danger"}, {"id": "b", "worker": "say"})
    try:
        with serving(folder), server.client() as client:
            run = client.post("/runs", json={"plan": risky}).json()["run"]
            assert ended(client, run)["status"] == "waiting"
            seen = client.get(f"/runs/{run}/review").json()
            wrong = client.post(f"/runs/{run}/review/approve", json={"digest": "0" * 64})
            assert wrong.status_code == 409, wrong.text
            done = client.post(f"/runs/{run}/review/approve", json={"digest": seen["binding"]})
            assert done.status_code == 200, done.text
            assert ended(client, run)["status"] == "succeeded"
            streamed(client, run)

            again = client.post(f"/runs/{run}/rerun", json={"from_step": "b"})
            assert again.status_code == 201, again.text
            assert ended(client, again.json()["run"])["status"] == "succeeded"
            checked = client.post(f"/runs/{again.json()['run']}/verify", json={}).json()
            assert checked["violations"] == []
            assert "histories" not in str(checked["cannot_be_shown"])

            asked = client.post(
                "/runs",
                json={
                    "plan": plan_of({"id": "x", "worker": "broken", "failure_action": "escalate"})
                },
            ).json()["run"]
            assert ended(client, asked)["status"] == "waiting"
            item = next(i for i in client.get("/inbox").json()["items"] if i["run"] == asked)
            question = item["id"].partition("/")[2]
            answer = client.post(f"/inbox/{asked}/{question}/answer", json={"choice": "skip"})
            assert answer.status_code == 200, answer.text
            assert ended(client, asked)["status"] in ("succeeded", "failed")

            nap = {"id": "n", "worker": "nap", "parameters": {"seconds": 30}}
            long = client.post("/runs", json={"plan": plan_of(nap)}).json()["run"]
            assert client.post(f"/runs/{long}/pause", json={}).json()["status"] == "paused"
            assert client.post(f"/runs/{long}/resume", json={}).status_code == 200
            assert client.post(f"/runs/{long}/cancel", json={"reason": "late"}).status_code == 200
            assert ended(client, long)["status"] == "cancelled"
            assert client.post(f"/runs/{long}/cancel", json={}).status_code == 409

            assert client.post("/stop-all", json={"reason": "fire"}).json()["stopped"] is True
            assert client.get("/session").json()["stopped"] is True
            assert client.post("/runs", json={"plan": risky}).status_code == 403
            assert client.delete("/stop-all").json()["stopped"] is False
        assert folder.run("verify", "--all").code == 0
    finally:
        assert server.stop() == 143


def streamed(client, run):
    """The stream tells a run from its first event to its last."""
    seqs = []
    with client.stream("GET", "/events", params={"after": 0}, timeout=120) as response:
        for _position, kind, data in sse(response.iter_lines()):
            if data["run"] == run:
                seqs.append(data["seq"])
                if kind == "RunEnded":
                    break
    assert seqs == list(range(1, len(seqs) + 1))


def test_a_run_goes_on_while_the_server_is_away(distributed):
    """The next server takes up what the last one left; a rollback that was wanted is begun."""
    folder, server = Folder(distributed), up(distributed)
    nap = {"id": "n", "worker": "nap", "parameters": {"seconds": 2}}
    bad = {"id": "b", "worker": "broken", "depends_on": ["n"], "failure_action": "rollback"}
    nap["undo"] = {"worker": "say", "parameters": {"text": "undone"}}
    try:
        with serving(folder):
            with server.client() as client:
                run = client.post("/runs", json={"plan": plan_of(nap, bad)}).json()["run"]
                folder.until(lambda: folder.lines("naps.txt"), "the nap")
            server.stop(signal.SIGKILL)
            server = up(distributed)
            with server.client() as client:
                assert ended(client, run)["status"] == "failed"
                folder.until(lambda: len(client.get("/runs").json()["items"]) == 2, "the rollback")
                (back,) = {each["run"] for each in client.get("/runs").json()["items"]} - {run}
                assert ended(client, back)["status"] == "succeeded"
        assert folder.lines("naps.txt") == 1
        assert folder.run("verify", "--all").code == 0
    finally:
        server.stop()


def test_a_run_waits_for_an_approval_while_everything_is_restarted(
    tmp_path, temporal, postgres_programs
):
    """Temporal, PostgreSQL, the machine and the Leadhand server: all end, and all begin again."""
    folder = Folder(tmp_path)
    later = {"id": "b", "worker": "danger", "depends_on": ["a"]}
    plan = plan_of({"id": "a", "worker": "once"}, later)
    engine = Server(tmp_path / "temporal.db")
    engine.start()
    with database(postgres_programs, sync=True) as base:
        configured(tmp_path, base.new(tmp_path).secret, engine.address)
        front = up(tmp_path)
        try:
            with serving(folder), front.client() as client:
                run = client.post("/runs", json={"plan": plan}).json()["run"]
                assert ended(client, run)["status"] == "waiting"
            front.stop(signal.SIGKILL)
            engine.stop()
            base.kill()
            base.start()
            engine.start()
            front = up(tmp_path)
            with serving(folder), front.client() as client:
                shown = client.get(f"/runs/{run}/review").json()
                said = client.post(f"/runs/{run}/review/approve", json={"digest": shown["binding"]})
                assert said.status_code == 200, said.text
                assert ended(client, run, 60)["status"] == "succeeded"
            assert folder.lines("once.txt") == 1
            assert folder.run("verify", "--all").code == 0
        finally:
            front.stop()
            engine.stop()
