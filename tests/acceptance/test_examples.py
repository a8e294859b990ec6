"""The examples do what their READMEs say, as users run them: in their folders."""

import contextlib
import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from leadhand import Policy
from leadhand.codec.documents import read_document
from leadhand.testing import scripted, simulate
from tests.acceptance.test_docs import check_line
from tests.support.cli import Folder, environment

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.real


@contextlib.contextmanager
def example(name, tmp_path):
    """A copy of an example with its server running, and the server's address."""
    shutil.copytree(ROOT / "examples" / name, tmp_path / name)
    folder = Folder(tmp_path / name)
    server = subprocess.Popen(
        [sys.executable, "server.py"],
        cwd=folder.path,
        env=environment(folder.path),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield folder, server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def revisions(folder, run):
    """What each revision of a run added and cancelled, by the steps' names."""
    lines = folder.run("logs", run, "--intent", "--json").out.splitlines()
    rows = [json.loads(line) for line in lines if "RevisionProposed" in line]
    bodies = [row.get("event", row) for row in rows]
    return [([step["id"] for step in each["add"]], each.get("cancel", [])) for each in bodies]


# --- research ------------------------------------------------------------------------------


@pytest.mark.slow
def test_research_recovers_in_four_ways(tmp_path):
    """As its table says: retry, reroute, simplify, and a default; and the log verifies."""
    with example("research", tmp_path) as (folder, api):
        goal = ("Where do the bicycles run out?", "--have", f"api={api}", "--want", "summary")
        plan = folder.run("plan", *goal)
        assert plan.code == 0, plan
        assert "fetch_rides (or fetch_archive)" in plan.out
        done = folder.run("run", *goal)
    assert done.code == 0, done
    assert done.out.startswith("For the town council")
    assert "Harbour had none in 32 of 168 hours, most often at 18:00." in done.out
    run = folder.latest()["run"]
    shown = folder.run("show", run, "--json").doc
    answers = {each["step"]: each for each in shown["recovery"]["answers"]}
    assert {step: (a["class"], a["strategy"], a["won"]) for step, a in answers.items()} == {
        "fetch_stations": ("rate_limited", "retry", True),
        "fetch_rides": ("unavailable", "reroute", True),
        "measure": ("too_complex", "simplify", True),
    }
    assert folder.run("verify", run).code == 0


@pytest.mark.slow
def test_research_takes_a_persons_answer_and_survives_a_kill(tmp_path):
    """Killed while somebody is asked; answered with nobody hosting; then it goes on."""
    with example("research", tmp_path) as (folder, api):
        workers = (folder.path / "workers.py").read_text()
        (folder.path / "workers.py").write_text(workers.replace('timeout="4s"', 'timeout="1h"'))
        goal = ("x", "--have", f"api={api}", "--want", "summary")
        with folder.start("run", *goal) as running:
            folder.until(lambda: folder.run("inbox", "--json").doc, "the question")
            running.kill()
            running.wait()
        run = folder.latest()["run"]
        assert folder.run("answer", f"{run}/q1", "done", "--text", "the mayor").code == 0
        done = folder.run("resume", run)
    assert done.code == 0, done
    assert done.out.startswith("For the mayor")
    assert folder.run("verify", run).code == 0


# --- competitors ---------------------------------------------------------------------------


def compared(folder, site, a, b):
    """A run of the comparison."""
    words = ("--have", f"site={site}", "--have", f"a={a}", "--have", f"b={b}")
    done = folder.run("run", "Compare two firms", *words)
    assert done.code == 0, done
    run = folder.latest()["run"]
    assert folder.run("verify", run).code == 0
    return done.out, run


def test_competitors_is_revised_after_page_not_found(tmp_path):
    """Both searches are kept; steps 4 and 5 are replaced with 3; the planner is asked twice."""
    with example("competitors", tmp_path) as (folder, site):
        text, run = compared(folder, site, "Nordwind", "Kestrel")
    assert "Kestrel: 10.90 (brochure, last spring)" in text
    assert "Nordwind has taken its pricing page down" in text
    assert revisions(folder, run) == [
        (["search_a", "search_b", "read_a", "read_b", "write"], []),
        (["brochure_a", "brochure_b", "write_brochures"], []),
    ]
    shown = folder.run("show", run, "--json").doc
    steps = {step["id"]: step for step in shown["steps"]}
    assert {steps[name]["attempts"] for name in ("search_a", "search_b")} == {1}
    assert {steps[name]["status"] for name in ("read_a", "read_b", "write")} == {"superseded"}
    (answer,) = shown["recovery"]["answers"]
    assert (answer["class"], answer["strategy"], answer["won"]) == ("permanent", "replan", True)
    asked = re.findall(r"Planner call \d+ \(", folder.run("logs", run, "--intent").out)
    assert len(asked) == 2


def test_competitors_is_revised_after_a_success_that_makes_the_rest_pointless(tmp_path):
    """A false `expect` is a surprise, no failure: the planner ends the run with what it found."""
    with example("competitors", tmp_path) as (folder, site):
        text, run = compared(folder, site, "Kestrel", "Fernlicht")
    assert text == "Fernlicht is no more: taken over by Nordwind. There is nothing to compare.\n"
    assert len(revisions(folder, run)) == 1
    steps = {step["id"]: step for step in folder.run("show", run, "--json").doc["steps"]}
    assert steps["search_b"]["status"] == "succeeded"
    assert steps["write"]["attempts"] == 0
    assert "finish: Fernlicht is no more" in folder.run("logs", run, "--intent").out


def test_competitors_without_a_surprise_asks_its_planner_once(tmp_path):
    """Five steps, one revision."""
    with example("competitors", tmp_path) as (folder, site):
        text, run = compared(folder, site, "Kestrel", "Halden")
    assert "Kestrel: 9.90 (pricing page)" in text
    assert "Kestrel is cheaper." in text
    assert len(revisions(folder, run)) == 1


def test_competitors_with_models_from_its_tape(tmp_path):
    """No key, no network: a model plans, two agents work, and every rule of the log holds."""
    shutil.copytree(ROOT / "examples" / "competitors" / "with_models", tmp_path / "with_models")
    folder = Folder(tmp_path / "with_models")
    tape = {"LEADHAND_TAPE": "tape.json"}
    goal = "Compare the prices of Nordwind and Kestrel"
    done = folder.run("run", goal, "--json", **tape)
    assert done.code == 0, f"{done}\nIs the tape stale? python -m tests.support.competitors_tape"
    assert "Kestrel is cheaper by 2.60" in done.doc["result"]
    run = done.doc["run"]
    by_tier = {row["tier"]: row for row in done.doc["models"]}
    assert by_tier["lead"]["calls"] == 2
    assert by_tier["hand"]["calls"] == 8
    assert 0 < by_tier["hand"]["cost"] < by_tier["lead"]["cost"]
    assert "page not found: /nordwind/pricing" in folder.run("logs", run, "research-a").out
    assert "anthropic:claude-haiku-4-5" in folder.run("show", run).out
    assert folder.run("verify", run).code == 0
    other = folder.run("run", "Compare something else", **tape)
    assert other.code != 0
    assert "the tape holds no answer" in other.out + other.err


# --- reviewed --------------------------------------------------------------------------------


def approved(folder, *sets):
    """The reviewed plan, approved before it runs and applied."""
    approval = ("approve", *sets, "-o", "approval.json")
    shown = folder.run("review", "plan.yaml", *sets)
    assert "may be revised by planner.py:revise within this envelope" in shown.out, shown
    assert folder.run("review", "plan.yaml", *approval).code == 0
    return folder.run("apply", "plan.yaml", *sets, "--approval", "approval.json", "--json")


def test_a_reviewed_plan_is_revised_after_page_not_found_without_asking_again(tmp_path):
    """Seed 003: step 3 fails; 4 and 5 are revised with the partial results, as was allowed."""
    folder = copied("reviewed", tmp_path)
    done = approved(folder)
    assert done.code == 0, done
    assert done.doc["result"].splitlines()[:2] == [
        "Nordwind: 12.40 (brochure)",
        "Kestrel: 10.90 (brochure)",
    ]
    run = done.doc["run"]
    assert revisions(folder, run) == [
        (["search_a", "search_b", "read_a", "read_b", "write"], []),
        (["brochure_a", "brochure_b", "write_anew"], []),
    ]
    steps = {step["id"]: step for step in done.doc["steps"]}
    assert {steps[name]["attempts"] for name in ("search_a", "search_b", "read_a")} == {1}
    assert {steps[name]["attempts"] for name in ("read_b", "write")} == {0}
    intent = folder.run("logs", run, "--intent").out
    assert re.search("Revision 2 approved by the policy: within the approval by ", intent)
    assert "question" not in intent
    assert folder.run("verify", run).code == 0


def test_a_reviewed_plan_waits_when_its_planner_leaves_what_was_allowed(tmp_path):
    """The difference is shown, with what is new; what was done stays done."""
    folder = copied("reviewed", tmp_path)
    waits = approved(folder, "--set", "a=Ostwind")
    assert waits.code == 5, waits
    run = waits.doc["run"]
    shown = folder.run("review", run).out
    assert "new: worker ask_by_letter" in shown
    assert "new: effect post" in shown
    assert "Difference to the plan that was approved last" in shown
    assert "> steps.read_a is now steps.letter_a" in shown
    assert '~ steps.letter_a.worker: "read_page" → "ask_by_letter"' in shown
    assert folder.run("review", run, "approve").code == 0
    done = folder.run("resume", run, "--json")
    assert done.code == 0, done
    assert "Ostwind: 11.00 (by letter)" in done.doc["result"]
    steps = {step["id"]: step for step in done.doc["steps"]}
    assert {steps[name]["attempts"] for name in ("search_a", "search_b", "read_b")} == {1}
    assert folder.run("verify", run).code == 0


def test_a_reviewed_plan_is_not_revised_once_it_names_no_planner(tmp_path):
    """Taking `planner:` out is another plan: the approval is void, and step 3 is a question."""
    folder = copied("reviewed", tmp_path)
    assert folder.run("review", "plan.yaml", "approve", "-o", "approval.json").code == 0
    plan = (folder.path / "plan.yaml").read_text()
    folder.write("plan.yaml", plan.replace("planner: planner.py:revise\n", ""))
    refused = folder.run("apply", "plan.yaml", "--approval", "approval.json")
    assert (refused.code, "changed since: planner" in refused.err) == (7, True), refused
    waits = folder.run("run", "plan.yaml", "--json")
    assert (waits.code, waits.doc["waiting_for"][0]["kind"]) == (5, "failure"), waits
    assert len(revisions(folder, waits.doc["run"])) == 1


# --- all -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["research", "competitors", "competitors/with_models", "deploy", "reviewed", "release"]
)
def test_every_example_says_how_to_run_it(name):
    """A README that names each of its files and commands that exist."""
    text = (ROOT / "examples" / name / "README.md").read_text()
    for file in (ROOT / "examples" / name).glob("*.py"):
        assert file.name in text
    lines = re.findall(r"^\$ (leadhand .*)$", text, re.MULTILINE)
    assert any(line.startswith("leadhand run") for line in lines)
    for line in lines:
        check_line(line, line)


