"""`leadhand archive`: runs that have ended go out of the database, into files; retention."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import actor_of, settings_of, store_option
from leadhand.cli.rendering.text import clean, count
from leadhand.core.durations import seconds
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.app.archive import ArchiveReport
    from leadhand.settings import Settings


@command("archive", "leadhand archive --older-than 90d\nleadhand archive --dry-run")
@click.option(
    "--older-than",
    metavar="TIME",
    help="Archive runs that ended longer ago than this (90d). Default: [archive] older_than.",
)
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="The folder of the files. Default: [archive] folder, else beside the database.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option(
    "--erase",
    metavar="SOURCE",
    help="Erase a secret from all archives instead: env:NAME or keyring:SERVICE/USER.",
)
@click.option("--reason", metavar="TEXT", default="", help="With --erase: why; it is recorded.")
@store_option
def archive(
    console: Console,
    older_than: str | None,
    folder: Path | None,
    dry_run: bool,  # noqa: FBT001 - click passes it
    erase: str | None,
    reason: str,
    store: str | None,
) -> int:
    """Move runs that have ended into signed, compressed files.

    Each file is proved to hold them whole before anything is removed. Lists, totals, `show`,
    `logs`, `verify`, `export` and `compare` go on as before, as long as the files are there. Open
    runs stay, and runs that open runs refer to. Archives that [archive] delete_after is for are
    deleted. The database must have no host meanwhile.
    """
    from leadhand.app.archive import Archiving

    settings = settings_of(store)
    archiving = Archiving(settings.store, settings.anchoring, actor_of(settings), console.say)
    if erase is not None:
        if older_than or folder or dry_run:
            raise UsageError("--erase goes only with --reason")
        report = archiving.erase(*_secret(erase), reason)
    else:
        now = time.time_ns() // 1000
        before = now - int(_age(settings, older_than) * 1e6)
        ends = settings.retention.delete_after_s
        delete_before = None if ends is None else now - int(ends * 1e6)
        if delete_before is not None and delete_before > before:
            raise UsageError(
                "archives would be deleted as soon as they are made. Fix: let [archive] "
                "delete_after be longer than --older-than"
            )
        if dry_run:
            report = archiving.preview(before, delete_before)
        else:
            target = folder or settings.retention.folder
            report = archiving.archive(before, target, delete_before)
    if console.json:
        console.document(report.document())
    else:
        _print(console, report, erased=erase is not None)
    return 0


def _age(settings: Settings, older_than: str | None) -> float:
    """Return how long ago a run must have ended, in seconds."""
    if older_than is None:
        if settings.retention.older_than_s is None:
            raise UsageError(
                "which runs? Fix: give --older-than 90d, or set older_than in [archive] of "
                "leadhand.toml"
            )
        return settings.retention.older_than_s
    try:
        return seconds(older_than)
    except ValueError as error:
        raise UsageError(f"--older-than: {error}") from None


def _secret(source: str) -> tuple[str, str]:
    """Return the name and the value of a secret that is to be erased."""
    from leadhand.audit.redaction import LENGTH_MIN
    from leadhand.engine.secrets import read_source

    kind, _, name = source.partition(":")
    if kind not in ("env", "keyring") or not name:
        raise UsageError(
            "--erase names where the secret is, never the secret. Fix: --erase env:NAME, or "
            "keyring:SERVICE/USER"
        )
    value = read_source(source)
    if value is None:
        raise UsageError(f"{source} is not there. Fix: set it to the secret that is to be erased")
    if len(value.strip()) < LENGTH_MIN:
        raise UsageError(f"{source} has fewer than {LENGTH_MIN} characters, which cannot be erased")
    return name, value


def _print(console: Console, report: ArchiveReport, *, erased: bool) -> None:
    for record in report.made:
        made = record.made
        size = f"{record.size / 1e6:,.1f} MB"
        signed = f", signed by {made.key}" if made.key else ""
        console.out(
            f"archive {record.number}: {count(made.runs, 'run')}, {count(made.entries, 'event')}, "
            f"{size}{signed}: {clean(str(record.folder / record.file))}"
        )
    for record in report.deleted:
        would = "would be deleted" if report.dry_run else "deleted"
        console.out(f"archive {record.number}: {would}, as [archive] delete_after says")
    for record in report.rewritten:
        new = record.rewritten
        assert new is not None
        console.out(
            f"archive {record.number}: changed in {count(new.changed, 'event')}, "
            f"{count(new.erased, 'artifact')} taken out: {clean(str(record.folder / record.file))}"
        )
    if erased:
        if not report.rewritten:
            console.say("no archive holds this secret")
        return
    if report.dry_run:
        console.say(f"would archive {count(report.runs, 'run')}, {count(report.entries, 'event')}")
    elif not report.made:
        console.say("no run to archive")
    for reason, number in sorted(report.stay.items()):
        if reason != "open":
            console.say(f"stay: {count(number, 'run')} {reason}")
    if report.artifacts:
        console.say(f"{count(report.artifacts, 'artifact')} moved out of the folder of artifacts")
    if report.freed:
        console.say(f"the database is {report.freed / 1e6:,.1f} MB smaller")
    for note in report.notes:
        console.say(note)
    if report.made and not report.made[0].made.key:
        console.say("not signed: [audit] key names no key (leadhand audit-key makes one)")
