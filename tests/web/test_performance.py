"""A large run, live: the page stays as quick as when nothing happens.

What is compared is the same page, idle and busy, in one run; so a slow machine is slow for both.
"""

import json
import statistics
import threading
import time

import pytest
from playwright.sync_api import expect

from tests.web import scenes
from tests.web.conftest import ROOT
from tests.web.fake import Fake

pytestmark = [pytest.mark.slow, pytest.mark.real]
STEPS = 1000
UPDATES_PER_S = 200
SECONDS = 6
CLICKS = 15
CLICK_MS = 100
FIRST_CONTENT_MS = 1000
LONG_SHARE_MAX = 0.10
"""How much more of the time may go to long tasks when the page is busy."""

WATCH = """
window.longTasks = [];
window.answered = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) longTasks.push(entry.duration);
}).observe({ type: "longtask" });
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (entry.name === "click") answered.push(entry.duration);
}).observe({ type: "event", durationThreshold: 16 });
"""


@pytest.fixture
def fake():
    documents = scenes.large("big", STEPS) | scenes.large("huge", 10_000)
    for node in documents["/runs/big/graph"]["nodes"]:
        step = node | {"planned": {"worker": node["worker"]}, "attempts_made": [], "findings": []}
        documents[f"/runs/big/steps/{node['id']}"] = step
    with Fake(documents) as made:
        yield made


class Busy:
    """Pushes changes of steps at a steady pace: each starts, and ends some time later."""

    def __init__(self, fake: Fake, run: str) -> None:
        self.fake, self.run = fake, run
        self.ids = [node["id"] for node in fake.documents[f"/runs/{run}/graph"]["nodes"]]
        self.sent = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def _go(self) -> None:
        began = time.monotonic()
        while not self._end.is_set():
            due = int((time.monotonic() - began) * UPDATES_PER_S)
            self.fake.push(*(self._event(number) for number in range(self.sent, due)))
            self.sent = max(due, self.sent)
            time.sleep(0.02)

    def _event(self, number: int) -> dict:
        ident = self.ids[(number // 2) % len(self.ids)]
        ended = number % 2
        step = {"id": ident, "status": "succeeded" if ended else "running", "attempts": 1}
        step |= {
            "started": scenes.at(number / 100),
            "ended": scenes.at(number / 90) if ended else None,
        }
        kind = "AttemptReported" if ended else "AttemptStarted"
        counts = {"steps": len(self.ids), "settled": number // 2, "succeeded": number // 2}
        patch = {"status": "running", "cost": number / 100, "counts": counts, "step": step}
        line = {"type": kind, "run": self.run, "seq": number + 1, "at": scenes.at(number / 100)}
        line |= {"ledger": "execution", "step": ident, "text": f"{ident}: attempt 1"}
        return line | {"patch": patch}


def look(page, seconds: float) -> float:
    """The share of time that goes to long tasks."""
    page.evaluate("longTasks.length = 0")
    began = time.monotonic()
    page.wait_for_timeout(seconds * 1000)
    return (
        float(page.evaluate("longTasks.reduce((a, b) => a + b, 0)"))
        / 1000
        / (time.monotonic() - began)
    )


def _open_another(page, node, before: str) -> None:
    """Click a step until another one than before is open: on a busy machine a click may miss."""
    for patience_ms in (3000, 3000, 20_000):
        page.get_by_role("button", name="Fit").click()
        page.wait_for_timeout(60)
        box = node.bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        # From afar a step is four pixels high: this one or its neighbour, but another than before.
        try:
            expect(page.locator(".drawer h2")).not_to_have_text(before, timeout=patience_ms)
        except AssertionError:
            if patience_ms > 3000:
                raise
        else:
            return


def clicks(page) -> list[float]:
    """How long each click took until the next frame showed its answer: a step, then all again."""
    page.evaluate("answered.length = 0")
    nodes, before = page.locator(".node"), ""
    for number in range(CLICKS):
        _open_another(page, nodes.nth(number * 31), before)
        before = page.locator(".drawer h2").inner_text()
    page.wait_for_timeout(300)
    slow = [float(each) for each in page.evaluate("answered")]
    return [*slow, *[8.0] * (2 * CLICKS - len(slow))]  # what took less than 16 ms is not reported


def opened(pages, fake, run):
    page = pages()
    page.add_init_script(WATCH)
    page.goto(f"{fake.url}#/runs/{run}")
    return page


def test_a_thousand_steps_at_two_hundred_updates_a_second(pages, fake):
    """Long tasks stay as rare as on the idle page, and clicks are answered at once."""
    page = opened(pages, fake, "big")
    expect(page.locator(".node")).to_have_count(STEPS)
    expect(page.locator(".line-live")).to_be_visible()
    page.wait_for_timeout(1500)
    for turn in range(2):  # a shared machine is not always quick
        idle = look(page, SECONDS)
        with Busy(fake, "big") as busy:
            page.wait_for_timeout(500)
            loaded = look(page, SECONDS)
            answered = clicks(page)
        page.wait_for_timeout(500)
        figures = {"idle": idle, "busy": loaded, "click_ms": statistics.median(answered)}
        figures |= {"click_ms_worst": max(answered), "updates": busy.sent, "turn": turn}
        keep("updates", figures)
        if loaded - idle <= LONG_SHARE_MAX and statistics.median(answered) < CLICK_MS:
            break
    # And it is right: what was sent last is what is shown.
    shown = page.locator(f'[data-step="{busy.ids[((busy.sent - 1) // 2) % STEPS]}"]')
    status = "succeeded" if (busy.sent - 1) % 2 else "running"
    expect(shown).to_contain_text(status)
    assert loaded - idle <= LONG_SHARE_MAX, figures
    assert statistics.median(answered) < CLICK_MS, figures


def test_the_first_content_is_there_within_a_second(pages, fake):
    """From a cold start, at best of three: a shared machine is not always quick."""
    times = []
    for _ in range(3):
        page = opened(pages, fake, "big")
        expect(page.locator(".node").first).to_be_visible()
        paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        times.append(float(page.evaluate(paint)))
        page.context.close()
    keep("first-content", {"first_content_ms": min(times), "all": times})
    assert min(times) < FIRST_CONTENT_MS, times


def test_ten_thousand_steps_open_collapsed(pages, fake):
    """A few bundles instead of ten thousand nodes; one is opened; a step in it is found."""
    began = time.monotonic()
    page = opened(pages, fake, "huge")
    page.wait_for_selector(".node.bundle")
    took = time.monotonic() - began
    elements = int(page.evaluate("document.querySelectorAll('*').length"))
    bundles = page.locator(".node.bundle").count()
    keep("collapsed", {"open_s": took, "elements": elements, "bundles": bundles})
    assert bundles <= 120
    assert elements < 3000
    with Busy(fake, "huge"):
        page.locator(".node.bundle").first.click()
        expect(page.locator(".node:not(.bundle)").first).to_be_visible()
        page.locator(".node:not(.bundle)").first.click()
        expect(page.get_by_role("complementary")).to_have_count(2)  # the frame's, and the step
    page.goto(f"{fake.url}#/runs/huge/timeline")
    expect(page.get_by_text("10,000 of 10,000 steps")).to_be_visible()
    assert page.locator(".timeline-row").count() < 100
    page.get_by_label("Find steps").fill("id:report-9999")
    expect(page.locator(".timeline-row")).to_have_count(1)


def keep(name: str, figures: dict) -> None:
    """Beside the screenshots, for people."""
    folder = ROOT / "build" / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"page-{name}.json").write_text(json.dumps(figures, indent=2) + "\n")
