"""Churn and co-change of files, from the history of main.

Two files change together when one commit touches both. Commits that touch many files (renames,
formatting) say nothing about any two of them, and are not counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

from leadhand.fleet.repository.git import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leadhand.fleet.repository.git import Git

COMMITS_MAX = 1000
FILES_MAX = 20
"""Files of a commit that is counted."""
PARTNERS = 8
LEAST = 2
"""Commits that two files must have in common."""

Partners = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ChangeHistory:
    """How often files changed, alone and together."""

    commits: int = 0
    """Commits that were counted."""
    churn: Mapping[str, int] = field(default_factory=dict)
    together: Mapping[str, Partners] = field(default_factory=dict)
    """For a file: others that changed with it, most often first, with the number of commits."""

    def share(self, path: str, other: str) -> float:
        """Return the share of a file's commits that changed the other one as well."""
        common = next((n for name, n in self.together.get(path, ()) if name == other), 0)
        return common / self.churn[path] if common else 0.0


def history_of(commits: Iterable[Sequence[str]]) -> ChangeHistory:
    """Return the history of commits, each given as the files that it touches."""
    churn: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    counted = 0
    for paths in commits:
        touched = sorted(set(paths))
        if not 0 < len(touched) <= FILES_MAX:
            continue
        counted += 1
        churn.update(touched)
        pairs.update(combinations(touched, 2))
    found: dict[str, list[tuple[str, int]]] = {}
    for (a, b), count in pairs.items():
        if count >= LEAST:
            found.setdefault(a, []).append((b, count))
            found.setdefault(b, []).append((a, count))
    together = {
        path: tuple(sorted(others, key=lambda pair: (-pair[1], pair[0]))[:PARTNERS])
        for path, others in sorted(found.items())
    }
    return ChangeHistory(counted, dict(sorted(churn.items())), together)


async def read_commits(git: Git, main: str, most: int = COMMITS_MAX) -> list[list[str]]:
    """Return the files that the last commits of main touched, newest first; merges left out."""
    said = await git(
        "log", "-z", "--no-merges", "--name-only", "--format=%x01", f"--max-count={most}", main
    )
    found: list[list[str]] = []
    for entry in said.out.split(b"\1")[1:]:
        names = (part.strip(b"\n") for part in entry.split(b"\0"))
        found.append([name_of(name) for name in names if name])
    return found
