"""A run that changes all the time, for the page: used by tests and by `bench/page.py`."""

import threading
import time
from typing import Any

from tests.web import scenes
from tests.web.fake import Fake

STEPS = 1000
UPDATES_PER_S = 200


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


def opened(pages: Any, fake: Fake, run: str, script: str = "", view: str = "graph") -> Any:
    """Return a page with a view of `run`, with `script` run before everything else in it."""
    page = pages()
    if script:
        page.add_init_script(script)
    page.goto(f"{fake.url}#/runs/{run}/{view}")
    return page
