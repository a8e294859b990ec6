"""A user's repository, a hub made from it, and slots."""

from functools import partial

import pytest

from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.workspace.slots import Slots
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
