"""Words of a text."""

import re


def words(text: str) -> list[str]:
    """All of them, in order, in small letters."""
    return re.findall(r"[a-z]+", text.lower())
