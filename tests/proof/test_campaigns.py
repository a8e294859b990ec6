"""Slices of the long campaigns: power cuts, simulation seeds, the soak, the long agent."""

import asyncio

import pytest

from tests.proof import long_agent, power_cuts, simulation_seeds, soak


@pytest.mark.real
@pytest.mark.slow
def test_power_cuts(tmp_path):
    """One recording, cut everywhere: nothing is lost, and with less syncing something is."""
    full = power_cuts.campaign(tmp_path, 1)
    assert full.cuts >= 200
    assert full.losses == 0
    assert power_cuts.campaign(tmp_path, 1, "NORMAL").losses > 0


@pytest.mark.slow
def test_simulation_seeds():
    """All that were asked for are counted, also those that are wrong."""
    found = simulation_seeds.campaign(simulation_seeds.FIRST, 120, minutes=10)
    assert (found.seeds, found.failed) == (120, [])
    assert simulation_seeds.campaign(simulation_seeds.FIRST, 120, minutes=0).seeds == 0


@pytest.mark.real
@pytest.mark.slow
def test_a_soak(tmp_path, monkeypatch):
    """Every run succeeds and has its effect; the kernel is asked about the server."""
    monkeypatch.setattr(soak, "SAMPLE_SECONDS", 0.5)
    seen = soak.campaign(tmp_path, seconds=8, pause_s=0)
    assert seen.runs == seen.effects > 0
    assert (seen.wrong, seen.verified) == ([], True)
    assert all(each.memory_mb > 20 and each.files > 5 for each in seen.samples)
    assert soak.halves([9, 1, 1, 5]) == (1, 5)


@pytest.mark.real
@pytest.mark.parametrize("shape", long_agent.SHAPES)
def test_a_long_agent(temporal, tmp_path, shape):
    """Few calls with the whole context: all are made, and the history does not hold it."""
    characters = long_agent.CHARACTERS
    seen = asyncio.run(long_agent.carried_out(temporal, shape, tmp_path, 3, characters))
    assert (seen.calls, seen.status, seen.verified) == (3, "succeeded", True)
    assert seen.shortest >= characters
    assert seen.bytes_max < characters / 4
    assert seen.effects == (2 if shape == "one step" else 3)
