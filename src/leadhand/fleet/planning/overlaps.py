"""Predicted overlaps of tasks: files that neither names, and symbols that both depend on. Pure.

Two tasks that write different files may still collide: a file that one of them writes mostly
changes together with a file of the other, so one of the two will probably want to write both. Or
one task is about a symbol that a file of the other uses: what compiles apart breaks together.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from leadhand.fleet.boundaries import within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.fleet.planning.map_history import ChangeHistory
    from leadhand.fleet.planning.repository_map import RepositoryMap

SHARE_LEAST = 0.5
"""The share of a file's commits that also change the other, to be told."""
COMMITS_LEAST = 4
"""Commits in common, to be told: fewer may be chance."""
FILES_MAX = 200
"""Files of a task that are looked at."""
TOLD = 3
_CODE = re.compile(r"[A-Za-z_]\w{3,}")


class PredictedConflict(NamedTuple):
    """Why two tasks probably collide."""

    a: str
    b: str
    why: str


class Claim(NamedTuple):
    """A task, as far as overlaps go."""

    id: str
    goal: str
    writes: Sequence[str]


def predicted_share(history: ChangeHistory, path: str, other: str) -> float:
    """Return the larger share of commits of either file that change both."""
    return max(history.share(path, other), history.share(other, path))


def predicted_conflicts(
    made: RepositoryMap, a: Claim, b: Claim, append: Sequence[str] = ()
) -> list[PredictedConflict]:
    """Return what speaks for a collision of two tasks; files of `append` do not count."""
    ours, theirs = (_files(made, each.writes, append) for each in (a, b))
    found = _co_change(made, a.id, b.id, ours, theirs)
    found += _symbols(made, a, b, ours, theirs) + _symbols(made, b, a, theirs, ours)
    return found[:TOLD]


def _files(made: RepositoryMap, writes: Sequence[str], append: Sequence[str]) -> list[str]:
    meant = (path for path in made.sizes if within(path, writes) and not within(path, append))
    return sorted(meant)[:FILES_MAX]


def _co_change(
    made: RepositoryMap, a: str, b: str, ours: Sequence[str], theirs: Sequence[str]
) -> list[PredictedConflict]:
    history, others = made.history, set(theirs)
    found = []
    for path in ours:
        for other, common in history.together.get(path, ()):
            share = predicted_share(history, path, other)
            if other in others and common >= COMMITS_LEAST and share >= SHARE_LEAST:
                why = f"{path} and {other} changed together in {common} commits ({share:.0%})"
                found.append((share, PredictedConflict(a, b, why)))
    return [each for _, each in sorted(found, key=lambda pair: (-pair[0], pair[1]))]


def _symbols(
    made: RepositoryMap, a: Claim, b: Claim, ours: Sequence[str], theirs: Sequence[str]
) -> list[PredictedConflict]:
    """Return symbols that one task's goal names and its files define, used by the other's files."""
    named = set(_CODE.findall(a.goal))
    found = []
    for path in ours:
        facts = made.facts.get(path)
        defined = {each.name for each in facts.symbols} & named if facts is not None else set()
        for name in sorted(defined):
            if len(made.definers[name]) > 1 or not _is_code(name):
                continue
            users = [other for other in theirs if _uses(made, other, name)]
            if users:
                why = f"{a.id} is about {name} of {path}, which {users[0]} uses"
                found.append(PredictedConflict(a.id, b.id, why))
    return found


def _uses(made: RepositoryMap, path: str, name: str) -> bool:
    facts = made.facts.get(path)
    return facts is not None and name in facts.names


def _is_code(name: str) -> bool:
    """Return whether a word of a goal is the name of a symbol, and not plain language."""
    return "_" in name or not (name.islower() or name.istitle())
