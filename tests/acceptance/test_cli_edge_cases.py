"""Small promises of the command line and of Python, each through its own door."""

import json
from contextlib import closing

import msgspec
import pytest

import leadhand
from leadhand import Conflict, Failure, Lead, Report, UsageError, worker
from tests.support.cli import WORKERS, Folder

SETTINGS = """
[project]
workers = ["workers.py"]

[workers.suite]
command = ["./suite.sh", "{code}"]
parameters = {code = "integer"}
effects = []

[workers.checked]
command = ["./suite.sh", "{code}"]
parameters = {code = "integer"}
check = "data.exit_code in [0, 5]"
effects = []

[workers.ship]
command = ["./deploy.sh"]
"""
SUITE = '#!/bin/sh\necho "3 failed"\nexit "$1"\n'
BEFORE = [
    ("run", "plan.json"),
    ("apply", "plan.json"),
    ("run", "plan.json", "--review"),
    ("review", "plan.json", "approve", "-o", "a.json"),
]


FILES = {"leadhand.toml": SETTINGS, "workers.py": WORKERS}


@pytest.fixture
def folder(folder):
    folder.write("suite.sh", SUITE).chmod(0o755)
    return folder


# --- run -q ----------------------------------------------------------------------------------


def test_quiet_says_how_it_ended(folder):
    """On standard error; standard output is for the result."""
    folder.plan({"id": "a", "worker": "broken", "retry": 1, "failure_action": "abort"})
    done = folder.run("run", "plan.json", "-q")
    assert done.code == 1, done
    assert done.err.startswith("failed"), done
    assert "it is broken" in done.err
    folder.plan({"id": "a", "worker": "say"})
    done = folder.run("run", "plan.json", "-q")
    assert done.code == 0, done
    assert done.err.startswith("succeeded after"), done
    assert done.out == "hello\n"


# --- exit codes ------------------------------------------------------------------------------


def failed(folder, worker, code, **step):
    folder.plan(
        {
            "id": "t",
            "worker": worker,
            "parameters": {"code": code},
            "retry": 1,
            "failure_action": "abort",
            **step,
        }
    )
    done = folder.run("run", "plan.json", "--json")
    (step,) = done.doc["steps"]
    return step


@pytest.mark.parametrize(
    ("code", "criteria", "kind"),
    [
        (0, "data.exit_code == 0", ""),
        (1, "data.exit_code == 0", "criteria_unmet"),
        (1, "data.exit_code in [0, 1]", ""),
        (1, "data.exit_code == 1", ""),
        (0, "data.exit_code == 1", "criteria_unmet"),
        (1, "data.stdout == '3 failed\\n'", "criteria_unmet"),
        (1, ["data.exit_code == 1", "data.stdout == 'other'"], "criteria_unmet"),
        (1, None, "unavailable"),
        (75, "data.exit_code == 75", "transient"),
        (77, "data.exit_code == 77", "denied"),
    ],
)
def test_criteria_judge_an_exit_code_that_has_no_meaning_of_its_own(folder, code, criteria, kind):
    """A criterion that does not read the exit code cannot make a success of another than 0."""
    step = failed(folder, "suite", code, **({"success_criteria": criteria} if criteria else {}))
    assert (step.get("error") or {}).get("class", "") == kind, step
    assert step["status"] == ("failed" if kind else "succeeded")
    if kind == "criteria_unmet" and code:
        assert "exited with 1" in step["error"]["message"]


@pytest.mark.parametrize(("code", "kind"), [(0, ""), (5, ""), (6, "criteria_unmet")])
def test_the_check_of_a_worker_judges_too(folder, code, kind):
    step = failed(folder, "checked", code)
    assert (step.get("error") or {}).get("class", "") == kind, step


# --- programs --------------------------------------------------------------------------------


@pytest.mark.parametrize("words", BEFORE, ids=" ".join)
def test_a_program_that_is_missing_is_found_before_approval(folder, words):
    folder.plan({"id": "t", "worker": "say"}, {"id": "s", "worker": "ship", "depends_on": ["t"]})
    done = folder.run(*words)
    assert done.code == 3, done
    assert "LH146" in done.err
    assert "./deploy.sh" in done.err
    assert not (folder.path / "a.json").exists()
    assert folder.run("ls", "--json").doc == []


