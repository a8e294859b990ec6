"""The plan gate: an agent proposes steps that it carries out itself, with no worker code."""

import pytest

from tests.support.cli import Folder

PLAN = """\
goal: Add a greeting to the program
steps:
  - id: write
    worker: caller
    description: Write greeting.txt
    success_criteria: [data.file == "greeting.txt", data.words >= 2]
  - id: check
    worker: caller
    depends_on: [write]
    parameters: {file: "${{ steps.write.data.file }}"}
    success_criteria: data.ok
"""


@pytest.fixture
def bare(tmp_path):
    """A folder with a plan, and nothing else: no settings, no workers, no service."""
    folder = Folder(tmp_path)
    folder.write("plan.yaml", PLAN)
    return folder


def bot(folder, *words):
    """What an agent runs in its shell; its answer as a document."""
    return folder.run("step", *words, "--caller", "bot", "--json")


def test_the_pattern_works_with_no_worker_code_at_all(bare):
    """Proposed, approved by a person, handed out one at a time, verified, and in the log."""
    assert bare.run("lint", "plan.yaml").code == 0
    started = bare.run("run", "plan.yaml", "--review", "--json")
    run = started.doc["run"]
    assert started.code == 5
    early = bot(bare, "next", run)
    assert (early.code, early.doc["awaiting"], early.doc.get("step")) == (5, "approval", None)
    assert bare.run("review", run, "approve").code == 0
    step = bot(bare, "next", run).doc["step"]
    assert (step["id"], step["attempt"], step["description"]) == ("write", 1, "Write greeting.txt")
    shown = bare.run("show", run)
    assert "with agent:bot until" in shown.out
    assert "in flight when the host ended" not in shown.out
    assert f"leadhand step next {run} --caller NAME" in str(shown)
    report = ("report", run, "write", "--attempt", "1")
    good = bot(bare, *report, "--data", '{"file": "greeting.txt", "words": 2}')
    assert (good.code, good.doc["met"], good.doc["awaiting"]) == (0, True, "caller")
    assert bot(bare, *report, "--data", '{"file": "greeting.txt", "words": 2}').doc["repeated"]
    other = bot(bare, *report, "--data", '{"file": "x"}')
    assert (other.code, "The first report counts" in other.err) == (7, True)
    last = bot(bare, "next", run).doc["step"]
    assert (last["id"], last["parameters"]) == ("check", {"file": "greeting.txt"})
    done = bot(bare, "report", run, "check", "--attempt", "1", "--data", '{"ok": true}')
    assert (done.code, done.doc["status"]) == (0, "succeeded")
    assert bot(bare, "next", run).doc["status"] == "succeeded"
    assert bare.run("verify", run).code == 0
    logged = bare.run("logs", run).out
    assert "write: attempt 1 handed out to agent:bot" in logged
    assert "write: attempt 1 reported as done, and no check failed" in logged


def test_what_an_agent_says_is_not_enough(bare):
    """A success that does not meet its criteria is a failure, and a person is asked."""
    run = bare.run("run", "plan.yaml", "--json").doc["run"]
    text = bare.run("step", "next", run)
    assert "Checked: data.words >= 2" in str(text)
    assert f"leadhand step report {run} write --attempt 1 --caller shell" in str(text)
    bad = bare.run("step", "report", run, "write", "--attempt", "1", "--data", '{"words": 9}')
    assert (bad.code, "not verified" in str(bad)) == (1, True)
    assert "leadhand inbox" in str(bad)
    assert bare.run("answer", run, "retry").code == 0
    again = bot(bare, "next", run).doc["step"]
    assert (again["attempt"], again["failures"][0]["class"]) == (2, "criteria_unmet")
    lease = bot(bare, "extend", run, "write", "--attempt", "2", "--lease", "1h")
    assert lease.doc["deadline"] > again["deadline"]
    stale = bare.run("step", "report", run, "write", "--attempt", "1", "--data", '{"words": 1}')
    assert (stale.code, "reported already" in stale.err) == (7, True)
    failed = bot(bare, "report", run, "write", "--attempt", "2", "--status", "failed", "--error",
                 "no disk", "--class", "permanent", "--effect", "none")  # fmt: skip
    assert (failed.code, failed.doc["met"], failed.doc["awaiting"]) == (0, False, "input")


def test_the_steps_of_other_workers_are_done_on_the_way(bare):
    """Without a service the command that reports drives the rest of the plan, too."""
    code = "from leadhand import worker\n\n\n@worker\ndef double(n: int) -> int:\n"
    bare.write("workers.py", f"{code}    return 2 * n\n")
    mine = {"id": "a", "worker": "caller"}
    twice = {"id": "b", "worker": "double", "parameters": {"n": "${{ steps.a.data }}"}}
    plan = bare.plan(mine, twice, {"id": "c", "worker": "caller", "depends_on": ["b"]})
    run = bare.run("run", plan, "--workers", "workers.py", "--json").doc["run"]
    assert bot(bare, "next", run).doc["step"]["id"] == "a"
    told = bot(bare, "report", run, "a", "--attempt", "1", "--data", "4")
    assert told.doc["met"]
    assert bot(bare, "next", run).doc["step"]["id"] == "c"
    steps = bare.run("show", run, "--json").doc["steps"]
    assert {each["id"]: each["status"] for each in steps}["b"] == "succeeded"
