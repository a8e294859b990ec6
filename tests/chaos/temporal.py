"""Many machines in trouble: nothing lost, nothing that was finished done again.

    python -m tests.chaos.temporal --runs 500          root, for network namespaces

Four machines, each in a network namespace of its own, carry out the steps of runs that a Temporal
server hosts; `leadhand serve` is the engine, and takes the runs by HTTP; the log is in PostgreSQL.
Steps are functions and commands, hand on results large and small, and some may not be repeated and
have a probe; each run's goal is checked in the end. All the while machines are killed and frozen,
their links are cut, and the Leadhand server, the Temporal server and the log's server are ended and
started again. Then

    every run has succeeded                                         lost: 0
    what may happen once has happened, and is what the log says     wrong: 0
    no step was started again once it had succeeded                 again: 0
    no step was begun more often than the log says                  unknown: 0
    `leadhand verify --all` finds nothing

Ends with 1 if anything is wrong. Figures are printed as JSON.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from leadhand.app.reader import Reader
from leadhand.codec.events import decode
from leadhand.core import events as ev
from leadhand.errors import LeadhandError
from leadhand.stores.location import home
from leadhand.stores.postgres.address import Address, address_of
from tests.chaos.namespaces import Net, net
from tests.support import temporal as hosting
from tests.support.cli import PROGRAM, Folder, environment
from tests.support.postgres import Server, find_programs, reachable, server_folder

WORKERS = '''
"""Steps that say when they begin."""

import asyncio
from pathlib import Path

from leadhand import Context, worker

HERE = Path(__file__).parent


async def work(context: Context, seconds: float) -> None:
    with (HERE / "begun" / context.run).open("a") as file:
        file.write(f"{context.step}\\n")
    await asyncio.sleep(seconds)


@worker(idempotent=True)
async def mark(context: Context, seconds: float) -> str:
    await work(context, seconds)
    return context.step


@worker(idempotent=True)
async def write(context: Context, seconds: float, size: int) -> str:
    await work(context, seconds)
    return "x" * size


@worker(idempotent=True)
async def count(context: Context, seconds: float, text: str) -> int:
    await work(context, seconds)
    return len(text)


def charged(account: str) -> str | None:
    bill = HERE / "bills" / account
    return bill.read_text() or None if bill.exists() else None


@worker(effects="bills", probe=charged)
async def charge(context: Context, seconds: float, account: str) -> str:
    """May not be repeated; whoever takes the money takes it once for each account."""
    await work(context, seconds)
    draft = HERE / "bills" / f"{account}.{context.attempt}"
    draft.write_text(f"attempt {context.attempt}")
    try:
        (HERE / "bills" / account).hardlink_to(draft)
    except FileExistsError:
        pass
    return charged(account)
'''
SCRIPT = """
echo "$LEADHAND_STEP" >> "begun/$LEADHAND_RUN"
sleep "$1"
"""
SETTINGS = """
[project]
workers = ["workers.py"]
store = "{store}"
[policy]
attempts = 50
backoff = "0.2 s"
backoff_max = "2 s"
[temporal]
address = "{temporal}"
heartbeat = "4 s"
[workers.shell]
command = ["sh", "mark.sh", "{{seconds}}"]
idempotent = true
"""
WAYS = ("kill", "freeze", "cut", "server", "temporal", "log")
LARGE = 200_000


@dataclass
class Campaign:
    """How many runs, and how much trouble."""

    runs: int
    machines: int = 4
    steps: int = 20
    between_s: tuple[float, float] = (2.0, 6.0)
    trouble_s: tuple[float, float] = (3.0, 8.0)
    step_s: tuple[float, float] = (0.05, 0.3)
    at_once: int = 24
    seed: int = 1
    limit_s: float = 3600.0
    in_turn: bool = False
    """Each kind of trouble in turn rather than by chance."""
    done: Counter[str] = field(default_factory=Counter)


class Stage:
    """All processes of a campaign."""

    def __init__(
        self, folder: Folder, links: Net, server: hosting.Server, database: Server, url: str
    ) -> None:
        self.folder, self.links, self.server, self.database = folder, links, server, database
        self.address: Address = address_of(url, folder.path)
        self.port = hosting.free_port()
        self.machines: list[subprocess.Popen[bytes]] = []
        self.front: subprocess.Popen[bytes] | None = None

    def machine(self, number: int) -> subprocess.Popen[bytes]:
        command = [*self.links.within(number), *PROGRAM, "worker", "--concurrency", "30"]
        return self._start([*command, "--drain", "1"], f"machine-{number}.log")

    def serve(self) -> None:
        command = [*PROGRAM, "serve", "--port", str(self.port)]
        self.front = self._start(command, "serve.log")

    def _start(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        with (self.folder.path / log).open("ab") as out:
            return subprocess.Popen(
                command,
                cwd=self.folder.path,
                env=environment(self.folder.path),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def open(self, machines: int) -> None:
        self.serve()
        until(lambda: self.token() and self.answers(), "the server", 120)
        self.machines = [self.machine(number) for number in range(machines)]

    def token(self) -> str:
        path = self.folder.path / ".leadhand" / f"{home(self.address).name}.token"
        return path.read_text().strip() if path.exists() else ""

    def mend(self) -> None:
        """What ended is started again, as a service manager would: it may have found no server."""
        for number, each in enumerate(self.machines):
            if each.poll() is not None:
                self.machines[number] = self.machine(number)
        if self.front is not None and self.front.poll() is not None:
            self.serve()

    def answers(self) -> bool:
        """Whether the Leadhand server does."""
        try:
            httpx2.get(f"http://127.0.0.1:{self.port}/api/v1/session", timeout=5)
        except (httpx2.HTTPError, OSError):
            self.mend()
            return False
        return True

    def close(self) -> None:
        for each in [*self.machines, *([self.front] if self.front else [])]:
            each.kill()
            each.wait(30)


def until(look: Any, what: str, limit_s: float) -> Any:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come within {limit_s} s")


class Trouble(threading.Thread):
    """Makes it, until it is told to stop; then everything is as it should be again."""

    def __init__(self, stage: Stage, campaign: Campaign) -> None:
        super().__init__(daemon=True)
        self.stage, self.campaign = stage, campaign
        self.dice = random.Random(campaign.seed)
        self.over = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        number = 0
        try:
            while not self.over.wait(self.dice.uniform(*self.campaign.between_s)):
                way = WAYS[number % len(WAYS)] if self.campaign.in_turn else self._any()
                number += 1
                self._make(way, self.dice.randrange(self.campaign.machines))
                self.campaign.done[way] += 1
                until(self.stage.answers, "the server", 300)
                self.stage.mend()
                if self.campaign.in_turn and number == len(WAYS):
                    return
        except BaseException as error:
            self.error = error

    def _any(self) -> str:
        return self.dice.choices(WAYS, weights=(4, 4, 4, 2, 1, 1))[0]

    def _make(self, way: str, number: int) -> None:
        stage, pause = self.stage, self.dice.uniform(*self.campaign.trouble_s)
        machine = stage.machines[number]
        if way == "kill":
            machine.kill()
            machine.wait(30)
            stage.machines[number] = stage.machine(number)
        elif way == "freeze":
            os.kill(machine.pid, signal.SIGSTOP)
            time.sleep(pause)
            os.kill(machine.pid, signal.SIGCONT)
        elif way == "cut":
            stage.links.link(number, is_up=False)
            time.sleep(pause)
            stage.links.link(number, is_up=True)
        elif way == "server":
            assert stage.front is not None
            stage.front.send_signal(self.dice.choice([signal.SIGKILL, signal.SIGTERM]))
            stage.front.wait(60)
            stage.serve()
            until(stage.answers, "the server", 300)
        elif way == "temporal":
            stage.server.stop()
            time.sleep(1)
            stage.server.start()
        else:
            stage.database.stop()
            time.sleep(pause)
            stage.database.start()


def plan(campaign: Campaign, number: int) -> dict[str, Any]:
    """Steps of which each waits for one or two of those before it."""
    dice = random.Random(campaign.seed * 100_003 + number)
    steps: list[dict[str, Any]] = []
    for at in range(campaign.steps):
        more: dict[str, Any] = {"seconds": round(dice.uniform(*campaign.step_s), 3)}
        name = ("write", "charge", "shell")[at] if at < 3 else "mark"
        after = sorted({f"s{dice.randrange(at)}" for _ in range(2)}) if at > 3 else []
        if at == 0:
            more["size"] = LARGE
        elif at == 1:
            more["account"] = f"{campaign.seed}-{number}"
        elif at == campaign.steps - 1:
            name, more["text"] = "count", "${{ steps.s0.data }}"
        step = {"id": f"s{at}", "worker": name, "parameters": more}
        steps.append({**step, **({"depends_on": after} if after else {})})
    goal = {"text": "mark", "acceptance": [f"steps.s{campaign.steps - 1}.data == {LARGE}"]}
    return {"goal": goal, "steps": steps}


def begin(stage: Stage, campaign: Campaign, number: int, end: float) -> str:
    """Have a run started, however often that has to be said."""
    doc = {"plan": plan(campaign, number)}
    key = f"campaign-{campaign.seed}-{number}"
    headers = {"Authorization": f"Bearer {stage.token()}", "Idempotency-Key": key}
    said = ""
    while time.monotonic() < end:
        try:
            url = f"http://127.0.0.1:{stage.port}/api/v1/runs"
            got = httpx2.post(url, json=doc, headers=headers, timeout=30)
            said = got.text
            if got.status_code in (200, 201, 202):
                return str(got.json()["run"])
        except (httpx2.HTTPError, OSError) as error:
            said = repr(error)
        time.sleep(0.5)
    raise AssertionError(f"run {number} could not be started: {said[:500]}")


def open_runs(address: Address) -> int:
    """How many runs have not ended; while the log is away, at least one."""
    try:
        reader = Reader(address)
    except LeadhandError:
        return 1
    try:
        return sum(reader.state(each.run).ended is None for each in reader.runs())
    finally:
        reader.store.close_reader()


def carried_out(stage: Stage, campaign: Campaign) -> list[str]:
    """Start all runs under trouble, and wait until they have ended."""
    end = time.monotonic() + campaign.limit_s
    trouble = Trouble(stage, campaign)
    runs: list[str] = []
    if not campaign.in_turn:
        trouble.start()
    try:
        with ThreadPoolExecutor(campaign.at_once) as pool:
            wanted = range(campaign.runs)
            runs = list(pool.map(lambda number: begin(stage, campaign, number, end), wanted))
        print(f"{len(runs)} runs started", file=sys.stderr, flush=True)
        if campaign.in_turn:
            trouble.start()
        while time.monotonic() < end and trouble.error is None:
            if len(campaign.done) == len(WAYS) and not open_runs(stage.address):
                break
            time.sleep(2)
    finally:
        trouble.over.set()
        if trouble.is_alive():
            trouble.join(120)
    if trouble.error is not None:
        raise trouble.error
    until(lambda: not open_runs(stage.address), "the end of all runs", end - time.monotonic())
    return runs


def judged(stage: Stage, runs: list[str]) -> dict[str, Any]:
    """What is wrong, by the log and by what the steps left behind."""
    reader = Reader(stage.address)
    lost, again, unknown, wrong, attempts = [], [], [], [], 0
    try:
        for run in runs:
            state = reader.state(run)
            bill = stage.folder.path / "bills" / state.steps["s1"].doc["parameters"]["account"]
            if not bill.exists() or state.steps["s1"].data != bill.read_text():
                wrong.append(run)
            if state.ended is None or state.ended.status != "succeeded":
                lost.append(run)
            begun: Counter[str] = Counter()
            finished: set[str] = set()
            for entry in reader.entries(run):
                event = decode(entry.version, entry.body)
                if isinstance(event, ev.AttemptStarted):
                    begun[event.step] += 1
                    again += [f"{run} {event.step}"] if event.step in finished else []
                elif isinstance(event, ev.AttemptReported) and event.met:
                    finished.add(event.step)
            attempts += begun.total()
            marks = Counter((stage.folder.path / "begun" / run).read_text().split())
            unknown += [f"{run} {step}" for step in marks if marks[step] > begun[step]]
    finally:
        reader.store.close_reader()
    return {
        "lost": lost, "wrong": wrong, "again": again, "unknown": unknown, "attempts": attempts,
    }  # fmt: skip


@contextlib.contextmanager
def staged(campaign: Campaign, programs: Path, path: Path) -> Iterator[Stage]:
    """The whole cast, and nothing of it left afterwards."""
    (path / "begun").mkdir()
    (path / "bills").mkdir()
    with net(campaign.machines) as links, server_folder() as data:
        database = Server(programs, data)
        block = f"{links.block}.0.0/16"
        with (data / "data" / "postgresql.conf").open("a") as file:
            file.write("listen_addresses = '*'\n")
        with (data / "data" / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {block} scram-sha-256\n")
        database.start()
        server = hosting.Server(path / "temporal.db", links.address)
        server.start()
        with database.connect() as connection:
            connection.execute("CREATE DATABASE campaign")
        url = database.url("campaign").replace("127.0.0.1", links.address)
        folder = Folder(path)
        folder.write("workers.py", WORKERS)
        folder.write("mark.sh", SCRIPT)
        text = SETTINGS.format(store=url, temporal=server.address)
        folder.write("leadhand.toml", text)
        stage = Stage(folder, links, server, database, url)
        try:
            stage.open(campaign.machines)
            yield stage
        finally:
            stage.close()
            server.stop()
            database.stop(signal.SIGQUIT)


def chaos(campaign: Campaign, programs: Path, path: Path) -> dict[str, Any]:
    """One campaign; its figures."""
    with staged(campaign, programs, path) as stage:
        began = time.monotonic()
        runs = carried_out(stage, campaign)
        took = time.monotonic() - began
        found = judged(stage, runs)
        verified = stage.folder.run("verify", "--all", timeout_s=600)
        found["verify"] = "" if verified.code == 0 else verified.out[:2000] + verified.err[:2000]
    wrong = any(found[name] for name in ("lost", "wrong", "again", "unknown", "verify"))
    steps = campaign.runs * campaign.steps
    return {
        "runs": len(runs),
        "steps": steps,
        "seconds": round(took, 1),
        "trouble": dict(campaign.done),
        "repeated_attempts": found.pop("attempts") - steps,
        **found,
        "ok": not wrong and len(runs) == campaign.runs,
    }


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("--runs", type=int, default=500)
    ask.add_argument("--seed", type=int, default=1)
    ask.add_argument("--machines", type=int, default=4)
    ask.add_argument("--keep", type=Path, help="where logs go")
    given = ask.parse_args()
    script = hosting.ROOT / "scripts" / "environment.py"
    subprocess.run([sys.executable, script, "temporal"], check=True)
    campaign = Campaign(given.runs, machines=given.machines, seed=given.seed)
    with tempfile.TemporaryDirectory() as folder, reachable(find_programs()) as programs:
        path = given.keep or Path(folder)
        path.mkdir(exist_ok=True)
        found = chaos(campaign, programs, path)
    print(json.dumps(found, indent=1))
    sys.exit(0 if found["ok"] else 1)


if __name__ == "__main__":
    main()
