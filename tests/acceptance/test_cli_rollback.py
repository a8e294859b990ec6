"""Taking back what a run did, through the real command line."""

import pytest

from leadhand.cli.group import LazyGroup
from leadhand.cli.options import RUNS

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


FILES = {"workers.py": WORKERS}


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
    assert "The execution failed: step check" in shown.out, str(shown)
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
    """It is no misuse: the exit code is that of the run."""
    run = folder.run("run", folder.plan({"id": "x", "worker": "make", "parameters": {"name": "x"}}))
    ident = folder.latest()["run"]
    assert run.code == 0
    done = folder.run("rollback", ident)
    assert (done.code, "nothing to roll back" in done.err) == (0, True), str(done)


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
    assert f"Rolled back in run {run}-rollback: succeeded" in folder.run("show", run).out
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


# --- as an answer, with results of the run, and with nothing to undo --------------------------


def test_a_person_answers_a_failure_with_a_rollback(folder):
    """One of the choices; the run has failed, and what was done is taken back on the way on."""
    plan = folder.plan(made("a"), made("b", "a"), FAILS)
    waits = folder.run("run", plan, "--json")
    run = waits.doc["run"]
    (question,) = waits.doc["waiting_for"]
    assert [each["answer"] for each in question["choices"]][-1] == "rollback", str(waits)
    assert folder.run("answer", question["id"], "rollback", "--text", "enough").code == 0
    done = folder.run("resume", run, "--json")
    assert (done.code, done.doc["status"]) == (1, "failed"), str(done)
    assert "enough" in done.doc["reason"]
    assert world(folder)[2:] == ["unmake B", "unmake A"]
    assert done.doc["rollback"]["status"] == "succeeded"
    assert folder.run("verify", "--all").code == 0


def test_rollback_is_no_answer_where_nothing_can_be_taken_back(folder):
    """It would be refused, so it is not offered."""
    waits = folder.run("run", folder.plan({"id": "check", "worker": "refuse"}), "--json")
    (question,) = waits.doc["waiting_for"]
    assert "rollback" not in [each["answer"] for each in question["choices"]]
    refused = folder.run("answer", question["id"], "rollback")
    assert refused.code == 2, str(refused)


BACK = {
    "goal": "Put it back",
    "steps": [
        {"id": "undo", "worker": "unmake", "parameters": {"ident": "${{ run.steps.a.data.id }}"}}
    ],
}


@pytest.mark.parametrize("where", ["in the plan", "in the library"])
def test_a_rollback_plan_uses_results_of_the_run(folder, where):
    """Resolved when the rollback begins; the library keeps such a plan, which is not run alone."""
    rollback_plan = BACK
    if where == "in the library":
        back = folder.plan(*BACK["steps"], name="back.json", goal=BACK["goal"])
        rollback_plan = "put-back"
        saved = folder.run("library", "save", "put-back", back)
        assert saved.code == 0, str(saved)
        alone = folder.run("run", "put-back")
        assert (alone.code, "only in a rollback plan" in alone.err) == (3, True), str(alone)
        assert folder.run("lint", back).code == 0
    fails = {"id": "check", "worker": "refuse", "failure_action": "rollback", "depends_on": ["a"]}
    made_a = {"id": "a", "worker": "make", "parameters": {"name": "a"}}
    plan = folder.plan(made_a, fails, rollback_plan=rollback_plan)
    assert folder.run("lint", plan).code == 0
    done = folder.run("run", plan, "--json")
    assert done.code == 1, str(done)
    assert world(folder) == ["make a", "unmake A"]
    other = folder.plan({**made_a, "id": "z"}, rollback_plan=rollback_plan)
    wrong = folder.run("lint", other)
    assert (wrong.code, 'no step "a"' in wrong.out) == (3, True), str(wrong)
    assert folder.run("verify", "--all").code == 0


def test_a_result_that_is_not_there_is_asked_about_when_its_turn_comes(folder):
    """The other steps of the rollback are done."""
    gone = {
        "id": "gone",
        "worker": "unmake",
        "parameters": {"ident": "${{ run.steps.late.data.id }}"},
    }
    back = {"goal": "back", "steps": [*BACK["steps"], gone]}
    fails = {"id": "check", "worker": "refuse", "failure_action": "rollback", "depends_on": ["a"]}
    late = {"id": "late", "worker": "make", "parameters": {"name": "l"}, "depends_on": ["check"]}
    made_a = {"id": "a", "worker": "make", "parameters": {"name": "a"}}
    done = folder.run("run", folder.plan(made_a, fails, late, rollback_plan=back), "--json")
    assert world(folder) == ["make a", "unmake A"]
    assert done.doc["rollback"]["status"] == "waiting"
    assert "step late is" in done.doc["rollback"]["waiting_for"][0]["text"]


