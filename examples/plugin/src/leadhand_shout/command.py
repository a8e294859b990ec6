"""`leadhand shout RUN`: the result of a run, in capital letters."""

import click

from leadhand import Lead
from leadhand.plugins import CommandPart

COMMAND = CommandPart(
    "leadhand_shout.command:shout", "The goal of a run, in capital letters", "Plugins"
)


@click.command()
@click.argument("run")
def shout(run: str) -> None:
    """Print the goal of RUN, in capital letters."""
    rows = [row for row in Lead.from_settings().list() if row.run == run]
    if not rows:
        raise click.ClickException(f"there is no run {run}. Fix: leadhand ls shows those there are")
    click.echo(rows[0].goal.upper())
