"""The three ways in which a model ends its task: tools that nobody runs.

finish          the result, in the form that was declared
needs_info      a question; the planner answers it from what it knows, else a person does
too_complex     why it is too much, and into which parts it could be split
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core.jsonschema import problems
from leadhand.models.messages import ToolDef

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc

FINISH, NEEDS_INFO, TOO_COMPLEX = "finish", "needs_info", "too_complex"
ENDINGS = (FINISH, NEEDS_INFO, TOO_COMPLEX)
PROBLEMS_SHOWN = 5

_TEXT = {"type": "string", "minLength": 1}

ASKING = ToolDef(
    NEEDS_INFO,
    "End the task with a question, when something is missing that no tool can give.",
    {
        "type": "object",
        "properties": {"question": {**_TEXT, "description": "One question, complete in itself."}},
        "required": ["question"],
        "additionalProperties": False,
    },
)
YIELDING = ToolDef(
    TOO_COMPLEX,
    "End the task because it is too large or too unclear for you.",
    {
        "type": "object",
        "properties": {
            "reason": _TEXT,
            "parts": {
                "type": "array",
                "items": _TEXT,
                "description": "Smaller tasks that together would do it.",
            },
        },
        "required": ["reason"],
        "additionalProperties": False,
    },
)


SHARED = ("#/$defs/", "#/definitions/")
ONLY_RESULT = {"properties": {"result": True}, "additionalProperties": False}
"""What a call of `finish` holds, its result aside."""


def finishing(returns: Doc | None) -> ToolDef:
    """The tool that takes the result."""
    result = dict(_moved(returns)) if returns is not None else {"type": "string"}
    # References inside of the schema begin at its root, which is now one level up.
    shared = {key: result.pop(key) for key in ("$defs", "definitions") if key in result}
    result.pop("$schema", None)
    parameters = {
        "type": "object",
        "properties": {"result": result},
        "required": ["result"],
        "additionalProperties": False,
        **shared,
    }
    return ToolDef(FINISH, "End the task with its result.", parameters)


def _moved(schema: Any) -> Any:
    """The schema with its references to places that are now under `properties.result`."""
    if isinstance(schema, list):
        return [_moved(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _moved(value) for key, value in schema.items()}
    name = str(schema.get("$ref", ""))
    if name == "#" or (name.startswith("#/") and not name.startswith(SHARED)):
        found["$ref"] = f"#/properties/result{name[1:]}"
    return found


def misfit(value: Any, schema: Any, what: str) -> str:
    """What is wrong with a value, in one line; empty when nothing is."""
    found = problems(value, schema, what)
    shown = "; ".join(f"{each.path or what} {each.message}" for each in found[:PROBLEMS_SHOWN])
    more = len(found) - PROBLEMS_SHOWN
    return f"{shown}; and {more} more" if more > 0 else shown
