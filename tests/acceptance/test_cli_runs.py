"""Runs through the real command line: results, failures, logs, proof."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import WORKERS, Folder, finished
from tests.support.need import need

SEED = Path(__file__).parent.parent / "support" / "seed_plan.json"

SEED_WORKERS = """\
from leadhand import worker

@worker(name="test-runner", action="run_tests",
        checks={"all_tests_pass": lambda data: data["failed"] == 0})
async def run_tests(test_suite: str, environment: str) -> dict[str, int]:
    return {"failed": FAILED}

@worker(name="db-manager", action="backup_database")
async def backup(database: str, backup_type: str) -> str:
    return f"{database}.{backup_type}"

@worker(name="k8s-deployer", action="deploy_service")
async def deploy(service: str, version: str, strategy: str) -> dict[str, str]:
    return {"service": service, "version": version}
"""


FILES = {"workers.py": WORKERS}


# --- the seed's plan -----------------------------------------------------------------------


def test_the_seeds_plan_runs_verbatim(tmp_path):
    folder = Folder(tmp_path)
    folder.write("w.py", SEED_WORKERS.replace("FAILED", "0"))
    done = folder.run("run", str(SEED), "--workers", "w.py", "--json")
    assert done.code == 0, done
    assert done.doc["status"] == "succeeded"
    assert [step["status"] for step in done.doc["steps"]] == ["succeeded"] * 3
    assert done.doc["result"] == {"service": "auth-service", "version": "v2.1.4"}
    assert done.doc["estimated_duration"] == 900
    assert "(planned 15m)" in done.err


def test_a_plan_that_is_called_like_an_epic_stays_in_the_projects_own_log(folder):
    """Epics are in their fleet's log; a plan's file is a file, whatever its name."""
    fleet = folder.path / ".leadhand" / "fleet" / "fleet.db"
    fleet.parent.mkdir(parents=True)
    fleet.touch()
    name = folder.plan({"id": "a", "worker": "say"}, name="epic-plan.json")
    assert folder.run("lint", name).code == 0
    assert folder.run("run", name).code == 0
    assert fleet.read_bytes() == b""
    assert (folder.path / ".leadhand" / "leadhand.db").exists()


def test_with_failing_tests_nothing_after_them_starts(tmp_path):
    """Must show 2: exit code 1, step-2 and step-3 never started, and the log says why."""
    folder = Folder(tmp_path)
    folder.write("w.py", SEED_WORKERS.replace("FAILED", "3"))
    done = folder.run("run", str(SEED), "--workers", "w.py", "--json")
    assert done.code == 1, done
    assert done.doc["status"] == "failed"
    rows = {step["id"]: step for step in done.doc["steps"]}
    assert rows["step-1"]["status"] == "failed"
    assert rows["step-1"]["error"]["class"] == "criteria_unmet"
    assert rows["step-2"]["attempts"] == rows["step-3"]["attempts"] == 0
    assert "all_tests_pass" in done.err
    log = folder.run("logs", done.doc["run"])
    assert "all_tests_pass" in log.out
    assert "abort" in log.out
    assert "step-2: attempt" not in log.out
    assert folder.run("verify", "--all").code == 0


# --- what is printed -----------------------------------------------------------------------

SHAPE = {"run", "status", "goal", "result", "steps", "cost", "duration"}
STEP_SHAPE = {"id", "status", "worker", "attempts", "error"}


def test_the_outcome_document(folder):
    folder.plan({"id": "a", "worker": "say"})
    doc = folder.run("run", "plan.json", "--json").doc
    assert doc.keys() >= SHAPE
    assert [set(step) for step in doc["steps"]] == [STEP_SHAPE]
    assert doc["goal"] == "a test"


def test_results_go_to_stdout_and_nothing_else_does(folder):
    """Texts as they are, structures as JSON; prints of workers and their children on stderr."""
    folder.plan({"id": "a", "worker": "say", "parameters": {"text": "two\nlines"}})
    assert folder.run("run", "plan.json").out == "two\nlines\n"
    folder.plan({"id": "a", "worker": "loud"})
    done = folder.run("run", "plan.json")
    assert json.loads(done.out) == {"answer": 42}
    assert folder.run("run", "plan.json", "--json").doc["result"] == {"answer": 42}


def test_what_a_step_printed_is_in_its_log(folder):
    folder.plan({"id": "a", "worker": "loud"})
    run = folder.run("run", "plan.json", "--json").doc["run"]
    done = folder.run("logs", run, "a")
    assert "    | noise of a worker" in done.out
    records = [json.loads(line) for line in folder.run("logs", run, "a", "--json").out.splitlines()]
    assert any("noise of a worker" in record.get("output", "") for record in records)


def test_large_results_come_back_whole(folder):
    folder.plan({"id": "a", "worker": "big", "parameters": {"size": 300_000}})
    assert len(folder.run("run", "plan.json").out) == 300_001
    run = folder.latest()["run"]
    assert len(folder.run("show", run, "--json").doc["result"]) == 300_000


def test_a_result_that_json_cannot_hold_is_a_failure_with_a_reason(folder):
    folder.plan({"id": "a", "worker": "unspeakable", "failure_action": "abort"})
    done = folder.run("run", "plan.json", "--json")
    assert done.code == 1, done
    assert done.doc["steps"][0]["error"]["class"] == "invalid_output"
    assert "set" in done.doc["steps"][0]["error"]["message"]


def test_quiet_is_quiet(folder):
    folder.plan({"id": "a", "worker": "say"})
    done = folder.run("run", "plan.json", "--quiet")
    assert done.out == "hello\n"
    assert done.err.startswith("succeeded after ")
    assert len(done.err.splitlines()) == 1


def test_failures_are_named_with_class_and_message(folder):
    folder.plan(
        {"id": "a", "worker": "broken", "failure_action": "continue"},
        {"id": "b", "worker": "say", "depends_on": ["a"]},
        {"id": "c", "worker": "say"},
    )
    done = folder.run("run", "plan.json")
    assert "a failed: permanent: it is broken" in done.err
    assert "never started: b" in done.err


# --- goals ---------------------------------------------------------------------------------

PLANNER = """\
from leadhand import Finish, Propose

