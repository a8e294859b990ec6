"""What each host carries, in one run: `python -m bench.hosts`.

The same empty steps as a chain, side by side, and as many runs at once; hosted here with a log in a
file and in PostgreSQL, and by Temporal with its log in PostgreSQL. Every server is on this machine
and syncs what it confirms. `share` is the rate beside that of the first line, taken minutes apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from typing import Any

from bench.temporal import ROOT, a_log, add, machine, plan
from leadhand import Lead, Policy
from leadhand.stores.location import StoreLocation
from tests.support.temporal import Server, on_temporal

POLICY = Policy(max_concurrency=10_000)
SIZES = {"chain": (1, 200), "fanout": (1, 2000), "runs": (100, 10)}
"""How many runs at once, and the steps of each."""
DISTANT = {"chain": (1, 40), "fanout": (1, 500), "runs": (50, 10)}
"""The same for Temporal, where a step takes fifty times as long."""
Rates = dict[str, float]


async def rates(lead: Lead, sizes: dict[str, tuple[int, int]]) -> Rates:
    """Steps in a second, by shape."""
    found: Rates = {}
    for shape, (runs, size) in sizes.items():
        doc = plan("fanout" if shape == "fanout" else "chain", size)
        began = time.perf_counter()
        outcomes = await asyncio.gather(*(lead.run(doc) for _ in range(runs)))
        assert all(outcome.ok for outcome in outcomes), outcomes
        found[shape] = runs * size / (time.perf_counter() - began)
    return found


async def embedded(place: StoreLocation) -> Rates:
    """Hosted by this process."""
    lead = Lead([add], store=place, policy=POLICY)
    async with lead.hosting():
        await lead.run(plan("fanout", 50))
        return await rates(lead, SIZES)


async def distant(server: Server, place: StoreLocation) -> Rates:
    """Hosted by Temporal: the engine in this process, the steps in another."""
    ways = {"prefix": f"hosts-{uuid.uuid4().hex[:8]}"}
    lead = on_temporal(server, place, [add], ways=ways, policy=POLICY, machine_here=False)
    async with lead as here, machine(server.address, here.cluster.ways.prefix, place):
        await here.lead.run(plan("fanout", 50))
        return await rates(here.lead, DISTANT)


def measured() -> Iterable[tuple[str, Rates]]:
    """Each host in turn."""
    for name, postgres in (("here, log in a file", False), ("here, log in PostgreSQL", True)):
        with a_log(postgres=postgres) as place:
            yield name, asyncio.run(embedded(place))
    subprocess.run([sys.executable, ROOT / "scripts" / "environment.py", "temporal"], check=True)
    server = Server()
    server.start()
    try:
        with a_log(postgres=True) as place:
            yield "Temporal, log in PostgreSQL", asyncio.run(distant(server, place))
    finally:
        server.stop()


def main() -> None:
    """Print a line for each host as it was measured."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    first: Rates = {}
    for host, found in measured():
        first = first or found
        told: dict[str, Any] = {"host": host}
        for shape, rate in found.items():
            told[shape] = {"per_s": round(rate, 1), "share": round(rate / first[shape], 4)}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
