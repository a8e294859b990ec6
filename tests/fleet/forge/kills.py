"""Kill a fleet at points of the flow, start it again, and judge what the host shows.

    python -m tests.fleet.forge.kills                 all 30 points on GitHub
    python -m tests.fleet.forge.kills gitlab          the same on GitLab
    python -m tests.fleet.forge.kills gitlab 3 17     these

A point is a request to the host: the fleet is killed (SIGKILL) when the host has done what was
asked, and before the answer leaves. So the fleet never knows that it happened.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fleet.forge.flow_world import LABEL, TEAMS, agents

POINTS = 30
WRITES = 11
"""The writes of one flow: comments, pushes, the pull request and its updates, merge, close."""
STRIDE = 7
"""Requests between two points."""
TIME_S = 300.0


class Killer:
    """Kills the fleet's process at the nth write, or at a request in between."""

    def __init__(self, point):
        self.point, self.seen, self.process, self.killed = point, 0, None, ""

    def __call__(self, request, response):
        writes = request.method != "GET" and "upload-pack" not in request.path
        self.seen += 1
        due = self.seen >= self.point if self.point > 0 else writes and self._write() >= -self.point
        if due and not self.killed and self.process is not None:
            self.killed = f"{request.method} {request.path} ({response.status})"
            self.process.send_signal(signal.SIGKILL)

    def _write(self):
        self.writes = getattr(self, "writes", 0) + 1
        return self.writes


def points():
    """Each write of the flow (negative), and requests in between."""
    return [-(each + 1) for each in range(WRITES)] + [
        each * STRIDE + 1 for each in range(POINTS - WRITES)
    ]


def start(folder, url, kind):
    """A fleet in a process group of its own, so that nothing of it outlives it."""
    words = [sys.executable, "-m", "tests.fleet.forge.flow_world", str(folder), url, kind]
    with (folder / "fleet.log").open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)


def end(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


async def killed_at(folder, point, kind="github"):
    """Play the flow with one kill; return where it was and how many agents worked."""
    team, killer = TEAMS[kind](folder), Killer(point)
    with team.host.serving():
        number = team.host.add_issue("Add a colour", "The shop needs a colour.", "ann")
        team.host.label_issue(number, LABEL, "ann")
        team.host.on_handled = killer
        killer.process = process = start(folder, team.host.url, kind)
        deadline = time.monotonic() + TIME_S
        try:
            while not team.is_done(number):
                team.act()
                if process.poll() is not None:
                    end(process)
                    process = start(folder, team.host.url, kind)
                if time.monotonic() > deadline:
                    log = (folder / "fleet.log").read_text()[-3000:]
                    log += (folder / "fleet" / "journal.jsonl").read_text()[-2000:]
                    log += "\n".join(map(str, team.host.log[-12:]))
                    raise AssertionError(f"point {point} ({killer.killed}): not done\n{log}")
                await asyncio.sleep(0.05)
        finally:
            end(process)
    team.judge(number)
    assert killer.killed, f"point {point} was never reached: {killer.seen} requests"
    colours = [row["colour"] for row in agents(folder)]
    assert colours[-1] == "navy"
    return killer.killed, len(colours)


def main():
    """Play the points, and print one line for each."""
    kind, *named = (
        sys.argv[1:] if sys.argv[1:2] and sys.argv[1] in TEAMS else ["github", *sys.argv[1:]]
    )
    chosen = [points()[int(each)] for each in named] or points()
    failed = 0
    for point in chosen:
        with tempfile.TemporaryDirectory(prefix="kills-") as folder:
            try:
                where, count = asyncio.run(killed_at(Path(folder), point, kind))
                print(f"{point:>5}  ok      {count} agents  {where}", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{point:>5}  FAILED  {error}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} points")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
