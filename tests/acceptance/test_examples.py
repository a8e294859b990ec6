"""The examples do what their READMEs say, as users run them: in their folders."""

import contextlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
    asked = re.findall(r"planner asked", folder.run("logs", run, "--intent").out)
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


# --- all -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["research", "competitors"])
def test_every_example_says_how_to_run_it(name):
    """A README that names each of its files and commands that exist."""
    text = (ROOT / "examples" / name / "README.md").read_text()
    for file in (ROOT / "examples" / name).glob("*.py"):
        assert file.name in text
    lines = re.findall(r"^\$ (leadhand .*)$", text, re.MULTILINE)
    assert any(line.startswith("leadhand run") for line in lines)
    for line in lines:
        check_line(line, line)
