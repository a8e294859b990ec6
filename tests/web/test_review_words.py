"""A review on the page: values, possible answers, one digest, and no text that is lost."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.web.conftest import Served
from tests.web.steering import project
from tests.web.test_stories import enter, state_of

pytestmark = [pytest.mark.slow, pytest.mark.real]

PLAN = {
    "goal": "Prepare it",
    "params": {"what": {"type": "string", "default": "v13"}, "in_place": {"default": "eu"}},
    "steps": [{"id": "ready", "worker": "prepare", "parameters": {"what": "${{ params.what }}"}}],
}


def test_a_review_shows_values_and_only_possible_answers_and_keeps_its_digest(pages, served):
    """Nothing reads words about a document; the plan then shows what was approved, by whom."""
    run = served.call("POST", "/runs", {"plan": PLAN, "review": True})["run"]
    shown = served.call("GET", f"/runs/{run}/review")["digest"]
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}/plan")
    expect(page.get_by_role("button", name=re.compile("^Approve"))).to_be_visible()
    expect(page.locator(".plan-step .known")).to_contain_text("v13")
    names = page.locator(".facts dt")
    expect(names.get_by_text("in_place", exact=True)).to_be_visible()  # a name as it is written
    expect(page.get_by_role("button", name=re.compile("^Request changes"))).to_have_count(0)
    page.get_by_role("button", name=re.compile("^Approve")).click()
    page.get_by_label("Reason").fill("as agreed")
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(state_of(page)).to_contain_text("Succeeded")
    page.goto(f"{served.url}#/runs/{run}/plan?rev=1")
    allowed = page.locator(".allowed li")
    expect(allowed).to_contain_text("as agreed")
    expect(allowed).to_contain_text("not signed")
    expect(allowed).to_contain_text("no expiry")
    expect(allowed).to_contain_text(shown[:4])
    (row,) = served.call("GET", f"/runs/{run}/revisions")["items"]
    assert row["digest"] == row["approvals"][0]["digest"] == shown


def test_a_start_time_that_passes_is_no_longer_to_come(pages, served):
    """Nothing happens in the run meanwhile: the review follows the clock by itself."""
    soon = (datetime.now(UTC) + timedelta(seconds=6)).isoformat()
    plan = {**PLAN, "steps": [{**PLAN["steps"][0], "not_before": soon}]}
    run = served.call("POST", "/runs", {"plan": plan, "review": True})["run"]
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}/plan")
    expect(page.locator(".topic-start")).to_contain_text("At once: ready", timeout=30_000)


def test_what_was_typed_is_kept_when_it_is_refused(pages, served):
    """The plan changed meanwhile: the dialog comes back with the text in it."""
    run = served.call("POST", "/runs", {"plan": PLAN, "review": True})["run"]
    seen = served.call("GET", f"/runs/{run}/review")["digest"]
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}/plan")
    page.get_by_role("button", name=re.compile("^Reject")).click()
    page.get_by_label("Reason").fill("not on a Friday")
    change = [{"path": "steps.ready.parameters.what", "text": "1.10"}]
    served.call("POST", f"/runs/{run}/review/amend", {"digest": seen, "set": change})
    page.get_by_role("dialog").get_by_role("button", name="Reject").click()
    expect(page.locator(".notice.tone-bad")).to_be_visible()
    expect(page.get_by_label("Reason")).to_have_value("not on a Friday")
    expect(page.locator(".plan-step")).to_contain_text("1.10")
    page.get_by_role("dialog").get_by_role("button", name="Reject").click()
    expect(state_of(page)).to_contain_text("Rejected")


def test_how_long_an_approval_holds_is_said_as_it_will_be(pages, tmp_path):
    """An end that the settings give is named, and so are the steps that it is too early for."""
    folder = project(tmp_path / "project")
    with (folder / "leadhand.toml").open("a") as file:
        file.write('\n[review]\nexpires = "8 hours"\n')
    with Served(folder) as served:
        step = {**PLAN["steps"][0], "not_before": "2099-01-01T00:00:00Z"}
        run = served.call("POST", "/runs", {"plan": {**PLAN, "steps": [step]}, "review": True})[
            "run"
        ]
        page = enter(pages, served)
        page.goto(f"{served.url}#/runs/{run}/plan")
        chosen = page.get_by_label("Approval expires").locator("option:checked")
        expect(chosen).to_have_text("in 8h (from settings)")
        expect(page.locator(".review-bar")).to_contain_text(
            "expires before the start time of ready"
        )
        page.get_by_role("button", name=re.compile("^Approve")).click()
        page.get_by_role("dialog").get_by_role("button", name="Approve").click()
        expect(state_of(page)).not_to_contain_text("Waiting")
        page.goto(f"{served.url}#/runs/{run}/plan?rev=1")
        expect(page.locator(".allowed li")).to_contain_text("until ")
        expect(page.locator(".run-head .figures")).to_contain_text("1 from a plan document")
