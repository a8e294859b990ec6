"""One trial, from the first file to the last figure."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadhand.fleet.trial.figures import counted
from leadhand.fleet.trial.referee import Desk
from leadhand.fleet.trial.scenario import Places, Trial, lay_out, mark_of
from leadhand.workers.sandbox.sandbox import choose

if TYPE_CHECKING:
    from collections.abc import Callable


WRONG = (
    "lost",
    "twice",
    "red_commits",
    "unhandled",
    "lost_work",
    "false_success",
    "foreign",
    "wrote_outside",
    "hooks_run",
    "checkout_changed",
    "disagreements",
)
"""Figures that are 0, or something is wrong with the fleet."""


async def simulate(
    trial: Trial,
    told: Callable[[dict[str, Any]], None] | None = None,
    said: Callable[[str], None] = lambda _text: None,
) -> dict[str, Any]:
    """Run it, and count."""
    sandbox = choose("auto")
    with tempfile.TemporaryDirectory(prefix="leadhand-fleet-") as folder:
        places = Places(Path(folder))
        await lay_out(places, trial)
        before = mark_of(places.repo)
        desk = Desk(places, told)
        took = await desk.run()
        found = await counted(places, trial, desk, took, said)
        changed = int(mark_of(places.repo) != before)
        return {**found, "checkout_changed": changed, "sandbox": sandbox.kind}
