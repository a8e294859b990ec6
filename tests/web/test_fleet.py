"""The Fleet screen with a real fleet at work: seen, read, stopped, told; and without one."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import expect

from leadhand.fleet.usage_limits import UsageLimit, UsageLimits
from leadhand.server.accounts import digest_of
from tests.fleet.places import make_repo
from tests.support.cli import PROGRAM, environment
from tests.support.need import need
from tests.support.serving import TOKENS
from tests.web.conftest import AXE, printed, shot
from tests.web.test_gallery import SIZES, faults, too_wide
from tests.web.test_keyboard import unreached

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
            'sandbox = "none"\nstagger = 0\nload = 1000\ndrain = "0.1 s"\ndaily_spend = 40\n'
            'silence = "30 minutes"\n'
            'publish = "leadhand/main"\n[policy]\nbackoff = "50 ms"\n'
            '[coders.scripted]\nkind = "command"\n'
            f"command = {json.dumps(command)}\n"
            + "".join(
                f'[server.people.{role}]\nrole = "{role}"\ntoken = "{digest_of(TOKENS[role])}"\n'
                for role in ("viewer", "operator")
            )
        )
        lines = [f"  - {{id: {t}, goal: write the module {t}, writes: [{t}.py]}}" for t in TASKS]
        epic = "# Add a search\n\nFind words.\n\n```yaml\ntasks:\n" + "\n".join(lines) + "\n```\n"
        (folder / "search.md").write_text(epic)
        printed(self.folder, "fleet", "submit", "search.md")
        self.start("0")

    def start(self, port: str) -> None:
        folder = self.folder
        self.process = subprocess.Popen(
            [*PROGRAM, "fleet", "start", "--repo", "shop", "--port", port, "--json"],
            cwd=folder,
            env=environment(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.url = json.loads(self.process.stdout.readline())["url"] + "/"
        token = (folder / ".leadhand" / "fleet" / "fleet.db.token").read_text().strip()
        self.entry = f"{self.url}#token={token}"

    def call(self, role: str, method: str, path: str, body: dict | None = None) -> tuple:
        """Return the status and the document of a request."""
        request = urllib.request.Request(f"{self.url}api/v1{path}", method=method)
        request.add_header("Authorization", f"Bearer {TOKENS[role]}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def status(self) -> dict:
        return json.loads(printed(self.folder, "fleet", "status", "--json"))

    def until(self, **tasks: int) -> None:
        end = time.monotonic() + 150
        wanted = {name.replace("_", " "): number for name, number in tasks.items()}
        while self.status()["tasks"] != wanted:
            assert time.monotonic() < end, self.status()["tasks"]
            time.sleep(0.2)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)

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
    context.set_default_timeout(60_000)
    if AXE.exists():
        context.add_init_script(path=AXE)
    pages.open.append(context)
    page = pages(fleet.entry, context=context)
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    page.goto(f"{fleet.url}#/fleet")
    expect(page.get_by_role("heading", name="Tasks", level=2)).to_be_visible()
    return page


def column(page, name):
    return page.locator(".column").filter(has=page.locator("h4", has_text=name))


# Colours do not depend on the width: dark is looked at once.
@pytest.mark.parametrize(
    ("theme", "size"), [("light", "wide"), ("light", "phone"), ("dark", "wide")]
)
def test_a_fleet_at_work_is_seen_as_a_board(pages, fleet, theme, size):
    """Each task in its column; what is blocked, why, and what unblocks it; nothing is too wide."""
    need(AXE.exists(), "axe-core, which `make test` fetches by npm")
    fleet.until(blocked=1, landed=3, running=2)
    page = opened(pages, fleet, theme, size)
    expect(column(page, "Working").locator(".task")).to_have_count(2)
    expect(column(page, "Working")).to_contain_text("python -m pytest -q")
    expect(column(page, "Merged").locator(".task")).to_have_count(3)
    blocked = page.locator(".blocked li")
    expect(blocked).to_contain_text("hopeless")
    expect(blocked).to_contain_text("has changed nothing")
    expect(blocked.get_by_role("link", name="Answer")).to_be_visible()
    # The gate's runs of single changes count too: one of shaky failed.
    figures = page.locator(".figures").first
    expect(figures).to_contain_text(re.compile(r"Runs of the gate\d+ passed, \d+ failed"))
    expect(figures).to_contain_text(re.compile("Merged3Recovered"), use_inner_text=False)
    # One rule for cost: counted when an agent has ended; what runs is told beside it.
    told = page.locator(".title .muted")
    expect(told).to_contain_text("$0.96 of $40.00 spent today + $0.24 so far by running agents")
    expect(page.locator(".epic-lane > summary")).to_contain_text("$0.96 + $0.24 so far")
    expect(column(page, "Working").locator(".task").first).to_contain_text("$0.12 so far")
    expect(page.locator(".primary:visible")).to_have_text(["Submit epic"])  # not New run
    widths = page.locator(".column").evaluate_all("(all) => all.map((each) => each.offsetWidth)")
    assert max(widths) - min(widths) <= 1 or size == "phone", widths
    expect(page.locator(".title")).to_contain_text(
        "shop · 1 open epic of 1 · 2 of 4 agents running · 3 merged"
    )
    page.evaluate("document.querySelector('main')?.scrollTo?.(0, 0)")
    name = f"fleet-at-work-{theme}-{size}"
    shot(page, name)
    page.set_viewport_size({**SIZES[size], "height": 3200 if size == "wide" else 4200})
    page.wait_for_timeout(300)
    shot(page, f"{name}-whole")
    assert faults(page) == []
    assert too_wide(page) <= 0
    page.get_by_role("link", name="shaky").click()
    expect(page.locator(".failure .output")).to_contain_text("(the command printed nothing)")
    assert page.locator(".failure").inner_text().count("runpy.run_path") == 1, "it is quoted once"
    expect(page.get_by_role("region", name="Attempts")).to_contain_text("attempt 2")
    expect(page.locator(".task-now")).to_contain_text("Commit on leadhand/main")
    shot(page, f"fleet-task-{theme}-{size}")
    assert faults(page) == []
    assert too_wide(page) <= 0


def test_tasks_are_found_grouped_and_opened_with_the_keyboard(pages, fleet):
    fleet.until(blocked=1, landed=3, running=2)
    page = opened(pages, fleet)
    page.keyboard.press("/")
    page.keyboard.type("slow-two")
    expect(page.locator(".task")).to_have_count(1)
    expect(column(page, "Working").locator("h4")).to_contain_text("1 of 2")
    expect(page.get_by_role("heading", name="Blocked: 1 task")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".task")).to_have_count(6)
    expect(page.locator(".epic-lane")).to_contain_text("3 of 6 merged")
    page.get_by_text("Plan: 1 wave").click()
    expect(page.locator(".waves")).to_contain_text("index, query, shaky")
    page.get_by_label("Group by epic").uncheck()
    expect(page.locator(".epic-lane")).to_have_count(0)
    expect(page).to_have_url(re.compile("view=flat"))
    expect(page.locator(".task")).to_have_count(6)
    page.get_by_role("heading", name="Fleet").focus()
    page.keyboard.press("j")  # what is blocked comes first
    expect(page.locator(".blocked a.mono")).to_be_focused()
    page.keyboard.press("j")
    expect(page.locator(".task a").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Transcript")).to_be_visible()
    expect(page).to_have_title(re.compile("slow-"))
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="Tasks", level=2)).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Screen, run").fill("hopeless")
    expect(page.get_by_role("option", name="Tasks hopeless")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="hopeless")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="Tasks", level=2)).to_be_visible()
    assert unreached(page) == []
    page.keyboard.press("e")
    expect(page.get_by_role("dialog")).to_contain_text("Submit epic")
    page.keyboard.press("Escape")
    run = fleet.status()["epics"][0]["run"]
    for task in ("slow-one", "hopeless", "shaky"):
        page.goto(f"{fleet.url}#/fleet/{run}/{task}")
        expect(page.get_by_role("heading", name=task)).to_be_visible()
        expect(page.get_by_role("heading", name="Transcript")).to_be_visible()
        assert (task, unreached(page)) == (task, [])


def test_a_fleet_is_paused_and_resumed_and_wrong_epics_are_explained(pages, fleet):
    """Each action shows its effect without a reload; what was typed is kept."""
    fleet.until(blocked=1, landed=3, running=2)
    page = opened(pages, fleet)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".fleet-note")).to_contain_text("Paused by root")
    shot(page, "fleet-paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".fleet-note")).to_have_count(0)
    page.get_by_role("button", name="Submit epic").click()
    page.get_by_label("Epic", exact=True).fill("# Sort\n\nSort the words.")
    page.locator("dialog").get_by_role("button", name="Submit epic").click()
    expect(page.locator("dialog .trouble")).to_contain_text("this fleet has no planner")
    shot(page, "fleet-submit")
    page.locator("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Submit epic").click()
    expect(page.get_by_label("Epic", exact=True)).to_have_value("# Sort\n\nSort the words.")


def test_the_api_shows_and_orders_by_role(fleet):
    """A viewer reads the board and a task; only an operator submits, pauses and drains."""
    fleet.until(blocked=1, landed=3, running=2)
    run = fleet.call("viewer", "GET", "/fleet")[1]["fleet"]["epics"][0]["run"]
    found = fleet.call("viewer", "GET", f"/fleet/{run}/shaky")[1]
    assert [each["outcome"] for each in found["attempts"]] == ["failed", "merged"]
    assert found["change"]["files"][0]["path"] == "shaky.py"
    assert fleet.call("viewer", "GET", f"/fleet/{run}/nothing")[0] == 404
    for verb in ("pause", "resume", "drain"):
        assert fleet.call("viewer", "POST", f"/fleet/{verb}", {})[0] == 403
    assert fleet.call("viewer", "POST", "/fleet/epics", {"text": "# a"})[0] == 403
    code, problem = fleet.call("operator", "POST", "/fleet/epics", {"text": "# Sort\n\nSort."})
    assert (code, "no planner" in problem["detail"]) == (422, True)
    code, problem = fleet.call("operator", "POST", "/fleet/epics", {"text": ""})
    assert code == 422
    known = (fleet.folder / "search.md").read_text()
    given = {"text": known, "name": "search.md"}
    assert fleet.call("operator", "POST", "/fleet/epics", given)[1]["known"] == "running"
    assert fleet.call("operator", "POST", "/fleet/pause", {})[1] == {"paused": True, "agents": 2}
    assert fleet.status()["live"]["paused"]["by"] == "operator"
    assert fleet.call("operator", "POST", "/fleet/resume", {})[1]["paused"] is False


ODD = (
    "..",
    "%2e%2e",
    "%2e%2e%2f%2e%2e",
    "a%00b",
    "%ff",
    "a%0ab",
    "x" * 300,
    "%e2%80%ae",
    "-rf",
    "*",
)


def test_odd_ids_names_and_sizes_are_refused_by_a_running_fleet(fleet):
    """No file beside the transcripts is read, no epic is written elsewhere, and nothing breaks."""
    fleet.until(blocked=1, landed=3, running=2)
    run = fleet.call("viewer", "GET", "/fleet")[1]["fleet"]["epics"][0]["run"]
    bait = fleet.folder / ".leadhand" / "fleet" / "bait"
    bait.mkdir(exist_ok=True)
    (bait / "1.jsonl").write_text('{"kind": "says", "text": "bait"}\n')
    before = sorted(path.name for path in fleet.folder.iterdir())
    for odd in ODD:
        for path in (
            f"/fleet/{odd}/bait/words",
            f"/fleet/{run}/{odd}",
            f"/fleet/{odd}/{odd}/words",
        ):
            code, found = fleet.call("viewer", "GET", path)
            assert (code in (400, 404, 414, 422), "bait" in str(found.get("lines"))) == (
                True,
                False,
            ), path
        for verb, body in (("stop", {}), ("message", {"text": "hi"})):
            assert fleet.call("operator", "POST", f"/fleet/{run}/{odd}/{verb}", body)[0] in (
                404,
                409,
                400,
                422,
            )
            assert fleet.call("operator", "POST", f"/fleet/{odd}/slow-one/{verb}", body)[0] in (
                404,
                409,
                400,
                422,
            )
            assert fleet.call("viewer", "POST", f"/fleet/{run}/slow-one/{verb}", body)[0] == 403
    for verb, body in (("stop", {}), ("message", {"text": "hi"})):
        code, _ = fleet.call("operator", "POST", f"/fleet/{run[:-1]}/slow-one/{verb}", body)
        assert code == 404, "an id over HTTP is whole"
    for body, wanted in (
        ({"text": "x" * 20_001}, 422),
        ({"text": " "}, 422),
        ({"texts": "x"}, 422),
        ([], 422),
    ):
        assert fleet.call("operator", "POST", f"/fleet/{run}/slow-one/message", body)[0] == wanted
    for name in ("../../evil.md", "/tmp/evil.md", "a\x00.md", "..", "x" * 201, "a/b.md"):
        given = {"text": "# Sort\n\nSort.", "name": name}
        assert fleet.call("operator", "POST", "/fleet/epics", given)[0] == 422, name
    large = {"text": "# " + "x" * (1 << 20)}
    assert fleet.call("operator", "POST", "/fleet/epics", large)[0] in (413, 422)
    assert sorted(path.name for path in fleet.folder.iterdir()) == before
    assert fleet.status()["tasks"] == {"blocked": 1, "landed": 3, "running": 2}


def test_an_agent_is_read_told_and_stopped_by_an_operator(pages, fleet):
    fleet.until(blocked=1, landed=3, running=2)
    page = opened(pages, fleet)
    page.get_by_role("link", name="slow-one").click()
    expect(page.locator(".words")).to_contain_text("I look at the tests of slow-one")
    shot(page, "fleet-words")
    page.get_by_role("button", name="Message agent").click()
    page.get_by_role("textbox", name="Message").fill("hurry up")
    page.locator("dialog").get_by_role("button", name="Send message").click()
    expect(page.get_by_text("Message sent to")).to_be_visible()
    expect(page.locator(".task-now")).to_contain_text("Merged")
    expect(page.locator(".words")).to_contain_text("message from root hurry up")
    expect(page.locator(".file")).to_contain_text("+name = 'slow-one'")
    page.get_by_role("link", name="Fleet").last.click()
    expect(column(page, "Merged").locator(".task")).to_have_count(4)
    page.get_by_role("link", name="slow-two").click()
    attempts = page.get_by_role("region", name="Attempts")
    stop(page, "it takes too long")
    expect(attempts).to_contain_text("2 coder")
    expect(attempts).to_contain_text("stopped by root: it takes too long")


def stop(page, why, then=None):
    page.get_by_role("button", name="Stop agent").click()
    page.get_by_label("Reason").fill(why)
    if then:
        page.get_by_label("Then").select_option(then)
    page.locator("dialog").get_by_role("button", name="Stop agent").click()
    expect(page.get_by_text("Stopping the agent").last).to_be_visible()


def test_a_task_that_a_person_takes_over_and_gives_back_is_seen_so(pages, fleet):
    """On the board and on its own page, without a reload; its agent can be stopped no more."""
    board, task = opened(pages, fleet), opened(pages, fleet)
    task.get_by_role("link", name="slow-two").click()
    expect(task.get_by_role("button", name="Stop agent")).to_be_visible()
    printed(fleet.folder, "fleet", "take", "slow-two", "--to", "mine")
    told = "Taken over by root. It goes on with: leadhand fleet give slow-two"
    card = column(board, "Working").locator(".task").filter(has_text="slow-two")
    expect(card).to_contain_text(told)
    expect(card).not_to_contain_text("scripted")
    expect(task.locator(".task-now")).to_contain_text(f"Working {told}")
    expect(task.get_by_role("button", name="Stop agent")).to_have_count(0)
    shot(board, "fleet-taken")
    printed(fleet.folder, "fleet", "give", "slow-two", "--from", "mine", "--to-agent")
    expect(card).to_contain_text("python -m pytest -q")
    expect(card).not_to_contain_text("Taken over")
    expect(task.get_by_role("button", name="Stop agent")).to_be_visible()


def test_a_single_task_is_ended_from_the_page(pages, fleet):
    """Its agent is stopped without another attempt; the task waits, and the answer ends it."""
    page = opened(pages, fleet)
    page.get_by_role("link", name="slow-two").click()
    stop(page, "not needed", "No other attempt: the task waits for a decision")
    expect(page.locator(".asked")).to_contain_text("stopped by root: not needed")
    page.goto(f"{fleet.url}#/fleet")
    blocked = page.locator(".blocked li").filter(has_text="slow-two")
    blocked.get_by_role("link", name="Answer").click()
    page.locator(".asked").get_by_role("button", name="Skip step").click()
    expect(page.locator(".task-now")).to_contain_text("Skipped")
    expect(page.locator(".asked")).to_have_count(0)
    page.goto(f"{fleet.url}#/fleet")
    expect(column(page, "Skipped or cancelled").locator(".task")).to_contain_text("slow-two")
    shot(page, "fleet-ended")


def test_an_open_board_is_right_after_what_others_did_and_after_a_restart(pages, fleet):
    """Others pause, resume and submit; the fleet is killed and started again. Nobody reloads."""
    page = opened(pages, fleet)
    assert fleet.call("operator", "POST", "/fleet/pause", {})[0] == 200
    expect(page.locator(".fleet-note")).to_contain_text("Paused by operator")
    tasks = "```yaml\ntasks:\n  - {id: sort, goal: sort the words, writes: [sort.py]}\n```\n"
    given = f"# Sort\n\nSort the words.\n\n{tasks}"
    assert fleet.call("operator", "POST", "/fleet/epics", {"text": given})[0] == 200
    expect(page.locator(".epic-lane")).to_have_count(2)
    expect(column(page, "Planned").locator(".task").filter(has_text="sort")).to_be_visible()
    fleet.kill()
    expect(page.get_by_text("Reconnecting automatically")).to_be_visible()
    expect(page.locator(".trouble")).to_have_count(0)
    expect(page.locator(".fleet-note")).not_to_contain_text("Drained")
    reached = UsageLimit("scripted", time.time() + 7200, "limit reached")
    UsageLimits(fleet.folder / ".leadhand" / "fleet").reached(reached)
    fleet.start(fleet.url.rstrip("/").rpartition(":")[2])
    expect(page.get_by_text("Reconnecting automatically")).to_have_count(0)
    paused, limit = (page.locator(".fleet-note", has_text=word) for word in ("Paused", "Usage"))
    expect(paused).to_contain_text("Paused by operator")  # it outlives it
    assert fleet.call("operator", "POST", "/fleet/resume", {})[0] == 200
    expect(paused).to_have_count(0)
    expect(limit).to_contain_text(re.compile("Usage limit of scripted, ends in [12]h"))
    expect(limit).to_contain_text(re.compile(r"[1-9] tasks? waiting"))
    shot(page, "fleet-limit")
    assert fleet.call("viewer", "POST", "/fleet/resume", {"login": "scripted"})[0] == 403
    assert fleet.call("operator", "POST", "/fleet/resume", {"login": "other"})[0] == 409
    page.get_by_role("button", name="Lift limit").click()
    expect(page.locator(".fleet-note")).to_have_count(0)
    merged = column(page, "Merged").locator(".task").filter(has_text="sort")
    expect(merged).to_have_count(1, timeout=60_000)  # its epic has ended, and is folded up


def test_a_server_without_a_fleet_says_how_to_start_one(pages, deploy):
    page = pages(deploy.entry)
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    page.goto(f"{deploy.url}#/fleet")
    expect(page.get_by_text("leadhand fleet start --repo ../shop")).to_be_visible()
    shot(page, "fleet-none")
