"""`leadhand diff`: the difference of two plans, or two revisions of a run, by meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leadhand.app.comparison import Compared
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import reading, settings_of, store_option
from leadhand.cli.plan_source import find_plan, in_library
from leadhand.cli.rendering.text import count
from leadhand.core.plan.diff import Change
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.settings import Settings


COLOURS = {"+": "green", "-": "red", "~": "yellow", ">": "cyan", "!": "magenta"}


@command("diff", "leadhand diff old.yaml new.yaml\nleadhand diff 7kq3 --from 1 --to 2")
@click.argument("a", metavar="PLAN|RUN")
@click.argument("b", metavar="[PLAN]", required=False)
@click.option(
    "--from",
    "start",
    type=click.IntRange(0),
    help="The older revision of the run; 0 is the empty plan before the first one.",
)
@click.option("--to", "end", type=click.IntRange(1), help="The newer revision of the run.")
@store_option
def diff(
    console: Console, a: str, b: str | None, start: int | None, end: int | None, store: str | None
) -> int:
    """Compare two plans, or two revisions of a run.

    Plans are compared by meaning: white space, the order of keys and steps, and YAML against
    JSON make no difference. Characters that can be mistaken for others are shown escaped. PLAN
    is a file or the name of a plan in the library (NAME@VERSION). For a RUN the last two
    revisions are compared, unless --from and --to name others. The exit code is 0 if there are
    no differences, and 1 otherwise.
    """
    settings = settings_of(store)
    if b is not None:
        if start is not None or end is not None:
            raise UsageError("--from and --to go with a run, and two plans were given")
        compared = _plans(console, settings, a, b)
    else:
        compared = _revisions(settings, a, start, end)
    if console.json:
        console.document(compared.document())
        return 1 if compared.changes else 0
    if not compared.changes:
        console.say(f"{compared.old} and {compared.new} mean the same")
        return 0
    print_changes(console, compared.changes)
    console.say(f"{compared.old} → {compared.new}: {count(len(compared.changes), 'difference')}")
    return 1


def print_changes(console: Console, changes: list[Change]) -> None:
    """Print changes as data, a line each, in colour if enabled."""
    from leadhand.core.plan.diff import lines

    for line in lines(changes):
        console.out(console.paint_data(f"{line.mark} {line.text}", COLOURS[line.mark]))


def _plans(console: Console, settings: Settings, a: str, b: str) -> Compared:
    from leadhand.core.plan.diff import differences

    if a == b == "-":
        raise UsageError("only one of the two plans can come from standard input")
    old, new = (find_plan(console, settings, each).doc for each in (a, b))
    return Compared(a, b, differences(old, new))


def _revisions(settings: Settings, run: str, start: int | None, end: int | None) -> Compared:
    from leadhand.app.comparison import compare_revisions

    if run.endswith((".json", ".yaml", ".yml")) or in_library(settings, run):
        raise UsageError(f"{run} is a plan: name another one to compare it with")
    with reading(settings) as reader:
        return compare_revisions(reader, reader.resolve(run), start, end)
