"""People steer a run from the page: answer, retry, hold, pause; the page outlives a crash."""

import re

import pytest
from playwright.sync_api import expect

from tests.web.conftest import PHONE, WIDE, shot
from tests.web.steering import delivering, patient, publishing
from tests.web.test_stories import enter, state_of

pytestmark = [pytest.mark.slow, pytest.mark.real]


def looked_at(page, name):
    """Wide and light, and on a phone in the dark."""
    shot(page, name)
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme="dark")
    shot(page, f"{name}-phone-dark")
    page.set_viewport_size(WIDE)
    page.emulate_media(color_scheme="light")


def test_a_question_is_answered_on_the_overview(pages, served):
    """It comes by itself, counts in the title, is answered with a reason and goes away."""
    page = enter(pages, served)
    run = served.call("POST", "/runs", {"plan": publishing("escalate")})["run"]
    asked = page.locator(".ask")
    expect(asked).to_contain_text("refuses the key")
    expect(page.locator(".place-inbox .badge")).to_contain_text("1")
    expect(page).to_have_title("(1) Overview · project · Leadhand")
    retry = asked.get_by_role("button", name="Retry")
    assert "primary" not in (retry.get_attribute("class") or "")  # the key may still be refused
    expect(retry).to_have_accessible_description(re.compile("attempt 2 of step publish starts"))
    (served.folder / "fixed").touch()
    asked.get_by_label("Comment").fill("the key is renewed")
    retry.click()
    expect(page.get_by_text("Nothing waits for a person.")).to_be_visible()
    expect(page).to_have_title("Overview · project · Leadhand")
    served.until(run, "succeeded")
    expect(page.get_by_role("heading", name="Running now").locator("..")).to_contain_text(
        "No run is in progress"
    )
    lines = [line["text"] for line in served.call("GET", f"/runs/{run}/ledger")["items"]]
    assert any("the key is renewed" in line for line in lines), lines


def test_a_failed_step_says_why_and_is_retried(pages, served):
    """The reason, the class, what it printed; then a retry, after which the run succeeds."""
    run = served.call("POST", "/runs", {"plan": publishing("abort")})["run"]
    served.until(run, "failed")
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}")
    expect(state_of(page)).to_contain_text("Failed")
    page.locator("[data-step=publish]").click()
    drawer = page.get_by_role("complementary", name="Step publish")
    expect(drawer).to_contain_text("example refuses the key")
    expect(drawer.locator(".attempt")).to_contain_text("denied")
    expect(drawer.locator(".output")).to_contain_text("connecting to example")
    shot(page, "story-failed")
    (served.folder / "fixed").touch()
    drawer.get_by_role("button", name="Retry").click()
    page.get_by_label("Reason").fill("the key is renewed")
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    expect(state_of(page)).to_contain_text("Succeeded")
    expect(drawer).to_contain_text("published to example")
    expect(drawer.locator(".attempt")).to_have_count(2)


def test_a_step_is_given_to_another_worker(pages, served):
    """By keyboard; each attempt stands in the row of the step; the other worker gets it done."""
    run = served.call("POST", "/runs", {"plan": delivering()})["run"]
    served.until(run, "waiting")
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}")
    made = page.locator(".plan-row .seg-attempt")
    expect(made).to_have_count(3)
    expect(made.nth(1)).to_have_attribute(
        "title", re.compile(r"^Attempt 2 by courier: transient, .*ann does not answer")
    )
    expect(page.locator(".plan-row .seg-retry")).to_have_count(2)
    expect(page.locator(".otherwise")).to_contain_text("1 retried step")
    looked_at(page, "story-attempts")
    page.locator(".plan-row button").click()
    drawer = page.get_by_role("complementary", name="Step deliver")
    drawer.get_by_role("button", name="Reassign").press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Worker")).to_have_value("post")
    looked_at(page, "story-reassign")
    dialog.get_by_label("Reason").fill("the courier gave up")
    dialog.get_by_role("button", name="Reassign").press("Enter")
    expect(state_of(page)).to_contain_text("Succeeded")
    expect(page.get_by_role("complementary", name="Step deliver.2")).to_contain_text("ann has it")
    lines = [line["text"] for line in served.call("GET", f"/runs/{run}/ledger")["items"]]
    assert any("the courier gave up" in line for line in lines), lines


