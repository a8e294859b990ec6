"""Large runs on the page: a thousand steps that change all the time, ten thousand collapsed.

How quick the page is while they change is measured by `python -m bench.page`.
"""

import re
import time

import pytest
from playwright.sync_api import expect

from tests.web import scenes
from tests.web.busy import STEPS, Busy, opened
from tests.web.conftest import shot
from tests.web.fake import Fake, inbox

pytestmark = [pytest.mark.slow, pytest.mark.real]
UPDATES = 400


@pytest.fixture
def fake():
    with Fake(scenes.large("big", STEPS) | scenes.large("huge", 10_000)) as made:
        yield made


def test_a_thousand_steps_show_what_was_sent_last(pages, fake):
    """However many updates come while it is drawn."""
    page = opened(pages, fake, "big")
    expect(page.locator(".node")).to_have_count(STEPS)
    expect(page.locator(".line-live")).to_be_visible()
    with Busy(fake, "big") as busy:
        while busy.sent < UPDATES:
            page.wait_for_timeout(50)
    shown = page.locator(f'[data-step="{busy.ids[((busy.sent - 1) // 2) % STEPS]}"]')
    expect(shown).to_contain_text("Succeeded" if (busy.sent - 1) % 2 else "Running")


def test_ten_thousand_steps_open_collapsed(pages, fake):
    """A few bundles instead of ten thousand nodes; one is opened; a step in it is found."""
    page = opened(pages, fake, "huge")
    page.wait_for_selector(".node.bundle")
    elements = int(page.evaluate("document.querySelectorAll('*').length"))
    bundles = page.locator(".node.bundle").count()
    assert bundles <= 120
    assert elements < 3000
    with Busy(fake, "huge"):
        page.locator(".node.bundle").first.click()
        expect(page.locator(".node:not(.bundle)").first).to_be_visible()
        page.locator(".node:not(.bundle)").first.click()
        expect(page.get_by_role("complementary")).to_have_count(2)  # the frame's, and the step
    page.goto(f"{fake.url}#/runs/huge")
    expect(page.get_by_text("10,000 steps", exact=True)).to_be_visible()
    assert page.locator(".plan-row").count() < 100
    page.get_by_label("Find steps").fill("id:report-9999")
    expect(page.locator(".plan-row")).to_have_count(1)


def test_three_hundred_steps_are_legible(pages, fake):
    """Steps side by side are named groups; a group opens; rows have every step by name."""
    fake.documents |= scenes.wide("wide", 300)
    page = opened(pages, fake, "wide")
    groups = page.locator(".node.bundle")
    expect(groups).to_have_count(2)
    expect(groups.first).to_contain_text("fetch 150")
    expect(page.locator(".node:not(.bundle)")).to_have_count(2)
    expect(page.locator(".edge.critical")).to_have_count(1)
    expect(page.locator(".graph")).not_to_have_class(re.compile("far"))  # texts are drawn
    shot(page, "wide-graph")
    page.locator(".node.bundle", has_text="read").click()
    expect(page.locator(".node:not(.bundle)")).to_have_count(150)
    expect(page.locator("[data-step=read-7]")).to_contain_text("the source refus")
    page.goto(f"{fake.url}#/runs/wide")
    expect(page.get_by_text("302 steps", exact=True)).to_be_visible()
    page.get_by_label("Find steps").fill("status:failed")
    expect(page.locator(".plan-row")).to_have_count(1)
    expect(page.locator(".plan-row")).to_contain_text("the source refused the connection")
    shot(page, "wide-rows")


def test_busy_rows_are_asked_for_once_a_second(pages, fake):
    """The server reads the whole log of the run for each answer."""
    began = time.monotonic()
    page = pages(f"{fake.url}#/runs/big")
    expect(page.locator(".plan-row").first).to_be_visible()
    with Busy(fake, "big") as busy:
        while busy.sent < UPDATES:
            page.wait_for_timeout(50)
    asked = [path for _, path, _ in fake.asked if path.endswith("/rows")]
    assert 1 < len(asked) <= 2 + time.monotonic() - began


def test_a_diff_of_20_000_lines_is_shown_whole(pages):
    """Each line is there to be read, and the page goes on answering."""
    lines = [f"{'+-'[number % 2]}{number}" for number in range(20_000)]
    row = {"id": "r1/q1", "run": "r1", "step": "scale", "kind": "protected_change", "goal": "scale"}
    row |= {
        "plan": "",
        "risk": None,
        "effects": [],
        "cost": None,
        "asked_by": "",
        "text": "Read it",
    }
    row |= {
        "commit": "c" * 40,
        "paths": ["p"],
        "people": 1,
        "approved_by": [],
        "since": scenes.at(0),
    }
    row |= {"choices": [{"answer": "approve", "leads_to": "it lands"}], "diff": "\n".join(lines)}
    with Fake({"/inbox": inbox(row)}) as fake:
        page = pages(f"{fake.url}#/inbox")
        diff = page.get_by_role("region", name="Diff of the change")
        expect(diff).to_be_visible()
        assert diff.inner_text().split() == lines
        fake.documents["/inbox"] = inbox(row | {"text": "Read it twice"})
        fake.push({"type": "QuestionAsked", "run": "r2", "seq": 1, "patch": None})
        expect(page.get_by_text("Read it twice")).to_be_visible()
        page.get_by_role("button", name="Approve this change").click()
        expect(page.get_by_role("dialog")).to_contain_text("c" * 12)
