"""Texts with placeholders: `--to={environment}`, `/v1/{name}`, `{files...}`.

A template is cut into pieces once, when a worker is declared. Filling it puts each value
where its hole was and never looks at the value again, so a value that itself holds braces,
quotes or spaces stays what it is: data. `{{` and `}}` stand for braces.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

SCALAR = {"type": ["string", "number", "boolean"]}
"""What a hole takes when its type is not declared."""
SCALARS = {"type": "array", "items": SCALAR}

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\.\.\.)?\Z")


class TemplateSlot(NamedTuple):
    """A place for a value; a splat takes a list, each item on its own."""

    name: str
    splat: bool = False


class Template(NamedTuple):
    """A text cut into fixed pieces and holes."""

    pieces: tuple[str | TemplateSlot, ...]

    @classmethod
    def of(cls, text: str) -> Template:
        """Parse a text. Raise `ValueError` with the mistake."""
        pieces: list[str | TemplateSlot] = []
        fixed, end = "", 0
        for match in _PIECE.finditer(text):
            fixed += text[end : match.start()]
            end = match.end()
            if match[0] in ("{{", "}}"):
                fixed += match[0][0]
                continue
            name = _NAME.match(match[1]) if match[1] is not None else None
            if name is None:
                raise ValueError(f"{match[0]} is no placeholder; write {{name}}, or {{{{ and }}}}")
            if fixed:
                pieces.append(fixed)
            pieces.append(TemplateSlot(name[1], bool(name[2])))
            fixed = ""
        fixed += text[end:]
        if fixed or not pieces:
            pieces.append(fixed)
        return cls(tuple(pieces))

    @property
    def holes(self) -> tuple[TemplateSlot, ...]:
        """Its holes, in order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, TemplateSlot))

    @property
    def only(self) -> TemplateSlot | None:
        """Its hole, when it consists of nothing else."""
        piece = self.pieces[0]
        return piece if len(self.pieces) == 1 and isinstance(piece, TemplateSlot) else None

    def fill(self, values: Mapping[str, Any], encode: Callable[[str], str] = str) -> str:
        """Return the text with each placeholder replaced by its value, spelled and encoded."""
        return "".join(
            piece if isinstance(piece, str) else encode(spell(piece.name, values.get(piece.name)))
            for piece in self.pieces
        )


def spell(name: str, value: Any) -> str:
    """Return a string as it is, a number or boolean as JSON. Raise `ValueError` for the rest."""
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError(f"parameter {name}: a NUL character cannot be passed on")
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    kind = "nothing" if value is None else f"a {type(value).__name__}"
    raise ValueError(f"parameter {name}: needs text, a number or true/false, got {kind}")


def parameters_of(
    holes: Mapping[str, TemplateSlot],
    declared: Mapping[str, dict[str, Any]],
    *,
    any_json: frozenset[str],
) -> dict[str, Any]:
    """Return the JSON Schema of the parameters that fill these placeholders."""
    properties: dict[str, Any] = {}
    for name, hole in holes.items():
        default = SCALARS if hole.splat else {} if name in any_json else SCALAR
        properties[name] = declared.get(name, default)
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if "default" not in properties[name]],
        "additionalProperties": False,
    }


def with_defaults(schema: Mapping[str, Any] | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with declared defaults where none was given."""
    properties = (schema or {}).get("properties", {})
    defaults = {key: each["default"] for key, each in properties.items() if "default" in each}
    return {**defaults, **values}
