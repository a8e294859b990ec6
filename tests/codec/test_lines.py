"""Places of a document as lines of its text."""

from __future__ import annotations

import json

import pytest

from leadhand.codec.plan_yaml import LineNumbers

DOC = {"goal": "g", "steps": [{"id": "a", "worker": "w"}, {"id": "b", "parameters": {"x": [1, 2]}}]}
YAML = """goal: g
steps:
  - id: a
    worker: w
  - id: b
    parameters:
      x:
        - 1
        - 2
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("", 0),
        ("goal", 1),
        ("steps", 2),
        ("steps[0]", 3),
        ("steps[0].worker", 4),
        ("steps[1].parameters.x[1]", 9),
        ("steps[1].parameters.y", 6),
        ("steps[1].worker", 5),
        ("steps[7]", 2),
        ("nothing.there", 0),
    ],
)
def test_a_place_has_the_line_of_the_nearest_thing_around_it(place, line):
    assert LineNumbers(YAML).of(place) == line


def test_json_has_lines_too():
    lines = LineNumbers(json.dumps(DOC, indent=2))
    assert [lines.of(place) for place in ("goal", "steps", "steps[0].worker")] == [2, 3, 6]


@pytest.mark.parametrize("text", ["", "\t{", "[" * 5000, "a: [", "{'a': }}"])
def test_a_text_that_cannot_be_read_has_no_lines(text):
    assert LineNumbers(text).of("steps[0].worker") == 0