def next_step(view):
    if "a" not in view.results:
        step = {"id": "a", "worker": "say", "parameters": {"text": view.goal.text}}
        return Propose([step], because="one at a time")
    return Finish(view.results["a"] + "!")
"""


def test_a_goal_is_pursued_by_a_planner(folder):
    folder.write("planning.py", PLANNER)
    dry = folder.run("run", "say it", "--planner", "planning:next_step", "--dry-run", "--json")
    assert [step["id"] for step in dry.doc["steps"]] == ["a"]
    done = folder.run("run", "say it", "--planner", "planning:next_step")
    assert done.code == 0, done
    assert done.out == "say it!\n"
    intent = folder.run("logs", folder.latest()["run"], "--intent").out
    assert "one at a time" in intent
    assert "execution" not in intent


# --- reading afterwards --------------------------------------------------------------------


def test_runs_are_listed_shown_and_found_by_prefix(folder):
    folder.plan({"id": "a", "worker": "say"}, {"id": "b", "worker": "say", "depends_on": ["a"]})
    first = folder.run("run", "plan.json", "--json").doc["run"]
    second = folder.run("run", "plan.json", "--json").doc["run"]
    rows = folder.run("ls", "--json").doc
    assert [row["run"] for row in rows] == [second, first]
    assert rows[0]["status"] == "succeeded"
    assert (rows[0]["steps"], rows[0]["settled"]) == (2, 2)
    assert folder.run("ls", "--status", "failed", "--json").doc == []
    short = next(first[:n] for n in range(1, 13) if not second.startswith(first[:n]))
    shown = folder.run("show", short, "--json").doc
    assert shown["run"] == first
    assert shown["steps"][1]["started"] >= shown["steps"][0]["ended"]
    assert "succeeded" in folder.run("show", short).out
    assert "a: say [succeeded]" in folder.run("show", short, "--graph").out
    unknown = folder.run("show", "0000")
    assert unknown.code == 2
    assert "there is no run 0000" in unknown.err


def test_logs_have_two_ledgers(folder):
    folder.plan({"id": "a", "worker": "say"}, {"id": "b", "worker": "say"})
    run = folder.run("run", "plan.json", "--json").doc["run"]
    everything = folder.run("logs", run).out.splitlines()
    intent = folder.run("logs", run, "--intent").out.splitlines()
    execution = folder.run("logs", run, "--execution").out.splitlines()
    assert sorted(intent + execution) == sorted(everything)
    assert all(line.split()[1] == "intent" for line in intent)
    only = folder.run("logs", run, "a").out.splitlines()
    assert only
    assert all(" a: " in line for line in only)
    records = [json.loads(line) for line in folder.run("logs", run, "--json").out.splitlines()]
    assert [record["seq"] for record in records] == list(range(1, len(everything) + 1))
    missing = folder.run("logs", run, "zzz")
    assert missing.code == 2
    assert "Its steps: a, b" in missing.err


def test_watch_a_run_that_is_over(folder):
    folder.plan({"id": "a", "worker": "broken", "failure_action": "abort"})
    run = folder.run("run", "plan.json", "--json").doc["run"]
    assert folder.run("watch", run).code == 0
    done = folder.run("watch", run, "--exit-status")
    assert done.code == 1, done
    assert "it is broken" in done.err
    *events, outcome = [json.loads(line) for line in folder.run("watch", "--json").out.splitlines()]
    assert {event["type"] for event in events} == {"event"}
    assert outcome["type"] == "outcome"
    assert outcome["run"] == run


def test_verify_finds_a_changed_log(folder):
    """One byte of one event, changed behind our back."""
    folder.plan({"id": "a", "worker": "say"})
    run = folder.run("run", "plan.json", "--json").doc["run"]
    good = folder.run("verify", run, "--json")
    assert good.code == 0, good
    assert good.doc["valid"]
    database = sqlite3.connect(folder.path / ".leadhand" / "leadhand.db")
    tables = database.execute("SELECT name, sql FROM sqlite_master WHERE type='trigger'").fetchall()
    for name, _ in tables:
        database.execute(f'DROP TRIGGER "{name}"')
    changed = database.execute(
        "UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'hello', 'jello') AS BLOB)"
        " WHERE instr(CAST(body AS TEXT), 'hello')"
    )
    assert changed.rowcount
    database.commit()
    database.close()
    bad = folder.run("verify", run, "--json")
    assert bad.code == 1, bad
    assert bad.doc["violations"][0]["rule"] == "hash"
    assert folder.run("verify", "--all").code == 1


CHANGES = {
    "a body that is text": "UPDATE events SET body = CAST(body AS TEXT) WHERE seq = 2",
    "a body that is no event": "UPDATE events SET body = 'jello' WHERE seq = 2",
    "a time that is text": "UPDATE events SET at = 'yesterday' WHERE seq = 2",
    "a hash that is text": "UPDATE events SET hash = 'mash' WHERE seq = 2",
}


@pytest.mark.parametrize("change", CHANGES)
def test_verify_bears_whatever_was_put_into_a_log(folder, change):
    """Other types than were written are a violation like any other, and no bug of ours."""
    folder.plan({"id": "a", "worker": "say"})
    run = folder.run("run", "plan.json", "--json").doc["run"]
    database = sqlite3.connect(folder.path / ".leadhand" / "leadhand.db")
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type='trigger'"):
        database.execute(f'DROP TRIGGER "{name}"')
    database.execute("PRAGMA ignore_check_constraints = ON")
    assert database.execute(CHANGES[change]).rowcount
    database.commit()
    database.close()
    for what in (run, "--all"):
        done = folder.run("verify", what, "--json")
        assert done.code == 1, done
        assert run in {each["run"] for each in done.doc["violations"]}


# --- apply ---------------------------------------------------------------------------------


def test_apply_refuses_a_stale_plan_and_says_what_changed(folder):
    folder.plan({"id": "a", "worker": "say"})
    assert folder.run("apply", "plan.json").code == 0
    base = folder.run("ls", "workers", "--json").doc["digest"]
    folder.plan({"id": "a", "worker": "say"}, base=base)
    assert folder.run("apply", "plan.json").code == 0
    changed = WORKERS.replace('return "x" * size', 'return "y" * size')
    changed = changed.replace('@worker(name="once")', '@worker(name="twice")')
    folder.write("workers.py", changed)
    done = folder.run("apply", "plan.json")
    assert done.code == 7, done
    assert "big changed from version" in done.err
    assert "once is gone" in done.err
    assert "twice is new" in done.err
    assert len(folder.run("ls", "--json").doc) == 2
    folder.plan({"id": "a", "worker": "say"}, base="0" * 64)
    assert "only today's are known" in folder.run("apply", "plan.json").err


# --- limits --------------------------------------------------------------------------------


def test_a_spent_budget_is_exit_6(folder):
    folder.write(
        "costly.py",
        "from leadhand import Report, worker\n"
        "@worker(name='costly', cost=2.0)\n"
        "async def costly() -> Report:\n    return Report(cost=2.0)\n",
    )
    steps = [{"id": f"s{n}", "worker": "costly"} for n in range(5)]
    for number in range(1, 5):
        steps[number]["depends_on"] = [f"s{number - 1}"]
    folder.plan(*steps)
    done = folder.run("run", "plan.json", "--workers", "costly.py", "--budget", "5", "--json")
    assert done.code == 6, done
    assert done.doc["cost"] <= 6


# --- places --------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_refused_clearly(folder):
    """Exit 4, what and where, and the way out."""
    folder.plan({"id": "a", "worker": "say"})
    need(read_only(folder.path, on=True), "a folder this user cannot write")
    try:
        done = folder.run("run", "plan.json")
        detached = folder.run("run", "plan.json", "--detach")
        told = folder.run("init", "new")
        looked = folder.run("doctor")
    finally:
        read_only(folder.path, on=False)
    for refused in (done, detached, told):
        assert refused.code == 4, refused
        assert str(folder.path) in refused.err or "new" in refused.err
        assert "Traceback" not in refused.err
    assert "--store" in done.err
    assert not (folder.path / ".leadhand").exists()
    assert looked.code in (0, 1)  # root may write anywhere, as far as the doctor can ask


def read_only(path, *, on):
    """Make a folder read-only, for root by an attribute; False where that cannot be done."""
    if os.geteuid() != 0:
        path.chmod(0o555 if on else 0o755)
        return True
    if shutil.which("chattr") is None:
        return False
    flag = "+i" if on else "-i"
    return subprocess.run(["chattr", flag, path], capture_output=True, check=False).returncode == 0


def test_a_database_elsewhere(folder, tmp_path_factory):
    """--store, LEADHAND_STORE and leadhand.toml, the stronger one wins."""
    other = tmp_path_factory.mktemp("elsewhere")
    folder.plan({"id": "a", "worker": "say"})
    assert folder.run("run", "plan.json", "--store", str(other / "a.db")).code == 0
    assert (other / "a.db").exists()
    env = {"LEADHAND_STORE": str(other / "b.db")}
    assert folder.run("run", "plan.json", **env).code == 0
    assert len(folder.run("ls", "--json", **env).doc) == 1
    assert not (folder.path / ".leadhand").exists()


def test_from_a_folder_below(folder):
    """Settings, workers and database are found upwards."""
    folder.plan({"id": "a", "worker": "say"})
    below = folder.path / "deep" / "er"
    below.mkdir(parents=True)
    done = Folder(below).run("run", "../../plan.json", LEADHAND_TRUST=str(folder.path))
    assert done.code == 0, done
    assert (folder.path / ".leadhand" / "leadhand.db").exists()
    assert not (below / ".leadhand").exists()


# --- kill and resume -----------------------------------------------------------------------


@pytest.mark.real
def test_killed_and_resumed(folder):
    """What may be repeated is, what is finished is not, and the log verifies."""
    folder.plan(
        {"id": "a", "worker": "once"},
        {"id": "b", "worker": "nap", "parameters": {"seconds": 1.0}, "depends_on": ["a"]},
        {"id": "c", "worker": "once", "depends_on": ["b"]},
    )
    with folder.start("run", "plan.json") as child:
        folder.until(lambda: folder.lines("naps.txt"), "step b to start")
        child.send_signal(signal.SIGKILL)
        assert finished(child).code == -signal.SIGKILL
    run = folder.latest()
    assert run["status"] == "running"
    assert "(no host)" in folder.run("ls").out
    assert folder.run("watch", run["run"], "--exit-status").code == 8
    done = folder.run("resume", run["run"][:6], "--json")
    assert done.code == 0, done
    assert [step["attempts"] for step in done.doc["steps"]] == [1, 2, 1]
    assert (folder.lines("once.txt"), folder.lines("naps.txt")) == (2, 2)
    assert folder.run("verify", run["run"]).code == 0
    again = folder.run("resume", run["run"])
    assert again.code == 0
    assert "nothing to go on with" in again.err


@pytest.mark.real
def test_a_step_that_may_not_be_repeated_is_asked_about(folder):
    """No probe, not idempotent: a person decides, exit 5, and the answer is one command away."""
    folder.plan({"id": "a", "worker": "once", "parameters": {"seconds": 30}})
    with folder.start("run", "plan.json") as child:
        folder.until(lambda: folder.lines("once.txt"), "step a to start")
        child.send_signal(signal.SIGKILL)
        finished(child)
    run = folder.latest()["run"]
    waiting = folder.run("resume", run)
    assert waiting.code == 5, waiting
    assert f"leadhand answer {run}/q1 …   # done, retry, skip, abort" in waiting.err
    assert folder.lines("once.txt") == 1
    answered = folder.run("answer", f"{run}/q1", "done", "--data", '"by hand"')
    assert answered.code == 0, answered
    assert f"leadhand resume {run}" in answered.err
    done = folder.run("resume", run)
    assert done.code == 0, done
    assert folder.lines("once.txt") == 1


@pytest.mark.real
def test_resume_names_a_missing_worker(folder):
    folder.plan({"id": "a", "worker": "nap", "parameters": {"seconds": 30}})
    with folder.start("run", "plan.json") as child:
        folder.until(lambda: folder.lines("naps.txt"), "step a to start")
        child.send_signal(signal.SIGKILL)
        finished(child)
    run = folder.latest()["run"]
    (folder.path / "workers.py").rename(folder.path / "moved.py")
    folder.write("leadhand.toml", "")
    done = folder.run("resume", run)
    assert done.code == 2, done
    assert "needs workers that are not loaded: nap" in done.err
    assert "--workers" in done.err
    moved = (folder.path / "moved.py").read_text().replace("seconds: float = 0.5", "seconds: float")
    folder.write("moved.py", moved.replace("asyncio.sleep(seconds)", "asyncio.sleep(0)"))
    assert folder.run("resume", run, "--workers", "moved.py").code == 0
