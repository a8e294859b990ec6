"""Editing JSON files of other programs: one member or item is added or removed, the rest stays.

Comments and trailing commas are read, since Cursor and editors accept them; every other byte of the
file, its indentation and its ends of lines are kept.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_SPACE = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"[-+.\w]+")
_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)
DEPTH_MAX = 64


class NotJson(ValueError):
    """A text is not JSON; the message names the line."""


@dataclass
class Node:
    """One value with its place in the text."""

    begin: int
    end: int = 0
    value: Any = None
    """A scalar; for an object or an array, see `members` and `items`."""
    members: dict[str, Node] | None = None
    items: list[Node] | None = None
    keys: dict[str, int] = field(default_factory=dict)
    """For an object: where each key begins."""

    def plain(self) -> Any:
        """Return the value as plain data."""
        if self.members is not None:
            return {name: each.plain() for name, each in self.members.items()}
        if self.items is not None:
            return [each.plain() for each in self.items]
        return self.value

    def parts(self) -> list[tuple[int, int]]:
        """Return where each member or item begins and ends."""
        if self.members is not None:
            return [(self.keys[name], each.end) for name, each in self.members.items()]
        return [(each.begin, each.end) for each in self.items or ()]


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text

    def fail(self, at: int, problem: str) -> NotJson:
        return NotJson(f"line {self.text.count(chr(10), 0, at) + 1}: {problem}")

    def skip(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        assert found is not None
        return found.end()

    def value(self, at: int, depth: int = 0) -> Node:
        if depth > DEPTH_MAX:
            raise self.fail(at, "is nested too deeply")
        match self.text[at : at + 1]:
            case "{" | "[" as opening:
                return self.container(at, opening, depth)
            case '"':
                end, text = self.string(at)
                return Node(at, end, text)
            case _:
                pass
        found = _SCALAR.match(self.text, at)
        try:
            return Node(at, found.end(), json.loads(found[0])) if found else self._nothing(at)
        except ValueError:
            raise self.fail(at, f"{found[0][:40] if found else ''} is no JSON value") from None

    def _nothing(self, at: int) -> Node:
        raise self.fail(at, "a value is missing")

    def string(self, at: int) -> tuple[int, str]:
        found = _STRING.match(self.text, at)
        if found is None:
            raise self.fail(at, "a text in quotes is missing, or does not end")
        try:
            return found.end(), str(json.loads(found[0]))
        except ValueError as error:
            raise self.fail(at, str(error)) from None

    def container(self, begin: int, opening: str, depth: int) -> Node:
        closing = "}" if opening == "{" else "]"
        node = Node(begin, members={} if opening == "{" else None)
        node.items = [] if opening == "[" else None
        at = self.skip(begin + 1)
        while self.text[at : at + 1] != closing:
            if node.members is not None:
                key_at = at
                at, key = self.string(at)
                at = self.skip(at)
                if self.text[at : at + 1] != ":":
                    raise self.fail(at, "a colon is missing")
                found = self.value(self.skip(at + 1), depth + 1)
                if key in node.members:
                    raise self.fail(key_at, f"{key!r} is there twice")
                node.members[key], node.keys[key] = found, key_at
            else:
                found = self.value(at, depth + 1)
                assert node.items is not None
                node.items.append(found)
            at = self.skip(found.end)
            match self.text[at : at + 1]:
                case ",":
                    at = self.skip(at + 1)
                case mark if mark != closing:
                    raise self.fail(at, "a comma or the end is missing")
        node.end = at + 1
        return node


def parse(text: str) -> Node:
    """Return the value of a text. Raise `NotJson`."""
    reader = _Reader(text)
    start = reader.skip(1 if text.startswith("\ufeff") else 0)
    found = reader.value(start)
    rest = reader.skip(found.end)
    if rest != len(text):
        raise reader.fail(rest, "there is more after the end")
    return found


def lookup(text: str, path: tuple[str, ...]) -> Any:
    """Return the value at a path of keys as plain data, or None."""
    node: Node | None = parse(text)
    for key in path:
        node = (node.members or {}).get(key) if node is not None else None
    return None if node is None else node.plain()


def with_member(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return the text with a new member; objects on the way to it are made where they are missing.

    Raise `NotJson` if something on the way is no object, or the member is there.
    """
    node, at = parse(text), 0
    while at < len(path) - 1 and path[at] in (node.members or {}):
        node, at = (node.members or {})[path[at]], at + 1
    if node.members is None or path[at] in node.members:
        where = ".".join(path[: at + (node.members is not None)]) or "the whole"
        raise NotJson(f"{where} is not what was expected")
    for key in reversed(path[at + 1 :]):
        value = {key: value}
    return _inserted(text, node, lambda step: f"{json.dumps(path[at])}: {_written(value, step)}")


