"""The definition of an MCP tool, and the detection of changes to it.

All of it is a stranger's text. It is shown, sent to models as the description of a tool, and
compared; nothing in it is an instruction to the engine. The hints a server gives about its own
tool may raise what it is taken to do, and never lower it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.codec.values import plain
from leadhand.core.jsonschema import unusable
from leadhand.core.plan.model import worst
from leadhand.core.visible import visible
from leadhand.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping


# JSON Schemas of servers: usable as they are, or refused when the tool is listed.
#
# `core/jsonschema` bounds what a schema can ask for, and judges nothing by one that is malformed,
# refers to what is not there or has a pattern whose time has no bound. A server's tool with such a
# schema would fail in the middle of a run, so it is left out with the reason. One exception: a
# pattern that cannot be matched in linear time is left out of an *input* schema, since the server
# checks its own input; what a tool returns is judged by all of its schema, or not taken.


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


TOOLS_MAX = 1_000
DEFINITION_BYTES_MAX = 256 << 10
DESCRIPTION_CHARS_MAX = 4_000
NAME_CHARS_MAX = 128
HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


@dataclass(frozen=True, slots=True)
class Definition:
    """One tool, as the server described it."""

    name: str
    description: str
    parameters: dict[str, Any]
    returns: dict[str, Any] | None
    hints: dict[str, bool]

    @classmethod
    def of(cls, doc: Mapping[str, Any]) -> Definition:
        """Parse a tool of `tools/list`, or a pin. Raise `ValueError` if it cannot be used."""
        name, description = doc.get("name"), doc.get("description") or ""
        parameters, returns = doc.get("inputSchema"), doc.get("outputSchema")
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
            raise ValueError("a tool has no name that can be used")
        if not isinstance(description, str) or not isinstance(parameters, dict):
            raise ValueError(f"tool {name!r} has no schema of its parameters")  # noqa: TRY004 - data
        if returns is not None and not isinstance(returns, dict):
            raise ValueError(f"tool {name!r} has a result schema that is none")
        hints = doc.get("annotations") or {}
        found = cls(
            name,
            description,
            plain(parameters, f"{name}.inputSchema"),
            plain(returns, f"{name}.outputSchema"),
            {key: hints[key] for key in HINTS if isinstance(hints.get(key), bool)},
        )
        input_schema(found.parameters, f"{name}: its inputSchema")
        if found.returns is not None:
            output_schema(found.returns, f"{name}: its outputSchema")
        if len(found.encoded()) > DEFINITION_BYTES_MAX:
            raise ValueError(f"tool {name!r}: its definition is over {DEFINITION_BYTES_MAX} bytes")
        return found

    def to_doc(self) -> dict[str, Any]:
        """Return the document for a file of pins."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.parameters,
            "outputSchema": self.returns,
            "annotations": self.hints,
        }

    def encoded(self) -> bytes:
        """Return canonical bytes, independent of the server's order of keys."""
        return msgspec.json.encode(self.to_doc(), order="sorted")

    def digest(self, identity: str) -> str:
        """Return what an approval binds: the tool as described, of the server as configured."""
        return hashlib.sha256(identity.encode() + b"\0" + self.encoded()).hexdigest()[:16]

    @property
    def shown(self) -> str:
        """Return the description, bounded, with invisible characters escaped; lines stay lines."""
        text = self.description
        if len(text) > DESCRIPTION_CHARS_MAX:
            text = text[:DESCRIPTION_CHARS_MAX] + "…"
        return "\n".join(_escaped(line) for line in text.strip().splitlines())

    def changes(self, other: Definition | None) -> str:
        """Return how another definition of the same tool differs; empty if it does not."""
        if other is None:
            return "it is gone"
        words = (
            ("its description", self.description, other.description),
            ("its parameters", self.parameters, other.parameters),
            ("its result", self.returns, other.returns),
            ("its hints", self.hints, other.hints),
        )
        return ", ".join(word for word, mine, theirs in words if not _same(mine, theirs))


def definitions_of(tools: list[dict[str, Any]]) -> tuple[dict[str, Definition], dict[str, str]]:
    """Return the tools of a list by name, and for the unusable ones the reason."""
    if len(tools) > TOOLS_MAX:
        raise Unavailable(f"it lists more than {TOOLS_MAX} tools")
    found: dict[str, Definition] = {}
    unusable: dict[str, str] = {}
    for tool in tools:
        name = str(tool.get("name", ""))[:NAME_CHARS_MAX]
        try:
            definition = Definition.of(tool)
        except (ValueError, RecursionError) as problem:
            unusable[name] = str(problem)
            continue
        if name in found or name in unusable:
            unusable[name] = f"it lists the tool {name!r} twice"
            continue
        found[name] = definition
    return {name: each for name, each in found.items() if name not in unusable}, unusable


def raised_effects(
    declared: tuple[str, ...] | None, hints: Mapping[str, bool], worker: str, server: str
) -> tuple[str, ...] | None:
    """Return the declared effects, and more if the server itself says so."""
    more = []
    if hints.get("readOnlyHint") is False:
        more.append(f"changes:{server}")
    if hints.get("destructiveHint"):
        more.append(f"destroys:{server}")
    if not more:
        return declared
    # The form that undeclared effects have in an envelope: what was said is not all there is.
    known = declared if declared is not None else (f"undeclared:{worker}",)
    return tuple(dict.fromkeys((*known, *more)))


def raised_risk(declared: str | None, hints: Mapping[str, bool]) -> str | None:
    """Return the declared risk, and at least high if the server calls the tool destructive."""
    return worst(declared or "medium", "high") if hints.get("destructiveHint") else declared


def worker_name(server: str, tool: str) -> str:
    """Return the default name of a tool in plans."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", f"{server}.{tool}")[:100]


def _escaped(line: str) -> str:
    return visible(line)[1:-1].replace('\\"', '"')


def _same(mine: Any, theirs: Any) -> bool:
    return msgspec.json.encode(mine, order="sorted") == msgspec.json.encode(theirs, order="sorted")
