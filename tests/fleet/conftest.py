"""A user's repository, a hub made from it, and slots."""

import sys
from functools import partial

import pytest

from leadhand.fleet.context import FleetContext
from leadhand.fleet.gate.gate import Gate, GateRules
from leadhand.fleet.governor import Governor, Room
from leadhand.fleet.merge.conductor import Conductor
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.usage_limits import UsageLimits
from leadhand.fleet.workspace.slots import Slots
from leadhand.workers.processes.runner import Processes
from leadhand.workers.sandbox.sandbox import choose
from tests.fleet.places import make_repo
from tests.fleet.planned import open_fleet


@pytest.fixture
def user(tmp_path):
    """The user's repository."""
    make_repo(tmp_path / "user")
    return tmp_path / "user"


@pytest.fixture
async def hub(tmp_path, user):
    """A hub made from it."""
    hub = await Hub.open(tmp_path / "fleet", user)
    yield hub
    hub.close()


@pytest.fixture
def slots(tmp_path, hub):
    """A pool of three."""
    return Slots(hub, tmp_path / "slots", 3)


@pytest.fixture
def planned(tmp_path, user):
    """Makes a fleet with a planner, to be opened."""
    return partial(open_fleet, tmp_path, user)


@pytest.fixture
async def fleet(tmp_path, hub):
    """The context of twenty agents with a gate that passes everything, and their processes."""
    sandbox = choose("none")
    async with Processes("test-fleet") as processes:
        gate = Gate(
            hub,
            Slots(hub, tmp_path / "gates", 2, prefix="gate"),
            GateRules(commands=((sys.executable, "-c", "pass"),)),
            processes=processes,
            sandbox=sandbox,
        )
        slots = Slots(hub, tmp_path / "many", 20)
        governor = Governor(20, stagger_s=0.0, room=lambda _: Room(1e6, 1e6, 0.0))
        governor.limits = UsageLimits(tmp_path, wait_min_s=0.0, spread_s=0.1)
        async with Conductor(hub, gate) as conductor:
            yield FleetContext(hub, slots, gate, conductor, governor, sandbox), processes
