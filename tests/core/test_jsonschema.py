"""The validator: every keyword, every problem at once, bounded work."""

import copy
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.core import jsonschema
from leadhand.core.jsonschema import PartText, UnknownValue, possible, problems, unusable
from leadhand.core.plan.schema import PLAN_SCHEMA

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
        ({"$ref": "elsewhere.json"}, [], [1, "x"]),
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
    assert possible(UnknownValue("${{ x }}"), schema) == []
    assert possible(UnknownValue("${{ x }}", {"type": "number"}), schema) == []
    assert possible(UnknownValue("${{ x }}", {"type": ["null", "integer"]}), schema) == []
    wrong = possible(UnknownValue("${{ x }}", {"type": "string"}), schema)
    assert wrong[0].message == "must be a whole number, and ${{ x }} gives a string"
    assert possible({"name": UnknownValue("h")}, OBJECT) == []
    text = {"type": "string", "enum": ["a"], "pattern": "^a$", "maxLength": 1}
    assert possible(PartText("b ${{ x }}"), text) == []
    assert possible(PartText("b ${{ x }}"), {"type": "integer"})


def test_deep_values_end_in_a_problem():
    """A recursive schema on an endless value reports its depth instead of failing."""
    schema = {"$ref": "#/$defs/n", "$defs": {"n": {"items": {"$ref": "#/$defs/n"}}}}
    value: list = []
    for _ in range(5000):
        value = [value]
    assert [each.kind for each in problems(value, schema)] == ["depth"]


def nested(depth, inner, around):
    for _ in range(depth):
        inner = around(inner)
    return inner


def test_branches_that_multiply_are_judged_and_not_explained():
    """What refers to itself is judged at any depth; explaining it would double at each level."""
    again = {"items": {"$ref": "#/$defs/n"}}
    schema = {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"anyOf": [{**again, "minItems": 9}, {**again, "minItems": 8}]}},
    }
    found = problems(nested(40, [], lambda each: [each]), schema)
    assert [each.message for each in found] == ["is not what its schema asks for"]
    few = problems([[]], schema)
    assert "must have at least" in few[0].message


@pytest.mark.parametrize("inside", [False, True])
def test_a_schema_cannot_ask_for_endless_work(inside):
    """References that fan out without coming back would be followed 2**60 times: refused."""

    def doubled(i):
        some = [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]
        return {"properties": {"a": {"allOf": some}}} if inside else {"allOf": some}

    schema = {"$ref": "#/$defs/d0", "$defs": {f"d{i}": doubled(i) for i in range(60)}}
    schema["$defs"]["d60"] = {"type": "string"}
    assert unusable(schema) == "its alternatives multiply beyond what can be checked"
    assert [each.kind for each in problems(1, schema)] == ["schema"]


def test_problems_are_bounded():
    """A hostile document gets a thousand problems and a bit, or the first of a million."""
    value = {f"k{i}": i for i in range(50_000)}
    assert 1 <= len(problems(value, {"additionalProperties": False})) <= 1002
    some = problems([1] * 5_000, {"items": {"type": "string"}})
    assert 1000 <= len(some) <= 1002
    many = problems([1] * 500_000, {"items": {"type": "string"}})
    assert [each.path for each in many] == ["[0]"]


def test_large_values_are_not_copied_for_each_problem():
    """A thousand missing names of a value with a million parts: told within a second."""
    schema = {"required": [f"r{i}" for i in range(1000)]}
    (problem,) = problems({"a": ["x" * 100] * 100_000}, schema)
    assert problem.message == 'has no "r0"'


def test_no_pattern_takes_for_ever():
    """The engine is linear in the text, whatever the pattern."""
    assert problems("a" * 1_000_000 + "b", {"pattern": "^(a+)+$"})
    assert not problems("a" * 1_000_000, {"pattern": "^(a+)+$"})


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"pattern": "("}, 'the pattern "(" cannot be used'),
        ({"pattern": "^(?=a)b"}, "look-around"),
        ({"pattern": r"(a)\1"}, "back-references"),
        ({"pattern": "((a{1000}){1000}){1000}"}, "very long repeats"),
        ({"patternProperties": {"(?!x)y": {}}}, 'the pattern "(?!x)y" cannot be used'),
        ({"$ref": "https://example.com/x"}, "refers to https://example.com/x, and no reference is"),
        ({"$ref": "file:///etc/passwd"}, "refers to file:///etc/passwd, and no reference is"),
        ({"$ref": "other.json"}, "no reference is fetched"),
        ({"properties": {"a": {"$ref": "#/$defs/x"}}}, "a reference in it leads nowhere"),
        ({"$ref": "#anchor"}, "a reference in it leads nowhere"),
        ({"$schema": "https://example.com/mine"}, "is no draft that is known"),
        ({"type": "strin"}, "type is malformed"),
        ({"properties": {"a": {"minLength": -1}}}, "properties.a.minLength is malformed"),
        ({"required": "a"}, "required is malformed"),
        ({"anyOf": []}, "anyOf is malformed"),
        ({1: 2}, "a key that is no text"),
        ([], "a schema is an object, not a list"),
        ({"const": "\ud800"}, "surrogates"),
        ({"enum": list(range(60_000))}, "more than 50000 parts"),
        ({"allOf": [{"pattern": "a"}] * 501}, "more than 500 patterns"),
    ],
)
def test_a_schema_that_judges_nothing_says_why(schema, reason):
    """Unsure is unmet, and told."""
    assert reason in unusable(schema)
    (problem,) = problems(5, schema)
    assert problem.kind == "schema"


