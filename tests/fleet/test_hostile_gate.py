"""A slice of the campaign of hostile agents and tests; `make hostile` plays all of it."""

import pytest

from tests.fleet.campaign import campaign
from tests.fleet.hostile_ways import WAYS
from tests.support.need import need

pytestmark = pytest.mark.real
SLICE = (
    "make: the process ends well whatever happened",
    "make: claims a key and reports that all is well",
    "make: a new test mends the code",
    "make: tests skipped",
    "make: an included file, in two steps",
    "with a test, by make",
)


async def test_nothing_wrong_gets_to_main_and_honest_work_does():
    need(__import__("shutil").which("make"), "make")
    found = await campaign([way for way in WAYS if way.name in SLICE])
    assert {row["way"]: row["right"] for row in found} == dict.fromkeys(SLICE, True), found
    honest = found[-1]
    assert [word for word, _why in honest["steps"]] == ["landed"]


def test_there_are_enough_ways():
    hostile = [way for way in WAYS if not way.honest]
    assert len(hostile) >= 40
    assert len({way.name for way in WAYS}) == len(WAYS)
