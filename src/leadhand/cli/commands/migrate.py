"""`leadhand migrate`: move a log to another store and prove it equal; tables and rights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import settings_of
from leadhand.cli.rendering.text import count
from leadhand.stores.location import place_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.app.migration import Migration
    from leadhand.settings import Settings
    from leadhand.stores.location import StoreLocation


TOLD_COMMITS = 1000
EXAMPLE = """\
leadhand migrate postgres://owner@db/leadhand --from .leadhand/leadhand.db
leadhand migrate postgres://owner@db/leadhand --writer app --reader grafana"""


@command("migrate", EXAMPLE)
@click.argument("target", required=False)
@click.option(
    "--from", "source", metavar="STORE", help="Copy this log to TARGET and compare the two."
)
@click.option(
    "--writer",
    "writers",
    multiple=True,
    metavar="ROLE",
    help="A database role that may append and read.",
)
@click.option(
    "--reader", "readers", multiple=True, metavar="ROLE", help="A database role that may only read."
)
def migrate(
    console: Console,
    target: str | None,
    source: str | None,
    writers: tuple[str, ...],
    readers: tuple[str, ...],
) -> int:
    """Copy the log to another database; create tables and grant access.

    TARGET is a file or postgres://USER@HOST/DATABASE; the default is the store of the settings.
    Its tables are created or updated. The copy keeps every byte, hash and commit, so anchors
    and exports stay valid. Both logs are then read from end to end and compared; the exit code
    is 0 only if they are equal. Neither database may have a host process meanwhile. An
    interrupted copy continues where it ended, and a target that holds anything else is refused.
    The source is never changed.

    Roles must exist. A writer cannot change or delete written events.
    """
    from leadhand.app.migration import check_places, move, prepare

    settings = settings_of(target)
    place = settings.store
    old = None if source is None else _source(source, settings)
    if old is not None:
        check_places(old, place)
    version = prepare(place, readers, writers)
    doc = {"store": str(place), "schema": version, "readers": readers, "writers": writers}
    if not console.json:
        console.say(f"{place}: schema {version}")
        for kind, roles in (("writer", writers), ("reader", readers)):
            for role in roles:
                console.say(f"{role} is a {kind}")
    if old is None:
        if console.json:
            console.document(doc)
        return 0

    moved = move(old, place, settings.anchoring, progress(console))
    if console.json:
        console.document({**doc, **moved.document()})
    else:
        _print(console, moved, place)
    return 0


def progress(console: Console) -> Callable[[int, int], None]:
    """Return what tells how many commits are copied, now and then."""

    def told(done: int, whole: int) -> None:
        if not console.json and done % TOLD_COMMITS == 0:
            console.say(f"{done:,} of {whole:,} commits")

    return told


def _source(text: str, settings: Settings) -> StoreLocation:
    from leadhand.settings.folders import FOLDER

    return place_of(text, Path.cwd(), settings.root / FOLDER)


def _print(console: Console, moved: Migration, place: StoreLocation) -> None:
    if moved.copied.resumed:
        console.say(f"went on after commit {moved.copied.resumed:,}")
    console.out(f"{'':<12}{'source':<20}target")
    sides = (moved.source, moved.target)
    rows: list[tuple[str, list[int | str]]] = [
        ("runs", [side.runs for side in sides]),
        ("events", [side.events - side.own_events for side in sides]),  # as `verify` counts them
        ("not of runs", [side.own_events for side in sides]),
        ("commits", [side.commits for side in sides]),
        ("artifacts", [side.artifacts for side in sides]),
        ("head", [side.head for side in sides]),
    ]
    for name, each in rows:
        mine, theirs = (f"{one[:16]}…" if isinstance(one, str) else f"{one:,}" for one in each)
        console.out(f"{name:<12}{mine:<20}{theirs}")
    console.say(f"{console.paint('equal', 'green')}: every hash holds on both sides")
    console.say(f"{count(moved.anchors, 'anchor')} came along")
    console.next(f'[project] store = "{place}" in leadhand.toml; host the old log no more')
