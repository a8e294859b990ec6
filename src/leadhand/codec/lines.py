"""On which line of a file a place of its document stands.

The readers give plain values, without their places. So the text is parsed once more, only when
there is something to say about it. JSON is read as YAML, which it is but for tabs; where that
fails there is simply no line.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PART = re.compile(r"\[(\d+)\]|[^.\[]+")


class Lines:
    """The lines of one text."""

    def __init__(self, text: str) -> None:
        try:
            self._root: Any = yaml.compose(text, Loader=_LOADER)
        except (yaml.YAMLError, RecursionError):
            self._root = None

    def of(self, place: str) -> int:
        """The line of a place such as `steps[2].worker`, or of the nearest thing around it."""
        node, line = self._root, 0
        for part in _PART.finditer(place):
            found = _index(node, int(part[1])) if part[1] else _key(node, part[0])
            if found is None:
                break
            node, line = found
        return line


def _index(node: Any, number: int) -> tuple[Any, int] | None:
    if not isinstance(node, yaml.SequenceNode) or number >= len(node.value):
        return None
    item = node.value[number]
    return item, item.start_mark.line + 1


def _key(node: Any, name: str) -> tuple[Any, int] | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    for key, value in node.value:
        if key.value == name:
            return value, key.start_mark.line + 1
    return None
