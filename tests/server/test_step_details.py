"""A step in detail over the API: outcome, inputs, criteria, attempts, origin, model calls."""

import json
import shutil
from pathlib import Path

import pytest

from leadhand.models import call_record
from leadhand.server.accounts import digest_of
from tests.support.cli import Folder
from tests.support.serving import TOKENS, ended, plan_of, served

ROOT = Path(__file__).resolve().parents[2]
RIVALS = ROOT / "examples" / "competitors" / "with_models"


def begin(client, *steps, **more):
    found = client.post("/runs", json={"plan": plan_of(*steps, **more)})
    assert found.status_code == 201, found.text
    return found.json()["run"]


def step_of(client, run, step):
    found = client.get(f"/runs/{run}/steps/{step}")
    assert found.status_code == 200, found.text
    return found.json()


def inputs_of(client, run, step):
    return {row["name"]: row for row in step_of(client, run, step)["inputs"]}


def test_inputs_are_the_values_that_the_worker_got(server, monkeypatch):
    """Beside the expression; a secret by its name, a large one by its size and its own address."""
    monkeypatch.setenv("THE_KEY", "hunter2-correct-horse")
    steps = [
        {"id": "a", "worker": "say", "parameters": {"text": "pages with ${{ params.key }}"}},
        {"id": "b", "worker": "big", "parameters": {"size": 100_000}},
        {"id": "c", "worker": "say", "parameters": {"text": "${{ steps.b.data }}"}},
    ]
    with server.client("operator") as client:
        run = begin(client, *steps, params={"key": {"type": "secret", "env": "THE_KEY"}})
        assert ended(client, run)["status"] == "succeeded"
        text = inputs_of(client, run, "a")["text"]
        assert text["value"] == "pages with [secret:key]"
        assert text["expression"] == "pages with ${{ params.key }}"
        assert not text["later"]
        assert inputs_of(client, run, "b")["size"]["expression"] is None
        large = inputs_of(client, run, "c")["text"]
        assert (large["cut"], large["value"], large["bytes"]) == (True, None, 100_002)
        whole = client.get(f"/runs/{run}/steps/c/inputs/text")
        assert whole.json() == "x" * 100_000
        assert client.get(f"/runs/{run}/steps/a/inputs/text").json() == "pages with [secret:key]"
        assert client.get(f"/runs/{run}/steps/a/inputs/none").status_code == 404
    said = Folder(server.store.parent.parent).run("show", run, "c").out
    assert "input      text = (100,002 bytes, not shown)" in said
    assert "from ${{ steps.b.data }}" in said


def test_what_is_known_of_a_step_that_has_not_started(server):
    """Values that are known are shown; the others stay expressions, and are marked."""
    steps = [
        {"id": "a", "worker": "danger"},
        {"id": "b", "worker": "say", "parameters": {"text": "${{ params.x }}"}},
        {"id": "c", "worker": "say", "parameters": {"text": "${{ steps.b.data }} ${{ params.x }}"}},
    ]
    with server.client("operator") as client:
        params = {"x": {"type": "string", "default": "known"}}
        run = begin(client, *steps, params=params)
        shown = step_of(client, run, "b")
        assert shown["status"] == "proposed"
        assert shown["outcome"] == "Proposed in revision 1, which waits for approval."
        assert shown["inputs"][0]["value"] == "known"
        later = inputs_of(client, run, "c")["text"]
        assert (later["value"], later["later"]) == ("${{ steps.b.data }} known", True)
        assert client.get(f"/runs/{run}/steps/c/inputs/text").status_code == 404
        client.post(f"/runs/{run}/cancel", json={})


def test_criteria_say_how_each_was_judged(server):
    """Met, unmet with the finding, or not judged; and what decides each."""
    criteria = ["all_pass", "data.failed >= 0", "data.failed < 5"]
    step = {"worker": "tests", "success_criteria": criteria}
    with server.client("operator") as client:
        done = {}
        for failed in (0, 7):
            made = {**step, "id": "t", "parameters": {"failed": failed}, "failure_action": "abort"}
            run = begin(client, made)
            ended(client, run)
            done[failed] = step_of(client, run, "t")
        rows = {row["criterion"]: row for row in done[0]["criteria"]}
        assert {row["outcome"] for row in rows.values()} == {"met"}
        assert rows["all_pass"]["judged_by"] == "check of worker tests"
        assert rows["data.failed < 5"]["judged_by"] == "expression"
        assert rows["the result matches its schema"]["judged_by"] == "declared by worker tests"
        rows = {row["criterion"]: row for row in done[7]["criteria"]}
        assert rows["all_pass"]["outcome"] == rows["data.failed < 5"]["outcome"] == "unmet"
        assert rows["data.failed < 5"]["finding"] == "data.failed < 5 does not hold"
        assert rows["data.failed >= 0"]["outcome"] == "met"
        run = begin(client, {"id": "s", "worker": "broken", "success_criteria": ["data > 1"]})
        ended(client, run)
        rows = step_of(client, run, "s")["criteria"]
        assert [row["outcome"] for row in rows] == ["not judged"] * len(rows)


