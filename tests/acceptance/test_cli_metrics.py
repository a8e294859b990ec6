"""`leadhand metrics` and what `leadhand show RUN` says of recovery and time."""

import sqlite3

from tests.support.cli import Folder

WORKERS = """
from leadhand import Context, Permanent, Transient, Unavailable, worker

@worker(idempotent=True)
def shaky(context: Context) -> str:
    if context.attempt == 1:
        raise Transient("busy")
    return "ok"

@worker
def gone() -> str:
    raise Unavailable("gone")

@worker
def there() -> str:
    return "here"

@worker
def never() -> str:
    raise Permanent("no")
"""

GOOD = """
steps:
  - {id: shake, worker: shaky, retry: {attempts: 2, backoff: 0.05}}
  - {id: find, worker: gone, alternatives: [there]}
"""
BAD = "steps: [{id: no, worker: never, failure_action: abort}]"


def test_recovery_is_shown_and_counted(tmp_path):
    """One run that recovers twice, one that fails: in `show`, in `--json`, in `metrics`."""
    folder = Folder(tmp_path)
    folder.write("workers.py", WORKERS)
    folder.write("good.yaml", GOOD)
    folder.write("bad.yaml", BAD)
    assert folder.run("run", "good.yaml", "--workers", "workers.py").code == 0
    run = folder.latest()["run"]
    assert folder.run("run", "bad.yaml", "--workers", "workers.py").code == 1

    shown = folder.run("show", run, "--timeline")
    assert "Recovery:" in shown.out
    assert "transient    retry with shaky    won" in shown.out
    assert "unavailable  reroute with there  won" in shown.out
    assert "Timeline:" in shown.out
    assert "2 attempts" in shown.out
    doc = folder.run("show", run, "--timeline", "--json").doc
    assert [each["won"] for each in doc["recovery"]["answers"]] == [True, True]
    assert {row["rate"] for row in doc["recovery"]["rates"]} == {1.0}
    made = [each["outcome"] for each in doc["timeline"] if each["kind"] == "attempt"]
    assert [each["kind"] for each in doc["timeline"] if each["kind"] != "attempt"] == ["retry"]
    assert sorted(made) == [
        "transient",
        "unavailable",
        "verified",
        "verified",
    ]

    told = folder.run("metrics")
    assert told.code == 0, told
    assert "1 failed, 1 succeeded" in told.out
    assert "2 of 3 steps that failed  67 %" in told.out
    doc = folder.run("metrics", "--json").doc
    assert doc["runs"] == {"failed": 1, "succeeded": 1}
    assert (doc["attempts"], doc["steps_tried"], doc["first_pass"]) == (5, 3, 0)
    assert [(row["class"], row["strategy"], row["won"]) for row in doc["recovery"]] == [
        ("permanent", "abort", 0),
        ("transient", "retry", 1),
        ("unavailable", "reroute", 1),
    ]
    assert doc["open_circuits"] == []


def test_open_circuits_are_listed(tmp_path):
    """A worker that asked to be left alone: until when stands in the host's stream."""
    folder = Folder(tmp_path)
    folder.write(
        "workers.py",
        "from leadhand import RateLimited, worker\n\n\n@worker(idempotent=True)\n"
        "def slow() -> str:\n    raise RateLimited('later', retry_after_s=3000)\n",
    )
    folder.write("plan.yaml", "steps: [{id: a, worker: slow, retry: 1}]")
    folder.run("run", "plan.yaml", "--workers", "workers.py", "--detach")
    try:
        found = folder.until(
            lambda: folder.run("metrics", "--json").doc["open_circuits"], "the circuit"
        )
        assert [row["worker"] for row in found] == ["slow"]
        assert "unavailable slow until" in folder.run("metrics").out
    finally:
        folder.run("cancel", folder.latest()["run"])
    assert folder.run("metrics", "--json").doc["attempts"] == 1


