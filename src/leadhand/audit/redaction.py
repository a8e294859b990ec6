"""Redaction: known secrets are removed from everything to be stored, before it is hashed.

Each value is searched for in every form it may appear in: escaped as JSON, as a Python text or as
HTML (JSON and URLs also twice), quoted for URLs and shells, in base64 (also inside a longer encoded
text, as in a Basic header) and in hexadecimal, and each longer line of a multi-line value; each
also with line breaks inside, as encoders of base64 insert them. Truncated texts (a message of 2,000
characters, the end of an output) may end in the middle of a secret: its pieces at the cuts are
removed too.

Everything here is pure.
"""

from __future__ import annotations

import html
import json
import re
import shlex
from base64 import b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus, unquote

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LENGTH_MIN = 4
"""Shorter values cannot be removed without destroying everything else."""
FORM_MIN = 6
"""The shortest derived form that is searched for, and the shortest piece of a secret."""
CUT_LENGTH = 100
"""Shorter texts are never truncated."""

WRAP_MIN = 8
"""The shortest form that is searched for across line breaks."""

GIVEN_MIN = 8
"""The shortest value of a worker's variable that is removed: "1", "true" and "prod" are words."""
SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASS|PWD|KEY|PRIVATE|CREDENTIAL|AUTH(?!OR)|COOKIE|SESSION|DSN|(?:^|_)PAT(?:_|$)",
    re.IGNORECASE,
)
_WORDS = re.compile(r"[./]?[A-Za-z]+(?:[-_./: ][A-Za-z]+)*")
WORDS_MAX = 24

_BREAK = re.compile(r"(?:\r?\n|\\+r\\+n|\\+n)[ \t]*")
"""A line break, literal or escaped, and the indentation of the next line."""
_BREAK_BYTES = re.compile(_BREAK.pattern.encode())
_CUT = re.compile(r"( \.\.\. |\n\[\.\.\. [\d,]+ (?:characters|bytes) left out \.\.\.\]\n)")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s:/@]*:([^\s/@]+)@")
_HEX = re.compile(r"%[0-9A-F]{2}")


def is_kept_out(name: str, value: str) -> bool:
    """Return whether the value of a worker's variable is removed from stored texts.

    Every value of 8 characters or more is, under any variable name; except words ("production",
    "eu/west": letters with - _ . / : and spaces between them, up to 24 characters), which would be
    removed wherever they occur. Those are removed too if the variable has the name of a secret.
    """
    if len(value) < GIVEN_MIN:
        return False
    words = len(value) <= WORDS_MAX and _WORDS.fullmatch(value) is not None
    return not words or SECRET_NAME.search(name) is not None


class Redactor:
    """Replaces values in texts by their names."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """Prepare for `values` by name; values that are too short are ignored."""
        found: dict[str, str] = {}
        for name, value in values.items():
            for form in forms(value):
                found.setdefault(form, f"[secret:{name}]")
        self._needles = sorted(found.items(), key=lambda item: (-len(item[0]), item[0]))
        self._bytes = [needle.encode("utf-8", "backslashreplace") for needle, _ in self._needles]

    def __bool__(self) -> bool:
        return bool(self._needles)

    def finds(self, data: bytes) -> str:
        """Return the mark of the first secret in some bytes, or ""."""
        flat = _BREAK_BYTES.sub(b"", data)
        for needle, (_, mark) in zip(self._bytes, self._needles, strict=True):
            if needle in data or (len(needle) >= WRAP_MIN and needle in flat):
                return mark
        return ""

    def text(self, text: str) -> str:
        """Return a text without the secrets."""
        for needle, mark in self._needles:
            if needle in text:
                text = text.replace(needle, mark)
        if "\n" in text or "\\n" in text:
            text = self._across_lines(text)
        if len(text) < CUT_LENGTH:
            return text
        pieces = _CUT.split(text)
        pieces[::2] = [self._edges(piece) for piece in pieces[::2]]
        return "".join(pieces)

    def unfinished(self, text: str) -> str:
        """Return a growing text without secrets and without an end that may become one."""
        held = 0
        for needle, _mark in self._needles:
            for size in range(min(len(needle) - 1, len(text)), held, -1):
                if text.endswith(needle[:size]):
                    held = size
                    break
        return self.text(text[: len(text) - held] if held else text)

    def value(self, value: Any) -> Any:
        """Return JSON-like data without secrets in texts, in keys, and in numbers."""
        kind = type(value)
        if kind is str:
            return self.text(value)
        if kind is dict:
            return {self.value(key): self.value(item) for key, item in value.items()}
        if kind is list or kind is tuple:
            return kind(self.value(item) for item in value)
        if kind is int or kind is float:
            return self.finds(msgspec.json.encode(value)) or value
        return value

    def _across_lines(self, text: str) -> str:
        """Remove secrets that contain line breaks."""
        flat = _BREAK.sub("", text)
        for needle, mark in self._needles:
            if len(needle) >= WRAP_MIN and needle in flat:
                broken = f"(?:{_BREAK.pattern})?".join(map(re.escape, needle))
                text = re.sub(broken, lambda _match, mark=mark: mark, text)  # type: ignore[misc]
                flat = _BREAK.sub("", text)
        return text

    def _edges(self, text: str) -> str:
        """Remove pieces of a secret at both ends of a text."""
        for needle, mark in self._needles:
            longest = min(len(needle) - 1, len(text))
            for size in range(longest, FORM_MIN - 1, -1):
                if text.endswith(needle[:size]):
                    text = text[:-size] + mark
                    break
            for size in range(longest, FORM_MIN - 1, -1):
                if text.startswith(needle[-size:]):
                    text = mark + text[size:]
                    break
        return text


def forms(value: str) -> set[str]:
    """Return a value in all spellings it may appear in."""
    found = set()
    for text in {value, value.strip(), *_lines(value), *_passwords(value)}:
        if len(text) < LENGTH_MIN:
            continue
        found.add(text)
        found |= {form for form in _spellings(text) if len(form) >= FORM_MIN}
    return found


def _passwords(value: str) -> Iterator[str]:
    """Yield the password of an address (`postgres://ann:PASSWORD@host/`), which may be printed."""
    for found in _ADDRESS.finditer(value):
        yield found[1]
        yield unquote(found[1])


def _lines(value: str) -> Iterator[str]:
    """Yield the lines of a multi-line value: the armour of a key is not secret, its lines are."""
    lines = value.split("\n")
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line) >= 8 and not line.startswith("-"))


def _spellings(text: str) -> Iterator[str]:
    for ascii_only in (True, False):
        once = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield once
        yield json.dumps(once, ensure_ascii=ascii_only)[1:-1]
    yield repr(text)[1:-1]
    yield text.encode("unicode_escape").decode()
    yield html.escape(text)
    # Jinja2 spells quotes by numbers.
    yield html.escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
    yield html.escape(text, quote=False)
    yield shlex.quote(text)[1:-1] if shlex.quote(text) != text else text
    raw = text.encode("utf-8", "backslashreplace")
    for quoted in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield quoted
        yield _HEX.sub(lambda match: match[0].lower(), quoted)
        yield quote(quoted, safe="")
    yield raw.hex()
    yield raw.hex().upper()
    for shift in range(3):
        # The part independent of neighbouring bytes: whole groups of 6 bits of our own.
        begin, end = -(-shift * 8 // 6), (shift + len(raw)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(shift) + raw).decode()[begin:end]
