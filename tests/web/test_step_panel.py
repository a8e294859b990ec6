"""The panel of a step: its address, its log with a search, its attempts and model calls."""

import re
import shutil

import pytest
from playwright.sync_api import expect

from tests.web.conftest import ROOT, Served, shot
from tests.web.steering import project
from tests.web.test_stories import enter

pytestmark = [pytest.mark.slow, pytest.mark.real]

WORKERS = """

@worker(idempotent=True, effects=[])
def builder(target: str, context: Context) -> str:
    for number in range(200):
        print(f"[{context.attempt}] compiling module {number} of {target}")
    while not Path("warn").exists() and not Path("go").exists():
        time.sleep(0.05)
    print("WARNING: module 7 is deprecated", flush=True)
    while not Path("go").exists():
        time.sleep(0.05)
    return target


@worker(idempotent=True, effects=[], checks={"quick": lambda data: data["seconds"] < 5})
def tested(what: str, context: Context) -> dict[str, int]:
    print(f"testing {what}, attempt {context.attempt}")
    if context.attempt == 1:
        raise ConnectionError("the test database does not answer")
    return {"seconds": 9, "failed": 0}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    with Served(project(tmp_path_factory.mktemp("panel") / "project", WORKERS)) as made:
        yield made


@pytest.fixture(scope="module")
def rivals(tmp_path_factory):
    """The example whose model calls are recorded, with prompts and answers kept in the log."""
    folder = tmp_path_factory.mktemp("models") / "with_models"
    shutil.copytree(ROOT / "examples" / "competitors" / "with_models", folder)
    with (folder / "leadhand.toml").open("a") as settings:
        settings.write("\n[telemetry]\ncontents = true\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEADHAND_TAPE", str(folder / "tape.json"))
        with Served(folder) as made:
            yield made


def test_a_live_log_is_followed_searched_and_kept(pages, built):
    """It follows until the reader searches; the search says how many; a new line is found too."""
    step = {"id": "build", "worker": "builder", "parameters": {"target": "site"}}
    run = built.call("POST", "/runs", {"plan": {"goal": "Build", "steps": [step]}})["run"]
    page = enter(pages, built)
    page.goto(f"{built.url}#/runs/{run}/plan?step=build")
    panel = page.get_by_role("complementary", name="Step build")
    log = panel.get_by_label("Live log")
    expect(log).to_contain_text("compiling module 199")
    follow = panel.get_by_role("button", name="Follow")
    expect(follow).to_have_attribute("aria-pressed", "true")
    page.wait_for_function(
        "() => { const box = document.querySelector('.output'); "
        "return box.scrollHeight - box.scrollTop - box.clientHeight < 5; }"
    )
    search = panel.get_by_label("Search the log")
    search.fill("MODULE 19")
    expect(panel.get_by_role("status")).to_have_text("1 of 11")
    expect(follow).to_have_attribute("aria-pressed", "false")
    search.press("Enter")
    expect(panel.get_by_role("status")).to_have_text("2 of 11")
    expect(log.locator("mark.now")).to_have_text("module 19")
    panel.get_by_role("button", name="Previous match").click()
    panel.get_by_role("button", name="Previous match").click()
    expect(panel.get_by_role("status")).to_have_text("11 of 11")
    search.fill("deprecated")
    expect(panel.get_by_role("status")).to_have_text("No matches")
    (built.folder / "warn").touch()
    expect(panel.get_by_role("status")).to_have_text("1 of 1")
    follow.click()
    expect(follow).to_have_attribute("aria-pressed", "true")
    shot(page, "step-live-log")
    (built.folder / "go").touch()
    kept = panel.get_by_label("Log", exact=True)
    expect(kept).to_contain_text("module 7 is deprecated")
    expect(panel.locator(".outcome")).to_contain_text("Succeeded")
    with page.expect_download() as saved:
        panel.get_by_role("link", name="Download").click()
    assert saved.value.suggested_filename == "build-1.log"
    panel.get_by_role("button", name="Wrap lines").click()
    expect(kept).to_have_css("white-space", "pre")


def test_a_failed_step_is_read_from_its_address(pages, built):
    """Outcome, inputs with their expressions, criteria, attempts with their logs; nothing twice."""
    prepare = {"id": "prepare", "worker": "prepare", "parameters": {"what": "pages"}}
    check = {
        "id": "check",
        "worker": "tested",
        "parameters": {"what": "${{ steps.prepare.data }}"},
        "success_criteria": ["quick", "data.failed == 0"],
        "retry": {"attempts": 2, "backoff": 0.1},
        "failure_action": "abort",
    }
    took = "took ${{ steps.check.data.seconds }}"
    after = {"id": "after", "worker": "prepare", "parameters": {"what": took}}
    plan = {"goal": "Check", "steps": [prepare, check, after]}
    run = built.call("POST", "/runs", {"plan": plan})["run"]
    built.until(run, "failed")
    page = enter(pages, built)
    page.goto(f"{built.url}#/runs/{run}/outputs?step=check")
    panel = page.get_by_role("complementary", name="Step check")
    expect(panel.locator(".outcome")).to_contain_text("Failed after 2 attempts (criteria unmet).")
    expect(panel.locator(".inputs")).to_contain_text("pages")
    expect(panel.locator(".template")).to_contain_text("${{ steps.prepare.data }}")
    criteria = panel.get_by_role("region", name="Success criteria")
    expect(criteria.get_by_role("row", name=re.compile("quick"))).to_contain_text("unmet")
    expect(criteria.get_by_role("row", name=re.compile("failed == 0"))).to_contain_text("met")
    attempts = panel.locator(".attempt")
    expect(attempts).to_have_count(2)
    expect(attempts.last).to_contain_text("the test database does not answer")
    expect(attempts.last).to_contain_text(re.compile(r"Recovery: retry: attempt 2 after \d+ms"))
    expect(panel.locator(".output")).to_contain_text("attempt 2")
    panel.get_by_role("button", name="Log of attempt 1").click()
    expect(panel.locator(".output")).to_contain_text("attempt 1")
    expect(attempts.first).to_contain_text("quick does not hold")
    assert panel.text_content().count("the test database does not answer") == 1
    shot(page, "step-failed")
    page.goto(f"{built.url}#/runs/{run}?step=check")
    shot(page, "step-rows")
    panel.get_by_role("button", name="Full width").click()
    shot(page, "step-failed-wide")
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 800})
    shot(page, "step-failed-390")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.goto(f"{built.url}#/runs/{run}/graph?step=after")
    panel = page.get_by_role("complementary", name="Step after")
    expect(panel).to_contain_text("known when the step starts")
    panel.get_by_role("link", name="Events of this step").click()
    expect(panel).to_have_count(0)
    expect(page.get_by_label("Search the event log")).to_have_value("after")


def test_every_action_shows_in_the_panel_at_once(pages, built):
    """Hold, release, answer, retry: outcome, buttons and attempts change without a reload."""
    steps = [
        {"id": "wait", "worker": "wait", "parameters": {"number": 1}},
        {"id": "late", "worker": "prepare", "depends_on": ["wait"]},
        {"id": "ask", "worker": "publish", "parameters": {"to": "x"}, "retry": 1},
    ]
    (built.folder / "go").unlink(missing_ok=True)
    run = built.call("POST", "/runs", {"plan": {"goal": "Act", "steps": steps}})["run"]
    page = enter(pages, built)
    page.goto(f"{built.url}#/runs/{run}/graph?step=late")
    panel = page.get_by_role("complementary", name="Step late")
    expect(panel.locator(".outcome")).to_contain_text("Not started: it waits for wait.")
    for button, outcome in (("Hold step", "Held by ada"), ("Release step", "Not started")):
        panel.get_by_role("button", name=button).click()
        page.get_by_role("dialog").get_by_role("button", name=button).click()
        expect(panel.locator(".outcome")).to_contain_text(outcome)
        expect(panel.get_by_role("button", name=button)).to_have_count(0)
    page.goto(f"{built.url}#/runs/{run}/graph?step=ask")
    panel = page.get_by_role("complementary", name="Step ask")
    expect(panel.locator(".outcome")).to_contain_text("Waiting for input after attempt 1 failed")
    expect(panel.locator(".leads")).to_contain_text("attempt 2 of step ask starts")
    panel.get_by_role("button", name="Retry step").click()
    expect(panel.locator(".attempt")).to_have_count(2)
    expect(panel.locator(".outcome")).to_contain_text("Waiting for input after attempt 2 failed")
    panel.get_by_role("button", name="Skip step").click()
    expect(panel.locator(".outcome")).to_contain_text("Skipped.")
    expect(panel.locator(".asked")).to_have_count(0)
    (built.folder / "go").touch()


def test_model_calls_are_read_with_prompt_and_answer(pages, rivals):
    """Of a step and of the planner: model, purpose, latency, tokens, cost, and what was said."""
    goal = {"text": "Compare the prices of Nordwind and Kestrel"}
    run = rivals.call("POST", "/runs", {"goal": goal})["run"]
    rivals.until(run, "succeeded")
    page = enter(pages, rivals)
    page.goto(f"{rivals.url}#/runs/{run}/graph?step=research-a")
    panel = page.get_by_role("complementary", name="Step research-a")
    calls = panel.get_by_role("region", name="Model calls")
    row = calls.get_by_role("row").nth(1)
    expect(row).to_contain_text("Attempt 1")
    row.get_by_role("button", name=re.compile("claude-haiku")).click()
    expect(calls.locator(".message").first).to_contain_text("System")
    expect(calls.locator(".message").last).to_contain_text("Answer")
    shot(page, "step-model-calls")
    page.goto(f"{rivals.url}#/runs/{run}/outputs")
    planner = page.get_by_role("region", name="Model calls")
    expect(planner).to_contain_text("Planner call 1: the run started")
    shot(page, "planner-model-calls")
