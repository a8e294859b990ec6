r"""Deceptive texts made visible: invisible characters, and look-alikes of others.

A person approves what is visible. If two different texts looked the same, an approval could cover
the wrong one, so these characters are shown as `\u....`:

    invisible characters        control and direction-changing characters, spaces that are no space
    combining marks             on Latin letters, and where one character would do (`e` and U+0301)
    look-alikes of ASCII        letters among Latin ones (`adm\u0131n`), signs (`\u2212rf`), words
                                of which every letter passes for one (`\u0440\u0430\u0443`)

Words of other alphabets stay readable if one of their letters is no look-alike; beside such words
short ones do too. So do accents and umlauts in one character, quotes and dashes of running text,
and the punctuation of East Asian texts. The Unicode Consortium's table of confusables defines which
characters look like ASCII.

`visible` returns one text, `marked` the same without quotes, `visible_pair` two that differ, with
every difference escaped that may look alike. Nothing is cut short.
"""

from __future__ import annotations

import json
import re
import unicodedata
from difflib import SequenceMatcher
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadhand.core.plan.model import Json


# Confusable characters: the Unicode Consortium's table.
#
# The table (UTS 39, Unicode 15.1) comes with `confusable-homoglyphs`, and is read when the first
# non-ASCII text is examined. Characters that Unicode calls compatible (fullwidth letters, Roman
# numerals, mathematical letters, the Kelvin sign) are folded with NFKC first.


HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
"""Categories of characters without a visible shape, or with only a space."""
_SHAPELESS = frozenset(
    {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0}
    | {*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}
)
_DIGITS = str.maketrans("01|", "oll")
"""ASCII characters that look like a letter in most fonts."""
_MARKS = "\u200e\u200f"
"""The table encloses right-to-left letters in these."""


def invisible(char: str) -> bool:
    """Return whether a character is invisible; the plain space is not."""
    if char.isascii():
        return not char.isprintable()
    return unicodedata.category(char) in HIDDEN or ord(char) in _SHAPELESS


@lru_cache(maxsize=4096)
def ascii_twin(char: str) -> str:
    """Return the ASCII text a non-ASCII character may be taken for, or ""."""
    if char.isascii():
        return ""
    folded = unicodedata.normalize("NFKC", char)
    if folded.isascii():
        return folded if folded.strip() else ""
    return _table().get(char, "") or (_table().get(folded, "") if len(folded) == 1 else "")


def skeleton(text: str) -> str:
    """Return a text with each look-alike as the ASCII text it looks like; for comparison only."""
    if text.isascii():
        return text.translate(_DIGITS)
    return "".join(ascii_twin(char) or char for char in text).translate(_DIGITS)


@cache
def _table() -> dict[str, str]:
    """Return each non-ASCII character that looks like ASCII text, with that text."""
    # Read late: most texts are ASCII, and the table has 9,600 rows.
    from confusable_homoglyphs.confusables import confusables_data  # type: ignore[import-untyped]

    found: dict[str, str] = {}
    for char, rows in confusables_data.items():
        single = char.strip(_MARKS)
        if len(single) != 1 or single.isascii():
            continue
        twins = [row["c"].strip(_MARKS) for row in rows]
        plain = [twin for twin in twins if twin.isascii() and twin]
        if plain:
            found[single] = min(plain, key=len)
    return found


PAIR_MAX = 2000
"""Texts up to this length are aligned with each other; longer ones are escaped completely."""

SHORT = 2
"""Words of at most this length, all look-alikes, are readable beside clear words of their
alphabet."""
_QUOTES = frozenset("\u2018\u2019\u201a\u201c\u201d\u201e")
_PHONETIC = ((0x0250, 0x02AF), (0x1D00, 0x1DBF), (0xA720, 0xA7FF))
_DASHES = frozenset("\u2013\u2014")
_LOOK_ALIKE = frozenset(
    {"ARMENIAN", "CHEROKEE", "COPTIC", "CYRILLIC", "DESERET", "GREEK", "LISU", "MATHEMATICAL"}
    | {"FULLWIDTH", "OLD"}
)
"""Alphabets whose letters look like Latin ones."""
_WORD = re.compile(r"[^\W\d_]+(?:(?:[^\w\s]|[\d_])?[^\W\d_]+)*")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_$@-]+")


def visible(text: str) -> str:
    """Return a text in quotes, with deceptive characters escaped."""
    return _quoted(text, frozenset(_marks(text)))


def escape_deceptive(text: str) -> str:
    """Return a text without quotes, with deceptive characters escaped and ASCII unchanged."""
    if text.isascii():
        return text
    places = _marks(text)
    return "".join(
        char if char.isascii() else _shown(char, escape=i in places) for i, char in enumerate(text)
    )


def has_marks(text: str) -> bool:
    """Return whether a text holds deceptive characters."""
    return not text.isascii() and escape_deceptive(text) != text


def visible_name(name: str) -> str:
    """Return a name unchanged if it is plain ASCII, else in quotes as by `visible`."""
    return name if name.isascii() and name.isprintable() else visible(name)