# --- deploy --------------------------------------------------------------------------------


def copied(name, tmp_path):
    shutil.copytree(ROOT / "examples" / name, tmp_path / name)
    return Folder(tmp_path / name)


def soon():
    """An instant two seconds from now, as people write it."""
    return (datetime.now(UTC) + timedelta(seconds=2)).isoformat()


@pytest.mark.slow
def test_the_review_story_at_the_command_line(tmp_path):
    """Plan, amend, diff, approve, run; step-3 starts when it was put off to, and not before."""
    folder = copied("deploy", tmp_path)
    waits = folder.run("run", "plan.json", "--review", "--json")
    assert waits.code == 5, waits
    run = waits.doc["run"]
    night = "steps.step-3.not_before=02:00 America/New_York"
    assert folder.run("review", run, "amend", "--set", night).code == 0
    diff = folder.run("diff", run)
    assert '+ steps.step-3.not_before: "02:00 America/New_York"' in diff.out
    assert "02:00 America/New_York" in folder.run("review", run).out
    when = (datetime.now(UTC) + timedelta(seconds=8)).isoformat()
    assert folder.run("review", run, "amend", "--set", f"steps.step-3.not_before={when}").code == 0
    assert folder.run("review", run, "approve", "--expires", "1 day").code == 0
    done = folder.run("resume", run, "--json")
    assert done.code == 0, done
    shown = folder.run("show", run, "--json").doc
    (third,) = [step for step in shown["steps"] if step["id"] == "step-3"]
    assert datetime.fromisoformat(third["started"]) >= datetime.fromisoformat(when)
    assert folder.run("verify", run).code == 0


