"""The first screen: what waits, what runs, what failed and why; and how one is told of it."""

import re

import pytest
from playwright.sync_api import expect

from tests.web.conftest import PHONE, WIDE, shot
from tests.web.fake import Fake, inbox
from tests.web.steering import patient, publishing
from tests.web.test_gallery import too_wide
from tests.web.test_stories import enter

pytestmark = [pytest.mark.slow, pytest.mark.real]

NOTIFICATIONS = """
window.told = [];
window.Notification = class {
  static permission = 'default';
  static async requestPermission() { return (Notification.permission = 'granted'); }
  constructor(title, options) {
    window.told.push(Object.assign(this, { title, ...options }));
  }
  close() {}
};
"""


def test_why_a_run_failed_is_found_in_three_clicks(pages, served):
    """The reason stands on the overview; one click opens the failed step."""
    run = served.call("POST", "/runs", {"plan": publishing("abort")})["run"]
    served.until(run, "failed")
    page = enter(pages, served)
    failed = page.get_by_role("heading", name="Failed in the last 7 days").locator("..")
    expect(failed).to_contain_text("example refuses the key")
    page.get_by_role("button", name="24 hours").click()
    failed = page.get_by_role("heading", name="Failed in the last 24 hours").locator("..")
    failed.get_by_role("link", name="Open failed step publish").click()
    step = page.get_by_role("complementary", name="Step publish")
    expect(step).to_contain_text("example refuses the key")
    expect(page).to_have_title("Publish the pages · project · Leadhand")
    page.go_back()
    assert page.url.endswith("#/overview?range=24h")  # the range is kept in the address
    rates = page.get_by_role("img", name=re.compile("^Success and recovery rate"))
    rates.focus()
    page.keyboard.press("End")
    expect(page.locator(".chart-read").filter(has_text="runs succeeded")).to_contain_text("0%")
    page.get_by_text("Show as table").first.click()
    expect(page.get_by_role("table", name="Runs per hour")).to_be_visible()


def test_what_runs_is_followed_without_a_reload(pages, served):
    """It comes, its steps move on, it goes; on a phone the rest of the screens is one tap away."""
    page = enter(pages, served)
    expect(page.get_by_text("No runs yet")).to_be_visible()
    run = served.call("POST", "/runs", {"plan": patient(3)})["run"]
    now = page.get_by_role("heading", name="Running now").locator("..")
    expect(now).to_contain_text(re.compile(r"\d of \d+ steps succeeded"))
    expect(now.get_by_role("link").first).to_have_attribute("href", f"#/runs/{run}")
    shot(page, "overview-running")
    expect(now).to_contain_text("Running: wait-0")
    (served.folder / "go").touch()
    served.until(run, "succeeded")
    expect(now).to_contain_text("No run is in progress")
    expect(page.locator(".tile").filter(has_text="Success rate")).to_contain_text("100%")
    page.set_viewport_size(PHONE)
    expect(page.get_by_role("link", name="Settings")).to_be_hidden()
    page.get_by_role("button", name="More").click()
    page.get_by_role("link", name="Settings").click()
    expect(page.get_by_role("heading", name="Settings", level=1)).to_be_visible()
    expect(page.get_by_role("link", name="Settings")).to_be_hidden()  # the menu closed itself
    page.set_viewport_size(WIDE)


def test_the_browser_notifies_who_asked_for_it(pages, served):
    """Of what newly waits and of runs that failed, unless the page is looked at."""
    page = pages()
    page.add_init_script(NOTIFICATIONS)
    page.goto(served.entry)
    button = page.get_by_role("button", name="Notify me in this browser")
    button.click()
    expect(page.get_by_role("button", name="Turn off notifications")).to_be_visible()
    page.evaluate("document.hasFocus = () => false")
    asking = served.call("POST", "/runs", {"plan": publishing("escalate")})["run"]
    failing = served.call("POST", "/runs", {"plan": publishing("abort")})["run"]
    page.wait_for_function("() => told.length === 2")
    told = page.evaluate("told.map((each) => [each.title, each.body, each.tag])")
    by_tag = {tag: f"{title}: {body}" for title, body, tag in told}
    failed = by_tag[f"leadhand {failing}"]
    assert failed.startswith("Run failed: Publish the pages")
    assert "refuses the key" in failed
    (asked,) = (tag for tag in by_tag if asking in tag)
    assert "publish" in by_tag[asked]
    page.evaluate("tag => told.find((each) => each.tag === tag).onclick()", asked)
    expect(page).to_have_url(re.compile(f"#/inbox/{asking}/"))
    expect(page.locator(".ask")).to_have_count(1)
    page.get_by_role("button", name="Turn off notifications").click()
    expect(button).to_be_visible()
    assert page.evaluate("localStorage['leadhand.notify']") == "off"