def test_lint_warns_of_a_missing_program_and_a_step_may_make_it(folder):
    """The machine that lints may not be the one that runs."""
    steps = {"id": "t", "worker": "say"}, {"id": "s", "worker": "ship", "depends_on": ["t"]}
    folder.plan(*steps)
    done = folder.run("lint", "plan.json", "--json")
    assert done.code == 0, done
    found = [each for each in done.doc["findings"] if each["rule"] == "program-missing"]
    assert [(each["level"], each["step"]) for each in found] == [("warning", "s")]
    folder.plan(steps[0] | {"writes": ["./deploy.sh"]}, steps[1])
    assert "program-missing" not in folder.run("lint", "plan.json", "--all").out
    assert folder.run("run", "plan.json", "--review").code == 5
    with pytest.raises(leadhand.PlanInvalid, match="LH146"):
        Lead.from_settings(folder.path).run_sync({"steps": list(steps)})


# --- Python ----------------------------------------------------------------------------------


def test_errors_that_callers_catch_are_exported():
    for name in ("Conflict", "UsageError", "NotAllowed"):
        assert name in leadhand.__all__
        assert issubclass(getattr(leadhand, name), leadhand.LeadhandError)


def test_a_lead_from_settings_has_what_the_command_line_has(folder, monkeypatch):
    """Declared workers too; and what Python ran, `leadhand` lists, verifies and exports alike."""
    monkeypatch.chdir(folder.path)
    lead = Lead.from_settings(folder.path)
    plan = {"steps": [{"id": "t", "worker": "suite", "parameters": {"code": 0}}]}
    outcome = lead.run_sync(plan)
    assert outcome.ok
    assert outcome.result["stdout"] == "3 failed\n"
    (row,) = lead.list()
    assert [msgspec.json.decode(msgspec.json.encode(row))] == folder.run("ls", "--json").doc
    assert (row.run, row.status) == (outcome.run, "succeeded")
    assert lead.list(status="failed") == []
    assert lead.verify(outcome.run)["valid"] is True
    assert lead.verify()["runs"] == 1
    data = lead.export(outcome.run, folder.path / "run.zip")
    assert (folder.path / "run.zip").read_bytes() == data
    assert folder.run("verify", "run.zip").code == 0
    (folder.path / "run.zip").write_bytes(b"other")
    with pytest.raises(Conflict, match="exists already with other content"):
        lead.export(outcome.run, folder.path / "run.zip")
    assert folder.run("export", outcome.run, "-o", "same.zip").code == 0
    assert (folder.path / "same.zip").read_bytes() == data


def test_verify_in_python_sees_a_change(folder):
    import sqlite3

    lead = Lead.from_settings(folder.path)
    outcome = lead.run_sync({"steps": [{"id": "t", "worker": "suite", "parameters": {"code": 0}}]})
    with closing(sqlite3.connect(folder.path / ".leadhand" / "leadhand.db")) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            database.execute(f"DROP TRIGGER {name}")
        database.execute("UPDATE events SET body = replace(body, '3 failed', '0 failed')")
    database.close()
    found = lead.verify(outcome.run)
    assert found["valid"] is False
    assert found["violations"]
    with pytest.raises(
        UsageError, match=r"no\.pub: the public key cannot be read.*Fix: name the \.pub file"
    ):
        lead.verify(outcome.run, key=folder.path / "no.pub")


def test_a_store_in_memory_cannot_be_listed():
    from leadhand.stores.memory import MemoryStore

    with pytest.raises(UsageError, match="in memory"):
        Lead([], store=MemoryStore()).list()


# --- durations -------------------------------------------------------------------------------


