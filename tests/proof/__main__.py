"""`make proof`: run rows, print them as a table, and write docs/proof.md.

`python -m tests.proof [NAME ...] [--seeds N] [--minutes M]` runs the named rows, without names all.
`--seeds` is how often each fault is played, `--minutes` the time of the soak and of the simulation
seeds. Exit 1 if a figure with a wanted value is missed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec

from tests.proof import (
    agentdojo_attacks,
    conformance,
    faults,
    long_agent,
    power_cuts,
    simulation_seeds,
    soak,
    table,
    workflow_kills,
)

Given = argparse.Namespace


def _agentdojo(_given: Given) -> table.Row:
    script = table.ROOT / "scripts" / "environment.py"
    subprocess.run([sys.executable, script, "agentdojo"], check=True)
    return agentdojo_attacks.row()


ROWS: dict[str, Callable[[Given], table.Row]] = {
    "agentdojo": _agentdojo,
    "conformance": lambda _given: conformance.row(),
    "faults": lambda given: faults.row(given.seeds, given.jobs),
    "long_agent": lambda _given: long_agent.row(),
    "power_cuts": lambda _given: power_cuts.row(),
    "seeds": lambda given: simulation_seeds.row(given.minutes),
    "soak": lambda given: soak.row(given.minutes),
    "workflow": lambda _given: workflow_kills.row(),
}


def main() -> int:
    """Run the rows that were named."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[*ROWS, []], metavar="NAME", help=", ".join(ROWS)
    )
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="of each fault")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="faults at once")
    parser.add_argument("--minutes", type=float, default=soak.MINUTES_WANTED, metavar="M")
    given = parser.parse_args()
    names = given.names or list(ROWS)
    good = True
    for name in names:
        began = time.monotonic()
        row = msgspec.structs.replace(
            ROWS[name](given),
            date=dt.datetime.now(dt.UTC).date().isoformat(),
            seconds=round(time.monotonic() - began),
            machine=f"{os.cpu_count()} cores, Python {sys.version.split()[0]}",
        )
        # Read again: another process may have measured another row meanwhile.
        rows = table.load() if table.RESULTS.exists() else {}
        table.save({**rows, name: row})
        print(table.text_table(row), flush=True)
        good = good and all(each.met for each in row.figures)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
