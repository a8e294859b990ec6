"""`make proof`: run rows, print them as a table, and write docs/proof.md.

`python -m tests.proof [NAME ...]` runs the named rows, without names all. Exit 1 if a figure with
a wanted value is missed.
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

from tests.proof import agentdojo_attacks, conformance, table, workflow_kills


def _agentdojo() -> table.Row:
    script = table.ROOT / "scripts" / "environment.py"
    subprocess.run([sys.executable, script, "agentdojo"], check=True)
    return agentdojo_attacks.row()


ROWS: dict[str, Callable[[], table.Row]] = {
    "agentdojo": _agentdojo,
    "conformance": conformance.row,
    "workflow": workflow_kills.row,
}


def main() -> int:
    """Run the rows that were named."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[*ROWS, []], metavar="NAME", help=", ".join(ROWS)
    )
    names = parser.parse_args().names or list(ROWS)
    good = True
    for name in names:
        began = time.monotonic()
        row = msgspec.structs.replace(
            ROWS[name](),
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
