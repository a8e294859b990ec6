"""Plans that name their planner, through the real command line."""

import json

import pytest

WORKERS = """\
import asyncio
from pathlib import Path

from leadhand import Permanent, worker

HERE = Path(__file__).parent


@worker(needs="topic", gives="raw", effects=["net"])
async def fetch(topic: str) -> str:
    with (HERE / "fetched.txt").open("a") as file:
        file.write("fetch\\n")
    while (HERE / "slow").exists():
        await asyncio.sleep(0.05)
    raise Permanent("page not found")


@worker(needs="topic", gives="raw", effects=["net"], cost=2)
async def archive(topic: str) -> str:
    return f"old {topic}"


@worker(needs="raw", gives="summary", effects=["disk"], risk="high")
async def summarise(raw: str) -> str:
    return f"sum of {raw}"
"""

PLANNER = """\
from pathlib import Path

from leadhand import Propose

with (Path(__file__).parent / "loaded.txt").open("a") as file:
    file.write("loaded\\n")


def revise(view):
    step = {"id": "again", "worker": "archive", "supersedes": "fetch"}
    step["parameters"] = {"topic": "${{ params.topic }}"}
    return Propose([step], final=True, because="the page is gone")


def other(view):
    return revise(view)
"""

COMMENTED = """\
from leadhand import Propose


def revise(view):
    said = [c for c in view.comments if c["step"] == "sum"]
    found = [{"comment": c["id"], "addressed": True, "reason": "it waits"} for c in said]
    first = {"id": "fetch", "worker": "archive", "parameters": {"topic": "prices"}}
    last = {"id": "sum", "worker": "summarise", "parameters": {"raw": "${{ steps.fetch.data }}"}}
    return Propose([first, {**last, "timeout": "5s"}], final=True, answers=found)
"""

STEPS = [
    {"id": "fetch", "worker": "fetch", "parameters": {"topic": "${{ params.topic }}"}},
    {"id": "sum", "worker": "summarise", "parameters": {"raw": "${{ steps.fetch.data }}"}},
]
GOAL = {"text": "Sum it up", "want": ["summary"], "have": {"topic": "prices"}}
PLAN = {
    "goal": GOAL,
    "params": {"topic": "prices"},
    "envelope": {"workers": ["archive"]},
    "steps": STEPS,
}
CODE = "planning.py:revise"
SUM = "sum of old prices"


FILES = {"workers.py": WORKERS, "planning.py": PLANNER}


@pytest.fixture
def folder(folder):
    settings(folder)
    return folder


def settings(folder, *lines):
    text = "[project]\nworkers = ['workers.py']\nactor = 'ann'\n"
    folder.write("leadhand.toml", text + "".join(f"{line}\n" for line in lines))


def plan(folder, name="plan.json", **more):
    folder.write(name, {**PLAN, **more})
    return name


def approved(folder, name="plan.json"):
    done = folder.run("review", name, "approve", "-o", "approval.json")
    assert done.code == 0, done
    return ("apply", name, "--approval", "approval.json")


@pytest.mark.parametrize("file", ["plan.yaml", "plan.json"])
def test_a_plan_recovers_as_its_goal_does(folder, file):
    """`plan -o` and `apply` end where `run GOAL` ends, and the plan says who planned."""
    goal = ("Sum it up", "--have", "topic=prices", "--want", "summary")
    direct = folder.run("run", *goal, "--yes", "--json")
    assert (direct.code, direct.doc["result"]) == (0, SUM), direct
    made = folder.run("plan", *goal, "-o", file, "--json")
    assert made.doc["plan"]["planner"] == "goal", made
    assert "planner" in (folder.path / file).read_text()
    done = folder.run(*approved(folder, file), "--json")
    assert (done.code, done.doc["result"]) == (0, SUM), done
    assert folder.run("verify", "--all").code == 0


def test_who_planned_stands_in_the_file_as_it_was_named(folder):
    """Not where it lies on this machine; and it is shown."""
    first = PLANNER.replace("def other(view):\n    return revise(view)", "")
    first += (
        f"def first(view):\n    return Propose({STEPS!r}) if view.call == 1 else revise(view)\n"
    )
    folder.write("planning.py", first)
    goal = ("Sum it up", "--have", "topic=prices")
    made = folder.run("plan", *goal, "--planner", "planning.py:first", "-o", "plan.json")
    assert made.code == 0, made
    assert "May be revised by planning.py:first" in made.out
    doc = json.loads((folder.path / "plan.json").read_text())
    assert doc["planner"] == "planning.py:first"
    done = folder.run("run", "plan.json", "--planner", "planning.py:first", "--yes")
    assert (done.code, done.out.strip()) == (0, SUM), done


