"""What a long history costs: the same commands beside an empty database and one of 100,000 runs.

    python -m bench.history                     100,000 finished runs of five steps
    python -m bench.history --runs 10000 --times 3

The runs are copies of one real run: its events under new names and at other times, chained and
committed as a host commits, with summaries that follow. Each figure is the median of several
measurements, taken alternately in both databases, so that a machine that slows down meanwhile
favours neither. Commands are measured as whole processes, with their processor time and memory,
requests at a server that has answered each once before. Then all runs are archived, and the same is
measured again.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from leadhand import Lead, worker
from leadhand.audit.chain import GENESIS, link
from leadhand.ports import Entry
from leadhand.stores.group_commit import AppendRequest
from leadhand.stores.memory import MemoryStore
from leadhand.stores.sqlite.store import SqliteStore

DAYS = 90
DAY_US = 86_400_000_000
TOGETHER = 200
"""Runs in one commit."""
WORKERS = """
from leadhand import worker

@worker(name="note")
async def note() -> str:
    return "noted"
"""
CHAIN = [
    {"id": f"s{n}", "worker": "note", **({"depends_on": [f"s{n - 1}"]} if n else {})}
    for n in range(5)
]
PLAN = {"plan_id": "history", "goal": "five steps", "steps": CHAIN}
REQUESTS = (
    "/overview",
    "/runs",
    "/runs?status=failed",
    "/runs?q=no-such-text",
    "/runs?sort=-cost",
    "/inbox",
    "/metrics",
    "/usage?by=plan",
)


@worker(name="note")
async def note() -> str:
    """Do nothing."""
    return "noted"


async def one_run() -> tuple[list[Entry], bytes]:
    """Return the log of a real run, and the summary beside it."""
    store = MemoryStore()
    lead = Lead([note], store=store)
    await lead.run(PLAN, run_id="example")
    header = store.header("example")
    assert header is not None
    return store.read("example"), header.summary


def copies(log: list[Entry], summary: bytes, runs: int, now: int) -> Any:
    """Yield the log of each run with its summary; the last run was created a minute ago."""
    told = msgspec.json.decode(summary)  # not as a struct: its numbers must stay as they are
    step = DAYS * DAY_US // runs
    begin = log[0].at
    for number in range(runs):
        run = f"h{number:07d}"
        shift = now - 60_000_000 - (runs - number) * step - begin
        made, prev = [], GENESIS
        for entry in log:
            body, at = entry.body, entry.at + shift
            if entry.seq == 1:
                body = body.replace(b'"example"', f'"{run}"'.encode())
            prev = link(prev, run, entry.seq, at, entry.version, body)
            made.append(Entry(run, entry.seq, at, entry.version, body, prev))
        told["ended"] = log[-1].at + shift
        yield run, made, msgspec.json.encode(told)


def fill(path: Path, runs: int) -> float:
    """Write the runs; return the seconds that took."""
    began = time.monotonic()
    log, summary = asyncio.run(one_run())
    store = SqliteStore(path, synchronous="NORMAL")
    store.claim()
    group: list[AppendRequest] = []
    for run, entries, told in copies(log, summary, runs, time.time_ns() // 1000):
        future: Any = concurrent.futures.Future()
        size = sum(len(entry.body) for entry in entries)
        group.append(AppendRequest(None, future, run, 0, entries, told, size))  # type: ignore[arg-type]
        if len(group) == TOGETHER:
            store.commit_together(group)
            group = []
    if group:
        store.commit_together(group)
    store.close_now()
    return time.monotonic() - began


def folder_of(place: Path, name: str) -> Path:
    """Return a new project folder with a worker and a plan of two steps."""
    folder = place / name
    folder.mkdir()
    (folder / "workers.py").write_text(WORKERS)
    (folder / "leadhand.toml").write_text('[project]\nworkers = ["workers.py"]\n')
    plan = {**PLAN, "steps": PLAN["steps"][:2]}
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / ".leadhand").mkdir()
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of commands, with a home of their own."""
    return {**os.environ, "HOME": str(folder), "LEADHAND_NO_COLOR": "1"}


class Cost(NamedTuple):
    """What a command took."""

    seconds: float
    processor: float
    """Seconds of processor time, with those of its processes."""
    memory: float
    """The highest memory of one of its processes, in MB."""


STARTER = """
import json, os, sys, time
began = time.monotonic()
child = os.posix_spawn(sys.executable, [sys.executable, "-m", "leadhand.cli", *sys.argv[1:]],
                       os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, 1, 0)])
_, status, used = os.wait4(child, 0)
took = time.monotonic() - began
print(json.dumps([os.waitstatus_to_exitcode(status), took, used.ru_utime + used.ru_stime,
                  used.ru_maxrss / 1024]))
"""
"""Starts a command from a small process: of memory, a child begins with what its parent has."""


