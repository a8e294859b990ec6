"""Results that are not there yet against what their users take: only what is certain is wrong."""

from __future__ import annotations

import pytest

from leadhand.core.shape import Hole, problems
from leadhand.core.shape_holes import misfit

PNG, IMAGE, TEXT = ({"contentMediaType": kind} for kind in ("image/png", "image/*", "text/plain"))


def typed(*kinds):
    return {"type": kinds[0] if len(kinds) == 1 else list(kinds)}


CASES = [
    (typed("string"), typed("string"), None),
    (typed("string"), typed("integer"), ("a whole number", "a string")),
    (typed("string"), typed("integer", "null"), ("a whole number or null", "a string")),
    (typed("string", "null"), typed("null"), None),
    (typed("integer"), typed("number"), None),
    (typed("number"), typed("integer"), None),
    (typed("boolean"), typed("number"), ("a number", "true or false")),
    (typed("string"), {}, None),
    (None, typed("string"), None),
    (True, typed("string"), None),
    (PNG, IMAGE, None),
    (IMAGE, PNG, None),
    ({"contentMediaType": "IMAGE/PNG; q=1"}, PNG, None),
    (PNG, TEXT, ("text/plain", "image/png")),
    (PNG, {"contentMediaType": "image/gif"}, ("image/gif", "image/png")),
    ({}, PNG, None),
    (PNG, {}, None),
    (PNG, {"contentMediaType": 3}, None),
    (TEXT, {"anyOf": [PNG, TEXT]}, None),
    (
        TEXT,
        {"oneOf": [PNG, {"contentMediaType": "audio/*"}]},
        ("image/png or audio/*", "text/plain"),
    ),
    (TEXT, {"anyOf": [PNG, {}]}, None),
    (TEXT, {"anyOf": [PNG, True]}, None),
    (typed("array"), {"anyOf": [typed("string"), typed("null")]}, ("a string or null", "a list")),
]


@pytest.mark.parametrize(("given", "taken", "expected"), CASES)
def test_a_hole_is_wrong_only_where_nothing_could_fill_it(given, taken, expected):
    """What one end leaves open passes."""
    assert misfit(Hole("${{ steps.a.data }}", given), taken) == expected


def test_choices_within_choices_end():
    """A schema that nests without end is not followed without end."""
    schema = typed("integer")
    for _ in range(50):
        schema = {"anyOf": [schema]}
    assert misfit(Hole("x", typed("string")), schema) is None


def test_a_result_and_a_parameter_are_told_apart():
    """The first is LH109, the second LH107."""
    kinds = [
        problem.kind
        for result in (True, False)
        for problem in problems([Hole("x", PNG, result=result)], {"items": TEXT}, "p")
    ]
    assert kinds == ["hole", "type"]
    (problem,) = problems([Hole("x", PNG, result=True)], {"items": TEXT}, "p")
    assert (problem.path, problem.message) == ("p[0]", "must be text/plain, and x gives image/png")
