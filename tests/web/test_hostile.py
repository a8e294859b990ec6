"""What the page does with hostile text, with those who have left, and with late answers."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.web.conftest import Served, shot
from tests.web.steering import publishing
from tests.web.test_gallery import too_wide
from tests.web.test_stories import PLAN, enter

pytestmark = [pytest.mark.slow, pytest.mark.real]

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
LINK = "javascript:document.title='owned'"
WORKERS = f"""
import sys
from leadhand import worker


@worker(idempotent=True)
def shout(text: str) -> dict:
    print({EVIL!r} + "\\x1b[31m\\u202egnp.exe", file=sys.stderr)
    if text == "fail":
        raise ValueError({EVIL!r})
    return {{"html": {EVIL!r}, "link": {LINK!r}, "__proto__": {{"polluted": 1}}}}
"""


def test_hostile_text_is_text_on_every_screen(pages, served):
    """In goals, outputs, errors, prints and questions: shown, never carried out."""
    steps = [
        {"id": "good", "worker": "shout", "parameters": {"text": EVIL}},
        {"id": "bad", "worker": "shout", "parameters": {"text": "fail"}, "depends_on": ["good"]},
    ]
    plan = {"goal": EVIL, "steps": [{**each, "description": EVIL} for each in steps]}
    run = served.call("POST", "/runs", {"plan": plan})["run"]
    served.until(run, "waiting")
    served.call("PUT", "/library/evil", {"plan": plan})
    page = enter(pages, served)
    views = [f"runs/{run}/{name}" for name in ("rows", "graph", "plan", "log", "outputs")]
    steps = [f"runs/{run}/graph?step={name}" for name in ("good", "bad")]
    searched = "runs?q=%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D%27owned%27%22%3E"
    places = [
        "overview",
        "inbox",
        "runs",
        *views,
        *steps,
        "library",
        "library/evil",
        searched,
        "workers",
    ]
    for place in places:
        page.goto(f"{served.url}#/{place}")
        expect(page.locator(".loading")).to_have_count(0)
        page.wait_for_timeout(150)
        assert page.title() != "owned", place
        found = page.evaluate(
            "[document.querySelectorAll('img, iframe, object, embed').length,"
            " document.querySelectorAll('a[href^=\"javascript:\" i]').length, ({}).polluted ?? 0]"
        )
        assert found == [0, 0, 0], (place, found)
    page.goto(f"{served.url}#/runs/{run}/graph?step=bad")
    drawer = page.get_by_role("complementary", name="Step bad")
    expect(drawer).to_contain_text("<img src=x")
    drawer.get_by_role("button", name=re.compile("[Ll]og")).first.click()
    expect(drawer.locator(".output").first).to_contain_text("\\u{202e}")
    shot(page, "hostile")
    page.goto(f"{served.url}#/runs/{run}/log")
    entry = page.get_by_title("Show full entry").filter(has_text="bad: attempt 1 failed").first
    entry.press("Enter")
    whole = page.get_by_role("region", name="Entry")
    expect(whole.locator("pre").last).to_contain_text('"type": "AttemptReported"')
    expect(whole.locator("pre").last).to_contain_text("<script>")
    shot(page, "ledger-line")
    whole.get_by_role("button", name="Open step bad").click()
    expect(page.get_by_role("complementary", name="Step bad")).to_be_visible()


BIDI = "\u202egnp.exe\u2066\u200b"
GIANT = "W" * 150
MACHINE = re.compile(r"[a-z0-9_.:@/#$-]{0,120}|\\d{4}-\\d\\d-\\d\\dT.*|[0-9a-f]{12,}")
NAMES = {"worker", "plan", "plan_id", "actor", "person", "labels", "environment", "project"}
NAMES |= {"model", "library", "author", "place", "value", "gives", "needs", "effects", "file"}
KEPT = {
    "run",
    "id",
    "by",
    "status",
    "kind",
    "role",
    "type",
    "token",
    "binding",
    "hash",
    "next",
    "url",
}
UNSEEN = r"/[\u202a-\u202e\u2066-\u2069\u200b]/u"
LOOK = (
    """() => {
    const bad = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_ALL);
    for (let at = walker.nextNode(); at; at = walker.nextNode()) {
      if (at.parentElement?.closest("script, style, textarea")) continue;
      const texts = at.nodeType === 3 ? [at.data]
        : ["title", "aria-label", "alt", "href"].map((name) => at.getAttribute?.(name) ?? "");
      for (const text of texts) if (UNSEEN.test(text))
        bad.push(`${at.parentElement?.outerHTML.slice(0, 70)}: ${text.slice(0, 40)}`);
    }
    if (UNSEEN.test(document.title)) bad.push("title");
    return [[...new Set(bad)], document.querySelectorAll("img, iframe, object, embed").length,
      document.querySelectorAll('a[href^="javascript:" i]').length]; }"""
).replace("UNSEEN", UNSEEN)


def poisoned(value, key=""):
    """Every text of a document with markup, marks of direction and a giant word after it."""
    if isinstance(value, dict):
        return {name: poisoned(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [poisoned(item, key) for item in value]
    machine = MACHINE.fullmatch(value) and key not in NAMES if isinstance(value, str) else True
    return value if machine or key in KEPT else f"{value} {EVIL} {LINK} {BIDI} {GIANT}"


def test_every_text_of_every_answer_is_shown_as_text(pages, deploy):
    """On all screens: nothing runs, nothing turns the direction of reading, nothing overflows."""
    run = deploy.call("POST", "/runs", {"plan": PLAN, "review": True})["run"]
    deploy.until(run, "waiting")
    deploy.call("PUT", "/library/deploy", {"plan": PLAN})
    ended = deploy.call("POST", "/runs", {"plan": PLAN})["run"]
    page = pages(deploy.entry)
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()

    def answer(route):
        found = route.fetch()
        body = found.body()
        if "json" in found.headers.get("content-type", ""):
            body = json.dumps(poisoned(found.json())).encode()
        route.fulfill(response=found, body=body)

    page.route(re.compile(r"/api/v1/(?!events|session)"), answer)
    step = PLAN["steps"][0]["id"]
    fixed = ("overview", "inbox", "runs", "usage", "new", "new?library=deploy", "workers")
    views = [f"runs/{run}{view}" for view in ("", "/graph", "/plan", "/log", f"?step={step}")]
    found = []
    others = (f"runs/{ended}", "library", "library/deploy", "settings", f"compare/{run}/{ended}")
    for place in (*fixed, *views, *others):
        page.goto(f"{deploy.url}#/{place}")
        expect(page.locator("main .loading")).to_have_count(0)
        page.wait_for_timeout(200)
        unseen, markup, links = page.evaluate(LOOK)
        if (unseen, markup, links, too_wide(page)) != ([], 0, 0, 0):
            found.append((place, unseen, markup, links, too_wide(page)))
        assert page.title() != "owned", place
        if place in ("inbox", f"runs/{run}/plan"):
            shot(page, f"poisoned-{place.rpartition('/')[2]}")
    assert not found


def test_a_step_that_is_opened_before_its_graph_came_is_whole(pages, served):
    """By an address, as the inbox gives them: what can be done about it is there."""
    run = served.call("POST", "/runs", {"plan": publishing("escalate")})["run"]
    served.until(run, "waiting")
    page = enter(pages, served)

    def late(route):
        page.wait_for_timeout(700)
        route.continue_()

    page.route("**/graph", late)
    page.goto(f"{served.url}#/runs/{run}/graph?step=publish")
    drawer = page.get_by_role("complementary", name="Step publish")
    expect(drawer.get_by_role("button", name="Retry")).to_be_visible()
    expect(drawer.locator(".drawer-state")).to_contain_text("Waiting for input")


def test_who_signs_out_is_out_in_every_tab(pages, served):
    """Also in the tab that reads the stream for all, though nobody touches it."""
    first = enter(pages, served)
    second = pages(served.url, context=first.context)
    third = pages(served.url, context=first.context)
    for page in (second, third):
        expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
        expect(page.locator(".line")).to_contain_text("Live")
    second.get_by_role("button", name="Sign out").first.click()
    for page in (second, first, third):
        expect(page.get_by_label("Token")).to_be_visible()
    served.call("POST", "/runs", {"plan": publishing("escalate")})
    first.get_by_label("Token").fill(served.token)
    first.keyboard.press("Enter")
    expect(first.locator(".ask")).to_have_count(1)


def test_a_sign_out_that_fails_is_no_sign_out(pages, served):
    """Whoever is still signed in is told so."""
    page = enter(pages, served)
    served.kill()
    page.get_by_role("button", name="Sign out").first.click()
    expect(page.get_by_text("You are still signed in")).to_be_visible()
    served.start()
    page.get_by_role("button", name="Sign out").first.click()
    expect(page.get_by_label("Token")).to_be_visible()


def test_an_empty_project_says_what_it_lacks(pages, tmp_path):
    """Nobody but people can carry out anything: said where one would look for it."""
    (tmp_path / "empty").mkdir()
    with Served(tmp_path / "empty") as served:
        page = enter(pages, served)
        for place in ("workers", "new"):
            page.goto(f"{served.url}#/{place}")
            expect(page.get_by_role("note")).to_contain_text("leadhand init")
        page.get_by_label("Goal", exact=True).fill("Be done")
        page.get_by_label(re.compile("^Wanted facts")).fill("summary")
        page.get_by_role("button", name="Show plan").click()
        expect(page.get_by_role("alert")).to_contain_text("no worker gives summary")
        page.get_by_role("button", name="Library plan").click()
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.get_by_text("The library is empty")).to_be_visible()
