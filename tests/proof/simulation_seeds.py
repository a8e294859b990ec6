"""Simulation seeds: worlds in which everything goes wrong, one after the other, as time allows."""

from __future__ import annotations

import multiprocessing
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import NamedTuple

from tests.proof.table import Figure, Row
from tests.simulation.__main__ import CHUNK, TWICE_EVERY, simulate_chunk

WANTED = 1_000_000
FIRST = 1_000_000
"""`make test` and `make sim` begin at 0; the campaign takes worlds of its own."""


class Swept(NamedTuple):
    """How many worlds were simulated, those with a violation, and how long it took."""

    seeds: int
    failed: list[tuple[int, str]]
    seconds: float


def campaign(first: int, count: int, minutes: float, jobs: int = 1) -> Swept:
    """Simulate up to `count` seeds from `first` on; start no more of them after `minutes`."""
    began = time.monotonic()
    done, failed = 0, []
    chunks = iter(range(first, first + count, CHUNK))
    waiting: set[Future[tuple[int, list[tuple[int, str]]]]] = set()
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        while True:
            while len(waiting) < 2 * jobs and time.monotonic() - began < minutes * 60:
                if (at := next(chunks, None)) is None:
                    break
                last = min(at + CHUNK, first + count)
                waiting.add(pool.submit(simulate_chunk, at, last))
            if not waiting:
                break
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for each in ended:
                number, found = each.result()
                done += number
                failed += found
            sys.stderr.write(f"\r{done} of {count} seeds, {len(failed)} violations ")
    return Swept(done, failed, time.monotonic() - began)


def row(minutes: float = 24 * 60, count: int = WANTED, jobs: int = 1) -> Row:
    """Run the campaign for so many minutes at most."""
    found = campaign(FIRST, count, minutes, jobs)
    rate = found.seeds / max(found.seconds, 1e-9)
    return Row(
        name="Simulation seeds",
        source="The method of FoundationDB and TigerBeetle (deterministic simulation), with a "
        "simulator of our own (tests/simulation)",
        version=f"seeds {FIRST} to {FIRST + found.seeds - 1}, at most {minutes:g} minutes, "
        f"{jobs} at once",
        left_out="Seeds beyond the time of this run, where fewer than wanted are named.",
        figures=[
            Figure("worlds simulated", str(found.seeds), str(count), found.seeds >= count),
            Figure(
                "worlds with a violation",
                str(len(found.failed))
                + "".join(f"; {seed}: {it}" for seed, it in found.failed[:5]),
                "0",
                not found.failed,
            ),
            Figure("worlds a second, in wall-clock time of a shared machine", f"{rate:.1f}"),
        ],
        repeat="make proof ARGS=seeds",
        notes=f"One world in {TWICE_EVERY} is simulated twice and must give the same trace. No "
        f"violation in n worlds bounds the rate of violations by 3/n at 95 %: here "
        f"{3 / max(found.seeds, 1):.1e}."
        if not found.failed
        else "",
    )
