"""The Fleet screen with a real fleet at work: seen, read, stopped, told; and without one."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.fleet.places import make_repo
from tests.support.cli import PROGRAM, environment
from tests.support.need import need
from tests.web.conftest import AXE, printed, shot
from tests.web.test_gallery import SIZES, faults, too_wide

pytestmark = [pytest.mark.slow, pytest.mark.real]

AGENT = """
import json, pathlib, sys, time
task, attempt, brief, session = sys.argv[1:5]
print("I look at the tests of", task, flush=True)
print(json.dumps({"type": "tool", "tool": "shell", "text": "python -m pytest -q"}), flush=True)
print(json.dumps({"type": "usage", "cost": 0.12}), flush=True)
if task == "hopeless":
    sys.exit(0)
if task.startswith("slow") and "hurry" not in pathlib.Path(brief).read_text():
    time.sleep(1200)
red = task == "shaky" and attempt == "1"
pathlib.Path(f"{task}.py").write_text("raise SystemExit(1)\\n" if red else f"name = {task!r}\\n")
"""
GATE = "import pathlib, runpy; [runpy.run_path(str(p)) for p in pathlib.Path('.').glob('*.py')]"
TASKS = ("index", "query", "shaky", "hopeless", "slow-one", "slow-two")


class Fleet:
    """`leadhand fleet start` with its server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_repo(folder / "shop")
        (folder / "agent.py").write_text(AGENT)
        words = ["{task}", "{attempt}", "{brief_file}", "{session}"]
        command = [sys.executable, "-I", "-S", str(folder / "agent.py"), *words]
        (folder / "leadhand.toml").write_text(
            f"[fleet]\ngate = {json.dumps([[sys.executable, '-c', GATE]])}\nagents = 4\n"
            'sandbox = "none"\nstagger = 0\ndrain = "0.1 s"\ndaily_spend = 40\n'
            'silence = "30 minutes"\n'
            'publish = "leadhand/main"\n[policy]\nbackoff = "50 ms"\n'
            '[coders.scripted]\nkind = "command"\nmodel = "none"\n'
            f"command = {json.dumps(command)}\n"
        )
        lines = [f"  - {{id: {t}, goal: write the module {t}, writes: [{t}.py]}}" for t in TASKS]
        epic = "# Add a search\n\nFind words.\n\n```yaml\ntasks:\n" + "\n".join(lines) + "\n```\n"
        (folder / "search.md").write_text(epic)
        printed(self.folder, "fleet", "submit", "search.md")
        self.process = subprocess.Popen(
            [*PROGRAM, "fleet", "start", "--repo", "shop", "--port", "0", "--json"],
            cwd=folder,
            env=environment(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.url = json.loads(self.process.stdout.readline())["url"] + "/"
        token = (folder / ".leadhand" / "fleet" / "fleet.db.token").read_text().strip()
        self.entry = f"{self.url}#token={token}"

    def status(self) -> dict:
        return json.loads(printed(self.folder, "fleet", "status", "--json"))

    def until(self, **tasks: int) -> None:
        end = time.monotonic() + 60
        wanted = {name.replace("_", " "): number for name, number in tasks.items()}
        while self.status()["tasks"] != wanted:
            assert time.monotonic() < end, self.status()["tasks"]
            time.sleep(0.2)

    def end(self) -> None:
        os.kill(self.process.pid, 15)
        self.process.communicate(timeout=120)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    made = Fleet(tmp_path_factory.mktemp("fleet"))
    yield made
    made.end()


def opened(pages, fleet, theme="light", size="wide"):
    context = pages.browser.new_context(viewport=SIZES[size], color_scheme=theme)
    context.set_default_timeout(20_000)
    if AXE.exists():
        context.add_init_script(path=AXE)
    pages.open.append(context)
    page = pages(fleet.entry, context=context)
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    page.goto(f"{fleet.url}#/fleet")
    expect(page.get_by_role("heading", name="Running agents")).to_be_visible()
    return page


# Colours do not depend on the width: dark is looked at once.
@pytest.mark.parametrize(
    ("theme", "size"), [("light", "wide"), ("light", "phone"), ("dark", "wide")]
)
def test_a_fleet_at_work_is_seen_on_every_screen(pages, fleet, theme, size):
    """Its figures are those of the commands; nothing is too wide, and everything can be read."""
    need(AXE.exists(), "axe-core, which `make test` fetches by npm")
    fleet.until(blocked=1, landed=3, running=2)
    page = opened(pages, fleet, theme, size)
    expect(page.locator(".agent")).to_have_count(2)
    expect(page.locator(".agent-words").first).to_contain_text("python -m pytest -q")
    expect(page.locator(".letter")).to_contain_text("changed nothing")
    figures = fleet.status()
    tiles = {
        each.locator("dt").inner_text(): each.locator("dd").inner_text().split("\n")[0]
        for each in page.locator(".tile").all()
    }
    assert tiles["Running agents"].split()[0] == "2"
    assert tiles["Merged, last hour"].split()[0] == str(figures["landed"]["last_hour"]) == "3"
    assert tiles["Blocked tasks"].split()[0] == "1"
    expect(page.locator(".flow")).to_contain_text("3Merged")
    page.wait_for_timeout(400)
    page.evaluate("document.querySelector('main')?.scrollTo?.(0, 0)")
    name = f"fleet-at-work-{theme}-{size}"
    shot(page, name)
    page.set_viewport_size({**SIZES[size], "height": 3200 if size == "wide" else 4200})
    page.wait_for_timeout(300)
    shot(page, f"{name}-whole")
    assert faults(page) == []
    assert too_wide(page) <= 0


def test_an_agent_is_read_told_and_stopped_by_an_operator(pages, fleet):
    fleet.until(blocked=1, landed=3, running=2)
    page = opened(pages, fleet)
    one = page.locator(".agent").filter(has_text="slow-one")
    one.get_by_role("button", name="Transcript").click()
    expect(page.locator(".words")).to_contain_text("I look at the tests of slow-one")
    shot(page, "fleet-words")
    page.keyboard.press("Escape")
    one.get_by_role("button", name="Message").click()
    page.get_by_role("textbox", name="Message").fill("hurry up")
    page.locator("dialog").get_by_role("button", name="Send message").click()
    expect(page.get_by_text("Message sent to")).to_be_visible()
    expect(page.locator(".flow")).to_contain_text("4Merged")
    two = page.locator(".agent").filter(has_text="slow-two")
    two.get_by_role("button", name="Stop").click()
    page.get_by_label("Reason").fill("it takes too long")
    page.locator("dialog").get_by_role("button", name="Stop agent").click()
    expect(page.get_by_text("Stopping the agent")).to_be_visible()
    expect(page.locator(".agent").filter(has_text="attempt 2")).to_contain_text("slow-two")


def test_a_server_without_a_fleet_says_how_to_start_one(pages, deploy):
    page = pages(deploy.entry)
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    page.goto(f"{deploy.url}#/fleet")
    expect(page.get_by_text("leadhand fleet start --repo ../shop")).to_be_visible()
    shot(page, "fleet-none")
