"""The example of the fleet as its README has it: an epic becomes commits, seen on the page."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.fleet.places import every_byte, run_git
from tests.support.cli import Folder, environment, finished
from tests.web.conftest import shot

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fleet"
pytestmark = [pytest.mark.slow, pytest.mark.real]
TASKS = {"words", "common", "excerpt-2", "index", "rank", "find", "changelog-1"}


def ended(folder):
    """The figures, once the epic is at its end."""
    until = time.monotonic() + 150
    while True:
        doc = folder.run("fleet", "status", "--json").doc
        if all(each["status"] == "succeeded" for each in doc["epics"]):
            return doc
        assert time.monotonic() < until, doc["epics"]
        time.sleep(0.5)


def check_record(folder, before):
    """Three tasks failed in three ways and no person was needed; only a branch is new."""
    notes = folder.path / "notes"
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


def column(page, name):
    return page.locator(".column").filter(has=page.locator("h4", has_text=name))


def submit(page):
    """Submit the epic from its file, and see what the planner makes of it."""
    page.get_by_role("button", name="Submit epic").click()
    page.get_by_label("Markdown file").set_input_files(EXAMPLE / "search.md")
    page.locator("dialog").get_by_role("button", name="Submit epic").click()
    expect(page.get_by_text("Epic submitted: Add a search to the notes")).to_be_visible()
    expect(page.locator(".epic-lane")).to_contain_text("Add a search to the notes")
    expect(column(page, "Working").locator(".task").first).to_be_visible(timeout=60_000)
    shot(page, "fleet-example-at-work")


def look_at_rank(page):
    """The task that failed four times: its merged difference, and the test that it failed."""
    page.get_by_role("link", name="rank", exact=True).click()
    expect(page.locator(".task-now")).to_contain_text("Merged")
    expect(page.locator(".file").first).to_contain_text("+def ")
    failure = page.locator(".failure[open]")
    expect(failure.locator("code").first).to_contain_text("test_")
    output = failure.locator(".output")
    expect(output).to_contain_text("Traceback")
    assert "mono" in output.evaluate("(each) => getComputedStyle(each).fontFamily").lower()
    expect(page.get_by_role("region", name="Attempts")).to_contain_text(
        re.compile(r"attempt \d by coder")
    )
    shot(page, "fleet-example-task")


def see_drained(page):
    """Who drained it; the connection is told once, and the clocks of the last state stand still."""
    expect(page.locator(".fleet-note")).to_contain_text("Drained by root")
    expect(page.locator(".trouble")).to_have_count(0)
    clock = """async () => {
        const { now } = await import(document.scripts[1].src.replace("main", "store"));
        const before = now.value;
        document.dispatchEvent(new Event("visibilitychange"));
        return now.value - before;
    }"""
    assert page.evaluate(clock) == 0
    shot(page, "fleet-drained")


def test_an_epic_is_submitted_watched_from_planned_to_merged_and_the_fleet_drained(pages, tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "fleet")
    folder = Folder(tmp_path / "fleet")
    env = environment(folder.path)
    subprocess.run([sys.executable, "make_repo.py"], cwd=folder.path, env=env, check=True)
    settings = folder.path / "leadhand.toml"  # one agent, so that tasks are seen to wait for it
    settings.write_text(settings.read_text().replace("agents = 4", "agents = 1"))
    before = every_byte(folder.path / "notes")
    with folder.start("fleet", "start", "--port", "0", "--json") as child:
        url = json.loads(child.stdout.readline())["url"] + "/"
        token = (folder.path / ".leadhand/fleet/fleet.db.token").read_text().strip()
        page = pages(f"{url}#token={token}")
        expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
        page.goto(f"{url}#/fleet")
        expect(page.get_by_text("No epics yet")).to_be_visible()
        submit(page)
        waits = column(page, "Planned").locator(".task a").first.inner_text(timeout=60_000)
        figures = ended(folder)
        merged = column(page, "Merged")
        expect(merged.locator("h4")).to_contain_text("7", timeout=30_000)
        expect(column(page, "Working").locator(".task")).to_have_count(0)
        expect(page.get_by_text("No task is blocked.")).to_be_visible()
        expect(page.locator(".title")).to_contain_text("0 open epics of 1", timeout=30_000)
        expect(page.locator(".title")).to_contain_text(f"{figures['landed']['total']} merged")
        expect(page.locator(".epic-lane[open]")).to_have_count(0)
        page.locator(".epic-lane summary").first.click()  # an epic that has ended is folded up
        assert waits in merged.locator(".task a").all_inner_texts()
        page.get_by_text("Plan: ").click()
        expect(page.locator(".waves")).to_contain_text("wave 2")
        page.set_viewport_size({"width": 1280, "height": 3000})
        shot(page, "fleet-example-done")
        look_at_rank(page)
        page.get_by_role("link", name="Fleet").last.click()
        page.get_by_role("button", name="Drain").click()
        page.locator("dialog").get_by_role("button", name="Drain fleet").click()
        expect(page.get_by_text("The fleet is draining")).to_be_visible()
        assert finished(child).code == 0
        see_drained(page)
    check_record(folder, before)