def with_item(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return the text with a new last item in the array at a path, which is made if missing."""
    node = parse(text)
    for key in path:
        found = (node.members or {}).get(key)
        if found is None:
            return with_member(text, path, [value])
        node = found
    if node.items is None:
        raise NotJson(f"{'.'.join(path)} is no array")
    return _inserted(text, node, lambda step: _written(value, step))


def without(text: str, path: tuple[str, ...], item: Any = None) -> str:
    """Return the text without a member; with `item`, without that item of the array there."""
    node, above = parse(text), None
    for key in path:
        above, node = node, (node.members or {})[key]
    if item is None:
        assert above is not None
        return _cut(text, above, list(above.members or {}).index(path[-1]))
    return _cut(text, node, [each.plain() for each in node.items or ()].index(item))


def _cut(text: str, node: Node, index: int) -> str:
    """Return the text without one part of a container, and without the comma that it needed."""
    parts = node.parts()
    begin, end = parts[index]
    reader = _Reader(text)
    after = reader.skip(end)
    if index + 1 < len(parts):  # comments stay, also those beside the comma
        aside = text[end:after] if text[end:after].strip() else ""
        return text[:begin] + aside + text[after + 1 :].lstrip()
    trailing = text[after : after + 1] == ","
    if trailing:
        end = after + 1
    if index:
        before = parts[index - 1][1]
        comma = reader.skip(before)
        gap = text[comma + 1 : begin]
        rest = text[end:]
        # A line comment needs the end of its line.
        ends = "\n" in rest[: len(rest) - len(rest.lstrip())]
        kept = gap.rstrip() if ends or not gap.strip() else gap
        return text[: comma + trailing] + kept + rest
    inner = text[node.begin + 1 : begin] + text[end : node.end - 1]
    return text[: node.begin + 1] + ("" if not inner.strip() else inner) + text[node.end - 1 :]


def _inserted(text: str, node: Node, write: Any) -> str:
    """Return the text with one more last part in a container, written as its neighbours are."""
    parts = node.parts()
    newline = "\r\n" if "\r\n" in text else "\n"
    unit = found[1] if (found := _INDENT.search(text)) else "  "
    own = text[text.rfind("\n", 0, node.begin) + 1 : node.begin]
    base = own[: len(own) - len(own.lstrip())]
    many = not parts or "\n" in text[node.begin : parts[-1][0]]
    if parts and "\n" in text[node.begin : parts[0][0]]:
        line = text[text.rfind("\n", 0, parts[0][0]) + 1 : parts[0][0]]
        base = line[: len(line) - len(line.lstrip())]
        base = base.removesuffix(unit)
    step = base + unit
    new = write((step, unit, newline) if many else None)
    if not parts:
        inner = text[node.begin + 1 : node.end - 1]
        gap = inner.rstrip() if inner.strip() else ""
        middle = f"{gap}{newline}{step}{new}{newline}{base}"
        return text[: node.begin + 1] + middle + text[node.end - 1 :]
    end = parts[-1][1]
    after = _Reader(text).skip(end)
    comma = "" if text[after : after + 1] == "," else ","
    if not comma:  # a trailing comma: the new part gets one too
        joint = f"{newline}{step}{new}," if many else f" {new},"
        return text[: after + 1] + joint + text[after + 1 :]
    joint = f",{newline}{step}{new}" if many else f", {new}"
    return text[:end] + joint + text[end:]


def _written(value: Any, step: tuple[str, str, str] | None) -> str:
    if step is None:
        return json.dumps(value, ensure_ascii=False)
    base, unit, newline = step
    lines = json.dumps(value, ensure_ascii=False, indent=unit).split("\n")
    return newline.join([lines[0], *(base + each for each in lines[1:])])