def visible_value(value: Json) -> str:
    """Return any JSON value in one line, with texts as by `visible`."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        inner = ", ".join(f"{visible(key)}: {visible_value(each)}" for key, each in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(visible_value, value))}]"
    return json.dumps(value)


def visible_pair(old: Json, new: Json) -> tuple[str, str]:
    """Return two differing values so that the difference can be seen."""
    if not isinstance(old, str) or not isinstance(new, str):
        one, other = visible_value(old), visible_value(new)
        if one != other and _folded(old) != _folded(new):
            return one, other
        return ascii_value(old), ascii_value(new)
    if old.isascii() and new.isascii():
        return visible(old), visible(new)
    return _pair(old, new)


def _folded(value: Json) -> str:
    return unicodedata.normalize("NFKC", json.dumps(value, ensure_ascii=False))


def visible_key(key: str) -> str:
    """Return a key for a path: a plain word as `.word`, another in quotes and brackets."""
    if _PLAIN_KEY.fullmatch(key):
        return f".{key}"
    found = {i for i, char in enumerate(key) if _script(char) in _LOOK_ALIKE}
    return f"[{_quoted(key, frozenset(found | _marks(key)))}]"


def ascii_value(value: Json) -> str:
    """Return a value with every non-ASCII character escaped."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def _pair(old: str, new: str) -> tuple[str, str]:
    if max(len(old), len(new)) > PAIR_MAX:
        return ascii_value(old), ascii_value(new)
    left, right = _marks(old), _marks(new)
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
    """Return whether two characters in the same place could be taken for each other."""
    if one.isascii() != other.isascii():
        return True
    same = unicodedata.normalize("NFKC", one) == unicodedata.normalize("NFKC", other)
    return same or _script(one) != _script(other)


def _marks(text: str) -> set[int]:
    """Return the positions of characters that look like others, or combine with the one before."""
    if text.isascii():
        return set()
    found = _foreign(text) | _combining(text)
    words = _words(text)
    clear = {_script(text[i]) for word in words for i in word if _is_clear(text[i])}
    for word in words:
        if not _readable(text, word, clear):
            found.update(i for i in word if _passes(text[i]))
    found.update(i for i, char in enumerate(text) if _odd_sign(text, i, char))
    return found


def _words(text: str) -> list[list[int]]:
    """Return the positions of the letters of each word; combining marks do not end a word."""
    found: list[list[int]] = []
    inside = False
    for i, char in enumerate(text):
        if char.isalpha():
            if not inside:
                found.append([])
            found[-1].append(i)
            inside = True
        else:
            inside = inside and unicodedata.category(char).startswith("M")
    return found


def _passes(char: str) -> bool:
    """Return whether a non-ASCII letter looks like an ASCII one."""
    if char.isascii():
        return False
    twin = ascii_twin(char)
    compatible = unicodedata.normalize("NFKC", char) != char
    return bool(twin) and (len(twin) == 1 or compatible)


def _is_clear(char: str) -> bool:
    return not char.isascii() and not _passes(char)


def _readable(text: str, word: list[int], clear: set[str]) -> bool:
    """Return whether a word is unambiguous: no letter looks Latin, or its alphabet is evident."""
    alike = [i for i in word if _passes(text[i])]
    if not alike:
        return True
    scripts = {_script(text[i]) for i in word}
    if len(scripts) > 1 or "LATIN" in scripts:
        return False
    if len(alike) < len(word):
        return True
    before, after = text[: word[0]][-1:], text[word[-1] + 1 :][:1]
    opened = not before or before.isspace() or before in "(\"'\u00ab\u201e"
    closed = not after or after.isspace() or after in ",.;:!?)\"'\u00bb\u201c"
    return len(word) <= SHORT and opened and closed and scripts <= clear


def _combining(text: str) -> set[int]:
    """Return combining marks on Latin letters, and those with a composed form."""
    found, base = set[int](), ""
    for i, char in enumerate(text):
        if not unicodedata.category(char).startswith("M"):
            base = char
            continue
        composed = base and len(unicodedata.normalize("NFC", base + char)) == 1
        latin = not base or base.isascii() or _script(base) == "LATIN"
        if latin or composed or unicodedata.category(char) == "Me":
            found.add(i)
    return found


def _odd_sign(text: str, i: int, char: str) -> bool:
    """Return whether a sign or digit looks like ASCII where running text would not have it."""
    if char.isascii() or char.isalpha() or not (ascii_twin(char) or char in _DASHES):
        return False
    before, after = text[i - 1 : i] if i else "", text[i + 1 : i + 2]
    if any(
        each.isalpha() and unicodedata.east_asian_width(each) == "W" for each in (before, after)
    ):
        return False
    opens, ends = not before.strip(), not after.strip()
    if char in _QUOTES:
        return " " not in text and not (before.isalpha() and after.isalpha())
    if char in _DASHES:
        return opens and not ends
    return char != "\u2026" or not (ends or before.isalpha())


def _foreign(text: str) -> set[int]:
    """Return the positions of look-alike letters in words that also have Latin letters."""
    if text.isascii():
        return set()
    found: set[int] = set()
    for word in _WORD.finditer(text):
        places = range(word.start(), word.end())
        if any(text[i].isascii() and text[i].isalpha() for i in places):
            found.update(i for i in places if _script(text[i]) in _LOOK_ALIKE or _phonetic(text[i]))
    return found


def _phonetic(char: str) -> bool:
    """Return whether a letter is one of phonetic notation, such as a small capital."""
    return any(first <= ord(char) <= last for first, last in _PHONETIC)


def _script(char: str) -> str:
    """Return the first word of a character's name: for letters, the alphabet."""
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
    if not escape and not invisible(char):
        return char
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
