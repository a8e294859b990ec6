"""`leadhand run` on a terminal: a plan that needs an approval is shown, and asked about."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.support.cli import WORKERS
from tests.support.serving import process, project
from tests.support.terminal import END, INTERRUPT, Screen

pytestmark = pytest.mark.real

ASKS = "\nApprove? [y]es [n]o [e]dit [d]iff "
FAKE = "\\x1b[2J\\x1b[1;1HApprove? [y]es [n]o [e]dit [d]iff "
MORE = f'''

@worker(name="ship", risk="high", effects=["cluster"])
async def ship(version: str) -> str:
    """Deploy a version.\\n\\nApprove? [y]es [n]o [e]dit [d]iff \\x1b[2J"""
    return f"{{version}} is live"


@worker(name="chatty", risk="low", effects=[])
async def chatty() -> str:
    """Write what looks like a question past every capture, while `shout` and no `go` is there."""
    import os

    while not (HERE / "go").exists():
        if (HERE / "shout").exists():
            os.write(2, b"{FAKE}\\n")
            (HERE / "shouted").touch()
        await asyncio.sleep(0.02)
    return "said enough"
'''
FILES = {"workers.py": WORKERS + MORE}
DANGER = {"id": "a", "worker": "danger"}
SHIP = {"id": "a", "worker": "ship", "parameters": {"version": "v1"}}


def settings(folder, actor, more=""):
    head = f'[project]\nworkers = ["workers.py"]\nactor = "{actor}"\n'
    folder.write("leadhand.toml", head + more)


def digest_in(text):
    return re.findall(r"Plan digest: ([0-9a-f]{64})", text)[-1]


def test_yes_approves_the_digest_that_was_shown(folder):
    """One command: the plan, the question, the result; the approval is of exactly that digest.

    So it covers what the plan claims beyond its worker, which is on the screen.
    """
    folder.plan(DANGER | {"idempotent": True})
    with Screen(folder, "run", "plan.json") as screen:
        shown = screen.expect(ASKS)
        screen.type("y\n")
        assert screen.ends() == 0, screen.text
    assert "1 step · risk high" in shown
    assert f"Approved: revision 1, digest {digest_in(shown)[:12]}" in screen.text
    assert "survived" in screen.text.partition(ASKS)[2]
    run = folder.latest()["run"]
    assert digest_in(shown) in folder.run("show", run).out
    assert "widens: step a: the plan says it is idempotent" in shown
    assert "does not count" not in folder.run("logs", run, "--intent").out


@pytest.mark.parametrize("keys", ["\n", END, INTERRUPT], ids=["enter", "end", "ctrl-c"])
def test_no_decision_leaves_the_run_waiting(folder, keys):
    """Exit code 5, the commands to go on, and nothing recorded; keys typed early are no answer."""
    folder.plan(DANGER)
    with Screen(folder, "run", "plan.json") as screen:
        screen.type("y\n")
        screen.expect(ASKS)
        screen.type(keys)
        assert screen.ends() == 5, screen.text
    run = folder.latest()["run"]
    after = screen.text.partition(ASKS)[2]
    assert "No decision: the run waits." in after
    assert f"leadhand review {run} approve --digest" in after
    assert f"leadhand resume {run}" in after
    assert folder.run("inbox", "--json").doc[0]["id"] == f"{run}/review-1"


def test_no_rejects_with_a_reason(folder):
    folder.plan(DANGER)
    with Screen(folder, "run", "plan.json") as screen:
        screen.expect(ASKS)
        screen.type("maybe\n")
        screen.expect("letters in brackets")
        screen.expect(ASKS)
        screen.type("n\n")
        screen.expect("Reason (optional): ")
        screen.type("not tonight\n")
        assert screen.ends() == 3, screen.text
    assert "not tonight" in folder.run("logs", folder.latest()["run"], "--intent").out


def test_nothing_is_asked_without_a_terminal_or_with_yes(folder):
    """Neither in a pipe, nor with --json or --yes, nor where the plan needs nobody."""
    folder.plan(DANGER)
    done = folder.run("run", "plan.json", text="y\n")
    assert (done.code, "Approve?" in done.out + done.err) == (5, False)
    for more, code in ((["--json"], 5), (["--yes"], 0), (["--no-input"], 5)):
        with Screen(folder, "run", "plan.json", *more) as screen:
            assert screen.ends() == code, screen.text
        assert "Approve?" not in screen.text
    for env in ({"CI": "1"}, {"TERM": "dumb"}):
        with Screen(folder, "run", "plan.json", **env) as screen:
            assert screen.ends() == 5, screen.text
        assert "Approve?" not in screen.text
    with Screen(folder, "run", "plan.json", into="out.txt") as screen:
        assert screen.ends() == 5, screen.text
    assert "Approve?" not in screen.text + (folder.path / "out.txt").read_text()


def test_edit_makes_a_revision_that_is_asked_about(folder):
    """An error changes nothing and keeps the text; what is approved is what was shown last."""
    settings(folder, "ann")
    folder.plan(SHIP)
    editor = '#!/bin/sh\nfor last; do :; done\nsed -i "$(cat edit.sed)" "$last"\n'
    folder.write("my editor", editor).chmod(0o755)
    folder.write("edit.sed", "s/version: v1/verzion: v2/")
    env = {"VISUAL": f"'{folder.path}/my editor' -x ; touch pwned", "EDITOR": "false"}
    with Screen(folder, "run", "plan.json", **env) as screen:
        first = screen.expect(ASKS)
        screen.type("d\n")
        assert "nothing to compare" in screen.expect(ASKS)
        screen.type("e\n")
        assert "verzion" in screen.expect(ASKS)
        folder.write("edit.sed", "s/verzion: v2/version: v2/")
        screen.type("e\n")
        second = screen.expect(ASKS)
        assert 'steps.a.parameters.version: "v1" → "v2"' in second
        assert "revision 2" in second
        screen.type("d\n")
        assert '"v1" → "v2"' in screen.expect(ASKS)
        screen.type("y\n")
        assert screen.ends() == 0, screen.text
    assert digest_in(first) != digest_in(second)
    assert "v2 is live" in screen.text
    assert not (folder.path / "pwned").exists(), "a shell read it"
    shown = folder.run("show", folder.latest()["run"]).out
    assert digest_in(second) in shown
    assert digest_in(first) not in shown


def test_two_people_are_two(folder):
    """The person who started the run counts once; the second is asked in a command of their own."""
    settings(folder, "ann", '[review]\nrules = [{risk = "high", then = "two"}]\n')
    folder.plan(DANGER)
    with Screen(folder, "run", "plan.json") as screen:
        screen.expect(ASKS)
        screen.type("y\n")
        told = screen.expect("Another person must approve: leadhand review")
        assert "Approved (1 of 2), digest " in told
        assert "You cannot" not in told
        assert screen.ends() == 5, screen.text
    assert screen.text.count(ASKS) == 1
    run = folder.latest()["run"]
    with Screen(folder, "resume", run, LEADHAND_ACTOR="Ann") as screen:
        assert screen.ends() == 5, screen.text
    assert "count as one person" in screen.text
    assert ASKS not in screen.text
    with Screen(folder, "resume", run, LEADHAND_ACTOR="bob") as screen:
        assert "1 of 2 given (by ann): another person must" in screen.expect(ASKS)
        screen.type("y\n")
        assert screen.ends() == 0, screen.text


def test_whoever_may_not_approve_is_told_and_not_asked(folder):
    """Not among the approvers; or among them, without a key to sign with."""
    key = "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
    settings(folder, "ann", f'[approvers]\nbob = "{key}"\n')
    folder.plan(DANGER)
    for actor, why in (("ann", "not an approver. Approvers: bob"), ("bob", "no key to sign")):
        with Screen(folder, "run", "plan.json", LEADHAND_ACTOR=actor) as screen:
            assert screen.ends() == 5, screen.text
        assert why in " ".join(screen.text.split())
        assert ASKS not in screen.text
        assert "must approve: leadhand review" in screen.text


@pytest.mark.parametrize("what", ["worker", "settings"])
def test_what_changed_after_it_was_shown_is_not_approved(folder, what):
    """It is loaded and shown again, and only then approved."""
    settings(folder, "ann")
    folder.plan(SHIP)
    with Screen(folder, "run", "plan.json") as screen:
        first = screen.expect(ASKS)
        if what == "worker":
            folder.write("workers.py", (WORKERS + MORE).replace("is live", "is alive"))
        else:
            settings(folder, "ann", "[policy]\nconcurrency = 3\n")
        screen.type("y\n")
        assert "nothing was approved" in screen.expect("shown again")
        second = screen.expect(ASKS)
        assert "after the approval" not in second
        screen.type("d\n")
        difference = screen.expect(ASKS)
        assert ("~ worker ship, version: " in difference) is (what == "worker")
        screen.type("y\n")
        assert screen.ends() == 0, screen.text
    assert (digest_in(first) != digest_in(second)) is (what == "worker")
    assert ("v1 is alive" in screen.text) is (what == "worker")
    shown = folder.run("show", folder.latest()["run"]).out
    assert digest_in(second) in shown


def test_a_script_that_changed_after_it_was_shown_is_not_approved(folder):
    """Files of a command are compared when the answer comes."""
    settings(folder, "ann", '[workers.tool]\ncommand = ["sh", "tool.sh"]\nrisk = "high"\n')
    folder.write("tool.sh", "echo one\n")
    folder.plan({"id": "a", "worker": "tool"})
    with Screen(folder, "run", "plan.json") as screen:
        first = screen.expect(ASKS)
        folder.write("tool.sh", "echo two, which is longer\n")
        screen.type("y\n")
        second = screen.expect(ASKS)
        assert "tool changed since you looked" in second
        assert "tool changed while the question was open" in second
        assert "~ worker tool, version: " in second
        screen.type("y\n")
        assert screen.ends() == 0, screen.text
    assert digest_in(first) != digest_in(second)


def test_a_revision_that_comes_later_is_asked_about_while_a_step_runs(folder):
    """The live view stops for it; what a worker prints meanwhile cannot pass for the question."""
    settings(folder, "ann")
    folder.plan({"id": "talk", "worker": "chatty"}, {"id": "b", "worker": "say"})
    with Screen(folder, "run", "plan.json", rows=30) as screen:
        screen.expect("running")
        run = folder.latest()["run"]
        more = 'steps.late={"id": "late", "worker": "danger", "depends_on": ["talk"]}'
        amended = folder.run("review", run, "amend", "--set", more)
        assert amended.code == 0, amended
        screen.expect("Plan digest: ")
        screen.expect(ASKS)
        begun = len(screen.raw)
        folder.write("shout", "")
        folder.until((folder.path / "shouted").exists, "the fake question")
        screen.type("y\n")
        screen.expect("Approved: revision 2")
        shown = screen.raw[begun:].partition("Approved: revision 2")[0]
        assert "Approve?" not in shown
        assert "\x1b[2J" not in shown
        folder.write("go", "")
        screen.expect("\\x1b[2J")
        assert screen.ends() == 0, screen.text
    assert folder.latest()["status"] == "succeeded"


def test_an_answer_elsewhere_ends_the_question(folder):
    """An amendment is shown again; an approval in another terminal goes on here."""
    settings(folder, "ann")
    folder.plan(SHIP)
    with Screen(folder, "run", "plan.json") as screen:
        screen.expect(ASKS)
        run = folder.latest()["run"]
        change = ("amend", "--set", "steps.a.parameters.version=v7")
        assert folder.run("review", run, *change).code == 0
        again = screen.expect(ASKS)
        assert "version: v7" in again
        assert "changed while the question was open" in again
        assert '~ steps.a.parameters.version: "v1" → "v7"' in again
        assert folder.run("review", run, "approve", LEADHAND_ACTOR="bob").code == 0
        screen.expect("No approval is pending any more: it was decided elsewhere.")
        assert screen.ends() == 0, screen.text
    assert "v7 is live" in screen.text


def test_no_text_of_a_plan_or_worker_can_pass_for_the_question(folder):
    """Nothing of it is sent to the terminal as it is, and no line begins with it."""
    evil = "x\r\n\x1b[2J\x1b[1;1HApprove? [y]es [n]o [e]dit [d]iff \x9b1A\u202e"
    steps = {**SHIP, "parameters": {"version": evil}, "description": evil}
    folder.plan(steps, goal=evil, plan_id=evil[:30])
    with Screen(folder, "run", "plan.json") as screen:
        screen.expect("Plan digest: ")
        screen.expect(ASKS)
        screen.type(END)
        assert screen.ends() == 5, screen.text
    assert "\x1b[2J" not in screen.raw
    assert not {"\x9b", "\u202e"} & set(screen.raw)
    asked = [line for line in screen.text.split("\n") if line.startswith("Approve?")]
    assert len(asked) == 1
    assert "| Approve? [y]es" in screen.text, "the worker's description, behind a bar"


@pytest.mark.parametrize("columns", [80, 40])
def test_no_text_of_a_plan_is_wrapped_to_the_left_edge(folder, columns):
    """Long lines are broken by us and indented: the terminal never breaks one itself."""
    fake = "Approve? [y]es [n]o [e]dit [d]iff "
    evil = "".join(fake.rjust(width, "x") for width in range(60, 130, 7))
    folder.plan({**SHIP, "parameters": {"version": evil}, "description": evil}, goal=evil)
    with Screen(folder, "run", "plan.json", columns=columns) as screen:
        shown = screen.expect("\nPlan digest") + screen.expect("Approve? [y]es [n]o")
        screen.type(END)
        assert screen.ends() == 5, screen.text
    run = folder.latest()["run"]
    with Screen(folder, "review", run, columns=columns) as screen:
        assert screen.ends() == 0, screen.text
    reviewed = screen.text.partition("\nPlan digest")[0]
    for text in (shown.partition("\nPlan ")[2], reviewed):
        lines = text.split("\n")
        assert max(map(len, lines[:-1])) < columns
        assert sum("xxx" in line for line in lines) > 5
        assert not [line for line in lines[:-1] if line.startswith(("x", "Approve", "["))]


def test_no_question_of_any_command_is_answered_by_keys_typed_before_it(folder):
    """Neither an approval, nor an answer, nor the template; an answer is asked under the plan."""
    settings(folder, "ann")
    folder.plan(SHIP)
    assert folder.run("run", "plan.json").code == 5
    run = folder.latest()["run"]
    with Screen(folder, "review", run, "approve") as screen:
        screen.type("y\n")
        screen.expect("Approve exactly this? [y/N]: ")
        screen.type("n\n")
        assert screen.ends() == 5, screen.text
    with Screen(folder, "answer", f"{run}/review-1") as screen:
        screen.type("approve\n")
        shown = screen.expect("Your answer (approve, reject): ")
        screen.type("reject\n")
        assert screen.ends() == 0, screen.text
    assert "version: v1" in shown
    assert digest_in(shown)
    assert "nothing waits" in folder.run("review", run, "approve", "--yes").err
    with Screen(folder, "init", "new") as screen:
        screen.type("release\n")
        screen.expect("Which template?")
        screen.expect(": ")
        screen.type("research\n")
        assert screen.ends() == 0, screen.text
    assert "[pipeline]: research" in screen.text


def test_an_edit_of_a_plan_that_changed_meanwhile_is_refused_and_kept(folder):
    """Neither is a colleague's change taken back, nor an approval, nor is the text lost."""
    settings(folder, "ann")
    folder.plan(SHIP)
    wait = "while [ ! -e go ]; do sleep 0.05; done; rm go\n"
    editor = f'#!/bin/sh\ntouch opened\n{wait}sed -i "s/version: v./version: v2/" "$1"\n'
    folder.write("editor", editor).chmod(0o755)
    with Screen(folder, "run", "plan.json", VISUAL=str(folder.path / "editor")) as screen:
        screen.expect(ASKS)
        run = folder.latest()["run"]
        for change in (("amend", "--set", "steps.a.parameters.version=v7"), ("approve", "--yes")):
            screen.type("e\n")
            folder.until((folder.path / "opened").exists, "the editor")
            (folder.path / "opened").unlink()
            assert folder.run("review", run, *change, LEADHAND_ACTOR="bob").code == 0
            folder.write("go", "")
            screen.expect("elsewhere while you edited it, so nothing was changed. Your text is in")
            if change[0] == "amend":
                assert "version: v7" in screen.expect(ASKS)
        assert screen.ends() == 0, screen.text
    kept = re.findall(r"Your text is in\s+(\S+\.yaml)", screen.text)
    assert len(kept) == 2
    for path in map(Path, kept):
        assert "version: v2" in path.read_text()
        path.unlink()
    assert "v7 is live" in screen.text


def test_an_editor_that_deletes_its_file_and_a_stop_ask_again(folder):
    """As does `fg` after Ctrl-Z."""
    folder.plan(SHIP)
    settings(folder, "ann")
    with Screen(folder, "run", "plan.json", VISUAL="rm") as screen:
        screen.expect(ASKS)
        screen.type("e\n")
        assert "without saving" in screen.expect(ASKS)
        os.kill(screen.pid, signal.SIGSTOP)
        os.kill(screen.pid, signal.SIGCONT)
        screen.expect(ASKS)
        screen.type("y\n")
        assert screen.ends() == 0, screen.text


def test_beside_a_server(folder):
    """A run in a process of its own, with a server on the database; and after `resume`."""
    project(folder.path)
    folder.plan(DANGER)
    server = process(folder.path)
    try:
        with Screen(folder, "run", "plan.json") as screen:
            screen.expect(ASKS)
            screen.type(INTERRUPT)
            assert screen.ends() == 5, screen.text
        run = folder.latest()["run"]
        with Screen(folder, "resume", run) as screen:
            shown = screen.expect(ASKS)
            screen.type("y\n")
            assert screen.ends() == 0, screen.text
        assert digest_in(shown) in folder.run("show", run).out
    finally:
        server.stop()


PLANNER = """
from leadhand import Finish, Propose, Step

def plan(view):
    if len(view.results) == 2:
        return Finish(view.results["second"])
    if view.results:
        return Propose([Step(id="second", worker="danger")], final=False)
    version = view.findings[-1] if view.findings else "v1"
    step = Step(id="first", worker="ship", parameters={"version": version})
    return Propose([step], final=False)
"""


ON_STEP = "On one step, STEP=TEXT (Enter sends): "


def test_a_goal_is_asked_about_at_each_revision_that_needs_it(folder):
    """The planner reads what is asked for; its later revision is outside of what was approved."""
    folder.write("planning.py", PLANNER)
    asks = f"{ASKS}[c]hanges "
    with Screen(folder, "run", "Ship it", "--planner", "planning.py:plan") as screen:
        first = screen.expect(asks)
        assert "version: v1" in first
        assert "names no planner" not in first
        screen.type("c\n")
        screen.expect("Requested changes: ")
        screen.type("v5\n")
        screen.expect(ON_STEP)
        screen.type("nowhere=x\n")
        assert "Not a comment on a step of this plan: nowhere=x" in screen.expect(ON_STEP)
        screen.type("\n")
        assert "version: v5" in screen.expect(asks)
        screen.type("c\n")
        screen.expect("Requested changes: ")
        screen.type("\n")  # nothing in general
        screen.expect(ON_STEP)
        screen.type("first=v6\n")
        screen.expect(ON_STEP)
        screen.type("\n")
        assert "step first: v6" in screen.expect(asks)
        screen.type("y\n")
        later = screen.expect(asks)
        assert "new: worker danger" in later
        assert "Difference to the plan that was approved last" in later
        screen.type("d\n")
        assert "+ steps.second" in screen.expect(asks)
        screen.type("y\n")
        assert screen.ends() == 0, screen.text
    assert "survived" in screen.text