def command(folder: Path, *words: str) -> Cost:
    """Return what a command takes."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", STARTER, *words],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        check=True,
    )
    code, *cost = json.loads(done.stdout)
    if code:
        raise SystemExit(f"leadhand {' '.join(words)}: {done.stderr.decode()[-500:]}")
    return Cost(*cost)


class Served:
    """`leadhand serve` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        began = time.monotonic()
        self.child = subprocess.Popen(
            [sys.executable, "-m", "leadhand.cli", "serve", "--port", "0", "--trust"],
            cwd=folder,
            env=environment(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.child.stdout is not None
        for line in self.child.stdout:
            if "http://" in line:
                self.port = int(line.split("http://", 1)[1].split("/")[0].rpartition(":")[2])
                break
        else:
            raise SystemExit("the server did not start")
        self.started = time.monotonic() - began
        self.token = (folder / ".leadhand" / "leadhand.db.token").read_text().strip()

    def get(self, path: str) -> tuple[int, float]:
        """Return the status of a request, and the seconds it took."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        began = time.monotonic()
        line.request("GET", f"/api/v1{path}", headers={"Authorization": f"Bearer {self.token}"})
        answer = line.getresponse()
        answer.read()
        line.close()
        return answer.status, time.monotonic() - began

    def stop(self) -> None:
        """End it."""
        self.child.send_signal(signal.SIGTERM)
        self.child.wait(30)


def measured(times: int, folders: dict[str, Path], run: str) -> dict[str, dict[str, Cost]]:
    """Return the median cost of each command, in each database."""
    commands = {
        "ls": ("ls",),
        "ls --status failed": ("ls", "--status", "failed"),
        "inbox": ("inbox",),
        "metrics": ("metrics",),
        "show RUN": ("show",),
        "run of two steps": ("run", "plan.json", "--quiet"),
        "verify --all --full": ("verify", "--all", "--full"),
        "verify --all": ("verify", "--all"),
    }
    found: dict[str, dict[str, Cost]] = {}
    for name, words in commands.items():
        took: dict[str, list[Cost]] = {each: [] for each in folders}
        for _ in range(1 if "--full" in words else times):
            for each, folder in folders.items():
                given = (
                    (*words, "h0000000" if each == "empty" else run)
                    if name == "show RUN"
                    else words
                )
                took[each].append(command(folder, *given))
        found[name] = {
            each: Cost(*map(statistics.median, zip(*all_, strict=True)))
            for each, all_ in took.items()
        }
    return found


def requested(times: int, folders: dict[str, Path]) -> dict[str, dict[str, Cost]]:
    """Return the median seconds of requests at a server of each database, and of its start."""
    servers = {each: Served(folder) for each, folder in folders.items()}
    found = {
        "start of serve": {each: Cost(server.started, 0, 0) for each, server in servers.items()}
    }
    try:
        for path in REQUESTS:
            took: dict[str, list[float]] = {each: [] for each in servers}
            statuses = {server.get(path)[0] for server in servers.values()}
            if statuses != {200}:
                continue  # this version has no such route
            for _ in range(times):
                for each, server in servers.items():
                    took[each].append(server.get(path)[1])
            found[f"GET {path}"] = {
                each: Cost(statistics.median(all_), 0, 0) for each, all_ in took.items()
            }
    finally:
        for server in servers.values():
            server.stop()
    return found


def size_of(folder: Path) -> float:
    """Return the size of a database in MB."""
    return (folder / ".leadhand" / "leadhand.db").stat().st_size / 1e6


def archived(folder: Path) -> Cost:
    """Archive all runs of a database that have ended, and say what became of it."""
    before = size_of(folder)
    cost = command(folder, "archive", "--older-than", "0s")
    files = list((folder / ".leadhand" / "leadhand.db.archives").iterdir())
    size = sum(each.stat().st_size for each in files) / 1e6
    print(
        f"archive: {cost.seconds:.1f} s, {cost.processor:.1f} s of processor time, "
        f"{cost.memory:.0f} MB of memory; the database has {size_of(folder):.0f} MB instead of "
        f"{before:.0f}, and {len(files)} archives have {size:.1f} MB"
    )
    return cost


def show(title: str, figures: dict[str, dict[str, Cost]], last: str) -> None:
    """Print a table: one finished run, and many."""
    print(f"\n{title}")
    print(f"{'':<26}{'1 run':>9}{last:>10}{'ratio':>7}{'processor':>18}{'memory':>14}")
    for name, row in figures.items():
        less, more = row["empty"], row["full"]
        line = f"{name:<26}{less.seconds:>7.3f} s{more.seconds:>8.3f} s"
        line += f"{more.seconds / less.seconds:>7.2f}"
        if more.processor:
            line += f"{less.processor:>8.2f}{more.processor:>8.2f} s"
            line += f"{less.memory:>6.0f}{more.memory:>5.0f} MB"
        print(line)


def main() -> None:
    """Fill, measure, archive, measure again, print."""
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("--runs", type=int, default=100_000, help="how many finished runs")
    given.add_argument("--times", type=int, default=5, help="measurements of each figure")
    given.add_argument("--dir", type=Path, help="where; a temporary folder without it")
    given.add_argument("--json", type=Path, metavar="FILE", help="write figures as JSON, too")
    options = given.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="history-") as place:
        folders = {"empty": folder_of(Path(place), "empty"), "full": folder_of(Path(place), "full")}
        for each, size in (("empty", 1), ("full", options.runs)):
            file = folders[each] / ".leadhand" / "leadhand.db"
            took = fill(file, size)
            if each == "full":
                print(f"{size:,} runs in {took:.1f} s, {file.stat().st_size / 1e6:.0f} MB")
            command(folders[each], "trust")
            command(folders[each], "run", "plan.json", "--quiet")
        run, last = f"h{options.runs // 2:07d}", f"{options.runs:,}"
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        before = measured(options.times, folders, run) | requested(options.times, folders)
        show("before archiving", before, last)
        cost = archived(folders["full"])
        after = measured(options.times, folders, run) | requested(options.times, folders)
        show("all runs archived", after, last)
        print(f"load {os.getloadavg()[0]:.1f}")
    if options.json is not None:
        told = {"before": before, "archive": cost, "after": after}
        options.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
