"""`leadhand backup` and `leadhand restore`: a verified copy of the log, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadhand.cli.commands.migrate import progress
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import settings_of, store_option
from leadhand.cli.rendering.text import count
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.app.migration import Migration


@command("backup", "leadhand backup /mnt/backup/leadhand.db")
@click.argument("file")
@store_option
def backup(console: Console, file: str, store: str | None) -> int:
    """Copy the log into a file while its host works.

    FILE becomes the log at one moment, proved equal: every event, hash, commit and artifact, and
    the anchors. It is a database of its own that `leadhand show --store FILE` and every other
    command can read. If FILE holds an earlier backup of the same log, what came since is added.
    Settings, keys and tokens are not in it.
    """
    from leadhand.app.migration import back_up

    settings = settings_of(store)
    done = back_up(settings.store, Path(file).resolve(), settings.anchoring, progress(console))
    _print(console, done, file)
    if not console.json:
        console.next(f"leadhand restore {file}, where there is no log")
    return 0


@command("restore", "leadhand restore /mnt/backup/leadhand.db")
@click.argument("file")
@store_option
def restore(console: Console, file: str, store: str | None) -> int:
    """Put a backup back where there is no log.

    The copy is proved equal to FILE, which is not changed. A log that is there already is not
    touched: move it away first, with the files beside it. What happened after the backup is not in
    it: steps may have had effects since, so look at open runs before you resume them.
    """
    from leadhand.app.migration import restore as restore_log

    settings = settings_of(store)
    place = Path(file).resolve()
    if not place.is_file():
        raise UsageError(f"{file}: there is no such file. Fix: name a file of `leadhand backup`")
    done = restore_log(place, settings.store, settings.anchoring, progress(console))
    _print(console, done, str(settings.store))
    if not console.json:
        console.next("leadhand verify --all, then leadhand ls")
    return 0


def _print(console: Console, done: Migration, target: str) -> None:
    if console.json:
        console.document({"file": target, **done.document()})
        return
    if done.copied.resumed and done.copied.commits:
        console.say(f"added to the copy that ended with commit {done.copied.resumed:,}")
    elif done.copied.resumed:
        console.say(f"nothing is new since commit {done.copied.resumed:,}")
    held = done.target
    size = f"{count(held.runs, 'run')}, {count(held.commits, 'commit')}"
    console.say(f"{target}: {size}, {count(held.artifacts, 'artifact')}")
    console.say(f"{console.paint('equal', 'green')}: every hash holds on both sides")
