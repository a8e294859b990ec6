"""Power cuts: only what was synced is left of the files, and nothing acknowledged may be missing.

The recording disk of tests/support takes every write and sync of a real store and each
acknowledgement as it reaches the caller. The recording is cut after each of them, the files are
rebuilt as a power cut there leaves them (unsynced bytes gone, or torn as a seed draws), opened by
the store, verified and continued. The same with `synchronous=NORMAL` is the control: it must lose.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from leadhand.stores.sqlite import writer
from tests.proof.table import Figure, Row, of
from tests.stores.test_power_cut import cut_everywhere

WANTED = 1000
CHECKPOINT_BYTES = 150_000
"""Often enough that cuts fall into checkpoints."""


class Cuts(NamedTuple):
    """Cuts, and how many of them lost something that was acknowledged."""

    cuts: int = 0
    losses: int = 0


def campaign(folder: Path, wanted: int, synchronous: str = "FULL") -> Cuts:
    """Cut whole recordings, the first one plainly and the next ones torn, until there are enough.

    A database that does not open or verify after a cut raises.
    """
    found, seed = Cuts(), 0
    with mock.patch.object(writer, "CHECKPOINT_BYTES", CHECKPOINT_BYTES):
        while found.cuts < wanted:
            torn = random.Random(seed) if seed else None
            place = folder / f"{synchronous}-{seed}"
            count, losses = asyncio.run(cut_everywhere(place, synchronous, torn))
            found = Cuts(found.cuts + count, found.losses + losses)
            seed += 1
    return found


def row(wanted: int = WANTED) -> Row:
    """Run the campaign, and its control."""
    with tempfile.TemporaryDirectory() as folder:
        full = campaign(Path(folder), wanted)
        control = campaign(Path(folder), 1, "NORMAL")
    seen = of(control.losses, control.cuts)
    return Row(
        name="Power cuts",
        source="SQLite's crash tests on a simulated file system and LazyFS, as a recording VFS of "
        "our own (tests/support/disk.py)",
        version="a store of four runs that append at once; torn writes from seeds",
        left_out="Disks that report a sync and have not done it; a kernel that drops pages after a "
        "failed sync. PostgreSQL: its own durability is relied on.",
        figures=[
            Figure("power cuts", str(full.cuts), f"at least {wanted}", full.cuts >= wanted),
            Figure(
                "cuts that lost something acknowledged, or a database that does not verify",
                str(full.losses),
                "0",
                full.losses == 0,
            ),
            Figure(
                "control, synchronous=NORMAL: cuts that lost something",
                seen,
                "more than 0",
                control.losses > 0,
            ),
        ],
        repeat="make proof ARGS=power_cuts",
        notes="After each cut the store opens the files, every chain, head and batch is verified, "
        "and one more entry is appended.",
    )
