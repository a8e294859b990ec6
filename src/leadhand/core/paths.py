"""Overlap of path patterns: whether `src/*.py` and `src/main.py` can mean the same thing.

The `reads` and `writes` of a step are texts that look like paths: parts between slashes, `*` and
`?` within a part, `**` for any number of parts. A text without wildcards means the thing and
everything below it, so `src` overlaps `src/main.py`. It need not be a file: `table:users` is a path
of one part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Parts = tuple[str, ...]

PARTS_MAX = 32
PAIRS_MAX = 50_000


def parts(text: str) -> Parts:
    """Split a path into parts; `./a//b/` is `a/b`."""
    found = [part for part in text.split("/") if part not in ("", ".")]
    return tuple(found[:PARTS_MAX])


def wide(text: str) -> bool:
    """Return whether a path may mean many things: it has a wildcard, or is a folder."""
    return text.endswith("/") or "*" in text or "?" in text


def overlap(one: Parts, other: Parts) -> bool:
    """Return whether two paths can mean the same thing."""
    # A table from the end backwards: fits[j] is whether one[i:] and other[j:] overlap.
    below = [_covers(other[j:]) for j in range(len(other) + 1)]
    for i in reversed(range(len(one))):
        fits = [False] * len(other) + [_covers(one[i:])]
        for j in reversed(range(len(other))):
            if "**" in (one[i], other[j]):
                fits[j] = below[j] or fits[j + 1]
            else:
                fits[j] = _same(one[i], other[j]) and below[j + 1]
        below = fits
    return below[0]


def overlaps(texts: Iterable[str], others: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the overlapping pairs of two sets, one from each, in nearly linear time.

    Each path is filed under the parts before its first wildcard. Two paths can overlap only if one
    lies on the way to the other, so each is compared with the paths on its own way. At most
    PAIRS_MAX pairs are compared; further pairs are ignored.
    """
    left = PAIRS_MAX
    done: set[tuple[str, str]] = set()
    here, there = _placed(texts), _placed(others)
    for swapped, (these, those) in enumerate(((here, there), (there, here))):
        for place, names in these.items():
            for depth in range(len(place) + 1):
                for name in names:
                    for other in those.get(place[:depth], ()):
                        left -= 1
                        if left < 0:
                            return
                        pair = (other, name) if swapped else (name, other)
                        if pair not in done and overlap(parts(name), parts(other)):
                            done.add(pair)
                            yield pair


def _placed(texts: Iterable[str]) -> dict[Parts, list[str]]:
    found: dict[Parts, list[str]] = {}
    for text in dict.fromkeys(texts):
        place = parts(text)
        plain = next((i for i, part in enumerate(place) if wide(part)), len(place))
        found.setdefault(place[:plain], []).append(text)
    return found


def _covers(rest: Parts) -> bool:
    """Return whether the rest of a path lies below a path that has ended."""
    return not rest or rest[0] != "**" or rest == ("**",)


def _same(one: str, other: str) -> bool:
    """Return whether two path parts can match the same name."""
    if not (wide(one) or wide(other)):
        return one == other
    below = [not other[j:].strip("*") for j in range(len(other) + 1)]
    for i in reversed(range(len(one))):
        fits = [False] * len(other) + [not one[i:].strip("*")]
        for j in reversed(range(len(other))):
            a, b = one[i], other[j]
            if "*" in (a, b):
                fits[j] = below[j] or fits[j + 1]
            else:
                fits[j] = (a == b or "?" in (a, b)) and below[j + 1]
        below = fits
    return below[0]