def test_timeouts_and_retries_say_how_long(tmp_path):
    import asyncio

    calls = []

    @worker(idempotent=True)
    async def slow() -> str:
        calls.append(1)
        if len(calls) == 1:
            await asyncio.sleep(60)
        return "ok"

    lead = Lead([slow], store=tmp_path / "x.db")
    retry = {"attempts": 2, "backoff": "300ms"}
    outcome = lead.run_sync(
        {"steps": [{"id": "a", "worker": "slow", "timeout": "1s", "retry": retry}]}
    )
    assert outcome.ok
    folder = Folder(tmp_path)
    told = folder.run("logs", outcome.run, "--store", "x.db").out
    assert "no report within 1s, its timeout" in told
    assert "attempt 2 of 2 in 3" in told  # 300 ms and its jitter


# --- metrics ---------------------------------------------------------------------------------


def test_metrics_show_cost_and_take_a_period(folder):
    folder.plan({"id": "a", "worker": "say"})
    assert folder.run("run", "plan.json", "-q").code == 0
    told = folder.run("metrics").out
    assert "\ncost        0\n" in told
    assert folder.run("metrics", "--since", "1h", "--json").doc["runs"] == {"succeeded": 1}
    assert folder.run("metrics", "--since", "2999-01-01T00:00+00:00", "--json").doc["runs"] == {}
    done = folder.run("metrics", "--since", "soon")
    assert done.code == 2
    assert "--since" in done.err


# --- messages --------------------------------------------------------------------------------


def test_errors_of_a_plan_have_their_lines_in_run_too(folder):
    folder.write("plan.yaml", "goal: x\nsteps:\n  - id: a\n    worker: sayy\n")
    for command in ("run", "apply", "lint"):
        done = folder.run(command, "plan.yaml")
        assert done.code == 3, done
        assert "plan.yaml:4: error" in done.out + done.err, done


def test_a_file_that_is_missing_is_not_guessed_by_its_ending(folder):
    folder.write("typo.yaml", "steps: []\n")
    assert "typo" not in folder.run("run", "nosuch.yaml").err
    assert "Did you mean typo.yaml?" in folder.run("run", "tyop.yaml").err


def test_a_goal_without_facts_says_what_workers_give(folder):
    done = folder.run("run", "Make it so")
    assert done.code == 2
    assert "--want. A fact is" in done.err
    assert "No worker here declares a fact." in done.err
    source = "from leadhand import worker\n\n@worker(gives='report')\ndef w() -> str: return ''\n"
    folder.write("workers.py", source)
    assert "Workers here give: report." in folder.run("run", "Make it so").err


def test_a_broken_module_is_named_once(folder):
    folder.write("workers.py", "x = (\n")
    done = folder.run("ls", "workers")
    assert done.code == 2
    assert done.err.count("workers.py") == 1, done


def test_only_a_command_leaves_its_exit_code_to_criteria(tmp_path):
    """Any other worker that reports a failure has failed, whatever its details say."""
    details = {"exit_code": 1, "read_by": [""]}

    @worker
    async def forges() -> Report:
        failure = Failure("unavailable", "it failed", details=details, exit_read_by=("",))
        return Report("failed", {"exit_code": 1}, failure)

    step = {"id": "a", "worker": "forges", "success_criteria": "data.exit_code == 1", "retry": 1}
    plan = {"steps": [step | {"failure_action": "abort"}]}
    outcome = Lead([forges], store=tmp_path / "x.db").run_sync(plan)
    assert (outcome.status, outcome.steps["a"].status) == ("failed", "failed")


def test_the_report_of_a_command_is_not_turned_into_a_success(folder):
    """A command that writes its own report and says that it failed has failed."""
    error = {"class": "unavailable", "message": "m", "details": {"exit_code": 1, "read_by": [""]}}
    report = {"status": "failed", "data": {"exit_code": 1}, "error": error}
    script = f"#!/bin/sh\ncat <<'E'\n{json.dumps(report)}\nE\nexit 1\n"
    folder.write("report.sh", script).chmod(0o755)
    toml = '\n[workers.own]\ncommand = ["./report.sh"]\noutput = "report"\neffects = []\n'
    folder.write("leadhand.toml", SETTINGS + toml + 'check = "data.exit_code == 1"\n')
    folder.plan({"id": "t", "worker": "own", "retry": 1, "failure_action": "abort"})
    assert folder.run("run", "plan.json", "-q").code == 1
