"""The schemas of MCP servers: a stranger's, and so neither trusted to be sound nor to be kind."""

import math
from random import Random

import pytest

from leadhand import McpServer
from leadhand.core.jsonschema import problems
from leadhand.workers.mcp.definition import Definition, definitions_of, input_schema
from leadhand.workers.mcp.pins import Pins

ODD = [
    None, 5, "x", "(", [], {}, [1], True, -1, math.inf, {"a": 1}, {"$ref": "#/nope"}, {"$ref": "#"},
    {"$ref": 5}, {"type": 5}, {"type": "string"}, [{"type": "array"}], ["a"], {"a": ["b"]},
]  # fmt: skip
KEYWORDS = [
    "type", "properties", "required", "items", "enum", "const", "pattern", "anyOf", "oneOf",
    "allOf", "not", "if", "then", "else", "$ref", "additionalProperties", "minLength", "maxLength",
    "minimum", "maximum", "exclusiveMinimum", "multipleOf", "minItems", "maxItems", "uniqueItems",
    "$defs", "definitions", "prefixItems", "contains", "propertyNames", "patternProperties",
    "dependentRequired", "dependentSchemas", "format", "default", "minProperties",
    "unevaluatedProperties",
]  # fmt: skip
VALUES = [None, 1, 1.5, "x", True, [], [1, "a", [1]], {}, {"a": 1, "b": {"c": []}}]


@pytest.mark.parametrize("seed", range(5))
def test_no_schema_can_break_the_check_of_values(seed):
    """It is refused when it is described, or it works."""
    random, taken = Random(seed), 0
    for _ in range(5_000):
        schema = {random.choice(KEYWORDS): random.choice(ODD) for _ in range(random.randint(1, 3))}
        schema = random.choice((schema, {"type": "object", "properties": {"a": schema}}))
        try:
            safe = input_schema(schema, "x")
        except ValueError:
            continue
        taken += 1
        for value in VALUES:
            problems(value, safe)
    assert taken > 300


def test_a_pattern_that_would_never_end_is_matched_in_linear_time():
    schema = {"properties": {"pattern": {"type": "string", "pattern": "(a+)+$"}}}
    schema |= {"patternProperties": {"(b+)+$": {}}, "additionalProperties": False}
    assert input_schema(schema, "x") is schema
    assert problems({"pattern": "a" * 40 + "!"}, schema)


def test_the_engine_checks_what_the_server_said(tmp_path):
    """What was approved is what is checked."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(a+)+$"}}}
    pins, reach = Pins(tmp_path / "pins.json"), {"name": "t", "command": ["x"]}
    tool = Definition("x", "", schema, schema, {})
    pins.put("t", "t", McpServer(**reach).identity, {"x": tool})
    made = McpServer(**reach, pins=pins).tool("x")
    offer = made.spec.offers[""]
    assert offer.parameters == offer.returns == made.parameters == schema
    assert made.version == tool.digest(made.server.identity)


def test_a_schema_that_is_too_deep_is_refused():
    deep = {}
    for _ in range(300):
        deep = {"not": deep}
    with pytest.raises(ValueError, match="is nested more than"):
        input_schema(deep, "x")


def test_a_tool_with_a_broken_schema_is_left_out_and_says_why():
    good = {"name": "good", "inputSchema": {"type": "object"}}
    bad = {"name": "bad", "inputSchema": {"type": "object", "required": 5}}
    deep = {"type": "object"}
    for _ in range(100):
        deep = {"type": "object", "properties": {"a": deep}}
    tools, unusable = definitions_of([good, bad, {"name": "deep", "inputSchema": deep}])
    assert set(tools) == {"good"}
    assert unusable["bad"] == "bad: its inputSchema: required is malformed"
    assert "is nested more than" in unusable["deep"]
    tools, unusable = definitions_of([good, {**good, "name": "other"}, good, good])
    assert set(tools) == {"other"}
    assert "twice" in unusable["good"]
