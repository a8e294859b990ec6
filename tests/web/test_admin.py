"""Workers, settings and the library: what an administrator finds, and does, in the browser."""

import pytest
from playwright.sync_api import expect

from tests.web.conftest import Served
from tests.web.steering import project, publishing

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
