"""Simulate seeds from the command line.

    python -m tests.simulation --seeds 10000 [--from K] [--jobs J]
    python -m tests.simulation --seed 42 [--trace]

Progress goes to stderr. A failing seed is printed with the one command that repeats it. One
seed in a hundred is simulated twice: it must give the same trace.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.simulator import Verdict, simulate_seed

CHUNK = 100
TWICE_EVERY = 100
SHOWN_MAX = 20


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; 1 when something is wrong."""
    options = _options(arguments)
    if options.seed is not None:
        return _one(options.seed, trace=options.trace)
    return _many(options.first, options.seeds, options.jobs)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many")
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="K", help="the first")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="J")
    parser.add_argument("--seed", type=int, metavar="S", help="only this one")
    parser.add_argument("--trace", action="store_true", help="print what happens in it")
    return parser.parse_args(arguments)


def _one(seed: int, *, trace: bool) -> int:
    verdict = simulate_seed(seed, trace=_print if trace else None)
    again = simulate_seed(seed)
    problems = [*verdict.violations, *_unequal(verdict, again)]
    for problem in problems:
        _print(f"seed {seed}: {problem}")
    took = f"{verdict.events} events, {verdict.steps} callbacks, {verdict.virtual_s:.1f} s"
    _print(f"seed {seed}: {len(problems)} violations ({took}), trace {verdict.trace[:16]}")
    return 1 if problems else 0


def _unequal(one: Verdict, other: Verdict) -> Iterator[str]:
    if one.trace != other.trace:
        yield f"the same seed gave two traces: {one.trace[:16]} and {other.trace[:16]}"


def simulate_chunk(first: int, last: int) -> tuple[int, list[tuple[int, str]]]:
    """Simulate seeds one after the other; how many, and the first problem of each that has one."""
    found = []
    gc.collect()
    gc.freeze()
    for seed in range(first, last):
        verdict = simulate_seed(seed)
        problems = list(verdict.violations)
        if seed % TWICE_EVERY == 0:
            problems += _unequal(verdict, simulate_seed(seed))
        if problems:
            found.append((seed, problems[0]))
    return last - first, found


def _many(first: int, count: int, jobs: int) -> int:
    began = time.monotonic()
    done, failed = 0, 0
    chunks = [(at, min(at + CHUNK, first + count)) for at in range(first, first + count, CHUNK)]
    for number, found in _results(chunks, jobs):
        done += number
        for seed, problem in found:
            failed += 1
            if failed <= SHOWN_MAX:
                _print(f"seed {seed}: {problem}\n  repeat it: make sim SEED={seed} ARGS=--trace")
        rate = done / max(time.monotonic() - began, 1e-9)
        _say(f"\r{done} of {count} seeds, {failed} violations, {rate:.0f} seeds/s ")
    _say("\n")
    rate = done / max(time.monotonic() - began, 1e-9)
    _print(f"{done} seeds, {failed} violations, {rate:.0f} seeds/s")
    return 1 if failed else 0


def _results(
    chunks: list[tuple[int, int]], jobs: int
) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    if jobs <= 1 or len(chunks) == 1:
        for first, last in chunks:
            yield simulate_chunk(first, last)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(simulate_chunk, *zip(*chunks, strict=True))


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
