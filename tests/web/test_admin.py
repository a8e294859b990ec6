"""Workers, settings and the library: what an administrator finds, and does, in the browser."""

import re

import pytest
from playwright.sync_api import expect

from tests.web.conftest import Served
from tests.web.steering import project, publishing

PARAMS = {
    "to": {"type": "string", "description": "The host to publish to"},
    "tries": 3,
    "force": {"type": "boolean", "default": False},
    "where": {"enum": ["staging", "production"]},
}
pytestmark = [pytest.mark.slow, pytest.mark.real]


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A server with one failed run."""
    with Served(project(tmp_path_factory.mktemp("admin") / "project")) as served:
        run = served.call("POST", "/runs", {"plan": publishing("abort")})["run"]
        served.until(run, "failed")
        yield served, run


@pytest.fixture
def shown(house, pages):
    served, _ = house
    page = pages(served.entry)
    expect(page.get_by_role("navigation").first).to_be_visible()
    return lambda place: (page.goto(f"{served.url}#/{place}"), page)[1]


def test_workers_are_sorted_searched_and_opened(house, shown):
    """The worst worker first, its last error a link to the step; parameters when asked for."""
    _, run = house
    page = shown("workers")
    table = page.get_by_role("region", name="Workers")
    table.get_by_role("button", name="Failure rate").click()
    first = table.locator("tbody tr").first
    expect(first).to_contain_text("publish")
    expect(first).to_contain_text("100%")
    expect(first.get_by_role("link", name="refuses the key")).to_have_attribute(
        "href", f"#/runs/{run}?step=publish"
    )
    first.get_by_role("button").press("Enter")
    expect(table.locator(".offers")).to_contain_text("to")
    page.get_by_label("Search workers").fill("courier")
    expect(table.locator("tbody tr")).to_have_count(1)
    expect(table.locator(".tag.tone-good")).to_have_count(0)


def test_the_owner_manages_people(house, shown, pages):
    """Add: the token is shown once and signs in. Change, remove: the other page follows."""
    served, _ = house
    page = shown("settings")
    page.get_by_label("Name").fill("ann")
    page.get_by_role("button", name="Add person").click()
    dialog = page.get_by_role("dialog", name="Token of ann")
    token = dialog.locator("code").inner_text()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert token not in page.content()
    other = pages(f"{served.url}#token={token}")
    other.goto(f"{served.url}#/settings")
    expect(other.get_by_role("heading", name="People")).to_be_visible()
    expect(other.get_by_role("button", name="Add person")).to_have_count(0)
    expect(other.get_by_role("button", name="Stop all runs")).to_have_count(0)
    page.get_by_label("Role of ann").select_option("approver")
    expect(other.get_by_role("button", name="Stop all runs")).to_be_visible()
    page.get_by_role("button", name="Remove ann").click()
    page.get_by_role("button", name="Remove person").click()
    expect(page.get_by_role("region", name="People")).not_to_contain_text("ann")
    other.reload()
    expect(other.get_by_label("Token")).to_be_visible()


def test_settings_tell_what_differs_and_what_it_means(shown):
    """A duration has its unit; a search looks at all of them."""
    page = shown("settings")
    table = page.get_by_role("region", name="Settings", exact=True)
    expect(table).to_contain_text("project.workers")
    expect(table).not_to_contain_text("policy.outage")
    page.get_by_role("button", name="All", exact=True).click()
    row = table.get_by_role("row").filter(has_text="policy.outage")
    expect(row).to_contain_text("1 day")
    expect(row).to_contain_text("The longest time in all that a step may be parked.")
    page.get_by_role("button", name="Changed").click()
    page.get_by_label("Search settings").fill("parked")
    expect(row).to_be_visible()


def test_a_library_plan_is_compared_and_run_with_typed_fields(house, shown):
    """Versions with their difference; a choice of plans; fields by type; no option of a command."""
    served, _ = house
    old = publishing("abort")
    new = {**old, "params": PARAMS}
    new["steps"] = [old["steps"][0], old["steps"][1] | {"parameters": {"to": "${{ params.to }}"}}]
    for plan in (old, new):
        served.call("PUT", "/library/publish", {"plan": plan})
    page = shown("library/publish")
    expect(page.get_by_role("region", name="Versions").get_by_role("row")).to_have_count(3)
    expect(page.locator(".changes")).to_contain_text("params.to")
    page.get_by_label("from").select_option("2")
    expect(page.get_by_text("No differences")).to_be_visible()
    page.get_by_role("link", name="Run plan").click()
    expect(page.get_by_label("Library plan")).to_have_value("publish")
    fields = page.get_by_role("group", name="Parameters")
    fields.get_by_label("tries").fill("2")
    fields.get_by_label("force").select_option("true")
    page.get_by_role("button", name="Show plan").click()
    assert not fields.get_by_label("to (").evaluate("field => field.checkValidity()")
    fields.get_by_label("to (").fill("12")
    fields.get_by_label("where").select_option("production")
    page.get_by_role("button", name="Show plan").click()
    page.get_by_role("button", name="Start run").click()
    expect(page).to_have_url(re.compile("#/runs/(?!new)"))
    run = page.url.rpartition("/")[2]
    given = served.call("GET", f"/runs/{run}")["params"]
    assert given == {"to": "12", "tries": 2, "force": True, "where": "production"}
