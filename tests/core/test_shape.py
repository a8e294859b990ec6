"""The validator: every keyword, every problem at once, bounded work."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.core import shape
from leadhand.core.schema import PLAN_SCHEMA
from leadhand.core.shape import Hole, PartText, problems

OBJECT = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string"}, ["", "x"], [1, None, True, [], {}]),
        ({"type": "integer"}, [0, -3, 2.0], [True, 1.5, "1", None]),
        ({"type": "number"}, [0, 1.5], [True, "1"]),
        ({"type": "boolean"}, [True, False], [0, 1, "true"]),
        ({"type": "null"}, [None], [0, "", False]),
        ({"type": "array"}, [[], [1]], [{}, "x"]),
        ({"type": ["string", "null"]}, ["x", None], [1]),
        ({"enum": ["a", 1, None]}, ["a", 1, 1.0, None], ["b", True, 0]),
        ({"enum": [[1], {"a": True}]}, [[1], {"a": True}], [[True], {"a": 1}]),
        ({"const": True}, [True], [1, "true"]),
        ({"required": ["a"]}, [{"a": None}, "not an object"], [{}]),
        ({"additionalProperties": False}, [{}], [{"a": 1}]),
        ({"additionalProperties": {"type": "integer"}}, [{"a": 1}], [{"a": "x"}]),
        (
            {"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False},
            [{"x-a": "1"}],
            [{"x-a": 1}, {"y": "1"}],
        ),
        ({"propertyNames": {"pattern": "^[a-z]+$"}}, [{"ab": 1}], [{"A": 1}, {"a\n": 1}]),
        ({"items": {"type": "integer"}}, [[], [1, 2]], [["a"], [1, "a"]]),
        (
            {"prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
            [["a"], ["a", 1]],
            [[1], ["a", "b"]],
        ),
        ({"minItems": 1, "maxItems": 2}, [[1], [1, 2]], [[], [1, 2, 3]]),
        ({"minLength": 1, "maxLength": 2}, ["a", "ab"], ["", "abc"]),
        ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 2}]),
        ({"minimum": 1, "maximum": 2}, [1, 2, "x"], [0, 2.1]),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 2}, [1.5], [1, 2]),
        ({"multipleOf": 0.5}, [1, 1.5], [1.2]),
        ({"pattern": "^a+$"}, ["a", 5], ["b", "a\n"]),
        ({"uniqueItems": True}, [[1, True, 2], []], [[1, 1.0], [{"a": 1}, {"a": 1}]]),
        ({"anyOf": [{"type": "string"}, OBJECT]}, ["x", {"name": "x"}], [1, {}]),
        ({"oneOf": [{"type": "integer"}, {"minimum": 5}]}, [1, 5.5, "x"], [7, 1.5]),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1], [0, 3]),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, [1], ["x"]),
        ({"$ref": "elsewhere.json"}, [1, "x"], []),
        ({"format": "date", "title": "t", "unheard-of": 5}, ["x"], []),
        (True, [1], []),
        (False, [], [1]),
    ],
)
def test_keywords(schema, good, bad):
    """Each keyword accepts what JSON Schema accepts and refuses what it refuses."""
    for value in good:
        assert problems(value, schema) == []
    for value in bad:
        assert problems(value, schema)


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "array"}, "x", ("", "must be a list, is a string", "")),
        (OBJECT, {}, ("", 'has no "name"', 'Add "name".')),
        (
            OBJECT,
            {"nam": "x", "name": "x", "cuont": 1},
            ("cuont", '"cuont" is not a known name here', 'Did you mean "count"?'),
        ),
        (
            {"enum": ["low", "high"]},
            "hihg",
            ("", 'must be one of "low", "high", is "hihg"', 'Did you mean "high"?'),
        ),
        (
            {"anyOf": [{"type": "string"}, OBJECT]},
            5,
            ("", "must be a string or an object, is a whole number", ""),
        ),
        (
            {"anyOf": [{"type": "string"}, OBJECT]},
            {"name": "x", "count": 0},
            ("count", "must be at least 1, is 0", ""),
        ),
        (
            {"anyOf": [{"const": "a"}, {"type": "object", "required": ["k"]}]},
            {},
            ("", 'has no "k"', 'Add "k".'),
        ),
    ],
)
def test_messages_help(schema, value, expected):
    """A message says what must be, what is, and what was probably meant."""
    found = [(each.path, each.message, each.fix) for each in problems(value, schema)]
    assert expected in found


def test_every_problem_is_reported_with_its_place():
    """Five mistakes at five depths give five problems."""
    schema = {"type": "object", "properties": {"rows": {"type": "array", "items": OBJECT}}}
    value = {"rows": [{"name": 1}, {"count": "x"}, 5, {"name": "a", "zzz": 1}]}
    places = sorted(each.path for each in problems(value, schema))
    assert places == ["rows[0].name", "rows[1]", "rows[1].count", "rows[2]", "rows[3].zzz"]


def test_holes_are_accepted_wherever_they_could_be_right():
    """An unknown value fits everything; one of a known type only what that type can be."""
    schema = {"type": "integer", "minimum": 5}
    assert problems(Hole("${{ x }}"), schema) == []
    assert problems(Hole("${{ x }}", {"type": "number"}), schema) == []
    assert problems(Hole("${{ x }}", {"type": ["null", "integer"]}), schema) == []
    wrong = problems(Hole("${{ x }}", {"type": "string"}), schema)
    assert wrong[0].message == "must be a whole number, and ${{ x }} gives a string"
    assert problems({"name": Hole("h")}, OBJECT) == []
    text = {"type": "string", "enum": ["a"], "pattern": "^a$", "maxLength": 1}
    assert problems(PartText("b ${{ x }}"), text) == []
    assert problems(PartText("b ${{ x }}"), {"type": "integer"})


def test_deep_values_end_in_a_problem():
    """A recursive schema on an endless value reports its depth instead of failing."""
    schema = {"$ref": "#/$defs/n", "$defs": {"n": {"items": {"$ref": "#/$defs/n"}}}}
    value: list = []
    for _ in range(5000):
        value = [value]
    assert [each.kind for each in problems(value, schema)] == ["depth"]


def test_a_schema_cannot_ask_for_endless_work(monkeypatch):
    """Branches that double at every level run into the limit, and never pass as valid."""
    monkeypatch.setattr(shape, "CHECKS_MAX", 1000)
    again = {"items": {"$ref": "#/$defs/n"}}
    schema = {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"anyOf": [{**again, "minItems": 9}, {**again, "minItems": 8}]}},
    }
    value: list = []
    for _ in range(40):
        value = [value]
    assert problems(value, schema)


def test_problems_are_bounded():
    """A hostile document gets a thousand problems and a bit, not a million."""
    value = {f"k{i}": i for i in range(50_000)}
    assert 1000 <= len(problems(value, {"additionalProperties": False})) <= 1002
    many = problems([1] * 50_000, {"items": {"type": "string"}})
    assert 1000 <= len(many) <= 1002


def test_a_long_text_is_not_given_to_a_pattern():
    """A pattern that would take for ever is not tried on a long text."""
    found = problems("a" * 100_000 + "b", {"pattern": "^(a+)+$"})
    assert "at most 2000 characters" in found[0].message


def test_a_foreign_pattern_is_not_held_against_the_value():
    """What Python cannot compile is ignored."""
    assert problems("x", {"pattern": r"\p{L}+("}) == []


def test_the_schema_is_left_alone():
    """Validation changes neither the schema nor what it means next time."""
    before = copy.deepcopy(PLAN_SCHEMA)
    for _ in range(2):
        assert problems({"steps": [{"id": "a", "worker": "w"}]}, PLAN_SCHEMA) == []
        assert problems({"steps": []}, PLAN_SCHEMA)
    assert before == PLAN_SCHEMA


def test_every_field_of_the_plan_is_described():
    """Editors have something to show for each field of plan and step."""
    for name in ("plan", "step"):
        for field, schema in PLAN_SCHEMA["$defs"][name]["properties"].items():
            target = PLAN_SCHEMA["$defs"].get(schema.get("$ref", "")[8:], {})
            assert schema.get("description") or target.get("description"), field


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "worker", "steps", "retry", "uses"]) | st.text(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_any_value_gets_an_answer(value):
    """No JSON value makes the check of a plan fail with an exception."""
    for problem in problems(value, PLAN_SCHEMA):
        assert problem.message
