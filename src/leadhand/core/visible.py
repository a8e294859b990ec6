r"""Texts as they are, not as they look: what cannot be seen is escaped.

An approval is of what a person sees. Control and direction-changing characters, spaces that
are no space, letters that have no shape and letters of another alphabet inside a Latin word
would make two texts look the same that are not, so they are shown as `\u....`.

`visible` shows one text, `visible_pair` two that differ: there everything that makes the
difference is escaped wherever it may look alike (a Cyrillic letter for a Latin one, `é` in one
character or in two). Nothing is ever cut short.
"""

from __future__ import annotations

import json
import re
import unicodedata
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadhand.core.plan import Json

PAIR_MAX = 2000
"""Texts up to this length are lined up with each other; of longer ones all is escaped."""

_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_SHAPELESS = frozenset(
    {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0}
    | {*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}
)
_LOOK_ALIKE = frozenset(
    {"ARMENIAN", "CHEROKEE", "COPTIC", "CYRILLIC", "DESERET", "GREEK", "LISU", "MATHEMATICAL"}
    | {"FULLWIDTH", "OLD"}
)
"""Alphabets whose letters pass for Latin ones."""
_WORD = re.compile(r"[^\W\d_]+(?:[\W\d_]?[^\W\d_]+)*")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_$@-]+")


def visible(text: str) -> str:
    """A text in quotes, with whatever cannot be told by looking escaped."""
    return _quoted(text, frozenset(_foreign(text)))


def visible_name(name: str) -> str:
    """A name of a person or thing: as it is when it is plain, else in quotes as `visible` shows."""
    return name if name.isascii() and name.isprintable() else visible(name)


def visible_value(value: Json) -> str:
    """Any JSON value in one line; texts in it as `visible` shows them."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        inner = ", ".join(f"{visible(key)}: {visible_value(each)}" for key, each in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(visible_value, value))}]"
    return json.dumps(value)


def visible_pair(old: Json, new: Json) -> tuple[str, str]:
    """Two values that differ, so that the difference can be seen."""
    if not isinstance(old, str) or not isinstance(new, str):
        one, other = visible_value(old), visible_value(new)
        if one != other and unicodedata.normalize("NFKC", one) != unicodedata.normalize(
            "NFKC", other
        ):
            return one, other
        return ascii_value(old), ascii_value(new)
    if old.isascii() and new.isascii():
        return visible(old), visible(new)
    return _pair(old, new)


def visible_key(key: str) -> str:
    """A key in a path: a plain word as it is, another in quotes and brackets."""
    if _PLAIN_KEY.fullmatch(key):
        return f".{key}"
    marked = {i for i, char in enumerate(key) if _script(char) in _LOOK_ALIKE}
    return f"[{_quoted(key, frozenset(marked))}]"


def ascii_value(value: Json) -> str:
    """A value with every character outside of ASCII escaped."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def _pair(old: str, new: str) -> tuple[str, str]:
    if max(len(old), len(new)) > PAIR_MAX:
        return ascii_value(old), ascii_value(new)
    left, right = set(_foreign(old)), set(_foreign(new))
    alike = unicodedata.normalize("NFKC", old) == unicodedata.normalize("NFKC", new)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for word, i, i_end, j, j_end in matcher.get_opcodes():
        if word == "equal":
            continue
        same_length = i_end - i == j_end - j
        if alike:
            left.update(range(i, i_end))
            right.update(range(j, j_end))
        elif same_length:
            for here, there in zip(range(i, i_end), range(j, j_end), strict=True):
                if _may_look_alike(old[here], new[there]):
                    left.add(here)
                    right.add(there)
        left.update(k for k in range(i, i_end) if unicodedata.combining(old[k]))
        right.update(k for k in range(j, j_end) if unicodedata.combining(new[k]))
    return _quoted(old, frozenset(left)), _quoted(new, frozenset(right))


def _may_look_alike(one: str, other: str) -> bool:
    """Whether two characters in the same place could be taken for each other."""
    if one.isascii() != other.isascii():
        return True
    same = unicodedata.normalize("NFKC", one) == unicodedata.normalize("NFKC", other)
    return same or _script(one) != _script(other)


def _foreign(text: str) -> set[int]:
    """Where letters of a look-alike alphabet stand in a word that also has Latin letters."""
    if text.isascii():
        return set()
    found: set[int] = set()
    for word in _WORD.finditer(text):
        places = range(word.start(), word.end())
        if any(text[i].isascii() and text[i].isalpha() for i in places):
            found.update(i for i in places if _script(text[i]) in _LOOK_ALIKE)
    return found


def _script(char: str) -> str:
    """The first word of a character's name: the alphabet, for letters."""
    return "LATIN" if char.isascii() else unicodedata.name(char, "").partition(" ")[0]


def _quoted(text: str, marked: frozenset[int]) -> str:
    if text.isascii() and text.isprintable():
        return json.dumps(text)
    shown = (_shown(char, escape=i in marked) for i, char in enumerate(text))
    return f'"{"".join(shown)}"'


def _shown(char: str, *, escape: bool) -> str:
    code = ord(char)
    if code < 0x7F:
        return json.dumps(char)[1:-1]
    hidden = unicodedata.category(char) in _HIDDEN or code in _SHAPELESS
    if not hidden and not escape:
        return char
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
