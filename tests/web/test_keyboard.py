"""Everything without a mouse: sign-in, screens, lists, graph, a decision."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.web.conftest import ROOT
from tests.web.test_stories import PLAN, state_of

pytestmark = [pytest.mark.slow, pytest.mark.real]


def focused(page) -> str:
    return str(page.evaluate("document.activeElement.textContent.trim()"))


def test_a_plan_is_found_and_approved_by_keys_alone(pages, deploy):
    """From the sign-in to the approval, no mouse is touched."""
    run = deploy.call("POST", "/runs", {"plan": PLAN, "review": True})["run"]
    deploy.until(run, "waiting")
    page = pages(deploy.url)
    keys = page.keyboard
    expect(page.get_by_label("Token")).to_be_focused()
    keys.insert_text("wrong")
    keys.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Unknown token")
    keys.insert_text(deploy.token)
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()

    keys.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Next item")
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)

    keys.type("gr")
    heading = page.get_by_role("heading", name="Runs", level=1)
    expect(heading).to_be_focused()  # a screen reader hears where one is
    expect(page.locator(".runs [data-item]")).to_be_visible()
    keys.press("j")
    keys.press("Enter")
    expect(page.locator("[data-step=step-1]")).to_be_visible()
    keys.press("3")
    expect(page.get_by_role("button", name=re.compile("^Approve"))).to_be_visible()
    keys.press("a")
    expect(page.get_by_label("Reason")).to_be_visible()
    keys.press("Escape")  # thought better of it
    assert deploy.call("GET", f"/runs/{run}")["status"] == "waiting"
    keys.press("a")
    page.get_by_label("Reason").press("Enter")
    expect(state_of(page)).to_contain_text(re.compile("Running|Succeeded"))


def test_the_graph_is_walked_by_arrows(pages, deploy):
    """Arrows follow the edges, Enter opens the step, Escape closes it again."""
    run = deploy.call("POST", "/runs", {"plan": PLAN, "review": True})["run"]
    page = pages(deploy.entry)
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    page.goto(f"{deploy.url}#/runs/{run}/graph")
    page.locator("[data-step=step-1]").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-step=step-3]")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("[data-step=step-2]")).to_be_focused()
    page.keyboard.press("Home")
    expect(page.locator("[data-step=step-1]")).to_be_focused()


FOCUS = """() => { const here = document.activeElement;
    return [here.dataset.reach ?? "", getComputedStyle(here).outlineStyle]; }"""


def unreached(page):
    """Return what can be clicked or filled in and is not reached by Tab alone."""
    page.evaluate("document.activeElement.blur()")
    wanted = set(json.loads(page.evaluate((ROOT / "tests" / "web" / "reach.js").read_text())))
    seen = set()
    for _ in range(len(wanted) + 20):
        page.keyboard.press("Tab")
        here, style = page.evaluate(FOCUS)
        seen.add(here)
        if wanted <= seen:
            break
        assert not here or style != "none", f"{here} does not show its focus"
    return sorted(wanted - seen)


def test_everything_that_can_be_clicked_is_reached_by_tab(pages, deploy):
    """On each screen, Tab alone comes to every button, link and field that is shown."""
    run = deploy.call("POST", "/runs", {"plan": PLAN, "review": True})["run"]
    deploy.until(run, "waiting")
    page = pages(deploy.entry)
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    deploy.call("PUT", "/library/deploy", {"plan": PLAN})
    (item,) = [each["id"] for each in deploy.call("GET", "/inbox")["items"]]
    fixed = ("overview", "inbox", "runs", "usage", "new", "new?library=deploy", "workers")
    views = (f"runs/{run}", f"runs/{run}/graph", f"runs/{run}/plan", f"runs/{run}/log")
    ident = next(step["id"] for step in PLAN["steps"])
    more = ("library", "library/deploy", "settings", f"compare/{run}/{run}", f"inbox/{item}")
    for place in (*fixed, *views, f"runs/{run}?step={ident}", *more):
        page.goto(f"{deploy.url}#/{place}")
        expect(page.locator("main .loading")).to_have_count(0)
        page.wait_for_timeout(300)
        assert (place, unreached(page)) == (place, [])


SLOW_FRAMES = """const soon = requestAnimationFrame.bind(window);
    window.requestAnimationFrame = (then) => setTimeout(() => soon(then), 700);"""


@pytest.mark.parametrize("frames", ["", SLOW_FRAMES], ids=["quick", "slow-frames"])
def test_the_first_tab_skips_to_the_content(pages, deploy, frames):
    """The skip link is the first stop, and goes where it says, however late a frame is drawn."""
    page = pages()
    page.add_init_script(frames)
    page.goto(deploy.entry)
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    page.wait_for_timeout(1000 if frames else 0)
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