@pytest.mark.slow
def test_the_review_story_with_an_approved_file(tmp_path):
    """Amended, compared, approved and applied; then one byte is another."""
    folder = copied("deploy", tmp_path)
    later = f"steps.step-3.not_before={soon()}"
    assert folder.run("review", "plan.json", "amend", "--set", later, "-o", "night.json").code == 0
    assert folder.run("diff", "plan.json", "night.json").code == 1
    for name in ("first.json", "second.json"):
        approved = folder.run("review", "night.json", "approve", "--expires", "1 day", "-o", name)
        assert approved.code == 0, approved
    done = folder.run("apply", "night.json", "--approval", "first.json")
    assert done.code == 0, done
    plan = (folder.path / "night.json").read_text()
    folder.write("night.json", plan.replace('"version": "v2.1.4"', '"version": "v2.1.5"'))
    refused = folder.run("apply", "night.json", "--approval", "second.json")
    assert refused.code == 7, refused
    assert "changed since: step step-3" in refused.err
    folder.write("night.json", plan)
    assert folder.run("apply", "night.json", "--approval", "second.json").code == 0


@pytest.mark.slow
def test_the_review_story_in_python(tmp_path):
    """The example's own script."""
    folder = copied("deploy", tmp_path)
    done = subprocess.run(
        [sys.executable, "story.py"],
        cwd=folder.path,
        env=environment(folder.path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "revision 2 by ann" in done.stdout
    assert "succeeded - auth-service v2.1.4 is live (blue_green)" in done.stdout
    assert "changed since: step step-3" in done.stdout


def test_two_in_the_morning_on_a_virtual_clock():
    """The deployment starts at 02:00 in New York, however long that is from now."""
    plan = read_document(ROOT / "examples" / "deploy" / "plan.json")
    plan["steps"][2]["not_before"] = "02:00 America/New_York"
    fine = {"all_tests_pass": lambda data: data["failed"] == 0}
    workers = [
        scripted("test-runner", [{"failed": 0}], checks=fine),
        scripted("db-manager", [{"backup": "b"}]),
        scripted("k8s-deployer", ["live"]),
    ]
    done = simulate(plan, workers, policy=Policy(review=True), answers=lambda _question: "approve")
    assert done.outcome.ok, done.lines()
    assert not done.violations
    approved = next(e for _, e in done.events if type(e).__name__ == "RevisionApproved")
    instant = approved.instants["step-3"] / 1e6
    local = datetime.fromtimestamp(instant, ZoneInfo("America/New_York"))
    assert (local.hour, local.minute) == (2, 0)
    starts = {e.step: at for at, e in done.events if type(e).__name__ == "AttemptStarted"}
    assert starts["step-2"] - starts["step-1"] < 60e6
    assert done.seconds * 1e6 >= starts["step-3"] - starts["step-1"] > 60e6
