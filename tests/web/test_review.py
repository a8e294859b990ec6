"""Reviews on the page: difference, comments and their answers, two people, edits that are kept."""

import re

import pytest
from playwright.sync_api import expect

from tests.web.conftest import PHONE, Served, shot
from tests.web.steering import project

pytestmark = [pytest.mark.slow, pytest.mark.real]

AMOUNT = {"parameters": {"amount": 5}}
WORKERS = '''

@worker(risk="high", effects=["cluster"])
def deploy(version: str, replicas: int = 1, careful: bool = False) -> str:
    """Put a version live."""
    return version


@worker(risk="high", effects=["pay"])
def charge(amount: int) -> int:
    """Charge every customer."""
    return amount
'''
PLANNER = """
from leadhand import Finish, Propose


def step(ident, worker, **parameters):
    return {"id": ident, "worker": worker, "parameters": parameters}


def decide(view):
    if "read" in view.goal.text:
        if not view.results:
            return Propose([step("read", "read_pages", site="a")])
        return Propose([step("ship", "deploy", version="v7")], because="the pages name v7")
    if "grow" in view.goal.text:
        if not view.results:
            return Propose([step("ship", "deploy", version="v1")])
        if "bill" not in view.results:
            return Propose([step("bill", "charge", amount=5)], because="it is live")
        return Finish("done")
    if not view.comments:
        return Propose([step("ship", "deploy", version="v1"), step("bill", "charge", amount=5)],
                       final=True)
    found = [{"comment": c["id"], "addressed": True, "reason": "now v2"}
             for c in view.comments if c["step"] == "ship"]
    return Propose([step("ship", "deploy", version="v2"), step("bill", "charge", amount=5)],
                   final=True, answers=found)
"""
SETTINGS = """
planner = "planning.py:decide"

[review]
rules = [{effects = ["pay"], then = "two"}, {risk = "high", then = "one"}]

[policy]
timeout = "25 minutes"

[workers.read_pages]
command = ["echo", "pages of", "{site}"]
idempotent = true
risk = "low"
effects = []
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = project(tmp_path_factory.mktemp("review") / "project", WORKERS)
    (folder / "planning.py").write_text(PLANNER)
    with (folder / "leadhand.toml").open("a") as file:
        file.write(SETTINGS)
    with Served(folder) as served:
        said = served.terminal("serve", "token", "add", "bob", "--role", "approver")
        served.bob = re.search(r"lh_[\w-]+", said)[0]
        yield served


def waiting(served, goal=None, **plan):
    what = {"plan": plan} if plan else {"goal": {"text": goal}}
    run = served.call("POST", "/runs", what)["run"]
    served.until(run, "waiting")
    return run


def open_plan(pages, served, run, token=""):
    page = pages(f"{served.url}#token={token or served.token}")
    expect(page.locator("main h1")).to_be_visible()
    page.goto(f"{served.url}#/runs/{run}/plan")
    expect(page.locator(".review-bar")).to_be_visible()
    return page


def confirm(page, verb, **fields):
    page.locator(".review-bar").get_by_role("button", name=re.compile(f"^{verb}")).click()
    dialog = page.get_by_role("dialog")
    for label, text in fields.items():
        dialog.get_by_label(re.compile(f"^{label}")).fill(text)
    dialog.get_by_role("button", name=verb).click()
    return dialog


def approve_by(served, run):
    digest = served.call("GET", f"/runs/{run}/review")["digest"]
    served.call("POST", f"/runs/{run}/review/approve", {"digest": digest})


def test_a_changed_plan_is_approved_by_two_people_after_its_difference_was_read(pages, shop):
    """The difference to what was approved stands there by itself; the second person decides."""
    run = waiting(shop, "grow it")
    page = open_plan(pages, shop, run)
    expect(page.locator(".consequences")).to_contain_text("cluster: ship Put a version live.")
    expect(page.locator(".consequences")).to_contain_text("Cannot be rolled back: ship")
    confirm(page, "Approve")
    bar = page.locator(".review-bar")
    expect(bar).to_contain_text("Decides revision 2")
    expect(page.get_by_role("heading", name="Changes since the last approved plan")).to_be_visible()
    change = page.locator(".change-added")
    expect(change).to_contain_text("charge")
    checks = page.locator(".checklist [data-mark=warning]")
    expect(checks.filter(has_text="Scope")).to_contain_text("effect pay")
    expect(page.locator(".checklist")).to_contain_text("needs 2 approvals by different people")
    shot(page, "review-difference")
    bar.get_by_role("button", name=re.compile("^Amend")).click()
    text = page.get_by_label("Plan (YAML or JSON)")
    expect(text).to_have_value(re.compile('"ship"'))  # all of the plan, with what has run
    text.fill(text.input_value().replace('"amount": 5', '"amount": 4'))
    page.get_by_role("button", name="Preview changes").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".change")).to_have_count(1)
    expect(dialog.locator(".side-new")).to_have_text(re.compile("4$"))
    dialog.get_by_role("button", name="Cancel").click()
    expect(text).to_have_value(re.compile('"amount": 4'))
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    confirm(page, "Approve", Reason="the price is right")
    expect(bar).to_contain_text("You approved it. Another person must approve too.")
    expect(page.locator(".consequences")).to_contain_text(
        "1 of 2 given (by ada): another person must approve before anything starts"
    )
    expect(bar.locator(".allowed")).to_contain_text("the price is right")
    shown = bar.locator(".bound .hash").get_attribute("title")
    other = open_plan(pages, shop, run, shop.bob)
    expect(other.locator(".review-bar .allowed")).to_contain_text("Approved by ada")
    confirm(other, "Approve")
    expect(page.locator(".review-bar")).to_have_count(0)  # without a reload, for both
    shop.until(run, "succeeded")
    page.goto(f"{shop.url}#/runs/{run}/plan?rev=2")
    allowed = page.locator(".allowed li")
    expect(allowed).to_have_count(2)
    expect(allowed.filter(has_text="bob").locator(".hash")).to_have_attribute("title", shown)


def test_comments_are_answered_one_by_one(pages, shop):
    """Which of my comments did the next revision address? It is a list, with what changed."""
    run = waiting(shop, "settle it")
    page = open_plan(pages, shop, run)
    page.get_by_role("button", name="Comment on step ship").click()
    page.get_by_label("Comment on ship").fill("ship v2")
    page.get_by_role("button", name="Comment on step bill").click()
    page.get_by_label("Comment on bill").fill("charge less")
    page.goto(f"{shop.url}#/runs")  # what was typed stays
    page.goto(f"{shop.url}#/runs/{run}/plan")
    expect(page.get_by_label("Comment on bill")).to_have_value("charge less")
    bar = page.locator(".review-bar")
    bar.get_by_role("button", name=re.compile(r"^Request changes \(2 comments\)")).click()
    page.get_by_role("dialog").get_by_role("button", name="Request changes").click()
    expect(bar).to_contain_text("Decides revision 2")
    rows = page.locator(".comments li")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text(re.compile("^addressed.*now v2.*the step is changed"))
    expect(rows.nth(1)).to_contain_text(re.compile("^not answered.*the step is unchanged"))
    expect(page.locator(".step-open")).to_have_count(0)
    shot(page, "review-comments")
    confirm(page, "Reject", Reason="too dear")
    expect(bar).to_have_count(0)
    assert shop.call("GET", f"/runs/{run}")["status"] == "rejected"


def test_edits_are_typed_previewed_and_kept_when_the_plan_changes(pages, shop):
    """Numbers, booleans, dependencies; one amendment; nothing is lost to another reviewer."""
    steps = [
        {"id": "prepare", "worker": "prepare"},
        {"id": "ship", "worker": "deploy", "parameters": {"version": "v1", "replicas": 1}},
    ]
    run = waiting(shop, goal="Ship it", steps=steps)
    page = open_plan(pages, shop, run)
    page.get_by_role("button", name="Edit step ship").click()
    fields = page.get_by_role("group", name="Fields of step ship")
    fields.get_by_label("replicas").fill("3")
    fields.get_by_label("careful").select_option("true")
    fields.get_by_role("checkbox", name="prepare").check()
    fields.get_by_label("Timeout").fill("5 minutes")
    expect(page.locator(".review-bar")).to_contain_text("4 unsent changes")
    seen = shop.call("GET", f"/runs/{run}/review")["digest"]
    other = [{"path": "steps.prepare.timeout", "text": "9s"}]
    shop.call("POST", f"/runs/{run}/review/amend", {"digest": seen, "set": other})
    expect(page.locator(".review-bar")).to_contain_text("Decides revision 2")
    expect(fields.get_by_label("replicas")).to_have_value("3")
    page.get_by_role("button", name="Preview changes").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".change:not(.change-order)")).to_have_count(4)
    shot(page, "review-preview")
    dialog.get_by_label(re.compile("^Reason")).fill("one is too few")
    dialog.get_by_role("button", name="Amend plan").click()
    expect(page.locator(".review-bar")).to_contain_text("Decides revision 3")
    expect(page.locator(".consequences")).to_contain_text("Reasonone is too few")
    newest = page.locator(".revision").first  # and so does the list, also after the approval
    expect(newest).to_contain_text(re.compile("Revision 3.*one is too few"))
    found = shop.call("GET", f"/runs/{run}/review")["steps"]
    assert found[0]["timeout"] == "9s"
    assert found[1]["parameters"] == {"version": "v1", "replicas": 3, "careful": True}
    assert (found[1]["depends_on"], found[1]["timeout"]) == (["prepare"], "5 minutes")
    expect(page.locator(".review-bar")).not_to_contain_text("unsent")
    confirm(page, "Approve")
    shop.until(run, "succeeded")
    expect(newest).to_contain_text(re.compile("approved.*one is too few"))


def test_what_an_approval_leads_to_is_answered_at_first_sight(pages, shop):
    """When steps start, after which approval; rollback by its steps; the timeout that holds."""
    down = {"id": "down", "worker": "deploy", "parameters": {"version": "v0"}}
    back = {"goal": "Back", "steps": [down]}
    steps = [
        {"id": "ship", "worker": "deploy", "parameters": {"version": "v1"}},
        {"id": "bill", "worker": "charge", "parameters": {"amount": 5}, "depends_on": ["ship"]},
    ]
    run = waiting(shop, goal="Ship and bill", steps=steps, rollback_plan=back)
    page = open_plan(pages, shop, run)
    told = page.locator(".reach")
    expect(told.locator(".summary")).to_contain_text(
        "2 steps run after the second approval: ship, then bill."
    )
    expect(told.locator(".topic-start li").first).to_have_text(
        re.compile("^After the second approval: ship")
    )
    expect(told.locator(".topic-undo")).to_contain_text("The rollback plan runs down (deploy)")
    checks = page.locator(".checklist")
    expect(checks).to_contain_text("an attempt may take 25m, the default")
    page.get_by_role("button", name="Edit step ship").click()
    hint = page.get_by_role("group", name="Fields of step ship").get_by_label("Timeout")
    expect(hint).to_have_attribute("placeholder", "default: 25m")
    expect(checks).to_contain_text("no worker that is declared untrusted had reported")
    run = waiting(shop, "read it, then ship")
    page.goto(f"{shop.url}#/runs/{run}/plan")
    expect(told).to_contain_text("Reasonthe pages name v7")
    found = checks.locator("[data-mark=warning]").filter(has_text="Untrusted input")
    expect(found).to_contain_text("after results of an untrusted worker, which may steer it")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_decision_takes_little_of_a_phone(pages, shop, theme):
    """The buttons stay in view at the end of the screen, and what is decided can be read."""
    run = waiting(shop, goal="Ship it", steps=[{"id": "bill", "worker": "charge", **AMOUNT}])
    context = pages.browser.new_context(viewport=PHONE, color_scheme=theme)
    context.set_default_timeout(60_000)
    pages.open.append(context)
    page = pages(shop.entry, context=context)
    expect(page.locator("main h1")).to_be_visible()
    page.goto(f"{shop.url}#/runs/{run}/plan")
    actions = page.locator(".review-bar .actions")
    for top in (0, 400, 100_000):
        page.evaluate(f"scrollTo(0, {top})")
        expect(actions.get_by_role("button", name="Approve")).to_be_in_viewport(ratio=1)
        expect(actions.get_by_role("button", name="Reject")).to_be_in_viewport(ratio=1)
    assert actions.bounding_box()["height"] < PHONE["height"] / 8
    last = page.locator("main section").last
    assert last.bounding_box()["y"] + last.bounding_box()["height"] <= actions.bounding_box()["y"]
    shot(page, f"review-phone-{theme}")
