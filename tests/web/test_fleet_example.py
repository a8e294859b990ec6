"""The Fleet screen as somebody sees it who follows the README of examples/fleet."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.cli import Folder, environment, finished
from tests.web.conftest import shot

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fleet"
pytestmark = [pytest.mark.slow, pytest.mark.real]


def ended(folder):
    """The figures, once the epic is at its end."""
    until = time.monotonic() + 150
    while True:
        doc = folder.run("fleet", "status", "--json").doc
        if all(each["status"] == "succeeded" for each in doc["epics"]):
            return doc
        assert time.monotonic() < until, doc["epics"]
        time.sleep(0.5)


def test_the_example_is_seen_from_the_first_agent_to_the_last_commit(pages, tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "fleet")
    folder = Folder(tmp_path / "fleet")
    env = environment(folder.path)
    subprocess.run([sys.executable, "make_repo.py"], cwd=folder.path, env=env, check=True)
    assert folder.run("fleet", "submit", "search.md").code == 0
    with folder.start("fleet", "start", "--port", "0", "--json") as child:
        url = json.loads(child.stdout.readline())["url"] + "/"
        token = (folder.path / ".leadhand/fleet/fleet.db.token").read_text().strip()
        page = pages(f"{url}#token={token}")
        expect(page.get_by_role("heading", name="Inbox", level=1)).to_be_visible()
        page.goto(f"{url}#/fleet")
        expect(page.get_by_role("heading", name="Running agents")).to_be_visible()
        expect(page.locator(".agent").first).to_be_visible(timeout=60_000)
        shot(page, "fleet-example-at-work")
        figures = ended(folder)
        expect(page.locator(".flow")).to_contain_text("7Merged", timeout=30_000)
        expect(page.locator(".agent")).to_have_count(0)
        tiles = {
            each.locator("dt").inner_text(): each.locator("dd").inner_text().split("\n")[0]
            for each in page.locator(".tile").all()
        }
        assert tiles["Running agents"].split()[0] == "0"
        assert tiles["Merged, last hour"].split()[0] == str(figures["landed"]["last_hour"]) == "7"
        assert tiles["Blocked tasks"].split()[0] == "0"
        expect(page.get_by_text("Add a search to the notes").first).to_be_visible()
        page.set_viewport_size({"width": 1280, "height": 3000})
        shot(page, "fleet-example-done")
        child.send_signal(signal.SIGTERM)
        assert finished(child).code == 143
