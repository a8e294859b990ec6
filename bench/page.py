"""How quick the page is: the same page idle and with 200 updates a second, in one run.

`python -m bench.page` opens a run of 1,000 steps in Chromium and prints, as JSON, the share of time
in long tasks (idle, busy, and the difference, which counts), how long clicks take until the next
frame, the first contentful paint, how long 10,000 steps take to open, and the same for the board of
a fleet with 100 agents and 1,200 tasks. A machine with other work on it is slow for both sides; the
figures are for people, not for a test.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.web import scenes
from tests.web.busy import STEPS, UPDATES_PER_S, Busy, opened
from tests.web.busy_fleet import AGENTS, BusyFleet
from tests.web.conftest import FLAGS, Pages, chromium_path
from tests.web.fake import Fake

SECONDS = 6
CLICKS = 15
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


def main() -> None:
    """Measure, and print the figures."""
    from playwright.sync_api import sync_playwright

    documents = scenes.large("big", STEPS) | scenes.large("huge", 10_000)
    for node in documents["/runs/big/graph"]["nodes"]:
        documents[f"/runs/big/steps/{node['id']}"] = whole_step(node)
    with Fake(documents) as fake, sync_playwright() as driver:
        path = chromium_path()
        if path is None:
            sys.exit("bench.page: Chromium is missing: `python3 scripts/browser.py` installs it")
        browser = driver.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        pages = Pages(browser)
        figures = live(pages, fake) | rows(pages, fake) | cold(pages, fake) | huge(pages, fake)
        figures |= board(pages, fake)
        browser.close()
    print(json.dumps(figures, indent=2))


def whole_step(node: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a step that has not started."""
    lists = ("inputs", "criteria", "depends_on", "dependents", "replaces", "findings")
    lists += ("recommendations", "questions", "attempts_made", "others")
    origin = {"revision": 1, "author": "document", "approved_by": "policy", "reason": ""}
    step = node | {"run": "big", "planned": {"worker": node["worker"]}, "outcome": ""}
    step |= {"origin": origin | {"replaces": {}}, "revision": 1, "error": None, "models": None}
    return step | {key: [] for key in lists} | {"data": None, "output": ""}


def live(pages: Pages, fake: Fake) -> dict[str, Any]:
    """Measure long tasks and clicks, idle and busy."""
    page = opened(pages, fake, "big", WATCH)
    page.locator(".node").nth(STEPS - 1).wait_for(state="attached")
    page.locator(".line-live").wait_for()
    page.wait_for_timeout(1500)
    idle = long_share(page)
    with Busy(fake, "big"):
        page.wait_for_timeout(500)
        busy = long_share(page)
        answered = clicks(page)
    return {
        "updates_per_s": UPDATES_PER_S,
        "long_share_idle": idle,
        "long_share_busy": busy,
        "long_share_added": busy - idle,
        "click_ms": statistics.median(answered),
        "click_ms_worst": max(answered),
    }


def rows(pages: Pages, fake: Fake) -> dict[str, Any]:
    """Measure long tasks of the rows of plan and execution, idle and busy."""
    page = opened(pages, fake, "big", WATCH, view="rows")
    page.locator(".plan-row").first.wait_for()
    page.locator(".line-live").wait_for()
    page.wait_for_timeout(1500)
    idle = long_share(page)
    with Busy(fake, "big"):
        page.wait_for_timeout(500)
        busy = long_share(page)
    return {"rows_long_share_idle": idle, "rows_long_share_busy": busy}


def board(pages: Pages, fake: Fake) -> dict[str, Any]:
    """Measure the board of 100 agents: events arrive, and every answer holds other words."""
    fleet = BusyFleet()
    fake.documents["/fleet"] = {"fleet": fleet.document()}
    page = pages()
    page.add_init_script(WATCH)
    page.goto(f"{fake.url}#/fleet")
    page.locator(".task").nth(AGENTS).wait_for(state="attached")
    page.wait_for_timeout(1500)
    idle = long_share(page)
    fake.documents["/fleet"] = lambda _body: {"fleet": fleet.document()}
    with Busy(fake, "big"):
        page.wait_for_timeout(500)
        busy = long_share(page)
        page.evaluate("answered.length = 0")
        for _ in range(CLICKS):
            page.get_by_label("Group by epic").click()
            page.wait_for_timeout(200)
        slow = [float(each) for each in page.evaluate("answered")]
    answered = [*slow, *[8.0] * (CLICKS - len(slow))]
    return {
        "board_agents": AGENTS,
        "board_cards": page.locator(".task").count(),
        "board_long_share_idle": idle,
        "board_long_share_busy": busy,
        "board_click_ms": statistics.median(answered),
        "board_click_ms_worst": max(answered),
    }


def long_share(page: Any) -> float:
    """Return the share of time that goes to long tasks."""
    page.evaluate("longTasks.length = 0")
    began = time.monotonic()
    page.wait_for_timeout(SECONDS * 1000)
    spent = float(page.evaluate("longTasks.reduce((a, b) => a + b, 0)"))
    return spent / 1000 / (time.monotonic() - began)


def clicks(page: Any) -> list[float]:
    """Return how long each click took until a frame showed its answer, in milliseconds."""
    page.evaluate("answered.length = 0")
    nodes = page.locator(".node")
    for number in range(CLICKS):
        page.get_by_role("button", name="Fit").click()
        page.wait_for_timeout(60)
        box = nodes.nth(number * 31).bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(300)
    slow = [float(each) for each in page.evaluate("answered")]
    return [*slow, *[8.0] * (2 * CLICKS - len(slow))]  # less than 16 ms is not reported


def cold(pages: Pages, fake: Fake) -> dict[str, Any]:
    """Measure the first contentful paint, three times from a cold start."""
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    times = []
    for _ in range(3):
        page = opened(pages, fake, "big", view="rows")
        page.locator(".plan-row").first.wait_for()
        times.append(float(page.evaluate(paint)))
    return {"first_content_ms": min(times)}


def huge(pages: Pages, fake: Fake) -> dict[str, Any]:
    """Measure how long 10,000 steps take to open, collapsed."""
    began = time.monotonic()
    page = opened(pages, fake, "huge")
    page.locator(".node.bundle").first.wait_for()
    return {"open_10000_steps_s": time.monotonic() - began}


if __name__ == "__main__":
    main()
