"""YAML for plans: the subset without surprises.

PyYAML's parser gives events (a scalar, the start of a list) and this module builds the document
from them, with the rules of the YAML 1.2 core schema:

- 22:00, yes, no, on, off and 2026-11-20 are texts; 0o17 is 15, and 017 is 17.
- Keys are strings, each once. Anchors, aliases, tags and second documents are refused.
- Depth and number of values are counted while they arrive, so a document that would be too
  large is never built.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from leadhand.codec.documents import (
    DEPTH_MAX,
    INTEGER_MAX,
    INTEGER_MIN,
    NODES_MAX,
    too_deep,
    too_many,
)
from leadhand.codec.syntax_errors import yaml_problem
from leadhand.core.wording import shown, type_with_article
from leadhand.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leadhand.core.plan.model import Json


# Line numbers of places in a document.
#
# The readers return plain values, without their places. So the text is parsed once more, only when
# there is a finding about it. JSON is read as YAML, which it is but for tabs; where that fails
# there is no line.


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PART = re.compile(r"\[(\d+)\]|[^.\[]+")


class LineNumbers:
    """The line numbers of one text."""

    def __init__(self, text: str) -> None:
        try:
            self._root: Any = yaml.compose(text, Loader=_LOADER)
        except (yaml.YAMLError, RecursionError):
            self._root = None

    def of(self, place: str) -> int:
        """Return the line of a place such as `steps[2].worker`, or of the value around it."""
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


_WORDS: dict[str, Json] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_NUMBER_START = frozenset("+-.0123456789")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NO_KEY = object()


def read_yaml(text: str, where: str) -> Json:
    """Read the single document in a YAML text. Raise `DocumentError` if it is malformed."""
    return _Builder(where).build(text)


class _Builder:
    """Builds a document from events, with a stack of its own instead of recursion."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.nodes = 0
        self.documents = 0
        self.root: Json = None
        self.stack: list[tuple[Any, Any]] = []
        """(container, key that waits for its value)."""

    def build(self, text: str) -> Json:
        for event in self.events(text):
            if isinstance(event, yaml.ScalarEvent):
                self.count(event)
                self.put(self.scalar(event), event)
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                self.count(event)
                value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
                self.put(value, event)
                self.stack.append((value, _NO_KEY))
                if len(self.stack) > DEPTH_MAX:
                    raise too_deep(self.place(event))
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                self.stack.pop()
            elif isinstance(event, yaml.AliasEvent):
                self.refuse(event, "aliases (*name) are not allowed.", "Write it out.")
            elif isinstance(event, yaml.DocumentStartEvent):
                self.documents += 1
                if self.documents > 1:
                    self.refuse(event, "a second document starts.", "Keep one plan in a file.")
        return self.root

    def events(self, text: str) -> Iterator[Any]:
        loader = _LOADER(text)
        try:
            while loader.check_event():
                yield loader.get_event()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f"{self.where}:{mark.line + 1}:{mark.column + 1}" if mark else self.where
            told = yaml_problem(error.problem or "")
            start = error.context_mark
            if start and told.endswith(("is not closed", "does not end")):
                told += f". It begins in line {start.line + 1}"
            message = f"is not YAML: {told}."
            raise DocumentError(place, message) from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            message = f"holds a character that YAML does not: {error.reason}."
            raise DocumentError(f"{self.where}:{line}", message) from None
        finally:
            loader.dispose()

    def place(self, event: Any) -> str:
        mark = event.start_mark
        return f"{self.where}:{mark.line + 1}:{mark.column + 1}"

    def refuse(self, event: Any, message: str, fix: str = "") -> NoReturn:
        raise DocumentError(self.place(event), message, fix)

    def count(self, event: Any) -> None:
        self.nodes += 1
        if self.nodes > NODES_MAX:
            raise too_many(self.place(event))
        if event.anchor is not None:
            self.refuse(event, f"anchors (&{event.anchor[:40]}) are not allowed.", "Write it out.")
        if event.tag is not None:
            self.refuse(event, f"tags ({event.tag[:40]}) are not allowed.", "Take it out.")

    def put(self, value: Json, event: Any) -> None:
        """Put a value where it belongs: the root, a list, a key, or a key's value."""
        if not self.stack:
            self.root = value
            return
        container, key = self.stack[-1]
        if isinstance(container, list):
            container.append(value)
        elif key is _NO_KEY:
            self.stack[-1] = (container, self.key(container, value, event))
        else:
            container[key] = value
            self.stack[-1] = (container, _NO_KEY)

    def key(self, container: dict[str, Any], value: Json, event: Any) -> str:
        if not isinstance(value, str):
            fix = "Put it in quotes." if isinstance(event, yaml.ScalarEvent) else ""
            self.refuse(event, f"a key must be a string, is {type_with_article(value)}.", fix)
        if value in container:
            self.refuse(event, f"the key {shown(value)} stands twice.", "Keep one of them.")
        return value

    def scalar(self, event: Any) -> Json:
        text: str = event.value
        if not event.implicit[0]:
            if not text.isascii() and _SURROGATE.search(text):
                self.refuse(event, "half a character (a lone surrogate) cannot be stored.")
            return text
        try:
            return resolve(text)
        except ValueError as error:
            self.refuse(event, f"{error}.", "Put it in quotes if it is a text.")


def resolve(text: str) -> Json:
    """Return the value of a plain scalar in the YAML 1.2 core schema.

    Raise `ValueError` if JSON has no such value.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    if _INTEGER.fullmatch(text):
        if len(text) > 20:
            raise ValueError(f"{text[:40]} is too large a number")
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        value = int(text[2:] if base != 10 else text, base)
        if not INTEGER_MIN <= value <= INTEGER_MAX:
            raise ValueError(f"{text} is too large a number")
        return value
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"{text[:40]} is too large a number")
        return number
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a number that JSON has")
    return text


class _Dumper(yaml.SafeDumper):
    """Writes YAML that old and new readers understand alike."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if not text.replace("\n", "").isprintable():
        style = '"'  # Some of these are line breaks to some readers only.
    elif "\n" in text:
        style = "|"  # The emitter falls back to quotes if a block cannot hold the text.
    elif not _is_text(text):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _is_text(text: str) -> bool:
    try:
        return isinstance(resolve(text), str)
    except ValueError:
        return False


_Dumper.add_representer(str, _represent_text)


def write_yaml(doc: Json) -> str:
    """Return a document as YAML, keys in their order."""
    return str(
        yaml.dump(doc, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=90, indent=2)
    )
