"""A short slice of the campaign: each kind of trouble once, under runs on two machines."""

import json

import pytest

from tests.chaos.namespaces import possible
from tests.chaos.temporal import WAYS, Campaign, chaos
from tests.support.need import need

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_nothing_is_lost_and_nothing_done_again(temporal, postgres_programs, tmp_path):
    """Machines killed, frozen and cut off, all servers restarted: every run ends as it should."""
    need(possible(), "network namespaces: root, and the `ip` of iproute2")
    campaign = Campaign(
        runs=8,
        machines=2,
        steps=12,
        between_s=(0.1, 0.5),
        trouble_s=(5.0, 6.0),
        step_s=(0.5, 2.0),
        at_once=4,
        limit_s=200,
        in_turn=True,
    )
    found = chaos(campaign, postgres_programs, tmp_path)
    assert found["ok"], json.dumps(found, indent=1)
    assert set(found["trouble"]) == set(WAYS)