def test_the_server_dies_and_comes_back(pages, served):
    """The open page says so, reconnects by itself, and is right without a reload."""
    run = served.call("POST", "/runs", {"plan": patient(6)})["run"]
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}")
    expect(page.locator(".plan-row.tone-live")).to_have_count(6)
    page.evaluate("window.stillThere = 1")
    library = pages(f"{served.url}#/library", context=page.context)
    expect(library.get_by_text("The library is empty")).to_be_visible()
    served.kill()
    expect(page.get_by_text("Disconnected.")).to_be_visible()
    served.terminal("library", "save", "kept-meanwhile", run)
    shot(page, "story-disconnected")
    (served.folder / "go").touch()
    served.start()
    expect(page.get_by_text("Data is up to date")).to_be_visible(timeout=30_000)
    expect(page.locator(".banner")).to_have_count(0)
    expect(library.get_by_role("link", name="kept-meanwhile")).to_be_visible()
    served.until(run, "succeeded")
    expect(state_of(page)).to_contain_text("Succeeded")
    expect(page.locator(".plan-row.tone-good")).to_have_count(7)
    assert page.evaluate("window.stillThere") == 1
    graph = served.call("GET", f"/runs/{run}/graph")["nodes"]
    page.locator("[data-step=wait-3]").click()
    attempts = next(node["attempts"] for node in graph if node["id"] == "wait-3")
    drawer = page.get_by_role("complementary", name="Step wait-3")
    expect(drawer.locator(".attempt")).to_have_count(attempts)


def test_a_live_run_is_followed_on_its_rows(pages, served):
    """Bars grow, states change and the outcome comes, without a reload."""
    run = served.call("POST", "/runs", {"plan": patient(2)})["run"]
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}")
    bar = page.locator("[data-step=wait-0] .seg-attempt")
    expect(bar).to_have_attribute("title", re.compile("^Attempt 1 by wait: running, "))
    before = bar.get_attribute("title")
    expect(bar).not_to_have_attribute("title", before)  # it grows
    expect(page.locator("[data-step=last]")).to_contain_text("prepare · after wait-0, wait-1")
    expect(page.locator("[data-step=last] .seg-dependencies")).to_have_count(1)
    page.evaluate("window.stillThere = 1")
    (served.folder / "go").touch()
    expect(page.locator(".plan-row.tone-good")).to_have_count(3)
    expect(bar).to_have_class(re.compile("tone-good"))
    outcome = page.locator(".outcome")
    expect(outcome).to_contain_text(re.compile("^Succeeded after .*: all 3 steps succeeded"))
    expect(page.get_by_text("Nothing was done outside the approved plan")).to_be_visible()
    told = served.terminal("show", run)
    assert outcome.locator("p").inner_text() in told
    assert page.evaluate("window.stillThere") == 1


def test_pause_hold_release_resume_and_cancel(pages, served):
    """Each asks once, is carried out, and shows."""
    run = served.call("POST", "/runs", {"plan": patient(2)})["run"]
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}")
    act(page, "Pause run")
    expect(state_of(page)).to_contain_text("Paused")
    act(page, "Resume run")
    expect(state_of(page)).to_contain_text("Running")
    page.locator("[data-step=last]").click()
    act(page, "Hold step")
    expect(page.locator("[data-step=last]")).to_have_class(re.compile("tone-ask"))
    act(page, "Release step")
    expect(page.locator("[data-step=last]")).to_have_class(re.compile("tone-quiet"))
    act(page, "Cancel run")
    (served.folder / "go").touch()
    expect(state_of(page)).to_contain_text("Cancelled")


def act(page, name, confirmed=""):
    page.get_by_role("button", name=name, exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=confirmed or name, exact=True).click()


def test_all_tabs_share_one_stream(pages, served):
    """A second tab hears what the first one reads; when the first is closed it reads itself."""
    first = enter(pages, served)
    second = pages(served.url, context=first.context)
    expect(second.locator(".line-live")).to_be_visible()
    streams = [url for url in pages.asked if "/events" in url]
    assert len(streams) == 1
    run = served.call("POST", "/runs", {"plan": patient(2)})["run"]
    for page in (first, second):
        page.goto(f"{served.url}#/runs/{run}")
        expect(page.locator(".plan-row.tone-live")).to_have_count(2)
    first.close()
    (served.folder / "go").touch()
    expect(state_of(second)).to_contain_text("Succeeded")
    assert len([url for url in pages.asked if "/events" in url]) == 2