def test_outcome_attempts_and_origin(server):
    """One sentence; the pause before each attempt; the revision that added the step."""
    retry = {"attempts": 2, "backoff": 0.01}
    with server.client("operator") as client:
        step = {"id": "s", "worker": "shaky", "retry": retry, "failure_action": "abort"}
        run = begin(client, step)
        ended(client, run)
        shown = step_of(client, run, "s")
        assert shown["outcome"] == "Failed after 1 attempt (permanent)."
        assert shown["origin"] | {"approved_by": ""} == {
            "revision": 1,
            "author": "document",
            "reason": "",
            "approved_by": "",
            "replaces": {},
        }
        assert shown["attempts_made"][0]["recovery"]["delay"] >= 0
        fine = begin(client, {"id": "a", "worker": "say"})
        ended(client, fine)
        assert step_of(client, fine, "a")["outcome"].startswith("Succeeded in ")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A server on which the recorded session was run twice: without and with contents."""
    patch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("rivals") / "project"
    shutil.copytree(RIVALS, folder)
    own = (folder / "leadhand.toml").read_text()
    people = f'[server.people.ann]\nrole = "operator"\ntoken = "{digest_of(TOKENS["operator"])}"\n'
    (folder / "leadhand.toml").write_text(f"{own}\n[telemetry]\ncontents = true\n{people}")
    patch.setenv("LEADHAND_TAPE", str(folder / "tape.json"))
    patch.setattr(call_record._switch, "contents", False)
    goal = {"goal": {"text": "Compare the prices of Nordwind and Kestrel"}}
    try:
        with served(folder) as up, up.client("operator") as client:
            runs = {}
            for name, on in (("silent", False), ("told", True)):
                call_record.record_contents(on=on)
                started = client.post("/runs", json=goal)
                assert started.status_code == 201, started.text
                runs[name] = started.json()["run"]
                assert ended(client, runs[name])["status"] == "succeeded"
            yield client, runs
    finally:
        patch.undo()


def test_model_calls_have_their_figures(recorded):
    """Of a step, of the planner, and of the run, page by page."""
    client, runs = recorded
    base = f"/runs/{runs['silent']}/model-calls"
    rows = client.get(base).json()["items"]
    assert len(rows) == 10
    planner = client.get(base, params={"planner": True}).json()["items"]
    assert next(row["purpose"] for row in planner) == "planner call 1: the run started"
    of_step = client.get(base, params={"step": "research-a"}).json()["items"]
    assert of_step
    assert {row["purpose"] for row in of_step} == {"attempt 1"}
    assert all(row["input"] > 0 and row["output"] > 0 and row["cost"] > 0 for row in rows)
    first = client.get(base, params={"limit": 4}).json()
    rest = client.get(base, params={"cursor": first["next"]}).json()
    assert [*first["items"], *rest["items"]] == rows
    assert rest["next"] is None
    assert client.get(f"{base}/1").status_code == 404


def test_prompts_and_answers_where_they_are_recorded(recorded):
    """The log's own record, and nothing in its place where there is none."""
    client, runs = recorded
    silent = f"/runs/{runs['silent']}/model-calls"
    row = client.get(silent).json()["items"][0]
    assert row["recorded"] is False
    found = client.get(f"{silent}/{row['seq']}").json()
    assert (found["messages"], found["answer"]) == ([], None)
    told = f"/runs/{runs['told']}/model-calls"
    rows = client.get(told, params={"step": "research-a"}).json()["items"]
    assert all(row["recorded"] for row in rows)
    last = client.get(f"{told}/{rows[-1]['seq']}").json()
    roles = [message["role"] for message in last["messages"]]
    assert roles[:2] == ["system", "user"]
    assert {"assistant", "tool result"} <= {*roles}
    assert last["answer"]
    assert json.dumps(last).count("sk-") == 0
