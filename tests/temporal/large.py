"""A plan of 10,000 steps on Temporal: `python -m tests.temporal.large --steps 10000`.

Its history would be too long for one workflow: it continues as new several times. At the end every
step has succeeded once, and the log verifies. Figures are printed as JSON; it ends with
1 if anything is wrong. `test_long_runs.py` has a small slice of it.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from leadhand import worker
from leadhand.audit.chain import verify
from leadhand.codec.events import decode
from leadhand.core import events as ev
from leadhand.core.logcheck.checker import check
from tests.support.temporal import ROOT, Server, on_temporal


@worker(idempotent=True)
async def add(a: int, b: int) -> int:
    return a + b


def plan(steps: int) -> dict[str, Any]:
    """Layers of a hundred; each step waits for one of the layer before."""
    found = []
    for number in range(steps):
        step = {"id": f"s{number}", "worker": "add", "parameters": {"a": number, "b": 1}}
        after = {"depends_on": [f"s{number - 100}"]} if number >= 100 else {}
        found.append({**step, **after})
    return {"goal": "add", "steps": found}


async def carried_out(server: Server, steps: int, path: Path) -> dict[str, Any]:
    """One run, and what its log says."""
    async with on_temporal(server, path / "l.db", [add]) as here:
        began = time.monotonic()
        outcome = await here.lead.run(plan(steps), run_id="large")
        took = time.monotonic() - began
        entries = here.store.read("large")
        events = [decode(entry.version, entry.body) for entry in entries]
        starts = Counter(e.step for e in events if isinstance(e, ev.AttemptStarted))
        met = Counter(e.step for e in events if isinstance(e, ev.AttemptReported) and e.met)
        wanted = f'WorkflowId = "{here.cluster.ways.prefix}/large"'
        await asyncio.sleep(3)  # what is listed comes a moment later
        histories = len([each async for each in here.client.list_workflows(wanted)])
        timed = [(entry.at, event) for entry, event in zip(entries, events, strict=True)]
        wrong = [*verify(entries), *(str(each) for each in check(timed))]
    once = set(met.values()) == {1} and len(met) == steps
    return {
        "steps": steps,
        "seconds": round(took, 1),
        "steps_per_s": round(steps / took, 1),
        "events": len(entries),
        "histories": histories,
        "repeated_attempts": starts.total() - steps,
        "wrong": wrong[:10],
        "ok": bool(outcome.ok and once and not wrong),
    }


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("--steps", type=int, default=10_000)
    given = ask.parse_args()
    script = ROOT / "scripts" / "environment.py"
    subprocess.run([sys.executable, script, "temporal"], check=True)
    server = Server()
    server.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(carried_out(server, given.steps, Path(folder)))
    finally:
        server.stop()
    print(json.dumps(found, indent=1))
    sys.exit(0 if found["ok"] else 1)


if __name__ == "__main__":
    main()
