"""Workers of a run can grow: added or mended after its start, they are taken in, and said."""

import time

import pytest

from tests.support.cli import WORKERS
from tests.support.serving import plan_of, project, served

pytestmark = pytest.mark.real

NEW = """

@worker(name="new")
async def new() -> str:
    return "by the new one"
"""


FILES = {"workers.py": WORKERS}


def test_a_worker_that_is_added_is_usable_by_amend(folder):
    """Problem 6: it said that no worker "new" is registered."""
    folder.plan({"id": "a", "worker": "danger"}, {"id": "b", "worker": "say", "depends_on": ["a"]})
    run = folder.run("run", "plan.json", "--json").doc["run"]
    folder.write("more.py", "from leadhand import worker\n" + NEW)
    folder.write("leadhand.toml", "[project]\nworkers = ['workers.py', 'more.py']\n")
    done = folder.run("review", run, "amend", "--set", "steps.b.worker=new")
    assert done.code == 0, done
    assert "Workers added: new (version" in folder.run("logs", run, "--intent").out
    assert folder.run("review", run, "approve").code == 0
    done = folder.run("resume", run, "--json")
    assert done.code == 0, done
    assert done.doc["result"] == "by the new one"
    assert folder.run("verify", run).code == 0


def test_a_worker_that_is_mended_is_usable_by_retry(folder):
    folder.plan({"id": "a", "worker": "broken"})
    done = folder.run("run", "plan.json", "--json")
    assert done.code == 5, done
    run = done.doc["run"]
    question = folder.run("inbox", "--json").doc[0]["id"]
    folder.write("workers.py", WORKERS.replace("raise Permanent(message)", "return None"))
    assert folder.run("answer", question, "retry").code == 0
    done = folder.run("resume", run, "--json")
    assert done.code == 0, done
    assert "orkers changed: " in folder.run("logs", run, "--intent").out
    assert folder.run("verify", run).code == 0


def test_an_approval_of_the_old_version_is_void(folder):
    """The step is held until the new one is allowed."""
    folder.plan({"id": "a", "worker": "danger"})
    run = folder.run("run", "plan.json", "--json").doc["run"]
    assert folder.run("review", run, "approve").code == 0
    folder.write("workers.py", WORKERS + "\nx = 1\n")
    done = folder.run("resume", run, "--json")
    assert done.code == 5, done
    assert "danger changed after the approval" in folder.run("inbox").out
    assert folder.run("release", run, "a").code == 0
    assert folder.run("resume", run, "--json").code == 0
    assert folder.run("verify", run).code == 0


def test_the_values_that_the_run_was_hosted_with_are_approved(folder):
    """The approver's own shell does not matter: what is approved stands in the log."""
    folder.write("workers.py", WORKERS + "\nimport os\nMODE = os.environ.get('MODE')\n")
    folder.plan({"id": "a", "worker": "danger"})
    for mode, held in (("safe", False), ("evil", True)):
        run = folder.run("run", "plan.json", "--json", MODE="safe").doc["run"]
        assert folder.run("review", run, "approve", MODE="another", CI="1").code == 0
        done = folder.run("resume", run, "--json", MODE=mode)
        assert done.code == (5 if held else 0), done
    assert "danger changed after the approval" in folder.run("inbox").out
    assert folder.run("resume", run, "--json", MODE="evil").code == 5


def test_what_each_version_covers_is_listed(folder):
    folder.write("helper.py", "N = 1\n")
    reads = "\nimport helper, os\nMODE = os.environ.get('MODE')\n"
    folder.write("workers.py", WORKERS + reads)
    folder.write("deploy.sh", "echo 1\n")
    folder.write(
        "leadhand.toml",
        "[project]\nworkers = ['workers.py']\n"
        "[workers.deploy]\ncommand = ['sh', 'deploy.sh']\nenv = ['REGION']\n",
    )
    shown = folder.run("ls", "workers", "-v", REGION="canary", MODE="canary").out
    assert "helper.py" in shown
    assert "deploy.sh" in shown
    assert "values of REGION" in shown
    assert "values of MODE" in shown
    assert "canary" not in shown
    rows = {row["worker"]: row for row in folder.run("ls", "workers", "--json").doc["workers"]}
    assert set(rows["say"]["covers"]["files"]) == {"helper.py", "workers.py"}


def test_a_living_server_takes_mended_workers_in_and_runs_no_swapped_code(tmp_path):
    """A `git pull` under it changes nothing that people allowed; a retry uses what is new."""
    project(tmp_path)
    with served(tmp_path) as up, up.client() as client:

        def until(run, *wanted):
            limit = time.monotonic() + 60
            while True:
                doc = client.get(f"/runs/{run}").json()
                if doc["status"] in wanted or time.monotonic() > limit:
                    return doc
                time.sleep(0.05)

        plan = plan_of({"id": "a", "worker": "danger"})
        run = client.post("/runs", json={"plan": plan}).json()["run"]
        assert until(run, "waiting")["status"] == "waiting"
        text = (tmp_path / "workers.py").read_text()
        swapped = text.replace('return "survived"', 'return "EVIL"')
        (tmp_path / "workers.py").write_text(swapped + "\nx = 1\n")
        shown = client.get(f"/runs/{run}/review").json()
        form = {"digest": shown["binding"]}
        said = client.post(f"/runs/{run}/review/approve", json=form)
        assert said.status_code == 409, said.text
        form = {"digest": client.get(f"/runs/{run}/review").json()["binding"]}
        assert form["digest"] != shown["binding"]
        said = client.post(f"/runs/{run}/review/approve", json=form)
        assert said.status_code == 200, said.text
        doc = until(run, "succeeded", "failed")
        assert doc["status"] == "succeeded", doc
        assert doc["result"] == "EVIL", "a person has allowed the new one"


def test_doctor_says_what_versions_are_for(folder):
    shown = " ".join(folder.run("doctor").out.split())
    assert "compared with the approved versions at each start" in shown
