"""What somebody meets who wants to see intent before action: what waits, what is held, typos."""

import pytest

from tests.support.cli import WORKERS

pytestmark = pytest.mark.real

TWO = "[review]\nrules = [{risk = 'high', then = 'two'}]\n"


FILES = {
    "workers.py": WORKERS,
    "leadhand.toml": "[project]\nworkers = ['workers.py']\nactor = 'ann'\n",
}


def say(ident, text="hello", **more):
    return {"id": ident, "worker": "say", "parameters": {"text": text}, **more}


def waiting(folder, *steps):
    folder.plan(*steps)
    done = folder.run("run", "plan.json", "--review", "--json")
    assert done.code == 5, done
    return done.doc["run"]


# --- what waits, and what is held ----------------------------------------------------------


def test_what_waits_for_a_review_is_listed(folder):
    """Before anything was approved, `show` has the steps that would run, and no empty table."""
    run = waiting(folder, say("a"), say("b", depends_on=["a"]))
    shown = folder.run("show", run).out
    assert "waiting (no host) · 2 steps proposed · 1 waiting for approval" in shown
    assert "  ·  b     proposed  say     after a\n" in shown
    assert "Its steps: none yet" in folder.run("logs", run, "c").err


def test_the_first_of_two_people_hears_that_it_still_waits(folder):
    """Resuming would be in vain, so nobody is sent there; the rule says what it is for."""
    with (folder.path / "leadhand.toml").open("a") as file:
        file.write(TWO)
    folder.plan({"id": "a", "worker": "danger"})
    done = folder.run("run", "plan.json")
    run = folder.latest()["run"]
    assert "required by the policy (rule for risk high or higher)" in done.err
    first = folder.run("review", run, "approve")
    assert "It still waits: allowed by ann; 1 more person must" in first.err
    assert "leadhand resume" not in first.err
    assert "allowed by ann; 1 more person must" in folder.run("show", run).err
    second = folder.run("answer", f"{run}/review-1", "approve", LEADHAND_ACTOR="bob")
    assert f"Continue with: leadhand resume {run}" in second.err


def test_what_was_rejected_ends_once_it_is_taken_up(folder):
    """It does not go on."""
    run = waiting(folder, say("a"))
    done = folder.run("review", run, "reject", "--reason", "no")
    assert f"End it with: leadhand resume {run}" in done.err


def test_a_step_that_is_held_says_so(folder):
    """Whether it could start or not; and what was said twice is said once."""
    run = waiting(folder, say("a"), say("b", depends_on=["a"]))
    assert folder.run("review", run, "approve").code == 0
    assert folder.run("hold", run, "a", "b").code == 0
    shown = folder.run("show", run).out
    assert "  ‖  a     held     say     until released\n" in shown
    assert "waits for a, then held\n" in shown
    wrong = folder.run("hold", run, "bb")
    assert (wrong.code, 'Did you mean "b"? There are: a, b.' in wrong.err) == (2, True), wrong
    assert folder.run("pause", run).code == 0
    assert folder.run("show", run).out.count("paused") == 1


def test_that_everything_is_stopped_is_seen(folder):
    """Where people look first."""
    run = waiting(folder, say("a"))
    assert folder.run("stop-all").code == 0
    assert "emergency stop by ann" in folder.run("show", run).out
    assert "leadhand stop-all --lift" in folder.run("ls").err
    assert folder.run("stop-all", "--lift").code == 0
    assert "stopped" not in folder.run("ls").err


def test_a_time_is_said_when_it_is_known(folder):
    """By the policy's nod too; the estimate is no promise then."""
    folder.plan(
        say("a", not_before="2999-01-01T00:00:00Z"), say("b"), estimated_duration="15 minutes"
    )
    run = folder.run("run", "plan.json", "--detach").out.strip()
    try:
        told = folder.run("logs", run).out
        why = "its risk is not declared, which the policy counts as low, and runs without approval"
        assert f"approved by the policy: {why}; a starts at 2999-01-01" in told
        assert "risk not declared" in told
        assert "risk low" not in told
        folder.until(lambda: "1/2" in folder.run("ls").out, "b")
        shown = folder.run("show", run).out
        assert "not before " in shown
        assert "left" not in shown
    finally:
        folder.run("cancel", run)


def test_the_result_is_shown_and_watched(folder):
    """Not only by the command that ran it; a long one only begins."""
    folder.plan(say("a"))
    run = folder.run("run", "plan.json", "--json").doc["run"]
    assert "Result: hello\n" in folder.run("show", run).out
    assert folder.run("watch", run).out == "hello\n"
    folder.plan({"id": "a", "worker": "big", "parameters": {"size": 3000}})
    run = folder.run("run", "plan.json", "--json").doc["run"]
    shown = folder.run("show", run).out
    assert "x" * 2000 in shown
    assert "x" * 2001 not in shown
    assert f"… full result: leadhand show {run} --json" in shown


# --- amending ------------------------------------------------------------------------------


def test_an_amended_file_is_a_plan(folder):
    """What would be none is not written; warnings are told, of a file and of a run."""
    folder.plan(say("a"), say("b"))
    wrong = folder.run("review", "plan.json", "amend", "--set", "version=v3", "-o", "new.json")
    assert wrong.code == 3, wrong
    assert "field-unknown" in wrong.err
    assert "nothing was changed" in wrong.err
    assert not (folder.path / "new.json").exists()
    night = ("amend", "--set", "steps.a.not_before=02:00 EST")
    done = folder.run("review", "plan.json", *night, "-o", "new.json")
    assert "LH135" in done.err
    assert "the amended plan was written to new.json" in done.err
    run = waiting(folder, say("a"))
    assert "LH135" in folder.run("review", run, *night).err
    lost = folder.run("review", run, "amend", "--set", "a.timeout=5s")
    assert "write steps.a.…" in lost.err
    wrong = folder.run("review", run, "amend", "--set", "steps.a.worker=nobody")
    assert "1 error; nothing was changed" in wrong.err


def test_the_command_that_allows_it_means_what_was_shown(folder):
    """With the parameters and workers it was shown with."""
    step = say("a", "${{ params.text }}")
    folder.plan(step, params={"text": {"type": "string"}})
    shown = folder.run("review", "plan.json", "--set", "text=a b", "--budget", "5")
    assert "-o approval.json --set 'text=a b' --budget 5.0\n" in shown.err


# --- typos ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("plan.json", "Did you mean `leadhand run plan.json`?"),
        ("run plam.json", "Did you mean plan.json?"),
        ("run nowhere/plan.json", "The folder is not there either."),
        ("run plan.json --approval a.json", "`leadhand apply PLAN --approval FILE`"),
        ("run depoly --set a=1", 'did you mean "deploy"?'),
        ("run depoly", 'did you mean "deploy"?'),
        ("ls --status done", "is not one of 'running'"),
        ("library", "Usage: leadhand library"),
    ],
)
def test_what_may_have_been_meant(folder, command, told):
    """One message, which names the way."""
    folder.plan(say("a"))
    assert folder.run("library", "save", "deploy", "plan.json").code == 0
    done = folder.run(*command.split())
    assert done.code == 2, done
    assert told in done.err
