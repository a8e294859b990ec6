"""`leadhand diff`: what differs between two plans, or two revisions of a run, by meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import reading, settings_of, store_option
from leadhand.cli.plans import find_plan, in_library
from leadhand.cli.text import count
from leadhand.core.diff import Change
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.core.plan import Doc
    from leadhand.core.revisions import Revised
    from leadhand.settings import Settings

COLOURS = {"+": "green", "-": "red", "~": "yellow", ">": "cyan"}


class Compared(NamedTuple):
    """Two plans, under the names people gave them."""

    old: str
    new: str
    changes: list[Change]


@command("diff", "leadhand diff old.yaml new.yaml\nleadhand diff 7kq3 --from 1 --to 2")
@click.argument("a", metavar="PLAN|RUN")
@click.argument("b", metavar="[PLAN]", required=False)
@click.option("--from", "start", type=click.IntRange(0), help="A revision of the run; 0: nothing.")
@click.option("--to", "end", type=click.IntRange(1), help="A revision of the run.")
@store_option
def diff(
    console: Console, a: str, b: str | None, start: int | None, end: int | None, store: str | None
) -> int:
    """Show what differs between two plans, by meaning: exit code 0 when nothing, else 1.

    Two PLANs are files, or names in the library (NAME@VERSION). Of a RUN, two revisions are
    compared: the last two, unless --from and --to name others. White space, the order of keys
    and steps, and YAML for JSON are no difference; characters that look like others are shown
    escaped.
    """
    settings = settings_of(store)
    if b is not None:
        if start is not None or end is not None:
            raise UsageError("--from and --to go with a run, and two plans were given")
        compared = _plans(console, settings, a, b)
    else:
        compared = _revisions(settings, a, start, end)
    if console.json:
        console.document(
            {
                "old": compared.old,
                "new": compared.new,
                "equal": not compared.changes,
                "changes": [change.document() for change in compared.changes],
            }
        )
        return 1 if compared.changes else 0
    if not compared.changes:
        console.say(f"{compared.old} and {compared.new} mean the same")
        return 0
    print_changes(console, compared.changes)
    console.say(f"{compared.old} → {compared.new}: {count(len(compared.changes), 'difference')}")
    return 1


def print_changes(console: Console, changes: list[Change]) -> None:
    """Changes as data, a line each, in colour where that is wanted."""
    from leadhand.core.diff import lines

    for line in lines(changes):
        console.out(console.paint_data(f"{line.mark} {line.text}", COLOURS[line.mark]))


def _plans(console: Console, settings: Settings, a: str, b: str) -> Compared:
    from leadhand.core.diff import diff as compare

    if a == b == "-":
        raise UsageError("only one of the two plans can come from standard input")
    old, new = (find_plan(console, settings, each).doc for each in (a, b))
    return Compared(a, b, compare(old, new))


def _revisions(settings: Settings, run: str, start: int | None, end: int | None) -> Compared:
    from leadhand.core.diff import diff as compare
    from leadhand.core.revisions import revisions

    if run.endswith((".json", ".yaml", ".yml")) or in_library(settings, run):
        raise UsageError(f"{run} is a plan: name another one to compare it with")
    with reading(settings) as reader:
        ident = reader.resolve(run)
        found = revisions(event for _entry, event in reader.events(ident))
    if end is None and start is None and len(found) < 2:
        has = "one revision" if found else "no revision"
        raise UsageError(
            f"run {ident} has {has}, so there is nothing to compare. "
            "Fix: --from 0 shows all that is in the first."
        )
    new = found[-1] if end is None and found else _numbered(found, end or 1, ident)
    if start is None:
        place = found.index(new)
        old = found[place - 1] if place else None
    else:
        old = _numbered(found, start, ident) if start else None
    empty: Doc = {**new.doc, "steps": []}
    changes = compare(old.doc if old else empty, new.doc, new.heirs)
    return Compared(_name(ident, old), _name(ident, new), changes)


def _numbered(found: list[Revised], number: int, run: str) -> Revised:
    """The revision of a number; of several that were rejected in turn, the last."""
    for each in reversed(found):
        if each.number == number:
            return each
    last = f"its last is {found[-1].number}" if found else "it has none"
    raise UsageError(f"run {run} has no revision {number}; {last}")


def _name(run: str, revision: Revised | None) -> str:
    return f"{run} revision {revision.number if revision else 0}"
