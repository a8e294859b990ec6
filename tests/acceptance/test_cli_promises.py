"""Claims beyond a worker, as people meet them: lint, run, review, approve, --yes, the log."""

import pytest

pytestmark = pytest.mark.real

WORKERS = """
from pathlib import Path

from leadhand import Report, worker

CALLS = Path(__file__).with_name("calls")


@worker(effects=["money"], risk="low")
def pay(amount: int) -> str:
    calls = CALLS.read_text() if CALLS.exists() else ""
    CALLS.write_text(calls + "x")
    if not calls:
        return Report.failed("transient", "the line went dead", effect="unknown")
    return "paid"
"""
PAY = {"id": "pay", "worker": "pay", "parameters": {"amount": 3}, "idempotent": True}
CLAIM = "step pay: the plan says it is idempotent; its worker does not"


FILES = {
    "workers.py": WORKERS,
    "leadhand.toml": "[project]\nworkers = ['workers.py']\nactor = 'ann'\n",
}


@pytest.fixture
def folder(folder):
    folder.plan(PAY)
    return folder


def calls(folder):
    path = folder.path / "calls"
    return len(path.read_text()) if path.exists() else 0


def log(folder, run):
    return folder.run("logs", run, "--intent").out


def test_lint_and_review_say_it_in_words(folder):
    """Before anything runs."""
    linted = folder.run("lint", "plan.json")
    assert "LH210" in linted.out + linted.err
    assert (
        'step "pay": the plan says it is idempotent; its worker does not' in linted.out + linted.err
    )
    shown = folder.run("review", "plan.json")
    assert f"widens: {CLAIM}\n" in shown.out
    assert folder.run("review", "plan.json", "--json").doc["widens"] == [CLAIM]


@pytest.mark.parametrize("options", [(), ("--yes",), ("--review", "--yes")])
def test_without_a_person_who_saw_it_nothing_is_widened(folder, options):
    """The run warns, pays once, and asks; the log says what did not count."""
    done = folder.run("run", "plan.json", *options)
    assert (done.code, calls(folder)) == (5, 1), done
    assert "promise-widened" in done.err or "the plan says it is idempotent" in done.err
    run = folder.latest()["run"]
    assert f"no approver has seen it: {CLAIM}" in log(folder, run)
    assert folder.run("verify", "--all").code == 0


def test_a_person_who_was_shown_it_widens(folder):
    """With the hash that the review showed; the review of the run says it, too."""
    waits = folder.run("run", "plan.json", "--review", "--json").doc["run"]
    shown = folder.run("review", waits, "--json").doc
    assert (shown["widens"], shown["overclaims"]) == ([CLAIM], [])
    assert f"widens: {CLAIM}\n" in folder.run("review", waits).out
    done = folder.run("review", waits, "approve", "--digest", shown["binding"])
    assert (done.code, shown["binding"] in done.err) == (0, True), done
    done = folder.run("resume", waits)
    assert (done.code, calls(folder)) == (0, 2), done
    assert "does not count" not in log(folder, waits)
    assert folder.run("verify", "--all").code == 0


def test_an_approval_without_the_hash_leaves_it_out_and_says_so(folder):
    """A script that approves has been shown nothing."""
    waits = folder.run("run", "plan.json", "--review", "--json").doc["run"]
    done = folder.run("review", waits, "approve")
    assert (
        f"{CLAIM}; not shown, so it does not count. Fix: approve with leadhand review" in done.err
    )
    done = folder.run("resume", waits)
    assert (done.code, calls(folder)) == (5, 1), done
    assert folder.run("verify", "--all").code == 0


@pytest.mark.parametrize("shown", [True, False])
def test_an_approval_of_the_plan_before_its_run(folder, shown):
    """Bound to the claim when it was made with the hash that was shown."""
    bound = folder.run("review", "plan.json", "--json").doc["binding"]
    options = ("--digest", bound) if shown else ("--yes",)
    done = folder.run("review", "plan.json", "approve", "-o", "approval.json", *options)
    assert (done.code, "not shown, so it does not count" in done.err) == (0, not shown), done
    done = folder.run("apply", "plan.json", "--approval", "approval.json")
    assert (done.code, calls(folder)) == ((0, 2) if shown else (5, 1)), done
    assert folder.run("verify", "--all").code == 0


def test_an_approval_is_void_once_the_worker_no_longer_differs(folder):
    """What was allowed beyond the worker is part of what was allowed."""
    folder.write("workers.py", WORKERS.replace('risk="low"', 'risk="low", version="1"'))
    bound = folder.run("review", "plan.json", "--json").doc["binding"]
    done = folder.run("review", "plan.json", "approve", "-o", "approval.json", "--digest", bound)
    assert done.code == 0, done
    promised = WORKERS.replace('risk="low"', 'risk="low", version="1", idempotent=True')
    folder.write("workers.py", promised)
    done = folder.run("apply", "plan.json", "--approval", "approval.json")
    assert (done.code, calls(folder)) == (7, 0), done
    assert "the promises of step pay" in done.err


PLANNERS = """
from leadhand import Finish, Propose


def eager(view):
    if "pay" in view.steps:
        return Finish(view.results.get("pay"))
    pay = {"id": "pay", "worker": "pay", "parameters": {"amount": 3}, "idempotent": True}
    return Propose([pay], final=True)
"""


def test_what_a_planner_wrote_never_widens(folder):
    """A file that names it neither, though a person is shown it and approves."""
    folder.write("planners.py", PLANNERS)
    settings = "[project]\nworkers = ['workers.py']\nactor = 'ann'\nplanner = 'planners:eager'\n"
    folder.write("leadhand.toml", settings)
    made = folder.run("plan", "pay it", "-o", "made.json")
    assert made.code == 0, made
    shown = folder.run("review", "made.json", "--json")
    assert shown.code == 0, shown
    assert (shown.doc["widens"], shown.doc["overclaims"]) == ([], [CLAIM])
    waits = folder.run("run", "made.json", "--review", "--json").doc["run"]
    doc = folder.run("review", waits, "--json").doc
    assert (doc["widens"], doc["overclaims"]) == ([], [CLAIM])
    assert "a planner wrote it, so it does not count" in folder.run("review", waits).out
    folder.run("review", waits, "approve", "--digest", doc["binding"])
    folder.run("resume", waits)
    assert calls(folder) == 1
    assert f"{CLAIM}" in log(folder, waits)
    assert folder.run("verify", "--all").code == 0


def test_an_answer_that_approves_says_what_does_not_count(folder):
    """As `review RUN approve` does: nothing was shown, so the claim is not covered."""
    waiting = folder.run("run", "plan.json", "--review")
    assert waiting.code == 5, waiting
    run = folder.latest()["run"]
    done = folder.run("answer", f"{run}/review-1", "approve")
    assert done.code == 0, done
    assert "not shown, so it does not count" in done.err
