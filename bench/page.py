"""How quick the page is: the same page idle and with 200 updates a second, in one run.

`python -m bench.page` opens a run of 1,000 steps in Chromium, and the board of a fleet with 100
agents and 1,200 tasks, and prints as JSON: the share of time in long tasks (idle and busy), how
long clicks take, the first contentful paint, how long 10,000 steps take to open, and the size of
the scripts as they are sent.

On a machine with other work, a task of 10 ms may take 50 ms of the clock. So figures are told
twice: by the clock, and by the processor time of the page's main thread, which does not depend on
other work.
The load of the machine stands beside them. The figures are for people, not for a test.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from leadhand.server.routes.pages import WEB, packed_of, served_bytes
from tests.web import scenes
from tests.web.busy import STEPS, UPDATES_PER_S, Busy, opened
from tests.web.busy_fleet import AGENTS, BusyFleet
from tests.web.conftest import FLAGS, Pages, chromium_path
from tests.web.fake import Fake

if TYPE_CHECKING:
    from collections.abc import Callable

Doc = dict[str, Any]
SECONDS = 6
CLICKS = 15
LONG_US = 50_000
"""Longer than this is a long task, as browsers define it."""
CATEGORIES = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]
MAIN = "CrRendererMain"
WATCH = """
window.answered = [];
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
    before = os.getloadavg()[0]
    with Fake(documents) as fake, sync_playwright() as driver:
        path = chromium_path()
        if path is None:
            sys.exit("bench.page: Chromium is missing: `python3 scripts/browser.py` installs it")
        browser = driver.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        pages = Pages(browser)
        figures: Doc = {"updates_per_s": UPDATES_PER_S, "steps": STEPS, "agents": AGENTS}
        for measure in (cold, graph, rows, board, huge):
            figures[measure.__name__] = measure(pages, fake)
            while pages.open:
                pages.open.pop().close()  # nothing else draws while the next is measured
        browser.close()
    figures |= scripts()
    load = {"before": before, "after": os.getloadavg()[0], "processors": os.cpu_count()}
    print(json.dumps(figures | {"load": load}, indent=2))


def scripts() -> Doc:
    """Return the size of all scripts, ours and others', in bytes exactly as they are sent."""
    files = [path for path in WEB.rglob("*") if path.suffix in {".js", ".mjs"}]
    sent = [packed_of(str(path), lambda path=path: served_bytes(path)) for path in files]
    return {"script_bytes": sum(len(each.gzip or each.plain) for each in sent)}


