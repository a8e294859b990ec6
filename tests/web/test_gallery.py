"""Every screen, light and dark, wide and on a phone: axe-core finds nothing serious, all fits.

With `LEADHAND_SCREENSHOTS=1` pictures are kept in `build/screenshots`, for people to look at.
"""

import re

import pytest
from playwright.sync_api import expect

from tests.support.need import need
from tests.web import scenes
from tests.web.conftest import AXE, PHONE, WIDE, Served, shot
from tests.web.fake import Fake, page
from tests.web.steering import patient, project, publishing

pytestmark = [pytest.mark.slow, pytest.mark.real]
RULES = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}"
LOOK = f"async () => (await axe.run(document, {RULES})).violations"
GRAVE = ("serious", "critical")
SIZES = {"wide": WIDE, "phone": PHONE}


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A server with a run in each of the states that people meet."""
    with Served(project(tmp_path_factory.mktemp("house") / "project")) as served:
        yield served, furnished(served)


def furnished(served):
    def begin(**body):
        return served.call("POST", "/runs", body)["run"]

    runs = {"asking": begin(plan=publishing("escalate"))}
    served.until(runs["asking"], "waiting")
    runs["item"] = served.call("GET", "/inbox")["items"][0]["id"]
    runs["failed"] = begin(plan=publishing("abort"))
    served.until(runs["failed"], "failed")
    runs["review"] = begin(plan=publishing("abort"), review=True)
    seen = served.call("GET", f"/runs/{runs['review']}/review")["binding"]
    change = [{"path": "steps.publish.parameters.to", "value": "staging"}]
    served.call("POST", f"/runs/{runs['review']}/review/amend", {"digest": seen, "set": change})
    runs["running"] = begin(plan=patient(12))
    runs["agent"] = begin(plan={"goal": "Look", "steps": [{"id": "mine", "worker": "caller"}]})
    served.until(runs["agent"], "waiting")
    served.call("POST", f"/runs/{runs['agent']}/next-step", {"caller": "bot", "lease": "9m"})
    for params in ({}, {"to": {"type": "string"}, "tries": 3, "where": {"enum": ["a", "b"]}}):
        served.call("PUT", "/library/publish", {"plan": publishing("abort") | {"params": params}})
    served.call("POST", "/people", {"name": "ann", "role": "approver"})
    return runs


def places(runs):
    return {
        "overview": "overview?range=24h",
        "inbox": "inbox",
        "inbox-item": f"inbox/{runs['item']}",
        "inbox-gone": f"inbox/{runs['failed']}/nothing",
        "inbox-none": "inbox?kind=budget",
        "runs": "runs",
        "runs-none": "runs?q=nothing-like-that",
        "rows": f"runs/{runs['running']}",
        "graph": f"runs/{runs['running']}/graph",
        "step": f"runs/{runs['failed']}/graph?step=publish",
        "agent": f"runs/{runs['agent']}?step=mine",
        "asked": f"runs/{runs['asking']}/graph?step=publish",
        "rows-failed": f"runs/{runs['failed']}",
        "plan": f"runs/{runs['failed']}/plan",
        "review": f"runs/{runs['review']}/plan",
        "compare": f"runs/{runs['review']}/plan?rev=2&from=1",
        "ledger": f"runs/{runs['failed']}/log",
        "outputs": f"runs/{runs['running']}/outputs",
        "compare-runs": f"compare/{runs['failed']}/{runs['asking']}",
        "usage": "usage",
        "usage-workers": "usage?by=worker",
        "usage-none": "usage?from=2020-01-01&to=2020-01-02",
        "new": "new",
        "new-library": "new?library=publish",
        "workers": "workers",
        "library": "library",
        "library-plan": "library/publish",
        "fleet": "fleet",
        "settings": "settings",
        "missing": "runs/nothing",
        "nowhere": "nowhere",
    }


def faults(shown, rules=None):
    """Return what axe finds by `rules`, options of `axe.run`; by default all of WCAG A and AA."""
    found = shown.evaluate(LOOK if rules is None else LOOK.replace(RULES, rules))
    return [
        f"{each['id']} ({each['impact']}): {each['help']}: {node['html'][:120]}"
        for each in found
        if each["impact"] in GRAVE
        for node in each["nodes"][:3]
    ]


def too_wide(shown) -> int:
    return int(shown.evaluate("document.documentElement.scrollWidth - innerWidth"))


@pytest.fixture
def ready(pages):
    need(AXE.exists(), "axe-core, which `make test` fetches by npm")

    def opened(url, theme, size):
        context = pages.browser.new_context(viewport=SIZES[size], color_scheme=theme)
        context.set_default_timeout(60_000)
        context.add_init_script(path=AXE)
        pages.open.append(context)
        return pages(url, context=context)

    return opened


# Colours do not depend on the width, and nothing but colours on the theme.
LOOKED_AT = {("dark", "wide"): '{runOnly: ["color-contrast"]}'}


@pytest.mark.parametrize(
    ("theme", "size"), [("light", "wide"), ("light", "phone"), ("dark", "wide")]
)
def test_every_screen(ready, house, theme, size):
    """Contrast, names, roles, order; and no screen is wider than the window."""
    served, runs = house
    shown = ready(served.entry, theme, size)
    expect(shown.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    wrong = []
    for name, place in places(runs).items():
        shown.goto(f"{served.url}#/{place}")
        expect(shown.locator(".loading")).to_have_count(0)
        shown.wait_for_timeout(250)
        shot(shown, f"{name}-{theme}-{size}")
        wrong += [f"{name}: {fault}" for fault in faults(shown, LOOKED_AT.get((theme, size)))]
        wrong += [f"{name}: {wide} px too wide" for wide in [too_wide(shown)] if wide > 0]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_one_meets_rarely(ready, house, theme):
    """Sign-in, the keys, a question of the page itself, an amendment."""
    served, runs = house
    wrong = []
    shown = ready(served.url, theme, "wide")
    expect(shown.get_by_label("Token")).to_be_visible()
    shot(shown, f"sign-in-{theme}-wide")
    wrong += faults(shown)
    shown.get_by_label("Token").fill(served.token)
    shown.keyboard.press("Enter")
    expect(shown.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    shown.keyboard.press("?")
    shot(shown, f"keys-{theme}-wide")
    wrong += faults(shown)
    shown.keyboard.press("Escape")
    shown.keyboard.press("Control+k")
    expect(shown.get_by_role("dialog", name="Go to")).to_contain_text("Overview")
    shot(shown, f"palette-{theme}-wide")
    wrong += faults(shown)
    shown.keyboard.press("Escape")
    shown.goto(f"{served.url}#/runs/{runs['review']}/plan")
    for button in ("Approve", "Amend"):
        shown.get_by_role("button", name=re.compile(f"^{button}")).first.click()
        expect(shown.get_by_role("dialog")).to_be_visible()
        shot(shown, f"{button.lower()}-{theme}-wide")
        wrong += faults(shown)
        shown.keyboard.press("Escape")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_empty_failing_and_large(ready, theme):
    """What there is when there is nothing, when the server fails, and when there is a lot."""
    trouble = {"title": "Overloaded", "status": 503, "detail": "The queue is full. Try again soon."}
    documents = scenes.large("big", 1000) | scenes.large("huge", 10_000)
    documents |= {
        "/runs": page([]),
        "/workers": {"workers": []},
        "/workers/use": page([]) | {"runs": 0},
        "/library": page([]),
    }
    documents |= {"/settings": trouble, "/metrics": {"runs": {}, "recovery": []}}
    wrong = []
    with Fake(documents) as fake:
        shown = ready(fake.url, theme, "wide")
        lists = ("overview", "inbox", "runs", "workers", "library", "fleet", "settings")
        for place in (*lists, "runs/big"):
            shown.goto(f"{fake.url}#/{place}")
            shown.wait_for_timeout(500)
            shot(shown, f"fake-{place.replace('/', '-')}-{theme}-wide")
            wrong += [f"{place}: {fault}" for fault in faults(shown)]
        shown.goto(f"{fake.url}#/runs/huge/graph")
        shown.wait_for_selector(".node.bundle")
        shot(shown, f"fake-huge-{theme}-wide")
    assert not wrong, "\n".join(wrong)
