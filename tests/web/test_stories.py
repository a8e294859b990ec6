"""What people do with the page, from the first click to the end, against the real server."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.web.conftest import ROOT, shot

pytestmark = [pytest.mark.slow, pytest.mark.real]
PLAN = json.loads((ROOT / "examples" / "deploy" / "plan.json").read_text())


def enter(pages, served, **options):
    page = pages(served.entry, **options)
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    return page


def state_of(page):
    return page.locator(".run-head .figures .status").first


def test_the_research_demo_from_new_run_to_its_result(pages, town):
    """A goal is given, its plan looked at, started, and watched until the result is there."""
    served, source = town
    page = enter(pages, served)
    expect(page.get_by_text("No runs yet")).to_be_visible()
    page.get_by_role("link", name="New run").first.click()
    page.get_by_label("Goal", exact=True).fill("Where do the bicycles run out?")
    page.get_by_label(re.compile("^Wanted facts")).fill("summary")
    page.get_by_label(re.compile("^Known facts")).fill(f"api={source}")
    page.get_by_role("button", name="Show plan").click()
    expect(page.get_by_text("Starts without approval")).to_be_visible()
    expect(page.locator(".plan-step").first).to_be_visible()
    assert served.call("GET", "/runs")["items"] == []  # nothing runs yet
    shot(page, "story-draft")
    page.get_by_role("button", name="Start run", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Where do the bicycles")
    expect(page.locator("[data-step=measure]")).to_be_visible()
    (row,) = served.call("GET", "/runs")["items"]
    served.until(row["run"], "succeeded", seconds=120)
    expect(state_of(page)).to_contain_text("Succeeded")
    expect(page.locator("[data-step=summarise]")).to_have_class(re.compile("tone-good"))
    expect(page.locator("[data-step=measure]")).to_have_class(re.compile("tone-bad"))
    shot(page, "story-finished")
    page.get_by_role("link", name="Outputs").click()
    expect(page.locator(".result")).to_contain_text("Harbour had none")
    # What the page showed by events alone is what the server says.
    graph = served.call("GET", f"/runs/{row['run']}/graph")
    page.get_by_role("link", name="Steps", exact=True).click()
    for node in graph["nodes"]:
        shown = page.locator(f'.plan-row[data-step="{node["id"]}"]')
        expect(shown).to_contain_text(node["status"].capitalize())


@pytest.fixture
def waiting(deploy, pages):
    run = deploy.call("POST", "/runs", {"plan": PLAN, "review": True})["run"]
    deploy.until(run, "waiting")
    return deploy, run


def test_a_plan_is_amended_compared_and_approved(pages, waiting):
    """From the inbox to the plan; one value is changed, the change looked at, the rest approved."""
    served, run = waiting
    page = enter(pages, served)
    shot(page, "story-inbox")
    page.get_by_role("link", name="Review plan").click()
    bound = page.locator(".review-bar .hash")
    before = bound.get_attribute("title")
    assert before == served.call("GET", f"/runs/{run}/review")["binding"]
    page.get_by_role("button", name="Edit step step-1").click()
    fields = page.get_by_role("group", name="Fields of step step-1")
    fields.get_by_label("test_suite").fill("quick")
    expect(page.locator(".review-bar")).to_contain_text("1 unsent change")
    page.keyboard.press("Escape")  # away from the field
    page.get_by_role("button", name=re.compile("^Approve")).click()  # not while changes are unsent
    expect(page.locator(".notice.tone-bad")).to_contain_text("Send or discard your changes first")
    page.get_by_role("button", name="Preview changes").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".side-new")).to_contain_text("quick")
    expect(dialog).to_contain_text("risk medium")
    dialog.get_by_role("button", name="Amend plan").click()
    expect(bound).not_to_have_attribute("title", before)
    expect(page.locator(".plan-step").first).to_contain_text("quick")
    shot(page, "story-review")

    page.get_by_label("Compare with").select_option("1")
    expect(page.locator(".change-changed")).to_contain_text("parameters.test_suite")
    expect(page.locator(".side-old")).to_contain_text("full")
    expect(page.locator(".side-new")).to_contain_text("quick")
    shot(page, "story-compare")

    page.get_by_role("button", name=re.compile("Revision 1")).click()
    expect(page.locator(".review-bar")).to_contain_text("You are looking at revision 1")
    expect(page.locator(".review-bar")).to_contain_text("Decides revision 2")
    page.get_by_role("button", name=re.compile("Revision 2")).click()
    page.get_by_role("button", name=re.compile("^Approve")).click()
    expect(page.get_by_role("dialog")).to_contain_text("medium risk")
    expect(page.get_by_role("dialog")).to_contain_text("Side effects: cluster")
    expect(page.get_by_role("dialog").locator(".hash")).to_have_attribute(
        "title", served.call("GET", f"/runs/{run}/review")["binding"]
    )
    page.get_by_label("Reason").fill("as agreed")
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(state_of(page)).to_contain_text(re.compile("Running|Succeeded"))
    served.until(run, "succeeded", seconds=120)
    expect(state_of(page)).to_contain_text("Succeeded")
    lines = [line["text"] for line in served.call("GET", f"/runs/{run}/ledger")["items"]]
    assert any("as agreed" in line and "approv" in line.lower() for line in lines), lines


def test_a_plan_is_rejected(pages, waiting):
    """Nothing of it runs, and why stands in the record."""
    served, run = waiting
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}/plan")
    page.get_by_role("button", name=re.compile("^Reject")).click()
    page.get_by_label("Reason").fill("not on a Friday")
    page.get_by_role("dialog").get_by_role("button", name="Reject").click()
    expect(state_of(page)).to_contain_text("Rejected")
    expect(page.get_by_text("not on a Friday").first).to_be_visible()
    assert all(step["attempts"] == 0 for step in served.call("GET", f"/runs/{run}")["steps"])


def test_a_word_about_something_else_is_refused(pages, waiting):
    """The plan changed under the reader: what they approve is what they saw, so it fails."""
    served, run = waiting
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}/plan")
    button = page.get_by_role("button", name=re.compile("^Approve"))
    expect(button).to_be_visible()
    button.click()
    seen = served.call("GET", f"/runs/{run}/review")["binding"]
    change = [{"path": "steps.step-1.parameters.test_suite", "value": "none"}]
    served.call("POST", f"/runs/{run}/review/amend", {"digest": seen, "set": change})
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.locator(".notice.tone-bad")).to_be_visible()
    assert served.call("GET", f"/runs/{run}")["status"] == "waiting"
    expect(page.locator(".plan-step").first).to_contain_text("none")


def test_a_plan_as_yaml_is_looked_at_and_refused_with_its_findings(pages, deploy):
    """What is wrong with a plan is said before anything runs; a sound one shows its steps."""
    page = enter(pages, deploy)
    page.goto(f"{deploy.url}#/new")
    page.get_by_role("button", name="Plan file").click()
    text = page.get_by_label("Plan (YAML or JSON)")
    text.fill("goal: Try\nsteps:\n  - id: a\n    worker: nobody\n")
    page.get_by_role("button", name="Show plan").click()
    expect(page.locator(".findings").first).to_contain_text("nobody")
    text.fill("goal: Try\nsteps:\n  - id: a\n    worker: test-runner\n    action: run_tests\n")
    page.get_by_role("button", name="Show plan").click()
    expect(page.locator(".plan-step")).to_contain_text("test-runner")
    assert deploy.call("GET", "/runs")["items"] == []
