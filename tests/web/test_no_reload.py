"""After every kind of action the open page shows what a page that is opened then shows.

The action comes from elsewhere (another person, a terminal), so the open tabs hear of it only
through the stream. What they show is compared with a tab that is opened afterwards, at the same
address: all texts of the screen, without times that pass.
"""

import re
import time
import urllib.error
from contextlib import suppress
from types import SimpleNamespace

import pytest
from playwright.sync_api import expect

from tests.web.conftest import WIDE, Pages, Served
from tests.web.steering import delivering, patient, project, publishing

pytestmark = [pytest.mark.slow, pytest.mark.real]
PLANNER = """

from leadhand import Finish, Propose, Step


def plan(view):
    if view.results:
        return Finish("done")
    return Propose([Step(id=f"step-{len(view.findings)}", worker="careful")])


@worker(risk="high")
def careful() -> str:
    return "done"
"""
MOMENT = re.compile(
    r"\bjust now\b|\b\d+(\.\d+)?(ms|s|m|h|d)\b( \d+[smh]\b)*( ago)?|\b\d\d:\d\d:\d\d(\.\d+)?"
)


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = project(tmp_path_factory.mktemp("house") / "project", PLANNER)
    text = (folder / "leadhand.toml").read_text()
    (folder / "leadhand.toml").write_text(text + 'planner = "workers.py:plan"\n')
    with Served(folder) as served:
        yield served


def begin(served, status, plan, **more):
    run = served.call("POST", "/runs", {"plan": plan, **more})["run"]
    served.until(run, *status.split())
    return run


def reviewed(served):
    return begin(served, "waiting", publishing("abort"), review=True)


def decide(verb, **more):
    def act(served, run):
        seen = served.call("GET", f"/runs/{run}/review")["binding"]
        served.call("POST", f"/runs/{run}/review/{verb}", {"digest": seen, **more})

    return act


def said(path, **body):
    return lambda served, run: served.call("POST", f"/runs/{run}/{path}", body)


def asking(served):
    return begin(served, "waiting", publishing("escalate"))


def answer(choice):
    def act(served, run):
        (row,) = [each for each in served.call("GET", "/inbox")["items"] if each["run"] == run]
        served.call("POST", f"/inbox/{row['id']}/answer", {"choice": choice})

    return act


def planned(served):
    goal = {"goal": {"text": "Do it with care"}, "planner": "workers.py:plan"}
    run = served.call("POST", "/runs", goal)["run"]
    served.until(run, "waiting")
    return run


def failed(served):
    return begin(served, "failed", publishing("abort"))


def repaired(served, run):
    (served.folder / "fixed").touch()
    served.call("POST", f"/runs/{run}/steps/publish/redo", {"reason": "the key is there"})
    served.until(run, "succeeded")
    (served.folder / "fixed").unlink()


def going(served):
    return begin(served, "running", patient(2))


def after(first, then):
    """A run to which something was done before the tabs are opened."""

    def make(served):
        run = first(served)
        then(served, run)
        return run

    return make


def delivered(served):
    return begin(served, "waiting", delivering())


def undoable(served):
    step = {"id": "a", "worker": "prepare", "undo": {"worker": "prepare"}}
    return begin(served, "succeeded", {"goal": "Prepare it", "steps": [step]})


def rolled_back(served, run):
    served.call("POST", f"/runs/{run}/rollback", {"reason": "wrong customer"})
    end = time.monotonic() + 60
    while served.call("GET", f"/runs/{run}")["rollback"]["status"] != "succeeded":
        assert time.monotonic() < end
        time.sleep(0.1)


def again(served, run):
    made = served.call("POST", f"/runs/{run}/rerun", {})["run"]
    served.until(made, "failed")


CALLED = {
    "goal": "Look at it",
    "steps": [
        {"id": "mine", "worker": "caller"},
        {"id": "next", "worker": "prepare", "depends_on": ["mine"]},
    ],
}


def called(served):
    return begin(served, "waiting", CALLED)


def reported(served, run):
    said("steps/mine/report", caller="bot", attempt=1, status="succeeded", data=1)(served, run)
    served.until(run, "succeeded")


def nothing(served):
    return ""


def having(method, path, body):
    """Something that is there before the tabs are opened; no run."""

    def make(served):
        with suppress(urllib.error.HTTPError):
            served.call(method, path, body)
        return ""

    return make


STOPPED = having("POST", "/stop-all", {"reason": "fire"})
SAVED = having("PUT", "/library/p", {"plan": patient(1)})
ANN = having("POST", "/people", {"name": "ann", "role": "viewer"})


def on(method, path, body=None):
    return lambda served, _run: served.call(method, path, body)


