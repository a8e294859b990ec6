"""The page of a signed link in a real browser: decided by its form, on a phone, in both themes."""

import pytest
from playwright.sync_api import expect

from leadhand.core import events as ev
from tests.server.test_api import SAY, log_of
from tests.server.test_links import DANGER, Person, link_project, waits
from tests.support.need import need
from tests.support.serving import TOKENS, served
from tests.web.conftest import AXE, WIDE, shot
from tests.web.test_gallery import faults, too_wide

pytestmark = [pytest.mark.slow, pytest.mark.real]
SMALL = {"width": 390, "height": 844}
LONG = {"text": "x" * 300}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("links")
    link_project(folder)
    with served(folder) as up:
        yield up


def opened(pages, url, theme, size, **more):
    need(AXE.exists(), "axe-core, which `make test` fetches by npm")
    context = pages.browser.new_context(viewport=size, color_scheme=theme, **more)
    context.set_default_timeout(60_000)
    context.add_init_script(path=AXE)
    pages.open.append(context)
    return pages(url, context=context)


@pytest.mark.parametrize(("theme", "size"), [("light", SMALL), ("dark", SMALL), ("dark", WIDE)])
def test_every_state_of_the_page_fits_and_is_accessible(pages, server, theme, size):
    """Asked, opened in full, asked once more, recorded, and used."""
    run = waits(server, {**SAY, "description": "greet", "parameters": LONG}, DANGER)
    person = Person(server)
    token = person.link(run)
    person.http.close()
    shown = opened(pages, f"{server.url}/answer/{token}", theme, size)
    expect(shown.get_by_role("heading", level=1)).to_contain_text("Approve plan")
    wrong = []

    def looked(name):
        shot(shown, f"answer-{name}-{theme}-{size['width']}")
        wrong.extend(f"{name}: {fault}" for fault in faults(shown))
        wrong.extend(f"{name}: {wide} px too wide" for wide in [too_wide(shown)] if wide > 0)

    looked("asked")
    for each in shown.locator("summary").all():
        each.click()
    looked("steps")
    shown.get_by_role("button", name="Reject").click()
    expect(shown.get_by_role("alert")).to_contain_text("Nothing is recorded yet")
    looked("confirm")
    shown.get_by_label("Comment").fill("fine by me")
    shown.get_by_role("button", name="Approve").click()
    expect(shown.get_by_role("status")).to_contain_text("Recorded in the log")
    looked("recorded")
    shown.goto(f"{server.url}/answer/{token}")
    expect(shown.get_by_role("status")).to_contain_text("was used")
    looked("used")
    assert not wrong, "\n".join(wrong)
    given = [each for each in log_of(server, run) if isinstance(each, ev.ApprovalGiven)]
    assert [(each.actor, each.reason) for each in given] == [("approver", "fine by me")]


def test_an_open_dashboard_follows_what_a_link_decided(pages, server):
    """Without a reload: the first approval is there, and another person is still asked."""
    run = waits(server, DANGER)
    person = Person(server)
    page = pages(f"{server.url}#token={TOKENS['operator']}")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.goto(f"{server.url}#/runs/{run}/plan")
    expect(page.locator(".topic-approvals")).to_contain_text("0 of 2 given")
    assert person.post(person.link(run)).status_code == 200
    expect(page.locator(".topic-approvals")).to_contain_text("1 of 2 given (by approver)")
    expect(page.locator(".allowed")).to_contain_text("Approved by approver")
    person.http.close()


def test_it_works_without_scripts_and_by_keyboard(pages, server):
    run = waits(server, DANGER)
    person = Person(server)
    token = person.link(run)
    person.http.close()
    context = pages.browser.new_context(viewport=SMALL, java_script_enabled=False)
    context.set_default_timeout(60_000)
    pages.open.append(context)
    shown = pages(f"{server.url}/answer/{token}", context=context)
    shown.get_by_label("Comment").focus()
    shown.keyboard.press("Tab")
    shown.keyboard.press("Enter")
    expect(shown.get_by_role("status")).to_contain_text("Recorded in the log")
    assert [each for each in log_of(server, run) if isinstance(each, ev.LinkUsed)]
