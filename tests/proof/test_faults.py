"""A slice of the 60 faults: one of each part, with one seed; and the oracle can say no."""

import os

import pytest

from tests.proof import faults
from tests.proof.fault_stage import Episode, Stage, episode
from tests.support.need import need

SLICE = ("F01", "F08", "F12", "F14", "F17", "F18", "F24", "F29", "F31", "F37", "F48", "F56")
"""Quick ones, and those that found a mistake of ours."""


def of(ident):
    (found,) = [each for each in faults.FAULTS if each.ident == ident]
    return found


def test_all_sixty_are_there():
    """Each once, with a play of its own, and a person where the catalogue says so."""
    assert [each.ident for each in faults.FAULTS] == [f"F{n:02}" for n in range(1, 61)]
    assert [each.ident for each in faults.FAULTS if each.person] == [
        "F13", "F31", "F55", "F57", "F58",
    ]  # fmt: skip
    assert len({each.play for each in faults.FAULTS}) == 60
    assert all(each.injection for each in faults.FAULTS)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("ident", SLICE)
def test_a_fault_is_answered_as_the_catalogue_says(ident, tmp_path):
    """By the oracle outside, with the first seed."""
    need(ident != "F48" or os.geteuid() == 0, "a small disk: the right to mount")
    seen = episode(ident, 1, tmp_path, of(ident).play)
    assert faults.handled(of(ident), seen), seen
    assert not seen.false_success


@pytest.mark.real
@pytest.mark.slow
def test_an_effect_that_is_missing_or_doubled_is_seen(tmp_path):
    """Success that is claimed and is not in the world is a false one."""

    for number, wanted in enumerate((["x"], ["x", "y"], ["x", "x"], [])):

        def play(stage: Stage, wanted: list[str] = wanted) -> None:
            stage.go(stage.plan({"id": "a", "worker": "act", "parameters": {"value": "x"}}))
            stage.effects(*wanted)

        folder = tmp_path / str(number)
        folder.mkdir()
        seen = episode("none", 1, folder, play)
        assert (seen.claimed, seen.verified) == (True, True)
        assert seen.recovered == (number == 0)
        assert seen.false_success == (number != 0)


def test_what_a_campaign_counts():
    """Shares, bounds and misses are those of the episodes."""
    good = Episode("F01", 1, "", (), True, True, 0, True, 1, 1.0, 2.0)
    asked = good._replace(fault="F13", claimed=False, people=1)
    slow = good._replace(problems=("too slow",))
    wrong = good._replace(right=False)
    chosen = (of("F01"), of("F13"))
    found = {each.what: each for each in faults.figures(chosen, [good, asked, slow, wrong])}
    assert found["self-recovered, of all (ceiling 50.0%)"].seen.startswith("1 of 4 (25.0%)")
    assert found["self-recovered, of the recoverable"].seen.startswith("1 of 3 (33.3%)")
    assert found["correctly handled"].seen.startswith("2 of 4 (50.0%)")
    assert not found["correctly handled"].met
    assert (found["false success"].seen, found["false success"].met) == ("1", False)
    assert "too slow" not in faults.listed((of("F13"),), [asked])
    assert "too slow" in faults.listed((of("F01"),), [good, slow])
    assert asked.escalated
    assert not asked._replace(people=2).escalated
    assert not good.escalated


@pytest.mark.parametrize(("part", "whole", "low"), [(60, 60, 0.9398), (54, 60, 0.7985), (0, 5, 0)])
def test_the_lower_bound_is_wilsons(part, whole, low):
    """By the published formula, at 95 %."""
    assert faults.wilson(part, whole) == pytest.approx(low, abs=5e-4)
