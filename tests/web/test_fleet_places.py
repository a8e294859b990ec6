"""What the board shows of code hosts, further repositories, other machines and silent agents.

A real fleet has them only with a host, a second clone or a second machine; tests/fleet plays those.
Here its document is made by the functions of the fleet itself, and the page is looked at.
"""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.support.need import need
from tests.web.busy_fleet import NOW, SECOND, BusyFleet
from tests.web.conftest import AXE, PHONE, WIDE, shot
from tests.web.fake import Fake
from tests.web.test_gallery import faults, too_wide

pytestmark = [pytest.mark.slow, pytest.mark.real]
HOST = "https://code.example/shop"
LONG = "waits-for-a-review-of-" + "x" * 60


def note(what, said, **more):
    return {"at": NOW - 9 * SECOND, "what": what, "run": "epic-0", "said": said, **more}


@pytest.fixture
def fake():
    fleet = BusyFleet(agents=3, tasks=12)
    heard = (datetime.now(UTC) - timedelta(minutes=7)).isoformat()
    fleet.agents[0] |= {"heard": heard, "silence_s": 1800}
    notes = fleet.sources.notes
    notes.append(note("issue taken", f"{HOST}/issues/3"))
    notes.append(note("pull request", f"{HOST}/pull/4", task="task-8", code=0))
    notes.append(note("pull request", "javascript:alert(1)", code=0))
    found = fleet.document()
    changes = [{"run": "", "task": "", "goal": LONG}]
    train = {"batch": 8, "batches": [{"size": 1, "state": "testing", "changes": changes}]}
    here = {"repo": "/srv/api", "publish": "out", "main": "", "against": None}
    found["live"] |= {
        "repositories": [{"name": "api", "train": train, **here}],
        "machines": [{"name": "m1", "agents": 2, "seen": "", "trouble": "out of disk"}],
    }
    card = next(each for each in found["board"]["cards"] if each["task"] == "task-8")
    lists = {"writes": [], "acceptance": []}
    planned = {"goal": card["title"], "brief": "", "why": "", "worker": "c", **lists}
    task = {"card": card, "epic": "Epic 0", "status": "running", "cost": 0.0, "attempts": []}
    task |= {"planned": {**planned, "superseded_by": None}, "change": None, "commit": None}
    with Fake({"/fleet": {"fleet": found}, "/fleet/epic-0/task-8": task}) as made:
        yield made


@pytest.mark.parametrize(("theme", "size"), [("light", WIDE), ("dark", PHONE)])
def test_hosts_repositories_machines_and_silence_are_shown(pages, fake, theme, size):
    need(AXE.exists(), "axe-core, which `make test` fetches by npm")
    context = pages.browser.new_context(viewport=size, color_scheme=theme)
    context.set_default_timeout(60_000)
    context.add_init_script(path=AXE)
    pages.open.append(context)
    page = pages(f"{fake.url}#/fleet", context=context)
    silent = page.locator(".task").filter(has_text="Write module 0 ")
    told = r"no output for \d+m[\ds ]*; it is stopped at 30m without output or changes"
    expect(silent).to_contain_text(re.compile(told))
    lane = page.locator(".epic-lane").filter(has=page.get_by_role("heading", name="Epic 0"))
    issue = lane.get_by_role("link", name=f"{HOST}/issues/3")
    expect(issue).to_have_attribute("href", f"{HOST}/issues/3")
    expect(issue).to_have_attribute("rel", "noreferrer")
    expect(lane).to_contain_text("Pull request: javascript:alert(1)")
    assert page.locator("a[href^='javascript']").count() == 0
    expect(page.get_by_role("heading", name="Merge queue", exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name="Merge queue of api")).to_be_visible()
    expect(page.locator(".batches")).to_contain_text(LONG)
    expect(page.locator(".figures").first).to_contain_text("Machine m12 agents; out of disk")
    shot(page, f"fleet-places-{theme}")
    assert (faults(page), max(0, too_wide(page))) == ([], 0)
    page.goto(f"{fake.url}#/fleet/epic-0/task-8")
    pull = page.locator(".task-now").get_by_role("link", name=f"{HOST}/pull/4")
    expect(pull).to_have_attribute("target", "_blank")
    assert (faults(page), max(0, too_wide(page))) == ([], 0)
