"""`leadhand run` on a terminal: a plan that needs an approval is shown, and asked about."""

import re

import pytest

from tests.support.cli import WORKERS
from tests.support.terminal import END, INTERRUPT, Screen

pytestmark = pytest.mark.real

ASKS = "Approve? [y]es [n]o [e]dit [d]iff "
FILES = {"workers.py": WORKERS}
DANGER = {"id": "a", "worker": "danger"}
TWO = '[review]\nrules = [{risk = "high", then = "two"}]\n'


def settings(folder, actor, more=""):
    folder.write("leadhand.toml", f'[project]\nworkers = ["workers.py"]\nactor = "{actor}"\n{more}')


def events(folder, run, tag):
    log = folder.run("logs", run, "--json").doc
    rows = log if isinstance(log, list) else log["items"]
    return [row for row in rows if row.get("type", row.get("event")) == tag]


def test_yes_approves_the_digest_that_was_shown(folder):
    """One command: the plan, the question, the result; the approval is of exactly that digest."""
    folder.plan(DANGER)
    with Screen(folder, "run", "plan.json") as screen:
        shown = screen.expect(ASKS)
        screen.type("y\n")
        assert screen.ends() == 0, screen.text
    digest = re.search(r"Plan digest: ([0-9a-f]{64})", shown)[1]
    assert "1 step · risk high" in shown
    assert f"Approved: revision 1, digest {digest[:12]}" in screen.text
    assert "survived" in screen.text.partition(ASKS)[2]
    shown = folder.run("show", folder.latest()["run"]).out
    assert digest in shown


@pytest.mark.parametrize("keys", ["\n", END, INTERRUPT], ids=["enter", "end", "ctrl-c"])
def test_no_decision_leaves_the_run_waiting(folder, keys):
    """Exit code 5, the commands to go on, and nothing recorded."""
    folder.plan(DANGER)
    with Screen(folder, "run", "plan.json") as screen:
        screen.expect(ASKS)
        screen.type(keys)
        assert screen.ends() == 5, screen.text
    run = folder.latest()["run"]
    after = screen.text.partition(ASKS)[2]
    assert "No decision: the run waits." in after
    assert f"leadhand review {run}" in after
    assert f"leadhand resume {run}" in after
    assert folder.run("inbox", "--json").doc[0]["id"] == f"{run}/review-1"
