"""Rework: changes of main that were reverted or fixed within 14 days, by git alone.

    reverted   a later commit names it ("This reverts commit SHA"), or is exactly its reverse
    fixed      a later commit whose subject speaks of a fix removes or replaces a line it added

A line belongs to the last commit that added it: the same text in the same file. Lines with fewer
than three letters or digits (brackets, blank lines) belong to no commit. A change is counted once,
however often it was reverted or fixed, and as reverted if it was both. A fix that only adds lines
is not seen, and of commits with more than `LINES_MAX` lines only reverts by name are.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from leadhand.fleet.repository.git import GitFailed, name_of, trailers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leadhand.fleet.repository.git import Git

SECOND = 1_000_000
WINDOW_DAYS = 14
WINDOW = WINDOW_DAYS * 86_400 * SECOND
COMMITS_MAX = 5000
"""With more commits than this in the period rework is not measured."""
LINES_MAX = 5000
LETTERS_LEAST = 3
FILE_BYTES_MAX = "1m"
REVERTED, FIXED = "reverted", "fixed"
FIX_WORDS = "fix, bug, hotfix, regression, broken, repair, revert"

_FIX = re.compile(
    r"\b(?:fix(?:e[sd]|ing)?|bugs?|(?:bug|hot)fix(?:es)?|regressions?|broken?|repair(?:s|ed)?"
    r"|revert(?:s|ed)?)\b",
    re.IGNORECASE,
)
_REVERTS = re.compile(r"\breverts commit ([0-9a-f]{7,64})")
_RECORD = re.compile(rb"^\x01(?=[0-9a-f]{40,64}\x00)", re.MULTILINE)
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")

Line = tuple[str, bytes]
"""A line of a file: the file's path, and the text."""


class MainChange(NamedTuple):
    """A commit on main that is no merge, with the lines that it adds and removes."""

    sha: str
    at: int
    """In microseconds since the epoch."""
    message: str
    added: tuple[Line, ...] = ()
    removed: tuple[Line, ...] = ()
    by_fleet: bool = False
    """Whether it carries a task of a fleet."""

    @property
    def subject(self) -> str:
        return self.message.partition("\n")[0]


def reworked(changes: Sequence[MainChange]) -> dict[str, str]:
    """Return how each reworked change was reworked: `REVERTED` or `FIXED`.

    - `changes`: of main, each after those that it is based on.
    """
    found: dict[str, str] = {}
    owners: dict[Line, MainChange] = {}
    known: dict[str, list[MainChange]] = {}
    by_lines: dict[tuple[frozenset[object], frozenset[object]], MainChange] = {}
    for change in changes:
        lines = _counted(change.added), _counted(change.removed)
        targets = [
            each for sha in _REVERTS.findall(change.message.lower()) for each in _named(known, sha)
        ]
        if any(lines) and (reverse := by_lines.get((lines[1], lines[0]))) is not None:
            targets.append(reverse)
        found |= {each.sha: REVERTED for each in targets if _soon(each, change)}
        fixes = bool(_FIX.search(change.subject))
        for line in change.removed:
            owner = owners.pop(line, None)
            if fixes and owner is not None and _soon(owner, change):
                found.setdefault(owner.sha, FIXED)
        owners |= {line: change for line in change.added if _tells(line[1])}
        by_lines[lines] = change
        known.setdefault(change.sha[:7], []).append(change)
    return found


def _counted(lines: Iterable[Line]) -> frozenset[object]:
    return frozenset(Counter(lines).items())


def _named(known: dict[str, list[MainChange]], sha: str) -> list[MainChange]:
    """Return the change that a name, perhaps a shortened one, stands for; none if several do."""
    found = [each for each in known.get(sha[:7], ()) if each.sha.startswith(sha)]
    return found if len(found) == 1 else []


def _soon(change: MainChange, later: MainChange) -> bool:
    return change.sha != later.sha and later.at - change.at <= WINDOW


def _tells(text: bytes) -> bool:
    return sum(byte >= 128 or chr(byte).isalnum() for byte in text) >= LETTERS_LEAST


async def read_changes(git: Git, since: int, *refs: str) -> list[MainChange] | None:
    """Return the changes below `refs` since a time in microseconds, oldest first.

    Return None if there are more than `COMMITS_MAX`, or if git cannot tell all of them.
    """
    when = f"--max-age={max(0, since) // SECOND}"  # --since guesses at small numbers
    try:
        number = (await git("rev-list", "--count", "--no-merges", when, *refs)).text
        if int(number) > COMMITS_MAX:
            return None
        said = await git(
            *("-c", f"core.bigFileThreshold={FILE_BYTES_MAX}", "log", "--no-merges"),
            *("--topo-order", "--reverse", "--patch", "--unified=0", "--no-renames", "--no-color"),
            *("--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/"),
            *("--no-show-signature", "--format=%x01%H%x00%ct%x00%B%x00", when, *refs),
        )
    except GitFailed:
        return None
    return [_change(record) for record in _RECORD.split(said.out)[1:]]


def _change(record: bytes) -> MainChange:
    sha, when, message, patch = record.split(b"\0", 3)
    added, removed = list[Line](), list[Line]()
    for sign, line in _lines(patch):
        (added if sign == b"+" else removed).append(line)
        if len(added) + len(removed) > LINES_MAX:
            added, removed = [], []
            break
    text = name_of(message)
    return MainChange(
        sha=name_of(sha),
        at=int(when) * SECOND,
        message=text,
        added=tuple(added),
        removed=tuple(removed),
        by_fleet="Leadhand-Task" in trailers_of(text),
    )


def _lines(patch: bytes) -> Iterator[tuple[bytes, Line]]:
    """Yield the sign and the line of each changed line of a patch without context."""
    path, left = "", [0, 0]
    for text in patch.split(b"\n"):
        sign = text[:1]
        if sign == b"-" and left[0]:
            left[0] -= 1
            yield sign, (path, text[1:])
        elif sign == b"+" and left[1]:
            left[1] -= 1
            yield sign, (path, text[1:])
        elif (hunk := _HUNK.match(text)) is not None:
            left = [int(number or 1) for number in hunk.groups()]
        elif text.startswith((b"--- a/", b"+++ b/")):
            path = name_of(text[6:].rstrip(b"\t"))  # git ends a name with spaces by a tab