PLAN, ROWS, LOG = "runs/{run}/plan", "runs/{run}", "runs/{run}/log"
STEP = "runs/{run}?step=publish"
PAUSE, HOLD = said("pause", reason="x"), said("steps/last/hold", reason="x")
STOP = on("POST", "/stop-all", {"reason": "fire"})
HAND_OUT = said("next-step", caller="bot", lease="5m")
ACTIONS = {
    "start": (nothing, lambda served, _run: failed(served), ["usage", "workers", "overview"]),
    "approve": (reviewed, decide("approve"), [PLAN, "inbox"]),
    "reject": (reviewed, decide("reject", reason="no"), [PLAN, "overview"]),
    "request changes": (planned, decide("request_changes", text="smaller"), [PLAN, LOG]),
    "amend": (
        reviewed,
        decide("amend", set=[{"path": "steps.publish.parameters.to", "value": "staging"}]),
        [PLAN, ROWS],
    ),
    "answer": (asking, answer("abort"), [STEP, "inbox"]),
    "retry": (failed, repaired, [STEP, "runs"]),
    "hold": (going, HOLD, [ROWS, "runs/{run}/graph"]),
    "release": (after(going, HOLD), said("steps/last/release", reason="x"), [ROWS]),
    "reassign": (
        delivered,
        said("steps/deliver/reassign", worker="post", reason="x"),
        [ROWS, "inbox"],
    ),
    "pause": (going, PAUSE, [ROWS, "overview"]),
    "resume": (after(going, PAUSE), said("resume"), [ROWS]),
    "cancel": (going, said("cancel", reason="x"), [ROWS, "runs"]),
    "roll back": (undoable, rolled_back, [ROWS]),
    "re-run": (failed, again, ["runs", "overview"]),
    "hand a step out to an agent": (called, HAND_OUT, [ROWS]),
    "report of an agent": (after(called, HAND_OUT), reported, [ROWS, "runs/{run}?step=mine"]),
    "stop all runs": (nothing, STOP, ["settings"]),
    "lift the stop": (STOPPED, on("DELETE", "/stop-all"), ["settings"]),
    "save a plan": (nothing, on("PUT", "/library/p", {"plan": patient(1)}), ["library"]),
    "remove a plan": (SAVED, on("DELETE", "/library/p"), ["library"]),
    "add a person": (
        nothing,
        on("POST", "/people", {"name": "ann", "role": "viewer"}),
        ["settings"],
    ),
    "change a role": (ANN, on("PUT", "/people/ann", {"role": "operator"}), ["settings"]),
    "remove a person": (ANN, on("DELETE", "/people/ann"), ["settings"]),
}


@pytest.fixture(scope="module")
def tabs(house, browser):
    """Open tabs of one browser, signed in once; nothing goes wrong in them unseen."""
    made = Pages(browser)
    context = browser.new_context(viewport=WIDE)
    context.set_default_timeout(60_000)
    first = made(house.entry, context=context)
    expect(first.get_by_role("navigation").first).to_be_visible()

    def opened(address):
        page = made(f"{house.url}#/{address}", context=context)
        expect(page.locator("main h1").first).to_be_visible()
        expect(page.locator("main .loading")).to_have_count(0)
        return page

    yield SimpleNamespace(open=opened)
    context.close()
    assert not made.problems, "\n".join(made.problems)


SHOWN = """main => [main.innerText, ...[...main.querySelectorAll("select, input")].map(
    field => `${field.ariaLabel}: ${field.value} ${field.checked ?? ""}`)].join("\\n")"""


def text_of(page):
    return MOMENT.sub("T", page.locator("#main").evaluate(SHOWN))


def same(page, fresh, seconds=20):
    """Wait until both tabs show the same; return the lines that differ."""
    end = time.monotonic() + seconds
    while True:
        shown, wanted = text_of(page), text_of(fresh)
        if shown == wanted or time.monotonic() > end:
            old, new = shown.splitlines(), wanted.splitlines()
            return [f"- {each}" for each in old if each not in new] + [
                f"+ {each}" for each in new if each not in old
            ]
        page.wait_for_timeout(100)


@pytest.mark.parametrize("name", ACTIONS)
def test_the_page_is_right_without_a_reload(name, house, tabs):
    """The tab that was open, and the one that was opened afterwards, show the same."""
    make, act, addresses = ACTIONS[name]
    run = make(house)
    places = [address.format(run=run) for address in addresses]
    before = [tabs.open(place) for place in places]
    texts = [text_of(page) for page in before]
    act(house, run)
    wrong = {}
    for place, page, was in zip(places, before, texts, strict=True):
        fresh = tabs.open(place)
        if found := same(page, fresh):
            wrong[place] = found
        elif text_of(page) == was:
            wrong[place] = ["shows nothing of it"]
        fresh.close()
        page.close()
    assert not wrong, wrong


def test_the_page_is_right_after_a_restart(house, tabs):
    """The server is killed and started again; nobody reloads anything."""
    run = failed(house)
    places = ["overview", "inbox", "runs", f"runs/{run}", "workers", "library", "settings"]
    before = [tabs.open(place) for place in places]
    house.kill()
    expect(before[0].get_by_text("reconnect", exact=False).first).to_be_visible()
    house.start()
    house.call("PUT", "/library/later", {"plan": patient(1)})
    made = begin(house, "failed", publishing("abort"))
    assert made
    for place, page in zip(places, before, strict=True):
        fresh = tabs.open(place)
        assert not same(page, fresh), place
        fresh.close()
