"""Each behaviour of a model that plans: no false success, nothing impossible, an end in time."""

import pytest

from tests.external import behaviours


@pytest.mark.slow
@pytest.mark.parametrize("name", behaviours.cases())
def test_it_does_no_harm_and_ends(name):
    """What followed, as `python -m tests.external.behaviours` prints it."""
    row, wrong = behaviours.played(name)
    assert wrong == [], row.followed


def test_there_are_enough_of_them():
    """At least 50, each under a name of its own."""
    names = behaviours.cases()
    assert len(names) == len(set(names)) >= 50


def test_a_world_notices_what_cannot_be_done():
    """The judge itself: made-up data, a missing approval, a false success."""
    world = behaviours.World()
    world.take("clean", "raw", {"ticket": "raw-1"})
    world.take("clean", "raw", "words")
    world.take("clean", "raw", world.give("raw"))
    assert world.impossible == ["clean with raw that nobody gave"] * 2
    assert not world.reached()
    row = behaviours.Row("x", "succeeded", "", 99, 1, True, ("paid",), ("I1",), ())
    found = behaviours.wrong(behaviours.Behaviour("x", [], says="word"), row)
    assert len(found) == 5
