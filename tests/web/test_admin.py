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
