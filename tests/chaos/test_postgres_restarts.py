"""A short slice of the campaign: each way of ending the server, under runs that go on."""

import pytest

from tests.chaos.postgres import WAYS, Campaign, chaos
from tests.support.postgres import serving

pytestmark = [pytest.mark.real, pytest.mark.slow]


async def test_every_result_is_right_however_the_server_ends(postgres_programs, tmp_path):
    """In order, at once, by kill -9: no step is carried out twice, and no event is missed."""
    campaign = Campaign(
        runs=30, between_s=(0.5, 1.5), step_s=(0.2, 0.8), at_once=8, seed=1, down_s=0.5
    )
    with serving(postgres_programs, sync=True) as server:
        figures = await chaos(campaign, server, tmp_path)
    assert figures["wrong"] == []
    assert figures["runs"] == 30
    assert set(figures["restarts"]) == set(WAYS)
