"""The logs of simulated worlds, for tests of what is made from logs."""

import pytest

from tests.simulation.simulator import simulate_seed
from tests.simulation.world import World


def simulated_logs(seeds):
    """Return the stored entries of every run of some seeds, by a name that holds the seed."""
    kept = []
    made = World.__init__

    def noted(self, *args, **more):
        made(self, *args, **more)
        kept.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(World, "__init__", noted)
        for seed in seeds:
            simulate_seed(seed)
    return {
        f"seed {world.scenario.seed} {run}": list(entries)
        for world in kept
        for run, entries in world.disk.logs.items()
        if not run.startswith("$") and entries
    }
