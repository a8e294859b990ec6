"""A stranger's JSON Schema: usable as it stands, or refused when the tool is listed.

`core/jsonschema` bounds what a schema can ask for, and judges nothing by one that is malformed,
refers to what is not there or has a pattern whose time has no bound. A server's tool with such a
schema would fail in the middle of a run, so it is left out with the reason. One exception: a
pattern that cannot be matched in linear time is left out of an *input* schema, since the server
checks its own input; what a tool returns is judged by all of its schema, or not taken.
"""

from __future__ import annotations

from typing import Any

from leadhand.core.jsonschema import unusable

_ONE = {"items", "additionalItems", "additionalProperties", "unevaluatedProperties", "not"}
_ONE |= {"unevaluatedItems", "contains", "propertyNames", "if", "then", "else"}
_SOME = {"anyOf", "oneOf", "allOf", "prefixItems"}
_NAMED = {"properties", "$defs", "definitions", "dependentSchemas", "dependencies"}
_CLOSING = {"additionalProperties", "unevaluatedProperties"}


def output_schema(schema: dict[str, Any], place: str) -> dict[str, Any]:
    """Return the schema of a result. Raise ValueError if nothing can be judged by it."""
    if reason := unusable(schema):
        raise ValueError(f"{place}: {reason}")
    return schema


def input_schema(schema: dict[str, Any], place: str) -> dict[str, Any]:
    """Return the schema of parameters, without the patterns that take unbounded time.

    Raise ValueError if nothing can be judged by it.
    """
    if "pattern" not in unusable(schema):
        return output_schema(schema, place)
    without: dict[str, Any] = _without_patterns(schema)
    return output_schema(without, place)


def _without_patterns(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    named = schema.get("patternProperties")
    refused = {text for text in named if _refused(text)} if isinstance(named, dict) else set()
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if (key == "pattern" and _refused(value)) or (refused and key in _CLOSING):
            continue  # What only a pattern allowed would be refused without it.
        if key == "patternProperties" and isinstance(value, dict):
            kept[key] = {n: _without_patterns(s) for n, s in value.items() if n not in refused}
        elif key in _NAMED and isinstance(value, dict):
            kept[key] = {name: _without_patterns(each) for name, each in value.items()}
        elif (key in _ONE or key in _SOME) and isinstance(value, list):
            kept[key] = [_without_patterns(each) for each in value]
        else:
            kept[key] = _without_patterns(value) if key in _ONE else value
    return kept


def _refused(pattern: Any) -> bool:
    return bool(unusable({"pattern": pattern}))
