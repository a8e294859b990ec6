"""What one file of source holds: its symbols, imports and the names it uses. No repository here.

The names that a file uses are all its identifiers, in every language: what others define under
such a name is probably what it means. Comments and strings are not told apart.
"""

from __future__ import annotations

import re
import threading
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import msgspec

from leadhand.fleet.planning.languages import (
    COMPILED_DEFINITIONS,
    COMPILED_IMPORTS,
    GRAMMARS,
    QUERIES,
    language_of,
)

FILE_BYTES_MAX = 512 << 10
"""Larger files are data or generated."""
TREE_BYTES_MAX = 32 << 10
"""Larger ones are read by patterns: a tree of generated code takes long, and says little."""
SYMBOLS_MAX = 400
NAMES_MAX = 3000
IMPORTS_MAX = 200
NAME_CHARS_MAX = 80
TREE_SITTER, PATTERNS = "tree-sitter", "patterns"

_TREES = threading.Lock()
"""Parsers are shared; they are used by one thread at a time."""
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{2,79}")
_WORD = re.compile(rb"[\w.]+")


class Symbol(msgspec.Struct, frozen=True, array_like=True):
    """A definition in a file."""

    name: str
    kind: str
    line: int


class FileFacts(msgspec.Struct, frozen=True, array_like=True):
    """What a file holds."""

    language: str = ""
    lines: int = 0
    symbols: tuple[Symbol, ...] = ()
    imports: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Identifiers that it uses, its own too; sorted."""


def reader() -> str:
    """Return how symbols are found: by tree-sitter if the extra `map` is installed."""
    return TREE_SITTER if find_spec("tree_sitter") is not None else PATTERNS


def facts_of(path: str, data: bytes, how: str = "") -> FileFacts:
    """Return what a file holds; of a file that is no source, its language and its lines."""
    language = language_of(path)
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    if language not in COMPILED_DEFINITIONS or len(data) > FILE_BYTES_MAX or b"\0" in data:
        return FileFacts(language, lines)
    by_tree = (how or reader()) == TREE_SITTER and len(data) <= TREE_BYTES_MAX
    found = _by_tree(language, data) if by_tree else None
    symbols = found if found is not None else _by_pattern(language, data)
    names = sorted({name.decode() for name in set(_NAME.findall(data))})
    return FileFacts(
        language,
        lines,
        tuple(symbols[:SYMBOLS_MAX]),
        tuple(_imports(language, data)[:IMPORTS_MAX]),
        tuple(names[:NAMES_MAX]),
    )


@cache
def _parser(language: str) -> tuple[Any, Any] | None:
    """Return a grammar's parser and query; None if its package is missing or too old."""
    package, function = GRAMMARS[language]
    try:
        tree_sitter = import_module("tree_sitter")
        grammar = tree_sitter.Language(getattr(import_module(package), function)())
        query = tree_sitter.Query(grammar, QUERIES[language])
        return tree_sitter.Parser(grammar), tree_sitter.QueryCursor(query)
    except (ImportError, AttributeError, ValueError):
        return None


def _by_tree(language: str, data: bytes) -> list[Symbol] | None:
    found = []
    with _TREES:
        made = _parser(language)
        if made is None:
            return None
        parser, cursor = made
        for kind, nodes in cursor.captures(parser.parse(data).root_node).items():
            for node in nodes:
                name = data[node.start_byte : node.end_byte].decode("utf-8", "replace")
                if len(name) <= NAME_CHARS_MAX:
                    found.append(Symbol(name, kind, node.start_point[0] + 1))
    return sorted(set(found), key=lambda each: (each.line, each.name, each.kind))


def _by_pattern(language: str, data: bytes) -> list[Symbol]:
    found, line, at = [], 1, 0
    for match in COMPILED_DEFINITIONS[language].finditer(data):
        group = match.lastindex or 0
        kind = next((key for key, value in match.groupdict().items() if value is not None), "")
        start = match.start(group)
        line += data.count(b"\n", at, start)
        at = start
        name = match[group].decode("utf-8", "replace")
        if name and len(name) <= NAME_CHARS_MAX:
            found.append(Symbol(name, kind, line))
    return found


def _imports(language: str, data: bytes) -> list[str]:
    """Return what a file imports, as it is written; Python's names with their modules."""
    found: dict[str, None] = {}
    for match in COMPILED_IMPORTS[language].finditer(data):
        if language != "python":
            found[match[1].decode("utf-8", "replace")] = None
            continue
        if match[3] is not None:
            for part in match[3].split(b","):
                if words := _WORD.findall(part):
                    found[words[0].decode("utf-8", "replace")] = None
            continue
        module = match[1].decode("utf-8", "replace")
        found[module] = None
        for part in match[2].strip(b"()").split(b","):
            if words := _WORD.findall(part):
                name = words[0].decode("utf-8", "replace")
                found[f"{module}{name}" if module.endswith(".") else f"{module}.{name}"] = None
    return [name[:200] for name in found if name]
