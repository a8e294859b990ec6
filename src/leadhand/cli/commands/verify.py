"""`leadhand verify`: hash chains, anchors, and every rule over the log; or a bundle."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadhand.app.anchors import public_key
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import reading, settings_of, store_option
from leadhand.cli.rendering.text import clean, count
from leadhand.core.calendar import iso
from leadhand.errors import UsageError
from leadhand.stores.archive import is_archive
from leadhand.stores.location import there

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.app.verification import Verification
    from leadhand.audit.keys import PublicKey
    from leadhand.settings import Settings


@command("verify", "leadhand verify 7kq3\nleadhand verify --all\nleadhand verify run-7kq3.zip")
@click.argument("what", required=False, metavar="[RUN|FILE]")
@click.option(
    "--all", "everything", is_flag=True, help="Check every run, and the chain of commits."
)
@click.option(
    "--key", metavar="FILE", help="The public key that must have signed the file or the anchor."
)
@click.option(
    "--rebuild",
    is_flag=True,
    help="With --all: first write what lists and totals show anew, from the summaries of the runs.",
)
@click.option(
    "--full",
    is_flag=True,
    help="With --all: read everything again, not only what came since the last verification.",
)
@store_option
def verify(
    console: Console,
    what: str | None,
    everything: bool,  # noqa: FBT001 - click passes it
    rebuild: bool,  # noqa: FBT001 - click passes it
    full: bool,  # noqa: FBT001 - click passes it
    key: str | None,
    store: str | None,
) -> int:
    """Verify the log of a run, or an exported file.

    The command checks that the log is complete and unchanged, and that it keeps every rule of
    the engine. With --all it goes on from where the last such verification ended, unless --full is
    given. Each violation is listed with its place and rule, and the exit code is 1. A FILE
    written by `leadhand export` or `leadhand archive` is checked on its own, without the database.
    The output also names what cannot be proved because an anchor or a key is missing.
    """
    if everything == (what is not None):
        raise UsageError("name a RUN or a FILE, or give --all")
    for given, option in ((rebuild, "--rebuild"), (full, "--full")):
        if given and not everything:
            raise UsageError(f"{option} goes with --all")
    settings = settings_of(store)
    if what is not None and is_archive(Path(what)):
        return _verify_archive(console, Path(what), public_key(settings.anchoring, key))
    if what is not None and is_bundle(what):
        from leadhand.cli.commands.export import verify_file

        return verify_file(console, Path(what), public_key(settings.anchoring, key), settings)
    from leadhand.app.verification import VerificationScope, compare_histories, verify_database

    if rebuild:
        _rebuild(settings)
    with reading(settings) as reader:
        run = None if what is None else reader.resolve(what)
        known = public_key(settings.anchoring, key)
        verdict = verify_database(
            reader,
            settings.store,
            settings.anchoring,
            VerificationScope(run, full, os.cpu_count() or 1, _progress(console)),
            key=known,
            approvers=settings.policy.approvers,
        )
        asyncio.run(compare_histories(verdict, settings, reader, run or ""))
    if console.json:
        console.document(verdict.document())
    else:
        _print(console, verdict)
    return 1 if verdict.problems else 0


def _rebuild(settings: Settings) -> None:
    """Write lists and totals anew. Raise `Conflict` if a host has the database."""
    from leadhand.app.store_factory import open_store

    if not there(settings.store):
        return  # opening it for reading raises the error with its reason
    store, lock = open_store(settings.store, for_service=True)
    try:
        store.rebuild_lists()
    finally:
        store.close_now()
        lock.release()


def _verify_archive(console: Console, path: Path, key: PublicKey | None) -> int:
    """Check an archive on its own, without the database that it was made from."""
    from leadhand.errors import StoreCorrupt
    from leadhand.stores.archive import prove

    try:
        proof = prove(path, key=key)
    except StoreCorrupt as error:
        if console.json:
            problem = {"run": "", "seq": 0, "rule": "archive", "message": str(error)}
            console.document({"valid": False, "violations": [problem]})
        else:
            console.out(clean(str(error), 500))
        return 1
    held = proof.content
    unshown = [f"that the log has this end: commit {held.end.number}, {held.end.hash}"]
    if not proof.signed_by:
        unshown.append("who made it: it is not signed")
    if console.json:
        doc = {"valid": True, "violations": [], "archive": held.number, "database": held.database}
        size = {"runs": len(held.runs), "entries": held.entries, "sha256": proof.digest}
        told = {"signed_by": proof.signed_by or None, "cannot_be_shown": unshown}
        console.document({**doc, **size, **told})
        return 0
    good = console.paint("verified", "green")
    runs, events = count(len(held.runs), "run"), count(held.entries, "event")
    signed = f", signed by {proof.signed_by}" if proof.signed_by else ""
    console.say(f"{good}: archive {held.number} with {runs}, {events}{signed}")
    for text in unshown:
        console.say(f"not proven: {text}")
    return 0


def is_bundle(what: str) -> bool:
    """Return whether a word names a file rather than a run."""
    return what.lower().endswith(".zip") or Path(what).is_file()


def _progress(console: Console) -> Callable[[int, int], None]:
    """Return what shows how many runs are checked: one line that is written over."""

    def show(done: int, total: int) -> None:
        if console.terminal and not console.json:
            end = "" if done < total else "\r\x1b[K"
            sys.stderr.write(f"\r\x1b[K{done:,} of {total:,} runs checked{end}")
            sys.stderr.flush()

    return show


def _print(console: Console, verdict: Verification) -> None:
    for each in verdict.problems:
        where = f"{each.run or 'commits'} {each.seq}"
        console.out(f"{where}  {each.rule}  {clean(each.message, 500)}")
    looked_at = f"{count(verdict.runs, 'run')}, {count(verdict.entries, 'event')}"
    if verdict.problems:
        bad = console.paint(count(len(verdict.problems), "violation"), "red")
        console.say(f"{bad} in {looked_at}")
    else:
        good = console.paint("verified", "green")
        console.say(f"{good}: {looked_at}, all hashes and rules verified")
    if verdict.since_point is not None:
        at = iso(verdict.since_point.at)
        console.say(f"went on from commit {verdict.since_point.commit}, verified {at}")
    if verdict.archives.count:
        held = count(verdict.archives.runs, "run")
        console.say(f"{count(verdict.archives.count, 'archive')} with {held}")
    if verdict.held is not None:
        by = f", signed by {verdict.checked_key}" if verdict.signed else ""
        at = iso(verdict.held.at)
        console.say(f"anchored at commit {verdict.held.number}, {at}{by} ({verdict.file})")
    if verdict.signatures.good:
        console.say(f"{count(verdict.signatures.good, 'approval')} signed; all signatures valid")
    for text in verdict.unshown():
        console.say(f"not proven: {clean(text, 500)}")