def whole_step(node: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a step that has not started."""
    lists = ("inputs", "criteria", "depends_on", "dependents", "replaces", "findings")
    lists += ("recommendations", "questions", "attempts_made", "others")
    origin = {"revision": 1, "author": "document", "approved_by": "policy", "reason": ""}
    step = node | {"run": "big", "planned": {"worker": node["worker"]}, "outcome": ""}
    step |= {"origin": origin | {"replaces": {}}, "revision": 1, "error": None, "models": None}
    return step | {key: [] for key in lists} | {"data": None, "output": ""}


# What the main thread of the page did.


class Tasks:
    """The tasks of the main thread in a trace, by the clock (`dur`) and the processor (`tdur`)."""

    def __init__(self, trace: bytes) -> None:
        events = json.loads(trace)["traceEvents"]
        of = {
            (each["pid"], each["tid"])
            for each in events
            if each["name"] == "thread_name" and each["args"].get("name") == MAIN
        }
        mine = [each for each in events if (each["pid"], each["tid"]) in of]
        self.all = sorted(
            (each for each in mine if each["name"] == "RunTask" and "dur" in each),
            key=lambda each: float(each["ts"]),
        )
        self.frames = sorted(float(each["ts"]) for each in mine if each["name"] == "Commit")
        self.clicks = sorted(float(each["ts"]) for each in mine if _is_click(each))

    def figures(self, seconds: float) -> Doc:
        """Return the shares of time in long tasks and in all tasks, and the longest one."""
        wall = [float(each["dur"]) for each in self.all]
        used = [float(each.get("tdur", 0)) for each in self.all]
        whole = seconds * 1e6
        return {
            "long_share": sum(each for each in wall if each > LONG_US) / whole,
            "cpu_long_share": sum(each for each in used if each > LONG_US) / whole,
            "cpu_share": sum(used) / whole,
            "cpu_longest_ms": max(used, default=0.0) / 1000,
        }

    def cpu_per_click(self) -> list[float]:
        """Return the processor time from each click to the frame that shows its answer, in ms."""
        found = []
        for at in self.clicks:
            frame = next((each for each in self.frames if each > at), None)
            if frame is None:
                continue
            during = (t for t in self.all if t["ts"] + t["dur"] > at and t["ts"] <= frame)
            found.append(sum(float(each.get("tdur", 0)) for each in during) / 1000)
        return found


def _is_click(event: Doc) -> bool:
    data = event.get("args", {}).get("data") or {}
    return event["name"] == "EventDispatch" and data.get("type") == "click"


def traced(page: Any, act: Callable[[], object]) -> tuple[Tasks, float]:
    """Return the tasks of the main thread while something is done, and how long that took."""
    browser = page.context.browser
    browser.start_tracing(page=page, categories=CATEGORIES)
    began = time.monotonic()
    act()
    seconds = time.monotonic() - began
    return Tasks(browser.stop_tracing()), seconds


def idle_and_busy(
    page: Any, fake: Fake, act: Callable[[], object], begin: Callable[[], object] = int
) -> Doc:
    """Measure a page at rest and, after `begin`, with updates; and clicks in both."""

    def rest() -> None:
        page.wait_for_timeout(SECONDS * 1000)

    def measured() -> Doc:
        tasks, seconds = traced(page, rest)
        return tasks.figures(seconds) | clicked(page, act)

    page.locator(".line-live").wait_for()
    page.wait_for_timeout(1500)
    idle = measured()
    begin()
    with Busy(fake, "big"):
        page.wait_for_timeout(500)
        busy = measured()
    more = {key: busy[key] - idle[key] for key in ("long_share", "cpu_long_share", "cpu_share")}
    return {"idle": idle, "busy": busy, "added": more}


def clicked(page: Any, act: Callable[[], object]) -> Doc:
    """Return how long clicks took until the next frame: by the clock and by the processor."""
    page.evaluate("answered.length = 0")
    tasks, _seconds = traced(page, act)
    page.wait_for_timeout(300)
    slow = [float(each) for each in page.evaluate("answered")]
    count = max(len(tasks.clicks), len(slow), 1)
    answered = [*slow, *[8.0] * (count - len(slow))]  # less than 16 ms is not reported
    used = tasks.cpu_per_click() or [0.0]
    return {
        "clicks": count,
        "click_ms": statistics.median(answered),
        "click_ms_worst": max(answered),
        "click_cpu_ms": statistics.median(used),
        "click_cpu_ms_worst": max(used),
    }


# What is measured.


def graph(pages: Pages, fake: Fake) -> Doc:
    """Measure the graph of 1,000 steps; steps are clicked."""
    page = opened(pages, fake, "big", WATCH)
    nodes = page.locator(".node")
    nodes.nth(STEPS - 1).wait_for(state="attached")

    def act() -> None:
        for number in range(CLICKS):
            page.get_by_role("button", name="Fit").click()
            page.wait_for_timeout(60)
            box = nodes.nth(number * 31).bounding_box()
            page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    return idle_and_busy(page, fake, act)


def rows(pages: Pages, fake: Fake) -> Doc:
    """Measure the rows of plan and execution; steps are clicked."""
    page = opened(pages, fake, "big", WATCH, view="rows")
    found = page.locator(".plan-row [data-item]")
    found.first.wait_for()

    def act() -> None:
        for number in range(CLICKS):
            found.nth(1 + number % 5).click()
            page.wait_for_timeout(100)

    return idle_and_busy(page, fake, act)


def board(pages: Pages, fake: Fake) -> Doc:
    """Measure the board of 100 agents: events arrive, and every answer holds other words."""
    fleet = BusyFleet()
    fake.documents["/fleet"] = {"fleet": fleet.document()}
    page = pages()
    page.add_init_script(WATCH)
    page.goto(f"{fake.url}#/fleet")
    page.locator(".task").nth(AGENTS).wait_for(state="attached")

    def act() -> None:
        for _ in range(CLICKS):
            page.get_by_label("Group by epic").click()
            page.wait_for_timeout(200)

    def begin() -> None:
        fake.documents["/fleet"] = lambda _body: {"fleet": fleet.document()}

    found = idle_and_busy(page, fake, act, begin)
    return found | {"cards": page.locator(".task").count()}


def cold(pages: Pages, fake: Fake) -> Doc:
    """Measure the first contentful paint, three times from a cold start."""
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    times = []
    for _ in range(3):
        page = opened(pages, fake, "big", view="rows")
        page.locator(".plan-row").first.wait_for()
        times.append(float(page.evaluate(paint)))
    return {"first_content_ms": min(times), "first_content_ms_worst": max(times)}


def huge(pages: Pages, fake: Fake) -> Doc:
    """Measure how long 10,000 steps take to open, collapsed."""
    began = time.monotonic()
    page = opened(pages, fake, "huge")
    page.locator(".node.bundle").first.wait_for()
    return {"open_10000_steps_s": time.monotonic() - began}


if __name__ == "__main__":
    main()
