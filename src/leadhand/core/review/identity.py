"""Identity of people by name: spelling, width, case and look-alike letters are ignored.

A rule that needs two people needs two that cannot be mistaken for each other. `ann`, `Ann`, ` ann
`, fullwidth letters and a Cyrillic letter in place of a Latin one are one person here. Look-alike
letters come from the Unicode Consortium's table of confusables (`core/visible.py`).
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from leadhand.core.visible import invisible, skeleton

if TYPE_CHECKING:
    from collections.abc import Iterable


def same_person_key(name: str) -> str:
    """Return one spelling for all names that look like the same person; for comparison only.

    Spaces and invisible characters are left out, letters are folded in width and case, and
    look-alikes become the letter that they look like.
    """
    if name.isascii():
        return "".join(skeleton(name.casefold()).split())
    seen = "".join(char for char in name if not invisible(char))
    folded = unicodedata.normalize("NFKC", seen).casefold()
    return "".join(skeleton(folded).casefold().split())


def namesake(name: str, others: Iterable[str]) -> str | None:
    """Return the first of `others` that is the same person as `name`, or None."""
    own = same_person_key(name)
    return next((each for each in others if same_person_key(each) == own), None)


def odd_name(name: str) -> str:
    """Explain why a name is not accepted as the name of a person; empty if it is."""
    if not name.strip():
        return "it is empty"
    if name != name.strip():
        return "it begins or ends with a space"
    if any(invisible(char) for char in name):
        return "it holds characters that cannot be seen"
    if "," in name or "\n" in name:
        return "it holds a comma or a line break, which stand between names"
    return ""
