"""Whether a file lies within what somebody may write.

The texts are those of steps (`core/paths.py`): parts between slashes, `*` and `?` within a part,
`**` for any number of parts; a text without wildcards means the file or all that lies below it.
The path is a real one: a star in it is a star.
"""

import re
from collections.abc import Iterable
from functools import lru_cache


def within(path: str, texts: Iterable[str]) -> bool:
    """Whether one of the texts means this path."""
    return any(_pattern(text).fullmatch(path) for text in texts)


def outside(paths: Iterable[str], texts: Iterable[str]) -> list[str]:
    """The paths that none of the texts means."""
    allowed = tuple(texts)
    return [path for path in paths if not within(path, allowed)]


@lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    parts = [part for part in text.split("/") if part not in ("", ".")]
    words = []
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        if part == "**":
            words.append(".+" if last else "(?:.+/)?")
        else:
            words.append(_part(part) + ("" if last else "/"))
    wide = "*" in text or "?" in text
    below = "(?:/.*)?" if parts and (not wide or parts[-1] != "**") else ""
    return re.compile("".join(words) + below, re.DOTALL)


def _part(part: str) -> str:
    found = {"*": "[^/]*", "?": "[^/]"}
    return "".join(found.get(character, re.escape(character)) for character in part)
