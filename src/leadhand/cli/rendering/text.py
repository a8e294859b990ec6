"""Small helpers for text on a terminal. Pure.

Texts of workers, planners and plans are untrusted: control characters could move the cursor,
recolour or hide other text, so they are shown, never sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import zip_longest

from leadhand.core.visible import escape_deceptive

_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SHOWN = {code: f"\\x{code:02x}" for code in (*range(32), *range(0x7F, 0xA0)) if code != 9}
_SHOWN |= {code: f"\\u{code:04x}" for code in (*_BIDI, 0x2028, 0x2029)}
_SHOWN |= {10: "\\n", 13: "\\r"}
_IN_JSON = {code: f"\\u{code:04x}" for code in _SHOWN if code >= 0x7F}
_COLOUR = re.compile(r"\033\[[0-9;]*m")
_PARTS = re.compile(r"\033\[[0-9;]*m|[^ \033]+ *| +|\033")
"""A colour, a word with the spaces after it, or spaces."""
_LINES = {code: shown for code, shown in _SHOWN.items() if code != 10}


def clean(value: object, limit: int = 0) -> str:
    """Return one line without effect on a terminal, cut to `limit` characters."""
    text = str(value)
    if limit and len(text) > limit:
        text = text[: limit - 1] + "…"
    return escape_deceptive(text.translate(_SHOWN))


def gist(value: object, limit: int = 0) -> str:
    """Return a text of several lines as one: its first and its last line."""
    lines = [line.strip() for line in str(value).splitlines() if line.strip()]
    if len(lines) <= 1:
        return clean(value, limit)
    last = lines[-1] if lines[-1].startswith(";") else f" {lines[-1]}"
    text = f"{clean(lines[0])} …{clean(last)}"  # the dots are ours
    return text[: limit - 1] + "…" if limit and len(text) > limit else text


def hanging_lines(value: object, limit: int = 0) -> str:
    """Return a text with all its lines, those after the first behind a bar: they are not ours."""
    lines = clean_lines(value).strip().split("\n")
    text = "\n      | ".join(line.rstrip() for line in lines)
    return text[: limit - 1] + "…" if limit and len(text) > limit else text


def clean_lines(value: object) -> str:
    """Return a text of several lines without effect on a terminal."""
    return escape_deceptive(str(value).replace("\r\n", "\n").translate(_LINES))


def wrapped(line: str, width: int) -> list[str]:
    """Return a line in lines no wider than a terminal, the later ones indented.

    A terminal itself would go on at column 0. Colours are no text; a character that is not ASCII
    counts as two columns, which some terminals give it. With a width of 0 the line stays whole.
    """
    if not width:
        return [line]
    limit = max(width - 1, 16)
    text = _COLOUR.sub("", line)
    indent = " " * min(len(text) - len(text.lstrip(" ")) + 4, limit // 2)
    lines, now, used = list[str](), "", 0
    for part in _PARTS.findall(line):
        cells = 0 if part.startswith("\033") else sum(map(_cells, part))
        if used + cells > limit and now.strip() and cells <= limit - len(indent):
            lines.append(now)
            now, used = indent, len(indent)
        for each in [part] if used + cells <= limit else part:
            if used + _cells(each[0]) > limit and len(each) == 1:
                lines.append(now)
                now, used = indent, len(indent)
            now += each
            used += cells if len(each) > 1 else _cells(each)
    return [*lines, now]


def _cells(character: str) -> int:
    return 8 if character == "\t" else 1 if character.isascii() else 2


def escaped_json(text: str) -> str:
    """Return equal JSON without control characters, which JSON can escape."""
    return text.translate(_IN_JSON)


def clock(at: int) -> str:
    """Return an instant in local time, to the millisecond."""
    moment = datetime.fromtimestamp(at / 1e6, UTC).astimezone()
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"


def moment(at: int, *, zone: bool = False) -> str:
    """Return an instant with its date, in local time; with `zone`, with the zone's name."""
    local = datetime.fromtimestamp(at / 1e6, UTC).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S %Z}" if zone else f"{local:%Y-%m-%d %H:%M:%S}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return rows in columns; the last column has no fixed width."""
    body = [list(head), *[list(row) for row in rows]]
    columns = zip_longest(*body, fillvalue="")
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in body
    ]


def count(number: int, noun: str, plural: str = "") -> str:
    """Return `1 step`, `2 steps`, or `2 batches` with the plural that is given."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
