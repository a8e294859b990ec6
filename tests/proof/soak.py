"""A soak: one server works for as long as it is told to; memory, files and WAL must stay flat.

`leadhand serve` is a real process on a real database. Plans of five steps (functions, a command, a
step that fails once and is retried) come by HTTP, one after the other, while a reader hangs on
the event stream and lists are read. The figures are those of the kernel: resident memory, open
files, threads of the process, and the size of the WAL beside the database.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import httpx2

from tests.proof.table import Figure, Row
from tests.support.cli import Folder
from tests.support.serving import ended, plan_of, process, rss_mb

SAMPLE_SECONDS = 10.0
MINUTES_WANTED = 120.0
GROWTH_MAX = 1.05
FILES_MAX = 2
WAL_MB_MAX = 16.0

WORKERS = '''
"""Workers of a soak."""

from pathlib import Path

from leadhand import Context, Transient, worker

HERE = Path(__file__).parent


@worker(idempotent=True)
async def make(number: int) -> dict[str, object]:
    return {"number": number, "text": "x" * 2000}


@worker(idempotent=True)
async def shaky(number: int, context: Context) -> int:
    if context.attempt == 1:
        raise Transient("not yet")
    return number


@worker(effects=["effects"])
async def effect(number: int) -> int:
    with (HERE / "effects").open("a") as file:
        file.write(f"{number}\\n")
    return number
'''

SETTINGS = """\
[project]
workers = ["workers.py"]
actor = "owner"
[policy]
backoff = "0.01 s"
[workers.look]
command = ["cat", "note"]
idempotent = true
"""


class Sample(NamedTuple):
    """The server at one moment."""

    at_s: float
    memory_mb: float
    files: int
    threads: int
    wal_mb: float
    runs: int


class Soaked(NamedTuple):
    """What a soak came to."""

    samples: list[Sample]
    runs: int
    wrong: list[str]
    effects: int
    verified: bool


def plan(number: int) -> dict[str, object]:
    """Return a plan of five steps."""
    made = {"number": "${{ steps.make.data.number }}"}
    return plan_of(
        {"id": "make", "worker": "make", "parameters": {"number": number}},
        {"id": "look", "worker": "look"},
        {"id": "shaky", "worker": "shaky", "parameters": made, "depends_on": ["make"]},
        {"id": "effect", "worker": "effect", "parameters": made, "depends_on": ["shaky"]},
        {"id": "last", "worker": "make", "parameters": made, "depends_on": ["effect", "look"]},
    )


def sample(pid: int, database: Path, began: float, runs: int) -> Sample:
    """Ask the kernel about the server."""
    files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - a folder of links that go away
    threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    wal = database.with_name(f"{database.name}-wal")
    size = wal.stat().st_size / 1e6 if wal.exists() else 0.0
    return Sample(time.monotonic() - began, rss_mb(pid), files, threads, size, runs)


def _read_stream(client: httpx2.Client, over: threading.Event) -> None:
    while not over.is_set():
        try:
            with client.stream("GET", "/events", timeout=60) as response:
                for _line in response.iter_lines():
                    if over.is_set():
                        return
        except httpx2.HTTPError:
            time.sleep(1)


def campaign(path: Path, seconds: float, pause_s: float = 0.2) -> Soaked:
    """Work for so long, then end the server and verify its log."""
    folder = Folder(path)
    folder.write("workers.py", WORKERS)
    folder.write("leadhand.toml", SETTINGS)
    folder.write("note", "a note")
    database = path / ".leadhand" / "leadhand.db"
    server = process(path)
    samples: list[Sample] = []
    wrong: list[str] = []
    over = threading.Event()
    began, done, due = time.monotonic(), 0, 0.0
    try:
        with server.client() as client, server.client() as other:
            threading.Thread(target=_read_stream, args=(other, over), daemon=True).start()
            while time.monotonic() - began < seconds:
                run = client.post("/runs", json={"plan": plan(done)}).json()["run"]
                if (seen := ended(client, run))["status"] != "succeeded":
                    wrong.append(f"{run}: {seen['status']}")
                done += 1
                if time.monotonic() - began >= due:
                    client.get("/runs").raise_for_status()
                    samples.append(sample(server.child.pid, database, began, done))
                    due = samples[-1].at_s + SAMPLE_SECONDS
                time.sleep(pause_s)
            over.set()
    finally:
        over.set()
        server.stop()
    verified = folder.run("verify", "--all", timeout_s=1800).code == 0
    return Soaked(samples, done, wrong, folder.lines("effects"), verified)


def halves(values: Sequence[float]) -> tuple[float, float]:
    """Return the medians of the second and of the last quarter: the first one warms up."""
    quarter = max(1, len(values) // 4)
    return statistics.median(values[quarter : 2 * quarter] or values), statistics.median(
        values[-quarter:]
    )


def row(minutes: float = MINUTES_WANTED) -> Row:
    """Soak for so many minutes."""
    with tempfile.TemporaryDirectory() as folder:
        seen = campaign(Path(folder), minutes * 60)
    took = seen.samples[-1].at_s / 60
    before, after = halves([each.memory_mb for each in seen.samples])
    files = halves([each.files for each in seen.samples])
    threads = halves([each.threads for each in seen.samples])
    wal = max(each.wal_mb for each in seen.samples)
    flat = after <= before * GROWTH_MAX
    return Row(
        name="A soak",
        source="The post-checks of Temporal's load generator omes: slopes of memory, files and log",
        version=f"one server, plans of five steps one after the other; {len(seen.samples)} samples",
        left_out=f"It ran {took:.0f} minutes. Days were not tried.",
        figures=[
            Figure("minutes", f"{took:.0f}", f"at least {MINUTES_WANTED:g}",
                   took >= 0.99 * MINUTES_WANTED),
            Figure("runs of five steps, and those that did not succeed",
                   f"{seen.runs}; {len(seen.wrong)}", "0 of them", not seen.wrong),
            Figure("effects in the file outside", str(seen.effects), str(seen.runs),
                   seen.effects == seen.runs),
            Figure("resident memory, median of the second and of the last quarter",
                   f"{before:.1f} MB, {after:.1f} MB", f"at most {GROWTH_MAX:g} times", flat),
            Figure("open files, the same", f"{files[0]:g}, {files[1]:g}",
                   f"at most {FILES_MAX} more", files[1] <= files[0] + FILES_MAX),
            Figure("threads, the same", f"{threads[0]:g}, {threads[1]:g}",
                   f"at most {FILES_MAX} more", threads[1] <= threads[0] + FILES_MAX),
            Figure("largest WAL", f"{wal:.1f} MB", f"at most {WAL_MB_MAX:g} MB", wal <= WAL_MB_MAX),
            Figure("log verifies", str(seen.verified).lower(), "true", seen.verified),
        ],
        repeat="make proof ARGS=soak",
        notes="One of the five steps fails at its first attempt and is retried. A reader hangs on "
        "the event stream, and the list of runs is read with each sample.",
    )  # fmt: skip