def test_review_show_diff_and_lint_know_the_planner(folder):
    """It is part of what is read, compared and approved."""
    name = plan(folder, planner="goal")
    shown = folder.run("review", name).out
    assert "may be revised by goal within this envelope:" in shown
    assert "    workers: archive, fetch, summarise" in shown
    assert folder.run("review", name, "--json").doc["revisable"]["planner"] == "goal"
    assert "may be revised by goal" in folder.run("show", name).out
    assert folder.run("show", name, "--json").doc["planner"] == "goal"
    plan(folder, "without.json")
    assert "revised by" not in folder.run("review", "without.json").out
    assert '+ planner: "goal"' in folder.run("diff", "without.json", name).out
    unknown = folder.run("lint", plan(folder, "typo.json", planner="gaol"))
    assert (unknown.code, 'Did you mean "goal"?' in unknown.out) == (3, True), unknown
    words = folder.run("lint", plan(folder, "words.json", planner="goal", goal="Sum it up"))
    assert (words.code, "names none" in words.out) == (3, True), words
    asks = [{**STEPS[0], "failure_action": "replan"}, STEPS[1]]
    warned = folder.run("lint", plan(folder, "asks.json", steps=asks))
    assert (warned.code, "replan-absent" in warned.out) == (0, True), warned


def test_the_planner_is_part_of_what_an_approval_is_of(folder):
    """Another one, or none, is another plan."""
    command = approved(folder, plan(folder, planner="goal"))
    for other, flag in (({}, ()), ({"planner": CODE}, ("--planner", CODE))):
        plan(folder, **other)
        refused = folder.run(*command, *flag)
        assert (refused.code, "changed since: planner" in refused.err) == (7, True), refused
    assert folder.lines("fetched.txt") == 0
    plan(folder, planner="goal")
    assert folder.run(*command).code == 0


# --- code ------------------------------------------------------------------------------------


def test_a_plan_does_not_choose_which_code_is_loaded(folder):
    """Neither shown, checked nor run is it imported; the message names both ways to allow it."""
    name = plan(folder, planner=CODE)
    for command in ("lint", "show", "review"):
        looked = folder.run(command, name)
        assert looked.code == 0, looked
        assert f"give --planner {CODE}" in looked.out + looked.err, looked
    for command in ("run", "apply"):
        refused = folder.run(command, name, "--yes")
        assert (refused.code, f"give --planner {CODE}" in refused.err) == (3, True), refused
        assert "[project] planner" in refused.err
    other = folder.run("run", name, "--planner", "planning.py:other", "--yes")
    assert (other.code, "names the planner planning.py:revise" in other.err) == (2, True), other
    assert folder.lines("loaded.txt") == 0
    assert folder.lines("fetched.txt") == 0


@pytest.mark.parametrize("way", ["flag", "settings", "library"])
def test_code_that_was_named_by_a_person_revises_the_plan(folder, way):
    """By --planner, or in leadhand.toml."""
    name = plan(folder, planner=CODE)
    flag = ("--planner", CODE)
    if way == "settings":
        settings(folder, f"planner = '{CODE}'")
        flag = ()
    if way == "library":
        assert folder.run("library", "save", "kept", name).code == 0
        name = "kept"
    done = folder.run("run", name, *flag, "--yes", "--json")
    assert (done.code, done.doc["result"]) == (0, SUM), done
    assert folder.run("show", done.doc["run"]).out.count(f"may be revised by {CODE}") == 1


def test_a_plan_without_a_planner_takes_none_from_the_command_line(folder):
    """What is not in the plan was not reviewed."""
    refused = folder.run("run", plan(folder), "--planner", "goal", "--yes")
    assert (refused.code, "names none" in refused.err) == (2, True), refused


def test_an_address_in_a_plan_is_not_asked(folder):
    """The results of a run would go there."""
    name = plan(folder, planner="chat:m@http://127.0.0.1:9/v1")
    refused = folder.run("run", name, "--yes")
    assert (refused.code, "no setting names" in refused.err) == (3, True), refused


def test_doctor_says_whether_the_planner_is_there(folder):
    """Before anything runs."""
    good = folder.run("doctor", plan(folder, planner="goal"))
    assert "ok    planner        goal" in good.out, good
    bad = folder.run("doctor", plan(folder, planner="anthropic:claude-haiku-4-5"))
    assert (bad.code, "ANTHROPIC_API_KEY" in bad.out) == (1, True), bad


# --- going on ----------------------------------------------------------------------------------


