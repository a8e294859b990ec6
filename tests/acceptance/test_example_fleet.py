"""The fleet's example, as its README has it: an epic from words to commits, without a key."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.test_docs import check_line
from tests.fleet.places import every_byte, run_git
from tests.support.cli import Folder, environment

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fleet"
pytestmark = [pytest.mark.real, pytest.mark.slow]
TASKS = {"words", "common", "excerpt-2", "index", "rank", "find", "changelog-1"}


@pytest.fixture
def folder(tmp_path):
    """A copy of it, with its repository made."""
    shutil.copytree(EXAMPLE, tmp_path / "fleet")
    made = Folder(tmp_path / "fleet")
    env = environment(made.path)
    subprocess.run([sys.executable, "make_repo.py"], cwd=made.path, env=env, check=True)
    return made


def test_an_epic_in_words_becomes_commits_on_a_branch_of_its_own(folder):
    """Three tasks fail in three ways, and no person is needed for any of them."""
    notes = folder.path / "notes"
    before = every_byte(notes)
    assert folder.run("fleet", "submit", "search.md").code == 0
    done = folder.run("fleet", "start", "--no-serve", "--until-idle")
    assert done.code == 0, done
    figures = folder.run("fleet", "status", "--json").doc
    assert figures["disagreements"] == []
    assert {each["task"] for each in figures["commits"]} == TASKS
    assert [(each["status"], each["landed"]) for each in figures["epics"]] == [("succeeded", 7)]
    recovery = figures["recovery"]
    assert (recovery["failed"], recovery["recovered"], recovery["people"]) == (3, 3, 0)
    ladder = figures["ladder"]
    assert min(ladder["same_conversation"], ladder["fresh"], ladder["stronger"]) >= 1
    assert figures["dead_letters"] == []
    check_history(notes, figures)
    after = every_byte(notes)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    ours = re.compile(rb"\.git/(objects(/.*)?|(logs/)?refs/heads(/leadhand(/main)?)?)")
    odd = [name for name in changed if not ours.fullmatch(name)]
    assert odd == [], "nothing of the user's is touched but a branch of its own"
    made = folder.run("fleet", "report", "--json")
    assert made.code == 0, made
    page = (folder.path / "fleet-report.html").read_text()
    assert "Add a search to the notes" in page
    assert json.loads((folder.path / "fleet-report.json").read_text())["landed"]["total"] == 7


def check_history(notes, figures):
    """Whose work each commit is, and that every one of them is green."""
    trailers = run_git(
        notes, "log", "--format=%(trailers:key=Leadhand-Task,valueonly)%x00", "main..leadhand/main"
    )
    assert {each.strip() for each in trailers.split("\0") if each.strip()} == TASKS
    by = {each["task"]: each["by"] for each in figures["commits"]}
    assert (by["words"], by["rank"]) == ("small:pretended", "able:pretended")
    for sha in run_git(notes, "rev-list", "main..leadhand/main").split():
        place = notes.parent / "look"
        run_git(notes.parent, "clone", "-q", str(notes), str(place))
        run_git(place, "checkout", "-q", sha)
        gate = [sys.executable, "-m", "unittest", "discover", "-s", "tests"]
        done = subprocess.run(gate, cwd=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (sha, done.stderr)
        shutil.rmtree(place)


def test_its_readme_names_commands_and_files_that_exist():
    text = (EXAMPLE / "README.md").read_text()
    lines = re.findall(r"^\$ (.+?)(?: +#.*)?$", text, re.MULTILINE)
    assert len(lines) > 8
    for line in lines:
        check_line(line, f"README.md: {line}")
    for name in re.findall(r"\]\(([^)]+)\)", text):
        assert (EXAMPLE / name).exists(), name
