"""Over HTTP: running a run again, its export, and the verification of its log."""

import pytest

from leadhand.server.routes import audit
from tests.support.cli import Folder
from tests.support.serving import ended, plan_of, project, served

FLAKY = """

@worker(name="gated", risk="high", effects=["cluster"])
async def gated(text: str) -> str:
    if not (HERE / "mended").exists():
        raise Permanent("the cluster is full")
    return f"deployed {text}"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rerun")
    project(folder)
    text = (folder / "workers.py").read_text()
    (folder / "workers.py").write_text(text + FLAKY)
    with served(folder) as up:
        up.folder = folder
        yield up


GATED = plan_of(
    {"id": "say", "worker": "say", "parameters": {"text": "v7"}},
    {
        "id": "deploy",
        "worker": "gated",
        "parameters": {"text": "${{ steps.say.data }}"},
        "failure_action": "abort",
    },
)


def approve(client, run):
    binding = client.get(f"/runs/{run}/review").json()["binding"]
    assert client.post(f"/runs/{run}/review/approve", json={"digest": binding}).status_code == 200
    return ended(client, run)


@pytest.fixture(scope="module")
def failed(server):
    """A run whose deployment was approved and failed; the cluster is mended since."""
    (server.folder / "mended").unlink(missing_ok=True)
    with server.client() as client:
        run = client.post("/runs", json={"plan": GATED}).json()["run"]
        ended(client, run)
        assert approve(client, run)["status"] == "failed"
    (server.folder / "mended").touch()
    return run


def test_a_rerun_from_a_failed_step_asks_for_approval_again(server, failed):
    """It is a new run that names the first, and what it took over."""
    with server.client("operator") as operator, server.client() as client:
        body = {"from_step": "deploy", "labels": ["team=shop"]}
        begun = operator.post(f"/runs/{failed}/rerun", json=body)
        assert begun.status_code == 201, begun.text
        run = begun.json()["run"]
        assert begun.headers["location"] == f"/api/v1/runs/{run}"
        waits = ended(client, run)
        assert (waits["status"], waits["awaiting"]) == ("waiting", "approval")
        done = approve(client, run)
        assert (done["status"], done["result"]) == ("succeeded", "deployed v7")
        assert [step["id"] for step in done["steps"]] == ["deploy"]
        plan = done["plan"]
        assert (plan["rerun_of"], plan["rerun_from"]) == (failed, "deploy")
        assert plan["carried"]["say"]["run"] == failed
        line = client.get(f"/runs/{run}/ledger").json()["items"][0]["text"]
        assert f"it repeats run {failed} from step deploy" in line
        listed = client.get("/runs", params={"label": f"rerun_of={failed}"}).json()["items"]
        assert listed[0]["labels"] == [f"rerun_of={failed}", "team=shop"]
        assert [row["run"] for row in listed] == [run], "the first run leads to its re-runs"


def test_two_runs_are_compared(server, failed):
    """A run and its re-run: outcome, what was taken over, the plan by meaning, each step."""
    with server.client() as client, server.client("viewer") as viewer:
        run = client.post(f"/runs/{failed}/rerun", json={"from_step": "deploy"}).json()["run"]
        ended(client, run)
        approve(client, run)
        doc = viewer.get(f"/runs/{failed}/compare/{run}").json()
        assert [doc[side]["status"] for side in "ab"] == ["failed", "succeeded"]
        assert (doc["b"]["rerun_of"], doc["same_result"]) == (failed, None)
        assert doc["inputs"] == [{"name": "result_say", "a": None, "b": "v7"}]
        steps = {step["id"]: step for step in doc["steps"]}
        assert (steps["say"]["a"]["status"], steps["say"]["b"]["status"]) == (
            "succeeded",
            "taken_over",
        )
        assert steps["deploy"]["differs"]
        assert "the cluster is full" in steps["deploy"]["a"]["error"]
        assert any(line.startswith("- steps.say") for line in doc["difference"])
        same = viewer.get(f"/runs/{run}/compare/{run}").json()
        assert (same["changes"], same["steps_different"], same["same_result"]) == ([], 0, True)
        assert viewer.get(f"/runs/{run}/compare/nowhere").status_code == 404


def test_a_key_starts_one_rerun(server, failed):
    """Also one without a body beside an empty object; another body is refused."""
    with server.client() as client:
        key = {"Idempotency-Key": "again-1"}
        path = f"/runs/{failed}/rerun"
        first, second = (client.post(path, json={}, headers=key) for _ in range(2))
        assert first.json()["run"] == second.json()["run"]
        other = client.post(path, json={"from_step": "deploy"}, headers=key)
        assert other.status_code == 422


def test_what_cannot_be_run_again_is_refused(server, failed):
    """By people without the role too; nothing is started."""
    with server.client() as client, server.client("viewer") as viewer:
        for verb in ("rerun", "export", "verify"):
            assert viewer.post(f"/runs/{failed}/{verb}", json={}).status_code == 403
            assert client.post(f"/runs/nowhere/{verb}", json={}).status_code == 404
            assert client.post(f"/runs/{failed}/{verb}", json={"x": 1}).status_code == 422
        wrong = client.post(f"/runs/{failed}/rerun", json={"from_step": "deplyo"})
        assert (wrong.status_code, wrong.json()["fix"]) == (422, 'did you mean "deploy"?')
        waits = client.post("/runs", json={"plan": GATED}).json()["run"]
        assert ended(client, waits)["status"] == "waiting"
        early = client.post(f"/runs/{waits}/rerun", json={})
        assert (early.status_code, "end it before" in early.json()["fix"]) == (409, True)


def test_an_export_is_a_download_that_verifies_offline(server, failed, tmp_path):
    """Without the database, by the command line."""
    with server.client() as client:
        got = client.post(f"/runs/{failed}/export", json={})
    assert got.headers["content-type"] == "application/zip"
    assert got.headers["content-disposition"] == f'attachment; filename="run-{failed}.zip"'
    (tmp_path / "run.zip").write_bytes(got.content)
    told = Folder(tmp_path).run("verify", "run.zip", "--json")
    assert (told.code, told.doc["run"]) == (0, failed), str(told)


def test_a_verification_is_the_document_of_the_command_line(server, failed):
    """For one run, with what cannot be shown."""
    with server.client() as client:
        doc = client.post(f"/runs/{failed}/verify", json={}).json()
    assert (doc["valid"], doc["runs"], doc["violations"]) == (True, 1, [])
    told = Folder(server.folder).run("verify", failed, "--json").doc
    assert {key: told[key] for key in ("valid", "runs", "entries")} == {
        key: doc[key] for key in ("valid", "runs", "entries")
    }


def test_evidence_is_bounded(server, failed, monkeypatch):
    """By the length of the log, and by the requests that wait."""
    with server.client() as client:
        monkeypatch.setattr(audit, "ENTRIES_MAX", 3)
        assert client.post(f"/runs/{failed}/verify", json={}).status_code == 413
        monkeypatch.undo()
        monkeypatch.setattr(audit, "WAITING_MAX", 0)
        assert client.post(f"/runs/{failed}/export", json={}).status_code == 503
