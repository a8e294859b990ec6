"""Closed forms for providers that take no others, and answers read back from them."""

from leadhand.models.provider import AS_TEXT, close_schema, is_open, open_answer
from leadhand.planners.model.answers import SCHEMA

CLOSED = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "kind": {"enum": ["a", "b"]},
        "parts": {
            "type": "array",
            "items": {"type": "object", "properties": {"n": {"type": "integer"}}},
        },
    },
    "additionalProperties": False,
}


def test_a_form_that_names_everything_is_closed_and_stays_as_it_is():
    assert not is_open(CLOSED)
    assert close_schema(CLOSED) == CLOSED


def test_whatever_takes_more_than_it_names_is_open():
    for part in (
        {},
        True,
        {"type": "object"},
        {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
        {"type": "object", "properties": {"a": {}}},
        {"type": "array"},
        {"type": ["object", "null"]},
        {"anyOf": [{"type": "string"}, {"type": "object"}]},
        {"$ref": "#/$defs/x"},
    ):
        form = {
            "type": "object",
            "properties": {"part": part},
            "$defs": {"x": {"type": "object"}},
        }
        assert is_open(form), part


def test_the_planners_form_is_open_where_it_must_be():
    assert is_open(SCHEMA)
    made = close_schema(SCHEMA)
    assert made["properties"]["steps"]["items"]["properties"]["parameters"] == AS_TEXT
    assert made["properties"]["result"] == AS_TEXT
    assert not is_open(made)


def test_an_answer_to_the_closed_form_is_read_as_one_to_the_open_form():
    said = {
        "kind": "propose",
        "because": "x",
        "steps": [{"id": "a", "worker": "w", "parameters": '{"city": "Bern", "n": [1]}'}],
        "result": "just words",
        "unknown": "stays",
    }
    read = open_answer(said, SCHEMA)
    assert read["steps"][0]["parameters"] == {"city": "Bern", "n": [1]}
    assert read["result"] == "just words"
    assert read["unknown"] == "stays"


def test_references_are_followed():
    form = {
        "type": "object",
        "properties": {"part": {"$ref": "#/$defs/part"}},
        "$defs": {"part": {"type": "object", "properties": {"free": {"type": "object"}}}},
    }
    assert open_answer({"part": {"free": '{"a": 1}'}}, form) == {"part": {"free": {"a": 1}}}
