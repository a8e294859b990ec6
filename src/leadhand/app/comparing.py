"""Two plans, or two revisions of a run, compared by meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leadhand.core.diff import Change, diff, lines
from leadhand.core.revisions import revisions
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.app.reader import Reader
    from leadhand.core.plan import Doc
    from leadhand.core.revisions import Revised


class Compared(NamedTuple):
    """Two plans, under the names people gave them."""

    old: str
    new: str
    changes: list[Change]

    def document(self) -> Doc:
        """As `diff --json` prints it."""
        return {
            "old": self.old,
            "new": self.new,
            "equal": not self.changes,
            "changes": [change.document() for change in self.changes],
            "difference": [f"{line.mark} {line.text}" for line in lines(self.changes)],
        }


def compared(reader: Reader, run: str, start: int | None, end: int | None) -> Compared:
    """Two revisions of a run: the last two, unless others are named; 0 is nothing."""
    found = revisions(event for _entry, event in reader.events(run))
    if end is None and start is None and len(found) < 2:
        has = "one revision" if found else "no revision"
        raise UsageError(
            f"run {run} has {has}, so there is nothing to compare. "
            "Fix: --from 0 shows all that is in the first."
        )
    new = found[-1] if end is None and found else numbered(found, end or 1, run)
    if start is None:
        place = found.index(new)
        old = found[place - 1] if place else None
    else:
        old = numbered(found, start, run) if start else None
    empty: Doc = {**new.doc, "steps": []}
    changes = diff(old.doc if old else empty, new.doc, new.heirs)
    return Compared(_name(run, old), _name(run, new), changes)


def numbered(found: list[Revised], number: int, run: str) -> Revised:
    """The revision of a number; of several that were rejected in turn, the last."""
    for each in reversed(found):
        if each.number == number:
            return each
    last = f"its last is {found[-1].number}" if found else "it has none"
    raise UsageError(f"run {run} has no revision {number}; {last}")


def _name(run: str, revision: Revised | None) -> str:
    return f"{run} revision {revision.number if revision else 0}"
