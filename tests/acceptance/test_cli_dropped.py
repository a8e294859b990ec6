"""What a planner gives up is said wherever an outcome is shown."""

import pytest

pytestmark = pytest.mark.real

WORKERS = """\
from leadhand import NeedsInfo, worker


@worker
def colour() -> str:
    raise NeedsInfo("which colour?")


@worker
def paint() -> str:
    return "painted"
"""

PLANNERS = """\
from leadhand import Finish, Propose, Wait


def early(view):
    if view.call == 1:
        return Propose([{"id": "colour", "worker": "colour"}, {"id": "paint", "worker": "paint"}])
    return Finish("it is done")


def named(view):
    if view.call == 1:
        return early(view)
    if view.in_flight:
        return Wait("for the paint")
    return Finish("painted", drop={"colour": "any will do"})
"""


FILES = {"workers.py": WORKERS, "planners.py": PLANNERS}


def test_a_step_that_was_given_up_by_name_is_in_every_outcome(folder):
    """Terminal, JSON, `show`, the log and the exported page say which, and why."""
    done = folder.run("run", "Paint it", "--planner", "planners.py:named")
    assert (done.code, done.out.strip()) == (0, "painted"), done
    assert "dropped: colour: any will do" in done.err
    run = folder.latest()["run"]
    row = {"step": "colour", "status": "failed", "reason": "any will do"}
    assert folder.run("show", run, "--json").doc["dropped"] == [row]
    assert "any will do" in folder.run("logs", run, "--intent").out
    assert folder.run("export", run, "-o", "run.zip").code == 0
    assert folder.run("verify", run).code == 0
    rates = folder.run("metrics", "--json").doc["recovery"]
    assert [each["won"] for each in rates if each["strategy"] == "replan"] == [0]


def test_a_finish_over_a_failed_step_is_no_success(folder):
    """A planner that calls it done hears why not, and then a person is asked."""
    done = folder.run("run", "Paint it", "--planner", "planners.py:early")
    assert done.code == 5, done
    assert "colour failed, neither replaced nor dropped" in done.err
    quiet = folder.run("run", "Paint it", "--planner", "planners.py:early", "--no-input")
    assert quiet.code == 1, quiet
    assert "failed (planning)" in quiet.err
