"""Which characters look like others: the Unicode Consortium's table of confusables.

The table (UTS 39, Unicode 15.1) comes with `confusable-homoglyphs`, and is read the first time that
a text outside of ASCII is looked at. What Unicode itself calls compatible (fullwidth letters, Roman
numerals, mathematical letters, the Kelvin sign) is folded with NFKC before.
"""

from __future__ import annotations

import unicodedata
from functools import cache, lru_cache

HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
"""Categories of characters that leave no mark, or only a space."""
_SHAPELESS = frozenset(
    {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0}
    | {*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}
)
_DIGITS = str.maketrans("01|", "oll")
"""ASCII characters that pass for a letter in most type."""
_MARKS = "\u200e\u200f"
"""The table writes letters that run from right to left between these."""


def invisible(char: str) -> bool:
    """Whether a character cannot be seen; the plain space can be."""
    if char.isascii():
        return not char.isprintable()
    return unicodedata.category(char) in HIDDEN or ord(char) in _SHAPELESS


@lru_cache(maxsize=4096)
def ascii_twin(char: str) -> str:
    """The ASCII text that a character outside of ASCII may be taken for; empty when none is."""
    if char.isascii():
        return ""
    folded = unicodedata.normalize("NFKC", char)
    if folded.isascii():
        return folded if folded.strip() else ""
    return _table().get(char, "") or (_table().get(folded, "") if len(folded) == 1 else "")


def skeleton(text: str) -> str:
    """A text with each look-alike as the ASCII text it looks like; for comparison only."""
    if text.isascii():
        return text.translate(_DIGITS)
    return "".join(ascii_twin(char) or char for char in text).translate(_DIGITS)


@cache
def _table() -> dict[str, str]:
    """Each character outside of ASCII that looks like ASCII text, with that text."""
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
