"""Where the time of a step goes: processor time, calls, and both by the part of the program.

    python -m bench.step                 a chain of 1,000 and a fan-out of 5,000 empty steps
    python -m bench.step --json

The time of a step is processor time of the whole process, the least of some runs. Its parts are
shares of a profile of the loop's thread in another run, in which every call costs more than it
does: what makes many small calls is told too large. What is built into Python stands by itself.
Time in SQLite is that of its one statement for each commit, without waiting for the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from leadhand import Lead, worker
from leadhand.core.policy import Policy

SIZES = {"chain": 1000, "fan-out": 5000}
PARTS = (
    ("SQLite: the commit", ("sqlite3.Connection", "sqlite3.Cursor")),
    ("bytes of rows", ("stores/group_commit", "stores/body_form", "stores/sqlite", "re.Pattern")),
    ("hash", ("audit/chain", "hashlib", "_hashlib", "openssl", "HASH")),
    ("encoding", ("codec/", "msgspec")),
    ("decide", ("core/decide",)),
    ("evolve", ("core/state", "core/commands")),
    ("check and verdict", ("engine/verdict", "core/jsonschema", "core/criteria", "core/report")),
    ("attempt and its context", ("engine/perform", "engine/budget", "engine/callers")),
    ("run loop", ("engine/",)),
    ("worker", ("workers/", "bench/")),
    ("asyncio", ("asyncio", "_asyncio", "contextvars", "selectors", "select")),
    ("other core", ("core/",)),
    ("dicts, lists, len and such", ("builtins", "' objects>", "built-in method")),
)


@worker(idempotent=True)
async def noop() -> None:
    """The step that does nothing."""


def plan(shape: str, size: int) -> dict[str, Any]:
    """Return a plan of a shape."""
    chained = shape == "chain"
    steps = [
        {"id": f"s{n}", "worker": "noop", "depends_on": [f"s{n - 1}"] if n and chained else []}
        for n in range(size)
    ]
    return {"plan_id": "bench", "goal": f"{shape} of {size}", "steps": steps}


def part_of(file: str, name: str) -> str:
    """Return the part of the program that a function belongs to."""
    place = file.partition("/leadhand/")[2] or (name if file == "~" else file)
    for part, words in PARTS:
        if any(word in place for word in words):
            return part
    return "other"


async def spent(shape: str, size: int, profile: cProfile.Profile | None = None) -> float:
    """Return the processor seconds of one run of a plan."""
    with tempfile.TemporaryDirectory(prefix="step-") as folder:
        lead = Lead([noop], store=Path(folder) / "log.db", policy=Policy(max_concurrency=1000))
        document = plan(shape, size)
        async with lead.hosting():
            await lead.run(plan(shape, 20))
            began = time.process_time()
            if profile:
                profile.enable()
            outcome = await lead.run(document)
            if profile:
                profile.disable()
            took = time.process_time() - began
    assert outcome.ok
    return took


def measured(shape: str, size: int, times: int) -> dict[str, Any]:
    """Return the figures of a shape, for each step."""
    least = min(asyncio.run(spent(shape, size)) for _ in range(times))
    profile = cProfile.Profile(time.thread_time)
    asyncio.run(spent(shape, size, profile))
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    shares: Counter[str] = Counter()
    calls = 0
    for (file, _line, name), (_, count, own, _, _) in stats.items():
        shares[part_of(file, name)] += own
        calls += count
    whole = sum(shares.values())
    step = least / size * 1e6
    return {
        "shape": shape,
        "steps": size,
        "us_per_step": round(step, 1),
        "calls_per_step": round(calls / size),
        "parts_us": {part: round(own / whole * step, 1) for part, own in shares.most_common()},
    }


def main() -> None:
    """Measure, print."""
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("--times", type=int, default=5, help="runs of which the least counts")
    given.add_argument("--json", action="store_true", help="print figures as JSON")
    options = given.parse_args()
    found = [measured(shape, size, options.times) for shape, size in SIZES.items()]
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for each in found:
        print(f"{each['shape']} of {each['steps']:,}: {each['us_per_step']} us of processor time")
        print(f"  and {each['calls_per_step']} calls a step")
        for part, took in each["parts_us"].items():
            print(f"  {part:<28}{took:>8.1f} us")


if __name__ == "__main__":
    main()