def test_no_runs_is_no_error(tmp_path):
    """A database that is not there is; an empty one is not."""
    assert Folder(tmp_path).run("metrics").code == 2


def test_a_given_plan_is_no_planner(tmp_path):
    """Nobody was asked; for a goal somebody was."""
    folder = Folder(tmp_path)
    code = (
        "from leadhand import worker\n\n@worker(gives='fact')\ndef find() -> int:\n    return 1\n"
    )
    folder.write("workers.py", code)
    folder.write("plan.yaml", "steps: [{id: a, worker: find}]")
    assert folder.run("run", "plan.yaml", "--workers", "workers.py").code == 0
    assert folder.run("metrics", "--json").doc["planner_calls"] == 0
    assert folder.run("run", "A fact", "--want", "fact", "--workers", "workers.py").code == 0
    assert folder.run("metrics", "--json").doc["planner_calls"] >= 1


def test_use_by_plan_and_worker_and_runs_by_label(tmp_path):
    """The same two runs in tables, and found again by label, actor and reason."""
    folder = Folder(tmp_path)
    folder.write("workers.py", WORKERS)
    folder.write("good.yaml", "plan_id: good\n" + GOOD)
    folder.write("bad.yaml", "plan_id: bad\n" + BAD)
    labels = ("--label", "nightly", "--label", "team=web")
    assert folder.run("run", "good.yaml", "--workers", "workers.py", *labels).code == 0
    assert folder.run("run", "bad.yaml", "--workers", "workers.py").code == 1

    shown = folder.run("metrics", "--by", "plan")
    assert "PLAN" in shown.out
    assert "total" in shown.out
    assert "good" in shown.out
    doc = folder.run("metrics", "--by", "worker", "--json").doc
    found = {row["name"]: (row["attempts"], row["failed"]) for row in doc["rows"]}
    assert found == {"shaky": (2, 1), "gone": (1, 1), "there": (1, 0), "never": (1, 1)}
    assert doc["total"]["recovered"] == 2
    for wrong in (("--from", "2026-01-01"), ("--by", "day", "--since", "7d"),
                  ("--by", "day", "--from", "soon")):  # fmt: skip
        assert folder.run("metrics", *wrong).code == 2, wrong

    for given in (("--label", "team=web"), ("--plan", "good"), ("-q", "GOOD"), ("--sort", "ended")):
        (row, *_) = folder.run("ls", *given, "--json").doc
        assert row["plan"] == "good", given
        assert row["labels"] == ["nightly", "team=web"]
    assert [row["plan"] for row in folder.run("ls", "--json").doc] == ["bad", "good"]
    assert "no runs like that" in folder.run("ls", "--label", "weekly").err
    assert folder.run("run", "good.yaml", "--workers", "workers.py", "--label", "a b").code == 2


def test_totals_that_were_changed_are_found_and_rebuilt(tmp_path):
    """`verify` names the wrong sum and the hidden run, and how to put both right."""
    folder = Folder(tmp_path)
    folder.write("workers.py", WORKERS)
    folder.write("bad.yaml", BAD)
    assert folder.run("run", "bad.yaml", "--workers", "workers.py").code == 1
    run = folder.latest()["run"]
    assert folder.run("verify", "--all").code == 0
    with sqlite3.connect(tmp_path / ".leadhand" / "leadhand.db") as database:
        database.execute("UPDATE totals SET n = n + 1 WHERE key = 'failed'")
        database.execute("UPDATE listed SET status = 'succeeded'")
    database.close()
    told = folder.run("verify", "--all")
    assert told.code == 1
    assert "the total failed of" in told.out
    assert f"{run} 0  list" in told.out
    assert "verify --all --rebuild" in told.out
    assert folder.run("verify", run, "--rebuild").code == 2
    assert folder.run("verify", "--all", "--rebuild").code == 0
    assert folder.run("verify", "--all").code == 0
    assert folder.run("metrics", "--json").doc["runs"] == {"failed": 1}
