"""Forms that a provider holds a model to: what strict providers can keep, and what they cannot.

Some providers (Anthropic's native output) take closed forms only: every object names all of its
properties, every value has a type. A form with open parts, such as the parameters of a step, would
come back with those parts empty. `is_open` finds such forms. `closed` writes their open parts as
JSON in a text, and `opened` reads an answer back.

    {"parameters": {"type": "object"}}   →   {"parameters": {"type": "string"}}   '{"city": "Bern"}'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.models.reading import decoded

if TYPE_CHECKING:
    from collections.abc import Mapping

AS_TEXT = {"type": "string", "description": "any JSON value, written as JSON in this text"}
TYPED = frozenset({"type", "enum", "const", "$ref"})
CHOICES = ("anyOf", "oneOf", "allOf")
DEFINITIONS = ("$defs", "definitions")


def is_open(schema: Mapping[str, Any]) -> bool:
    """Whether some part of a form takes properties or values that the form does not name."""
    return bool(closed(schema) != schema)


def closed(schema: Any) -> Any:
    """The same form, with its open parts as JSON in a text."""
    if _open_here(schema):
        return AS_TEXT
    made = dict(schema)
    if isinstance(made.get("properties"), dict):
        made["properties"] = {name: closed(each) for name, each in made["properties"].items()}
    if "items" in made:
        made["items"] = closed(made["items"])
    for word in DEFINITIONS:
        if isinstance(made.get(word), dict):
            made[word] = {name: closed(each) for name, each in made[word].items()}
    return made


def opened(data: Any, schema: Any, root: Any = None) -> Any:
    """An answer to a closed form as an answer to the form itself.

    A text that is no JSON, where the form wanted a JSON text, is kept as it is: checks of the form
    say what is wrong with it.
    """
    root = schema if root is None else root
    if _open_here(schema):
        return _value(data)
    if isinstance(schema.get("$ref"), str):
        return opened(data, _resolved(schema["$ref"], root), root)
    if isinstance(data, dict) and isinstance(schema.get("properties"), dict):
        known = schema["properties"]
        return {k: opened(v, known[k], root) if k in known else v for k, v in data.items()}
    if isinstance(data, list) and "items" in schema:
        return [opened(each, schema["items"], root) for each in data]
    return data


def _open_here(schema: Any) -> bool:
    """Whether this part itself is open, not one that it names."""
    if not isinstance(schema, dict):
        return True  # `true` takes everything
    choices = [each for word in CHOICES for each in schema.get(word, ())]
    if choices:
        return any(_open_here(each) or is_open(each) for each in choices)
    if TYPED.isdisjoint(schema):
        return True
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if "object" in kinds:
        more = schema.get("additionalProperties", False)
        return not schema.get("properties") or more is not False or "patternProperties" in schema
    return "array" in kinds and not isinstance(schema.get("items"), dict)


def _value(data: Any) -> Any:
    if not isinstance(data, str):
        return data
    try:
        return decoded(data)
    except msgspec.DecodeError:
        return data


def _resolved(ref: str, root: Any) -> Any:
    found = root
    for word in ref.removeprefix("#").strip("/").split("/"):
        found = found.get(word, AS_TEXT) if isinstance(found, dict) and word else found
    return found if found is not root else AS_TEXT
