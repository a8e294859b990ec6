"""Results that are not there yet against what their users take: only what is certain is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.core.jsonschema import PartText, UnknownValue, possible, problems
from leadhand.core.wording import kind_of

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


@pytest.mark.parametrize(("known", "taken", "expected"), CASES)
def test_a_hole_is_wrong_only_where_nothing_could_fill_it(known, taken, expected):
    """What one end leaves open passes."""
    hole = "${{ steps.a.data }}"
    found = [each.message for each in possible(UnknownValue(hole, known), taken)]
    wanted = [f"must be {expected[0]}, and {hole} gives {expected[1]}"] if expected else []
    assert found == wanted


def test_a_result_and_a_parameter_are_told_apart():
    """The first is LH109, the second LH107."""
    kinds = [
        problem.kind
        for result in (True, False)
        for problem in possible([UnknownValue("x", PNG, result=result)], {"items": TEXT}, "p")
    ]
    assert kinds == ["hole", "type"]
    (problem,) = possible([UnknownValue("x", PNG, result=True)], {"items": TEXT}, "p")
    assert (problem.path, problem.message) == ("p[0]", "must be text/plain, and x gives image/png")


X = UnknownValue("${{ steps.a.data }}")
TEXT_HOLE = UnknownValue("${{ params.t }}", {"type": "string"})
A_THEN_B = {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}}
KINDS = {
    "oneOf": [
        {"properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["n"]},
        {"properties": {"kind": {"const": "b"}, "m": {"type": "integer"}}, "required": ["m"]},
    ]
}


@pytest.mark.parametrize(
    ("schema", "value", "certain"),
    [
        # What does not depend on the hole is certain, beside it and around it.
        ({"required": ["b"]}, {"a": X}, ['has no "b"']),
        ({"additionalProperties": False, "properties": {"a": {}}}, {"a": X, "zz": 1}, ["zz"]),
        ({"dependentRequired": {"a": ["b"]}}, {"a": X}, ['has no "b"']),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": X}, ['has no "b"']),
        ({"minItems": 2}, [X], ["at least 2 items"]),
        ({"maxProperties": 1}, {"a": X, "b": X}, ["at most 1 entries"]),
        ({"type": "string"}, [X], ["must be a string, is a list"]),
        ({"propertyNames": {"maxLength": 1}}, {"abc": X}, ["at most 1 characters"]),
        ({"properties": {"b": {"minimum": 3}}}, {"a": X, "b": 1}, ["at least 3"]),
        # What depends on it is neither met nor unmet.
        ({"const": {"a": 1}}, {"a": X}, []),
        ({"enum": [[1], [2]]}, [X], []),
        ({"not": {"required": ["a"], "properties": {"a": {"const": None}}}}, {"a": X}, []),
        ({"contains": {"const": 5}}, [1, X], []),
        ({"contains": {"const": 5}, "minContains": 2}, [5, X], []),
        ({"uniqueItems": True}, [None, X], []),
        ({"unevaluatedProperties": False, "anyOf": [{"properties": {"a": {}}}]}, {"a": X}, []),
        ({"properties": {"a": {"minimum": 3, "minLength": 2}}}, {"a": X}, []),
        ({"properties": {"a": {"pattern": "^x", "enum": ["y"]}}}, {"a": PartText("q${{ x }}")}, []),
        ({"properties": {"a": False}}, {"a": X}, []),
        # Conditions: certain only if what they look at is.
        (A_THEN_B, {"a": X}, []),
        (A_THEN_B, {"a": 1}, ['has no "b"']),
        (A_THEN_B, {"a": 1, "c": X}, []),
        ({"properties": {"p": A_THEN_B}}, {"p": {"a": 1}, "c": X}, ['has no "b"']),
        ({"if": {"required": ["q"]}, "else": {"required": ["r"]}}, {"a": X}, []),
        # Branches: wrong when each is certainly wrong.
        ({"anyOf": [{"required": ["b"]}, {"required": ["c"]}]}, {"a": X}, ['has no "b"']),
        ({"anyOf": [{"required": ["b"]}, {"properties": {"a": {"const": 1}}}]}, {"a": X}, []),
        ({"oneOf": [{}, {"properties": {"a": {"type": "null"}}}]}, {"a": X}, []),
        (KINDS, {"kind": X, "n": 1}, []),
        (KINDS, {"kind": X}, ['has no "n"']),
        ({"anyOf": [{"type": "integer"}, {"type": "array"}]}, TEXT_HOLE, ["number or a list"]),
        ({"anyOf": [{"type": "integer"}, {"maxLength": 3}]}, TEXT_HOLE, []),
        ({"allOf": [{"type": "integer"}]}, TEXT_HOLE, ["must be a whole number"]),
        ({"$ref": "#/definitions/n", "definitions": {"n": {"type": "null"}}}, TEXT_HOLE, ["null"]),
        ({"not": {"type": "string"}}, TEXT_HOLE, []),
        # A schema that judges nothing is a finding, hole or not.
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, {"a": X}, ["leads nowhere"]),
    ],
)  # fmt: skip
def test_only_what_is_certain_is_told(schema, value, certain):
    """With holes; and once they are filled nothing is left open."""
    found = [each.message for each in possible(value, schema)]
    assert len(found) == len(certain), found
    for message, part in zip(found, certain, strict=True):
        assert part in message


def test_a_filled_hole_is_judged():
    """What was open before the run is met or unmet in it."""
    assert problems({"a": 1}, A_THEN_B)
    assert not problems({"a": 2}, A_THEN_B)
    assert problems([1, 2], {"contains": {"const": 5}})
    assert problems({"kind": "b", "n": 1}, KINDS)


SIMPLE = st.sampled_from([None, True, 0, 1, 2.5, "", "x", "abc", [], [1], {}, {"a": 1}, {"b": "x"}])
LEAVES = [
    {"type": "string"}, {"type": "integer"}, {"type": ["object", "null"]}, {"const": 1},
    {"enum": ["x", 1]}, {"minLength": 2}, {"minimum": 1}, {"required": ["a"]}, {"minItems": 1},
    {"uniqueItems": True}, {"maxProperties": 1}, {"additionalProperties": False}, True, False,
    {"pattern": "^x"}, {"dependentRequired": {"a": ["b"]}},
]  # fmt: skip
SCHEMAS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds(lambda s: {"not": s}, inner),
        st.builds(lambda s, t: {"anyOf": [s, t]}, inner, inner),
        st.builds(lambda s, t: {"oneOf": [s, t]}, inner, inner),
        st.builds(lambda s, t: {"allOf": [s, t]}, inner, inner),
        st.builds(lambda s, t, u: {"if": s, "then": t, "else": u}, inner, inner, inner),
        st.builds(lambda s, t: {"properties": {"a": s, "b": t}}, inner, inner),
        st.builds(lambda s: {"additionalProperties": s}, inner),
        st.builds(lambda s: {"items": s}, inner),
        st.builds(lambda s: {"contains": s}, inner),
        st.builds(lambda s: {"properties": {"a": s}, "unevaluatedProperties": False}, inner),
        st.builds(lambda s, t: {"dependentSchemas": {"a": s}, "allOf": [t]}, inner, inner),
    ),
    max_leaves=8,
)

AROUND = [lambda x: x, lambda x: {"a": x}, lambda x: [x], lambda x: {"a": {"b": x}, "c": 1}]


@given(
    SCHEMAS,
    SIMPLE,
    st.sampled_from(
        [lambda x: x, lambda x: {"a": x}, lambda x: [x], lambda x: {"a": {"b": x}, "c": 1}]
    ),
    st.booleans(),
)
def test_nothing_is_told_that_a_filling_would_mend(schema, filling, around, typed_):
    """A value that the schema takes is not refused while part of it is a hole."""
    kind = {"type": kind_of(filling)} if typed_ else None
    value = around(filling)
    found = possible(around(UnknownValue("x", kind)), schema)
    assert not found or problems(value, schema), found
    if isinstance(filling, str):
        found = possible(around(PartText("x")), schema)
        assert not found or problems(value, schema), found