@pytest.mark.parametrize("detach", [False, True])
def test_after_a_kill_the_planner_is_found_again(folder, detach):
    """Also one that was only named on the command line; another one is refused."""
    folder.write("slow", "")
    name = plan(folder, planner=CODE)
    command = ("run", name, "--planner", CODE, "--yes")
    if detach:
        started = folder.run(*command, "--detach", "--json")
        assert started.code == 0, started
        folder.until(lambda: folder.lines("fetched.txt"), "the first step")
        import os
        import signal

        os.kill(started.doc["pid"], signal.SIGKILL)
    else:
        with folder.start(*command) as running:
            folder.until(lambda: folder.lines("fetched.txt"), "the first step")
            running.kill()
            running.wait()
    (folder.path / "slow").unlink()
    run = folder.latest()["run"]
    other = folder.run("resume", run, "--planner", "planning.py:other")
    assert (other.code, "names its planner" in other.err) == (2, True), other
    waits = folder.run("resume", run, "--json")
    assert waits.code == 5, waits
    (question,) = waits.doc["waiting_for"]
    assert "replan" in [each["answer"] for each in question["choices"]], (
        "nobody saw how the attempt ended"
    )
    assert folder.run("answer", question["id"], "replan").code == 0
    done = folder.run("resume", run, "--json")
    assert (done.code, done.doc["result"]) == (0, SUM), done
    assert folder.run("verify", run).code == 0


def test_changes_can_be_asked_for_where_a_planner_is_named(folder):
    """It reads what the person wants, and proposes again."""
    name = plan(folder, planner=CODE)
    waits = folder.run("run", name, "--planner", CODE, "--json")
    assert waits.code == 5, waits
    run = waits.doc["run"]
    back = folder.run("review", run, "request_changes", "--text", "take the archive")
    assert back.code == 0, back


def test_comments_on_steps_are_answered_one_by_one(folder):
    """By a function; what it does not answer is said so, in the review and in the log."""
    folder.write("planning.py", COMMENTED)
    name = plan(folder, planner=CODE)
    run = folder.run("run", name, "--planner", CODE, "--json").doc["run"]
    said = ("--comment", "sum=a timeout, please", "--comment", "fetch=from the archive")
    wrong = folder.run("review", run, "request_changes", "--comment", "nowhere=x")
    assert (wrong.code, "no step nowhere" in wrong.err) == (2, True), wrong
    assert "you wrote: nowhere=x" in wrong.err
    back = folder.run("review", run, "request_changes", *said)
    assert back.code == 0, back
    assert folder.run("resume", run).code == 5
    shown = folder.run("review", run)
    assert "c1. step sum, revision 1, by ann: a timeout, please" in shown.out
    assert "addressed: it waits (the step is changed)" in shown.out
    assert "c2. step fetch, revision 1, by ann: from the archive" in shown.out
    assert "not answered (the step is changed)" in shown.out
    rows = folder.run("review", run, "--json").doc["comments"]
    assert [(row["id"], row["status"]) for row in rows] == [
        ("c1", "addressed"),
        ("c2", "not answered"),
    ]
    log = folder.run("logs", run, "--intent").out
    assert "comments: c1 addressed (it waits), c2 not answered" in log
    assert folder.run("verify", run).code == 0


def test_the_plan_of_a_run_keeps_who_planned_it(folder):
    """A plan that the goal planner made is one that it may revise, when it is saved."""
    goal = ("Sum it up", "--have", "topic=prices", "--want", "summary", "--yes", "--json")
    run = folder.run("run", *goal).doc["run"]
    assert folder.run("library", "save", "learned", run).code == 0
    kept = folder.run("library", "show", "learned", "--json").doc["document"]
    assert kept["planner"] == "goal"
    done = folder.run("run", "learned", "--yes", "--json")
    assert (done.code, done.doc["result"]) == (0, SUM), done


@pytest.mark.parametrize("detach", [False, True])
def test_in_another_place_the_planner_chooses_among_the_workers_of_that_place(folder, detach):
    """A worker that is bound to another is not brought back by a revision."""
    more = """

@worker(needs="topic", gives="raw", effects=["net"], cost=3)
async def rehearse(topic: str) -> str:
    return f"rehearsed {topic}"
"""
    folder.write("workers.py", WORKERS + more)
    settings(folder, "[context.staging]", "workers.archive = 'rehearse'")
    name = plan(folder, planner="goal")
    way = ("--detach",) if detach else ()
    done = folder.run("run", name, "--context", "staging", "--yes", "--json", *way)
    run = done.doc["run"]

    def ended():
        shown = folder.run("show", run, "--json").doc
        return shown if shown["status"] == "succeeded" else None

    assert folder.until(ended, "the end")["result"] == "sum of rehearsed prices", done
