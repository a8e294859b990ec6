"""What runs that wait for people cost a server: memory, and the time to start one more.

    python bench/waiting.py --runs 5000

Starts a server in this process, begins so many runs over HTTP that all wait for a person, and says
after each thousand how much memory the process has and how long a start took (median). It rests
until the server has let go of what is idle, starts a few more, and answers one.
"""

from __future__ import annotations

import argparse
import gc
import http.client
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.serving import TOKENS, project, served

PLAN = {
    "goal": "wait for somebody",
    "steps": [
        {"id": "fetch", "worker": "say", "parameters": {"text": "hello " * 20}},
        {"id": "ask", "worker": "danger", "depends_on": ["fetch"]},
        {"id": "tell", "worker": "say", "depends_on": ["ask"]},
    ],
}


def rss_mb() -> float:
    """The memory of this process, in megabytes."""
    with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123
        line = next(line for line in file if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


class Starter:
    """One connection that starts runs."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)
        token = TOKENS["approver"]
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        """The document of an answer."""
        text = None if body is None else json.dumps(body)
        self._connection.request(method, f"/api/v1{path}", text, self._headers)
        return json.loads(self._connection.getresponse().read())

    def start(self) -> float:
        """Begin a run; in how many milliseconds it was durable."""
        began = time.perf_counter()
        self.ask("POST", "/runs", {"plan": PLAN})
        return (time.perf_counter() - began) * 1e3


def main() -> None:
    """Print a row for each thousand runs, and one after the server came to rest."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--rest", type=float, default=20.0, help="Seconds to rest.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        project(Path(scratch))
        with served(Path(scratch)) as server:
            starter = Starter(server.url)
            took = [starter.start() for _ in range(20)]
            first = rss_mb()
            print(f"{0:>6} runs  {first:6.0f} MB  p50 {statistics.median(took):5.1f} ms")
            for done in range(1000, given.runs + 1, 1000):
                took = [starter.start() for _ in range(1000)][-200:]
                row = f"{done:>6} runs  {rss_mb():6.0f} MB  p50 {statistics.median(took):5.1f} ms"
                print(row, flush=True)
            time.sleep(given.rest)
            gc.collect()
            took = [starter.start() for _ in range(200)]
            host = server.up.app_state.host
            asleep = len(getattr(host, "asleep", ()))
            print(
                f"at rest      {rss_mb():6.0f} MB  p50 {statistics.median(took):5.1f} ms  "
                f"in memory {len(host.runs)}, asleep {asleep}",
                flush=True,
            )
            waiting = starter.ask("GET", "/inbox?limit=1")["items"][0]  # type: ignore[index]
            began = time.perf_counter()
            path = f"/runs/{waiting['run']}/review"
            shown = starter.ask("GET", path)
            told = starter.ask("POST", f"{path}/approve", {"digest": shown["binding"]})
            print(f"answered in  {(time.perf_counter() - began) * 1e3:.0f} ms: {told['status']}")


if __name__ == "__main__":
    main()
