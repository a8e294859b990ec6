"""What Leadhand adds to Temporal: `python -m bench.temporal`, or `make bench-temporal`.

The same steps, on the same server, once as a run of Leadhand and once as a bare workflow that does
nothing but call activities. The two take turns; a figure is the median of the ratios of neighbours.
Both have their workflows in this process and their steps in another, on a task queue of their own,
as machines are served. `--open` runs the bare workflow outside the SDK's sandbox, as ours runs.

`cpu` is the same ratio of the processor time that server, engine and machine took together: on a
machine that others use too, it moves far less.

Leadhand's time is that of `Lead.run`: the plan checked, started, decided, carried out, and its log
written to the end. The bare workflow has no log. With `--postgres` the log is in PostgreSQL, whose
server syncs; otherwise in a file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from temporalio.client import Client  # noqa: E402 - found by the line above
from temporalio.worker import UnsandboxedWorkflowRunner, Worker  # noqa: E402

from bench.peers.temporal_bare import Bare, bare_add  # noqa: E402
from leadhand import Policy, worker  # noqa: E402
from leadhand.stores.location import StoreLocation, place_of, spelled  # noqa: E402
from leadhand.temporal.activities import StepActivities  # noqa: E402
from leadhand.temporal.host import connect  # noqa: E402
from leadhand.temporal.host_factory import open_log  # noqa: E402
from leadhand.temporal.processes import RunningWorkers, machine_workers  # noqa: E402
from leadhand.workers.registry import Registry  # noqa: E402
from tests.support.postgres import find_programs, reachable, serving  # noqa: E402
from tests.support.temporal import Server, on_temporal  # noqa: E402

Figures = dict[str, Any]
Taken = tuple[float, float]
WANTED = {"chain": 1.5, "fanout": 1.25}
SIZES = {"chain": 40, "fanout": 500}


@worker(idempotent=True)
async def add(a: int, b: int) -> int:
    """The step, for Leadhand."""
    return a + b


def plan(shape: str, size: int) -> dict[str, Any]:
    """The same as a plan."""
    steps: list[dict[str, Any]] = []
    for number in range(size):
        step = {"id": f"s{number}", "worker": "add", "parameters": {"a": number, "b": 1}}
        after = {"depends_on": [f"s{number - 1}"]} if shape == "chain" and number else {}
        steps.append({**step, **after})
    return {"goal": "add", "steps": steps}


async def ours(lead: Any, shape: str, size: int) -> float:
    """Seconds of a run."""
    doc = plan(shape, size)
    began = time.perf_counter()
    outcome = await lead.run(doc)
    took = time.perf_counter() - began
    assert outcome.ok, outcome
    return took


async def bare(client: Any, shape: str, size: int, queues: tuple[str, str]) -> float:
    """Seconds of the bare workflow."""
    began = time.perf_counter()
    args = [shape, size, queues[1]]
    ident = f"bare-{uuid.uuid4().hex}"
    total = await client.execute_workflow("bare", args=args, id=ident, task_queue=queues[0])
    took = time.perf_counter() - began
    assert total == sum(range(1, size + 1))
    return took


@contextmanager
def a_log(*, postgres: bool) -> Iterator[StoreLocation]:
    """A place for the log."""
    with tempfile.TemporaryDirectory() as folder:
        if not postgres:
            yield Path(folder) / "l.db"
            return
        with reachable(find_programs()) as programs, serving(programs, sync=True) as database:
            yield database.new(Path(folder))


async def measure(
    server: Server, place: StoreLocation, turns: int, *, is_open: bool, shapes: list[str]
) -> Figures:
    """All figures of one go."""
    found: Figures = {}
    policy, ways = Policy(max_concurrency=10_000), {"prefix": f"bench-{uuid.uuid4().hex[:8]}"}
    lead = on_temporal(server, place, [add], ways=ways, policy=policy, machine_here=False)
    async with (
        lead as here,
        machine(server.address, prefix := here.cluster.ways.prefix, place) as child,
    ):
        pids = [server.pid, os.getpid(), child]
        client = await Client.connect(server.address)
        more = {"workflow_runner": UnsandboxedWorkflowRunner()} if is_open else {}
        queues = f"{prefix}.bare", f"{prefix}.bare-add"
        async with Worker(client, task_queue=queues[0], workflows=[Bare], **more):
            for shape in shapes:
                pairs = []
                for turn in range(turns + 1):
                    size = SIZES[shape] if turn else SIZES[shape] // 5
                    one = await taken(pids, bare(client, shape, size, queues))
                    two = await taken(pids, ours(here.lead, shape, size))
                    if turn:  # the first is for warming up
                        pairs.append((two, one))
                found[shape] = figures(shape, pairs)
                print(json.dumps({shape: found[shape]}), flush=True)
    return found


@asynccontextmanager
async def machine(address: str, prefix: str, place: StoreLocation) -> AsyncIterator[int]:
    """A process that carries out the steps of both."""
    command = [sys.executable, "-m", "bench.temporal", "--serve", address, prefix, spelled(place)]
    child = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
    try:
        yield child.pid
    finally:
        child.terminate()
        await child.wait()


async def serve(address: str, prefix: str, place: str) -> None:
    """Be that process."""
    store = await open_log(place_of(place, Path(), Path()))
    client, plain = await connect(address, shelf=store), await Client.connect(address)
    hands = machine_workers(
        client, prefix, StepActivities(Registry([add]), store), ["add"], drain_s=0
    )
    hands.append(Worker(plain, task_queue=f"{prefix}.bare-add", activities=[bare_add]))
    async with RunningWorkers(hands):
        await asyncio.Event().wait()


async def taken(pids: list[int], work: Awaitable[float]) -> Taken:
    """Seconds by the clock, and of processors."""
    before = sum(map(cpu_s, pids))
    return await work, sum(map(cpu_s, pids)) - before


def cpu_s(pid: int) -> float:
    """The processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def figures(shape: str, pairs: list[tuple[Taken, Taken]]) -> dict[str, Any]:
    """What a shape came to."""
    ratios = sorted(two[0] / one[0] for two, one in pairs)
    figure = median(ratios)
    return {
        "steps": SIZES[shape],
        "leadhand_s": round(median(two[0] for two, _ in pairs), 3),
        "bare_s": round(median(one[0] for _, one in pairs), 3),
        "ratio": round(figure, 3),
        "lowest": round(ratios[0], 3),
        "highest": round(ratios[-1], 3),
        "cpu": round(median(two[1] / one[1] for two, one in pairs), 3),
        "wanted": WANTED[shape],
        "met": figure <= WANTED[shape],
    }


def main() -> None:
    """Measure, and say whether it holds."""
    ask = argparse.ArgumentParser()
    ask.add_argument("--turns", type=int, default=7)
    ask.add_argument("--open", action="store_true")
    ask.add_argument("--postgres", action="store_true")
    ask.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    ask.add_argument("--shape", action="append", choices=list(SIZES))
    given = ask.parse_args()
    if given.serve:
        asyncio.run(serve(*given.serve))
    subprocess.run([sys.executable, ROOT / "scripts" / "environment.py", "temporal"], check=True)
    server = Server()
    server.start()
    try:
        shapes = given.shape or list(SIZES)
        with a_log(postgres=given.postgres) as place:
            go = measure(server, place, given.turns, is_open=given.open, shapes=shapes)
            found = asyncio.run(go)
    finally:
        server.stop()
    sys.exit(0 if all(each["met"] for each in found.values()) else 1)


if __name__ == "__main__":
    main()
