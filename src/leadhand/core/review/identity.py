"""Whether two names are of one person: spelling, width, case and look-alike letters aside.

A rule that needs two people needs two that nobody can take for one another. `ann`, `Ann`, ` ann `,
fullwidth letters and a Cyrillic letter in place of a Latin one are one person here. Which letters
look alike is said by the Unicode Consortium's table of confusables (`core/visible.py`).
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from leadhand.core.visible import invisible, skeleton

if TYPE_CHECKING:
    from collections.abc import Iterable


def person(name: str) -> str:
    """One spelling for all names that people would take for one; for comparison only.

    Spaces and characters without a shape are left out, letters are folded in width and case, and
    look-alikes become the letter that they look like.
    """
    if name.isascii():
        return "".join(skeleton(name.casefold()).split())
    seen = "".join(char for char in name if not invisible(char))
    folded = unicodedata.normalize("NFKC", seen).casefold()
    return "".join(skeleton(folded).casefold().split())


def namesake(name: str, others: Iterable[str]) -> str | None:
    """The first of `others` that is the same person as `name`; None when none is."""
    own = person(name)
    return next((each for each in others if person(each) == own), None)


def odd_name(name: str) -> str:
    """Why a name is not taken as one of a person, in words; empty when it is."""
    if not name.strip():
        return "it is empty"
    if name != name.strip():
        return "it begins or ends with a space"
    if any(invisible(char) for char in name):
        return "it holds characters that cannot be seen"
    if "," in name or "\n" in name:
        return "it holds a comma or a line break, which stand between names"
    return ""