def test_with_nothing_to_undo_it_says_so_and_ends_as_the_run_did(folder):
    """No rollback is begun, and no way on is told that would be refused."""
    step = {"id": "check", "worker": "refuse", "failure_action": "rollback"}
    plan = folder.plan(step, {**made("a"), "depends_on": ["check"]})
    done = folder.run("run", plan)
    assert done.code == 1, str(done)
    assert "Nothing to roll back: no step that can be undone has completed" in done.err
    run = folder.latest()["run"]
    assert not [line for line in done.err.splitlines() if f"resume {run}" in line], str(done)
    assert f"redo {run}" not in done.err
    again = folder.run("rollback", run)
    assert (again.code, "has nothing to roll back" in again.err) == (1, True), str(again)
    assert folder.run("rollback", run, "--json").doc["rollback"] is None
    shown = folder.run("show", run)
    assert "Its rollback is not finished" not in shown.out
    assert folder.run("show", run, "--json").doc["rollback"] is None
    resumed = folder.run("resume", run)
    assert (resumed.code, "nothing to go on with" in resumed.err) == (1, True), str(resumed)


# --- the short id of a run that was taken back ------------------------------------------------

TAKE_A_RUN = {
    "answer": ("/q1", "retry"),
    "cancel": (),
    "compare": ("zzz",),
    "diff": (),
    "export": ("-o", "out.zip"),
    "hold": ("b",),
    "logs": (),
    "pause": (),
    "redo": ("check", "--reason", "x"),
    "release": ("b",),
    "rerun": (),
    "resume": (),
    "review": (),
    "rollback": (),
    "show": (),
    "verify": (),
    "watch": (),
}


def test_every_command_that_takes_a_run_is_tried_here():
    """A new one has to be added above."""
    group = LazyGroup()
    takes = set()
    for name in group.list_commands(None):
        found = group.get_command(None, name).params
        if any(each.name in RUNS and each.param_type_name == "argument" for each in found):
            takes.add(name)
    assert takes - {"run", "ls"} == set(TAKE_A_RUN)


@pytest.mark.parametrize("command", TAKE_A_RUN)
def test_a_run_and_its_rollback_do_not_make_the_short_id_ambiguous(folder, command):
    """The beginning of the id means the run; only who writes the ending means the rollback."""
    plan = folder.plan(made("a"), made("b", "a"), {**FAILS, "failure_action": "rollback"})
    run = folder.run("run", plan, "--json").doc["run"]
    first, *more = [*TAKE_A_RUN[command], ""]
    short = run[:5] + first if first.startswith("/") else run[:5]
    rest = [each for each in ([*more] if first.startswith("/") else [first, *more]) if each]
    done = folder.run(command, short, *rest)
    assert "could be any of" not in done.out + done.err, str(done)
    assert f"there is no run {run[:5]}" not in done.err, str(done)


def test_the_ending_names_the_rollback(folder):
    """Also when it is not written to its end."""
    plan = folder.plan(made("a"), made("b", "a"), {**FAILS, "failure_action": "rollback"})
    run = folder.run("run", plan, "--json").doc["run"]
    assert folder.run("show", run[:4], "--json").doc["run"] == run
    assert folder.run("show", f"{run}-roll", "--json").doc["run"] == f"{run}-rollback"
    saved = folder.run("library", "save", "kept", run[:5])
    assert saved.code == 0, str(saved)


def test_a_run_that_is_stopping_is_resumed_before_it_is_taken_back(folder):
    """It was cancelled where no host was left to end it."""
    plan = folder.plan(made("a"), {"id": "ask", "worker": "human", "depends_on": ["a"]})
    run = folder.run("run", plan, "--json").doc["run"]
    assert folder.run("cancel", run).code == 0
    done = folder.run("rollback", run)
    assert done.code == 7, done
    assert "is being cancelled" in done.err
    assert f"end it first: leadhand resume {run}" in " ".join(done.err.split())
    assert folder.run("resume", run).code == 9
    assert folder.run("rollback", run).code == 0
    assert world(folder) == ["make a", "unmake A"]
