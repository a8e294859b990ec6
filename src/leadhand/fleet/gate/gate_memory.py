"""What a gate remembers between runs: green verdicts that may be reused, and set-ups that failed.

A verdict is reused where everything it rests on is the same: the tree, the tree of main, the
commands. It is kept in the process that made it, so the rules, the environment and the sandbox are
the same too. Only a plain green is kept: nothing flaky, nothing that a person had to waive, and no
run of the same that was red.

A set-up that fails says nothing about a change while it fails on main too, or once in a while. A
change is at fault when its set-up failed again and again while main's passed in between.

The merge queue tests every change anyway, together with others. A run of the gate for each change
by itself pays only where many are red: then it spares the search in red batches (`Screening`).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadhand.fleet.gate.gate import GateVerdict


REUSE_S = 1800.0
"""How long a green verdict may be reused."""
KEPT = 500
FAILURES_MIN = 4
"""From this failure on main's set-up is tried beside it."""
MAIN_OK = 2
"""So often main's set-up must have passed before a change is blamed for its own."""

Key = tuple[str, str, tuple[tuple[str, ...], ...]]


class GreenVerdicts:
    """Plain green verdicts by tree, main's tree and acceptance commands."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, tuple[float, GateVerdict | None]] = OrderedDict()

    def of(self, key: Key) -> tuple[float, GateVerdict] | None:
        """Return a verdict that may be reused and its age in seconds."""
        at, verdict = self._kept.get(key, (0.0, None))
        age = time.monotonic() - at
        return (age, verdict) if verdict is not None and age <= REUSE_S else None

    def keep(self, key: Key, verdict: GateVerdict) -> None:
        """Keep a verdict if it may be reused; one that is not plain green bars the others."""
        plain = verdict.ok and not (verdict.flaky or verdict.altered or verdict.removed)
        barred = key in self._kept and self._kept[key][1] is None
        self._kept[key] = (time.monotonic(), verdict if plain and not barred else None)
        self._kept.move_to_end(key)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)


SCREEN_ABOVE = 0.2
"""The share of red changes above which each is tested by itself before the merge queue."""
CHANGES_RECENT = 60.0
GUESS_CHANGES, GUESS_RED = 10.0, 0.5


class Screening:
    """Whether changes are tested by themselves first, by how many were red of late."""

    def __init__(self, *, always: bool = False) -> None:
        self._always = always
        self._seen, self._red = GUESS_CHANGES, GUESS_RED

    @property
    def needed(self) -> bool:
        """Return whether a change is tested by itself before the merge queue tests it."""
        return self._always or self._red / self._seen > SCREEN_ABOVE

    def add(self, *, red: bool) -> None:
        """Record a change that landed or was found red."""
        self._seen, self._red = self._seen + 1, self._red + red
        if self._seen > CHANGES_RECENT:
            self._seen, self._red = self._seen / 2, self._red / 2


@dataclass(slots=True)
class _Failures:
    times: int = 0
    main_ok: int = 0


class SetUpFailures:
    """How often the set-up of a tree has failed, and main's has passed meanwhile."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, _Failures] = OrderedDict()

    def passed(self, tree: str) -> None:
        """Forget the failures of a tree whose set-up passed."""
        self._seen.pop(tree, None)

    def failed(self, tree: str) -> bool:
        """Count a failure; return whether main's set-up is to be tried."""
        found = self._seen.setdefault(tree, _Failures())
        found.times += 1
        if len(self._seen) > KEPT:
            self._seen.popitem(last=False)
        return found.times >= FAILURES_MIN

    def at_fault(self, tree: str) -> bool:
        """Return whether the tree is at fault: main's set-up passed often enough in between."""
        return self._seen[tree].main_ok >= MAIN_OK

    def main_tried(self, tree: str, *, ok: bool) -> None:
        """Record how main's set-up ended after a failure of the tree's."""
        found = self._seen[tree]
        found.main_ok = found.main_ok + 1 if ok else 0