@pytest.mark.parametrize("value", [{1: 2}, "\ud800", object(), {"a": {1, 2}}])
def test_what_json_does_not_have_is_a_problem(value):
    """And no exception."""
    (problem,) = problems(value, {"minLength": 0, "minProperties": 0, "properties": {"a": False}})
    assert problem.message


@pytest.mark.parametrize(
    ("draft", "schema", "good", "bad"),
    [
        ("http://json-schema.org/draft-04/schema#", {"minimum": 1, "exclusiveMinimum": True}, 2, 1),
        ("http://json-schema.org/draft-06/schema#", {"exclusiveMinimum": 1}, 2, 1),
        ("http://json-schema.org/draft-07/schema#", {"items": [{"type": "string"}]}, ["a"], [1]),
        (
            "http://json-schema.org/draft-07/schema#",
            {"$ref": "#/definitions/a", "definitions": {"a": {"type": "string"}}},
            "a",
            1,
        ),
        (
            "https://json-schema.org/draft/2019-09/schema",
            {"items": [{"type": "string"}], "additionalItems": False},
            ["a"],
            ["a", 1],
        ),
        (
            "https://json-schema.org/draft/2020-12/schema",
            {"prefixItems": [{"type": "string"}], "items": False},
            ["a"],
            ["a", 1],
        ),
    ],
)
def test_the_draft_is_the_one_that_is_named(draft, schema, good, bad):
    """By `$schema`."""
    schema = {"$schema": draft, **schema}
    assert problems(good, schema) == []
    assert problems(bad, schema)


@pytest.mark.parametrize("draft", ["draft-04", "draft-07", "draft/2020-12"])
def test_formats_are_notes_in_every_draft(draft):
    """What must hold is written as a pattern."""
    base = "https://json-schema.org" if "/" in draft else "http://json-schema.org"
    schema = {"$schema": f"{base}/{draft}/schema" + ("" if "/" in draft else "#")}
    assert problems("x", {**schema, "format": "date"}) == []


DEEP = """
import sys, threading
from leadhand.core.jsonschema import _COMPILED, problems, possible, unusable

def nested(depth, inner, around):
    for _ in range(depth):
        inner = around(inner)
    return inner

# Made and released by the main thread: Python 3.13 releases 10,000 levels by native recursion, more
# than a small stack holds, with or without Leadhand.
value = nested(DEPTH, 1, lambda x: [x])
wraps = lambda x: {"not": x}, lambda x: {"properties": {"a": x}}, lambda x: {"allOf": [x]}
schemas = [nested(DEPTH, {}, around) for around in wraps]

def look():
    tree = {"$ref": "#/$defs/n", "$defs": {"n": {"items": {"$ref": "#/$defs/n"}}}}
    assert [p.kind for p in problems(value, tree)] == ["depth"]
    assert [p.kind for p in problems(value, {"type": "string"})] == ["depth"]
    assert [p.kind for p in possible(value, tree)] == ["depth"]
    for schema in schemas:
        assert "nested more than" in unusable(schema)
        assert id(schema) not in _COMPILED
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(DEPTH)}
    chain = {"$ref": "#/$defs/d0", "$defs": {**chain, f"d{DEPTH}": {"type": "string"}}}
    assert problems(1, chain)
    round_ = []
    round_.append(round_)
    assert [p.kind for p in problems(round_, tree)] == ["depth"]
    for loop in ({"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"not": {"$ref": "#"}}):
        problems(1, loop)
    print("survived")

look()
threading.stack_size(256 << 10)
thread = threading.Thread(target=look)
thread.start()
thread.join()
"""


@pytest.mark.slow
def test_deep_schemas_and_values_do_not_end_the_process():
    """10,000 levels, chains and circles, on a large and on a small stack."""
    code = DEEP.replace("DEPTH", "10_000")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "survived\nsurvived\n"), done.stderr


def test_compiled_schemas_are_kept_up_to_a_limit(monkeypatch):
    """The oldest goes; one that comes to stand at the same address is not taken for another."""
    monkeypatch.setattr(jsonschema, "_COMPILED", {})
    monkeypatch.setattr(jsonschema, "COMPILED_MAX", 10)
    kept = {"type": "string"}
    for i in range(50):
        assert problems(i, {"const": i}) == []
        assert problems(5, kept)
    assert len(jsonschema._COMPILED) == 10


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
