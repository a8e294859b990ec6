"""Taking back what a run did, through the real command line."""

import pytest

from tests.support.cli import Folder

WORKERS = """\
from pathlib import Path

from leadhand import Permanent, worker

LOG = Path(__file__).parent / "world.txt"


def act(what: str) -> None:
    with LOG.open("a") as file:
        file.write(what + "\\n")


@worker(effects=["world"], idempotent=True)
async def make(name: str) -> dict[str, str]:
    act(f"make {name}")
    return {"id": name.upper()}


@worker(effects=["world"], idempotent=True)
async def unmake(ident: str) -> None:
    act(f"unmake {ident}")


@worker
async def refuse() -> None:
    raise Permanent("it does not answer")


@worker(risk="high")
async def clean_up(version: str) -> None:
    act(f"clean up {version}")
"""


def made(name, *after):
    undo = {"worker": "unmake", "parameters": {"ident": f"${{{{ steps.{name}.data.id }}}}"}}
    step = {"id": name, "worker": "make", "parameters": {"name": name}, "undo": undo}
    return {**step, "depends_on": list(after)}


FAILS = {"id": "check", "worker": "refuse", "depends_on": ["b"]}


@pytest.fixture
def folder(tmp_path):
    found = Folder(tmp_path)
    found.write("workers.py", WORKERS)
    found.write("leadhand.toml", "[project]\nworkers = ['workers.py']\n")
    return found


def world(folder):
    path = folder.path / "world.txt"
    return path.read_text().splitlines() if path.exists() else []


def test_a_failure_that_asks_for_it_takes_everything_back(folder):
    """The last first; the run has failed all the same, and `show` says where the failure was."""
    plan = folder.plan(made("a"), made("b", "a"), {**FAILS, "failure_action": "rollback"})
    done = folder.run("run", plan, "--json")
    assert (done.code, done.doc["status"]) == (1, "failed"), str(done)
    assert world(folder) == ["make a", "make b", "unmake B", "unmake A"]
    run, back = done.doc["run"], done.doc["rollback"]
    assert (back["run"], back["status"]) == (f"{run}-rollback", "succeeded")
    shown = folder.run("show", run)
    assert "The failure was in the doing: step check" in shown.out, str(shown)
    again = folder.run("rollback", run)
    assert (again.code, len(world(folder))) == (0, 4), "each undo is done once"
    assert folder.run("verify", "--all").code == 0


def test_an_abort_takes_back_nothing_until_somebody_asks(folder):
    """By hand, for any run that has ended."""
    plan = folder.plan(made("a"), made("b", "a"), {**FAILS, "failure_action": "abort"})
    run = folder.run("run", plan, "--json").doc["run"]
    assert world(folder) == ["make a", "make b"]
    done = folder.run("rollback", run)
    assert done.code == 0, str(done)
    assert world(folder)[2:] == ["unmake B", "unmake A"]


def test_a_rollback_is_reviewed_as_any_run(folder):
    """A named plan of the library, with the run's own parameters, whose risk needs a person."""
    step = {"id": "c", "worker": "clean_up", "parameters": {"version": "${{ params.version }}"}}
    folder.plan(step, name="back.json", params={"version": {"type": "string"}})
    saved = folder.run("library", "save", "put-back", "back.json")
    assert saved.code == 0, str(saved)
    fails = {"id": "check", "worker": "refuse", "failure_action": "rollback"}
    plan = folder.plan(fails, rollback_plan="put-back", params={"version": {"type": "string"}})
    done = folder.run("run", plan, "--set", "version=v2", "--json")
    assert done.code == 1, str(done)
    assert (done.doc["rollback"]["status"], world(folder)) == ("waiting", [])
    back = done.doc["rollback"]["run"]
    shown = folder.run("review", back, "--json").doc
    assert "rollback_of" not in shown["plan"]
    assert shown["origin"] == {"rollback_of": done.doc["run"]}
    assert folder.run("answer", f"{back}/review-1", "approve").code == 0
    resumed = folder.run("resume", back)
    assert resumed.code == 0, str(resumed)
    assert world(folder) == ["clean up v2"]
    kept = folder.run("library", "save", "again", back)
    assert kept.code == 0, str(kept)
    assert "rollback_of" not in folder.run("library", "show", "again", "--json").out


def test_what_cannot_be_taken_back_says_so(folder):
    """A run that goes on, and one that has nothing to take back."""
    run = folder.run("run", folder.plan({"id": "x", "worker": "make", "parameters": {"name": "x"}}))
    ident = folder.latest()["run"]
    assert run.code == 0
    done = folder.run("rollback", ident)
    assert (done.code, "nothing to take back" in done.err) == (2, True), str(done)


def test_what_was_rolled_back_is_said_to_be(folder):
    """Asked for again nothing is shown as if it happened now; the exit code is the rollback's."""
    plan = folder.plan(made("a"), made("b", "a"), {**FAILS, "failure_action": "abort"})
    run = folder.run("run", plan, "--json").doc["run"]
    assert folder.run("show", run, "--json").doc["rollback"] is None
    assert folder.run("rollback", run).code == 0
    again = folder.run("rollback", run)
    assert (again.code, "rolled back already" in again.err) == (0, True), str(again)
    assert "attempt 1" not in again.err
    assert folder.run("rollback", run, "--json").doc["run"] == f"{run}-rollback"
    assert f"Taken back in run {run}-rollback: succeeded" in folder.run("show", run).out
    assert len(world(folder)) == 4


def test_show_points_to_a_rollback_that_waits(folder):
    """With the way to go on."""
    steps = [made("a"), made("b", "a"), {**FAILS, "failure_action": "rollback"}]
    clean = {"id": "c", "worker": "clean_up", "parameters": {"version": "1"}}
    plan = folder.plan(*steps, rollback_plan={"goal": "back", "steps": [clean]})
    done = folder.run("run", plan, "--json")
    run = done.doc["run"]
    assert done.doc["rollback"]["status"] == "waiting", str(done)
    shown = folder.run("show", run)
    assert "Its rollback is not finished (waiting)" in shown.out, str(shown)
    assert f"leadhand rollback {run}" in shown.out
    found = folder.run("show", run, "--json").doc["rollback"]
    assert found == {"run": f"{run}-rollback", "status": "waiting"}
