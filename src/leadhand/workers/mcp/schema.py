"""A stranger's JSON Schema, made safe to check values against.

The engine checks parameters and results with `core/shape`, which trusts its schemas: they were
written by whoever wrote the worker. A server's are not. One that is malformed would fail where it
is used, in the middle of a run, and a regular expression can be written so that it never ends. So
every keyword that means something to us must have its proper form, or the tool is not taken; and
patterns are left out. The server checks its own patterns.
"""

from __future__ import annotations

from typing import Any

DEPTH_MAX = 60
_COUNTS = {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
_COUNTS |= {"minContains", "maxContains"}
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_ONE = {"items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "not"}
_ONE |= {"contains", "propertyNames", "if", "then", "else"}
_SOME = {"anyOf", "oneOf", "allOf", "prefixItems"}
_NAMED = {"properties", "$defs", "definitions", "dependentSchemas"}
_TEXTS = {"$ref", "$dynamicRef", "$id", "$anchor"}
_PATTERNS = {"pattern", "patternProperties"}
_CLOSING = {"additionalProperties", "unevaluatedProperties"}
_TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}


def tamed(schema: Any, place: str = "schema", depth: int = 0) -> Any:
    """A copy that can be checked against in bounded time; ValueError names what is malformed."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        raise ValueError(f"{place} is no schema")  # noqa: TRY004 - data of a stranger
    if depth > DEPTH_MAX:
        raise ValueError(f"{place} is nested too deeply")
    # What only patterns allowed would be refused without them.
    left_out = _PATTERNS | (_CLOSING if "patternProperties" in schema else set())
    return {
        key: _value(key, value, f"{place}.{key}", depth + 1)
        for key, value in schema.items()
        if key not in left_out
    }


def _value(key: str, value: Any, place: str, depth: int) -> Any:
    if key in _ONE:
        return tamed(value, place, depth)
    if key in _SOME:
        if not isinstance(value, list) or not value:
            raise ValueError(f"{place} is no list of schemas")
        return [tamed(each, place, depth) for each in value]
    if key in _NAMED:
        if not isinstance(value, dict):
            raise ValueError(f"{place} is no object")
        return {name: tamed(each, f"{place}.{name}", depth) for name, each in value.items()}
    if not _proper(key, value):
        raise ValueError(f"{place} is malformed")
    return value


def _proper(key: str, value: Any) -> bool:
    """Whether a keyword that holds no schema has its form; one we do not know may hold anything."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    finite = number and value - value == 0
    if key in _COUNTS:
        return finite and value >= 0 and value == int(value)
    if key in _NUMBERS:
        return finite and (key != "multipleOf" or value > 0)
    if key in _TEXTS:
        return isinstance(value, str)
    if key == "type":
        kinds = value if isinstance(value, list) else [value]
        return bool(kinds) and all(isinstance(each, str) and each in _TYPES for each in kinds)
    if key == "required":
        return _names(value)
    if key == "dependentRequired":
        return isinstance(value, dict) and all(map(_names, value.values()))
    if key == "enum":
        return isinstance(value, list)
    return key != "uniqueItems" or isinstance(value, bool)


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
