"""A protected change on a terminal: what it is, its diff, and the command that approves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.cli.rendering.text import clean, clean_lines
from leadhand.core.views.inbox import answers_of

if TYPE_CHECKING:
    from leadhand.cli.console import Console
    from leadhand.core.plan.model import Doc


COLOURS = {"+": "green", "-": "red", "@": "cyan", "d": "bold"}


def print_change(console: Console, row: Doc, lines_max: int = 0, *, data: bool = False) -> None:
    """Print the diff of a row of kind `protected_change`, in colours where there are some.

    With `lines_max` a longer diff is cut, with a line that says so and how to see all of it.
    `data`: print to standard output instead of standard error.
    """
    print_line = console.out if data else console.say
    paint = console.paint_data if data else console.paint
    lines = clean_lines(row["diff"]).rstrip("\n").split("\n")
    print_line(f"    commit {row['commit']}, on {row['base'][:12]}")
    for line in lines[:lines_max] if lines_max else lines:
        colour = COLOURS.get(line[:1], "") if not line.startswith(("+++", "---")) else "bold"
        print_line("    | " + (paint(line, colour) if colour else line))
    if lines_max and len(lines) > lines_max:
        way = console.command(f"answer {row['id']}")
        print_line(f"    … {len(lines) - lines_max} more lines; all of it: {way}")
    if row["people"] > 1:
        given = ", ".join(clean(each, 60) for each in row["approved_by"]) or "none so far"
        print_line(f"    {row['people']} different people must approve it; approved by: {given}")


def ways(console: Console, row: Doc) -> list[str]:
    """The commands that answer it; the one that approves names the commit that was shown."""
    found = []
    if "approve" in answers_of(row):
        found.append(console.command(f"answer {row['id']} approve --commit {row['commit'][:12]}"))
    found.append(console.command(f'answer {row["id"]} send_back --text "…"'))
    found.append(console.command(f"answer {row['id']} drop"))
    return found