def test_a_viewer_sees_all_and_can_do_nothing(pages, served, tmp_path):
    """Buttons that would be refused are not there."""
    import json
    import subprocess
    import sys

    made = subprocess.run(
        [sys.executable, "-m", "leadhand.cli", "serve", "token", "add", "vera", "--json"],
        cwd=served.folder,
        capture_output=True,
        check=True,
    )
    run = served.call("POST", "/runs", {"plan": publishing("escalate")})["run"]
    served.until(run, "waiting")
    page = pages(f"{served.url}#token={json.loads(made.stdout)['token']}")
    expect(page.locator(".ask")).to_contain_text("your role is viewer")
    page.goto(f"{served.url}#/runs/{run}/graph?step=publish")
    expect(page.locator(".drawer .attempt")).to_be_visible()
    for name in ("Pause run", "Cancel run", "Retry step", "Hold step", "Skip step"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)


def test_a_protected_change_is_read_and_approved_with_a_second_look(pages, served):
    """The diff is there, in monospace; no button lands it by one click."""
    from tests.support.protected import COMMIT, STEP, WORKER

    with (served.folder / "workers.py").open("a") as file:
        file.write("\nfrom leadhand import Context\n" + WORKER)
    served.stop()
    served.start()
    page = enter(pages, served)
    page.goto(f"{served.url}#/inbox")
    run = served.call("POST", "/runs", {"plan": {"goal": "scale", "steps": [STEP]}})["run"]
    asked = page.locator(".ask")
    expect(asked).to_contain_text("Protected change")
    expect(asked.locator(".diff-added")).to_have_text(re.compile(r"\+replicas: 0"))
    expect(asked.locator(".diff-removed")).to_have_text(re.compile("-replicas: 3"))
    assert "mono" in asked.locator(".diff pre").evaluate("e => getComputedStyle(e).fontFamily")
    assert asked.locator("button.primary").count() == 0
    looked_at(page, "protected-change")
    asked.get_by_role("button", name="Approve this change").click()
    dialog = page.locator("dialog")
    expect(dialog).to_contain_text(COMMIT[:12])
    dialog.get_by_role("button", name="Cancel").click()
    assert served.call("GET", f"/runs/{run}")["status"] == "waiting"
    asked.get_by_role("button", name="Send back").click()
    dialog.get_by_role("button", name="Send back").click()
    assert dialog.is_visible(), "a comment must be given"
    dialog.get_by_role("button", name="Cancel").click()
    asked.get_by_role("button", name="Approve this change").click()
    dialog.get_by_role("button", name="Approve this change").click()
    expect(page.get_by_text("The inbox is empty")).to_be_visible()
    served.until(run, "succeeded")


def test_a_failed_run_is_verified_exported_and_run_again_from_its_failed_step(pages, served):
    """The new run takes over what was done, says so, and is a run of its own."""
    run = served.call("POST", "/runs", {"plan": publishing("abort")})["run"]
    served.until(run, "failed")
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}")
    expect(page.locator(".outcome")).to_contain_text("step publish failed: PermissionError")
    page.get_by_role("button", name="Verify").click()
    expect(page.locator(".run-head").get_by_role("status")).to_contain_text("0 violations")
    with page.expect_download() as kept:
        page.get_by_role("button", name="Export").click()
    assert kept.value.suggested_filename == f"run-{run}.zip"
    (served.folder / "fixed").touch()
    page.get_by_role("button", name="Re-run").click()
    page.get_by_label("Start from").select_option("publish")
    page.get_by_role("button", name="Start new run").click()
    expect(state_of(page)).to_contain_text("Succeeded")
    expect(page.locator(".crumbs")).not_to_contain_text(run)
    expect(page.locator(".run-head")).to_contain_text(f"Re-run of {run} from its step publish")
    again = next(row for row in served.call("GET", "/runs")["items"] if row["run"] != run)
    assert [step["id"] for step in served.call("GET", f"/runs/{again['run']}")["steps"]] == [
        "publish"
    ]
