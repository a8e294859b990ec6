"""Syntax errors of YAML, JSON and TOML files in plain words: what was expected at the place.

The parsers speak of tokens and scalars, each in its own way. A message that is not in the tables
below is passed on as the parser wrote it.
"""

from __future__ import annotations

import re

_YAML = (
    (
        r"did not find expected '-' indicator",
        'expected an item that begins with "- ", in the same column as the items above',
    ),
    (
        r"did not find expected key|could not find expected ':'|while parsing a block mapping",
        'expected "key: value", in the same column as the keys above',
    ),
    (r"expected ',' or '\]'", 'expected "," or "]": a list is not closed'),
    (r"expected ',' or '\}'", 'expected "," or "}": an object is not closed'),
    (
        r"found unexpected (end of stream|document indicator)",
        "expected a closing quote: a text in quotes does not end",
    ),
    (
        r"mapping values are not allowed",
        'expected no ":" here. Put a text that holds ": " in quotes, and indent keys alike',
    ),
    (
        r"block sequence entries are not allowed|expected <block end>, but found '-'",
        'expected no "- " here. Begin a list on a line of its own, and indent its items alike',
    ),
    (
        r"found character .*that cannot start any token",
        "expected a value. Indent with spaces, not tabs, and quote a text that begins with @ or %",
    ),
    (r"tab character", "expected spaces: YAML does not allow tabs for indentation"),
    (
        r"unknown escape character",
        'expected \\n, \\t, \\" or \\\\ after a backslash. In single quotes a backslash is a text',
    ),
    (r"expected node content", "expected a value"),
    (r"expected '?<document start>'?", "expected the end of the document"),
)
_JSON = (
    (r"property name enclosed in double quotes", "expected a key in double quotes"),
    (r"trailing comma", 'expected no "," before the end of a list or an object'),
    (r"Expecting value", "expected a value"),
    (r"Expecting ',' delimiter", 'expected "," or the end of the list or object'),
    (r"Expecting ':' delimiter", 'expected ":" after the key'),
    (r"Unterminated string", "expected a closing double quote"),
    (r"Invalid control character", "expected no line break or tab in a string: write \\n or \\t"),
    (r"Invalid \\+(escape|uXXXX)", 'expected \\n, \\t, \\", \\\\ or \\uXXXX after a backslash'),
    (r"Extra data", "expected the end of the document"),
)
_TOML = (
    (r"Unclosed array", 'expected "," or "]": a list is not closed'),
    (r"Unclosed inline table", 'expected "," or "}": a table in braces is not closed'),
    (r"Expected '=' after a key", 'expected "=" after the key'),
    (r"Expected newline or end of document", "expected the end of the line after the value"),
    (
        r"Invalid value",
        "expected a value: a text in quotes, a number, true, false, a list or a table",
    ),
    (r"Invalid statement|initial character for a key", "expected key = value, or [table]"),
    (r"Cannot overwrite a value|Duplicate", "expected each key once: this one has a value already"),
    (r"Cannot declare|Cannot mutate", "expected each table once: this one is there already"),
    (r"Unterminated string|Illegal character '\\n'", "expected a closing quote"),
    (r"Expected '\]+' at the end", 'expected "]" after the name of the table'),
    (r"Unescaped '\\\\'", 'expected \\n, \\t, \\" or \\\\ after a backslash, or single quotes'),
)
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def yaml_problem(problem: str) -> str:
    """Return what a YAML parser expected."""
    return _plain(problem, _YAML)


def json_problem(problem: str) -> str:
    """Return what a JSON parser expected."""
    return _plain(problem, _JSON)


def toml_problem(problem: str, text: str) -> tuple[str, int]:
    """Return what the TOML parser expected, and the line of `text` where."""
    place = _PLACE.search(problem)
    last = len(text.rstrip().splitlines()) or 1
    line = min(int(place[1]), last) if place and place[1] else last
    return _plain(_PLACE.sub("", problem), _TOML), line


def _plain(problem: str, table: tuple[tuple[str, str], ...]) -> str:
    return next((told for pattern, told in table if re.search(pattern, problem)), problem)