def test_anything_is_reached_from_the_palette_by_keys(pages, served):
    """Ctrl-K, words, arrows, Enter: a run, a plan, a worker, a screen, an action of the screen."""
    run = served.call("POST", "/runs", {"plan": publishing("abort")})["run"]
    served.until(run, "failed")
    served.call("PUT", "/library/weekly", {"plan": publishing("abort")})
    page = enter(pages, served)
    keys, palette = page.keyboard, page.get_by_role("dialog", name="Go to")
    found = palette.get_by_role("option")
    field = page.get_by_role("combobox", name="Screen, run, plan, worker or action")

    def go(words, group):
        keys.press("Control+k")
        expect(field).to_be_focused()
        keys.type(words)
        chosen = palette.get_by_role("option", selected=True)
        expect(chosen).to_be_visible()
        for _ in range(20):
            if group in chosen.text_content():
                break
            keys.press("ArrowDown")
        ident = chosen.get_attribute("id")
        expect(field).to_have_attribute("aria-activedescendant", ident)
        shot(page, f"palette-{group.lower()}")
        keys.press("Enter")
        expect(field).to_have_count(0)

    keys.press("Control+k")
    expect(field).to_be_focused()
    keys.type("publish the")
    expect(found.filter(has_text=run)).to_be_visible()  # found by the server
    keys.press("Escape")
    expect(field).to_have_count(0)
    go("weekly", "Plans")
    expect(page).to_have_url(re.compile("#/library/weekly$"))
    go("publish", "Workers")
    expect(page.get_by_label("Search workers")).to_have_value("publish")
    go("runs", "Screens")
    expect(page.get_by_role("heading", name="Runs", level=1)).to_be_focused()
    go("inbox", "Screens")
    expect(page.get_by_role("heading", name="Inbox", level=1)).to_be_visible()
    go("dark", "Settings")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    keys.press("Control+k")
    expect(field).to_be_focused()
    keys.type("answer the focused")
    expect(found.first).to_contain_text("Actions: Inbox")
    keys.press("Control+k")  # the same keys close it
    expect(field).to_have_count(0)
    keys.press("Control+k")
    expect(field).to_be_focused()
    keys.type("nothing-of-that-name")
    expect(page.get_by_text("No results")).to_be_visible()
    keys.press("Escape")
    keys.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Ctrl+K")


def asked(name, kind, plan, by, *choices, **more):
    leads = [{"answer": each, "leads_to": f"{each} follows", "command": ""} for each in choices]
    row = {"id": f"{name}/q1", "run": name, "kind": kind, "plan": plan, "started_by": by}
    row |= {"title": name, "reason": "", "step": "s", "steps": 1, "goal": name, "risk": None}
    row |= {"effects": [], "cost": None, "asked_by": "", "since": "2026-01-01T00:00:00+00:00"}
    return row | {"text": name, "choices": leads, "default": None, "until": None} | more


def test_an_answer_without_words_is_refused_where_they_are_needed(pages):
    """And one that ends a run, or a task without a result, asks once more; nothing is primary."""
    rows = (
        asked("lacks", "failure", "p1", "ada", "retry", "abort", words=True),
        asked("sign", "task", "p2", "ben", "done", "cannot"),
    )
    with Fake({"/inbox": inbox(*rows)}) as fake:
        page = pages(f"{fake.url}#/inbox")
        sent = lambda: [path for method, path, _ in fake.asked if method == "POST"]  # noqa: E731
        expect(page.locator(".side .where")).to_have_text("demotest")  # project, environment
        expect(page).to_have_title("(2) Inbox · demo · Leadhand")
        lacks, sign = (page.locator(".ask").filter(has_text=name) for name in ("lacks", "sign"))
        expect(lacks.locator(".primary")).to_have_count(0)
        lacks.get_by_role("button", name="Retry").click()
        expect(page.locator(".notice.tone-bad")).to_contain_text("needs a text")
        lacks.get_by_role("button", name="Abort run").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        sign.get_by_role("button", name="Mark done").click()
        expect(page.get_by_role("dialog")).to_contain_text("without a result")
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        assert sent() == []
        lacks.get_by_label("Comment (required to retry)").fill("use the new key")
        lacks.get_by_role("button", name="Retry").click()
        expect(page.locator(".notice.tone-good")).to_be_visible()
        assert sent() == ["/inbox/lacks/q1/answer"]
        page.get_by_label("Started by me").check()
        expect(page.locator(".ask")).to_have_count(1)
        page.get_by_label("Kind").select_option("Task")
        expect(page.get_by_text("No items match these filters")).to_be_visible()
        page.reload()  # the filters stand in the address
        page.get_by_role("button", name="Clear filters").click()
        expect(page.locator(".ask")).to_have_count(2)


def test_an_item_of_the_inbox_has_an_address_of_its_own(pages):
    """It shows this item only; once it is answered, the address says that it is not open."""
    rows = (
        asked("lacks", "failure", "p1", "ada", "retry"),
        asked("sign", "task", "p2", "ben", "done"),
    )
    with Fake({"/inbox": inbox(*rows)}) as fake:
        page = pages(f"{fake.url}#/inbox/sign/q1")
        expect(page.locator(".ask")).to_have_count(1)
        expect(page.locator(".ask")).to_contain_text("sign")
        page.get_by_role("link", name="All open items").click()
        expect(page.locator(".ask")).to_have_count(2)
        page.goto(f"{fake.url}#/inbox/gone/q1")
        expect(page.get_by_text("This item is not open")).to_be_visible()
        expect(page.get_by_role("link", name="Show the run")).to_have_attribute(
            "href", "#/runs/gone"
        )


@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_a_filter_is_no_wider_than_the_screen_whatever_a_plan_is_called(pages, size):
    rows = (asked("long", "task", "W" * 400, "ada", "done"), asked("b", "failure", "p", "ada"))
    with Fake({"/inbox": inbox(*rows)}) as fake:
        page = pages(f"{fake.url}#/inbox", viewport=size)
        expect(page.get_by_label("Plan").locator("option")).to_have_count(3)
        assert too_wide(page) <= 0
        page.get_by_label("Plan").select_option("W" * 400)
        expect(page.locator(".ask")).to_have_count(1)
        assert too_wide(page) <= 0
