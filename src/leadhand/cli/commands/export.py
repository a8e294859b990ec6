"""`leadhand export`: a run as one file that can be read and checked without its database."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import reading, settings_of, store_option
from leadhand.cli.rendering.text import clean, count
from leadhand.core.calendar import iso
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.audit.bundle import BundleVerdict
    from leadhand.audit.keys import PublicKey
    from leadhand.settings import Settings


@command("export", "leadhand export 7kq3\nleadhand export 7kq3 -o report.zip")
@click.argument("run")
@click.option("--output", "-o", metavar="FILE", help="The file to write; - is standard output.")
@click.option("--force", is_flag=True, help="Replace an existing file with other content.")
@store_option
def export(
    console: Console,
    run: str,
    output: str | None,
    force: bool,  # noqa: FBT001 - click passes it
    store: str | None,
) -> int:
    """Export a run as one file that can be verified on its own.

    The zip file holds the plan, the approvals, both ledgers, the artifacts, and index.html, a
    page to read. The same run always gives the same bytes. With a key ([audit] key) the file is
    signed. `leadhand verify FILE` checks it without the database. An existing file with other
    content is not replaced (exit code 7), unless --force is given.
    """
    from leadhand.app.export import export_run, write_bundle

    settings = settings_of(store)
    with reading(settings) as reader:
        ident = reader.resolve(run)
    data = export_run(settings.store, ident, settings.anchoring)
    if output == "-":
        console.bytes(data)
        return 0
    file = Path(output or f"run-{ident}.zip")
    write_bundle(file, data, force=force)
    signed = settings.anchoring.key is not None
    if console.json:
        doc = {"run": ident, "file": str(file), "bytes": len(data), "signed": signed}
        console.document(doc)
        return 0
    console.out(str(file))
    console.say(f"{len(data):,} bytes{', signed' if signed else ', not signed (no [audit] key)'}")
    console.next(f"leadhand verify {file}")
    return 0


def verify_file(console: Console, file: Path, key: PublicKey | None, settings: Settings) -> int:
    """Check a bundle, for `leadhand verify FILE`."""
    from leadhand.audit.bundle import BYTES_MAX, verify_bundle

    try:
        if file.stat().st_size > BYTES_MAX:
            raise UsageError(f"{file}: is larger than any bundle")
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None
    _refuse_stranger(file, data)
    verdict = verify_bundle(data, key, settings.policy.approvers)
    if console.json:
        console.document(verdict.document())
    else:
        _print(console, verdict)
    return 1 if verdict.problems else 0


def _refuse_stranger(file: Path, data: bytes) -> None:
    """Raise `UsageError` for a file that never was a bundle; a cut or changed one is evidence."""
    if data.startswith(b"PK\x03\x04") or zipfile.is_zipfile(io.BytesIO(data)):
        return
    if data.startswith(b"SQLite format 3\0"):
        raise UsageError(f"{file}: is a database. Fix: leadhand verify --all --store {file}")
    raise UsageError(f"{file}: is no run, and no file that `leadhand export` wrote")


def _print(console: Console, verdict: BundleVerdict) -> None:
    for each in verdict.problems:
        where = f"{each.run or 'bundle'} {each.seq}"
        console.out(f"{clean(where, 200)}  {each.rule}  {clean(each.message, 500)}")
    if verdict.problems:
        bad = console.paint(count(len(verdict.problems), "violation"), "red")
        console.say(f"{bad} in {count(verdict.entries, 'event')}")
    else:
        good = console.paint("verified", "green")
        run, events = clean(verdict.run, 200), count(verdict.entries, "event")
        console.say(f"{good}: run {run}, {events}, all hashes and rules verified")
    if verdict.signed_by:
        console.say(f"signed by {verdict.signed_by}")
    if verdict.anchor is not None:
        console.say(f"anchored at commit {verdict.anchor.number}, {iso(verdict.anchor.at)}")
    if verdict.signed_approvals:
        console.say(f"{count(verdict.signed_approvals, 'approval')} signed; all signatures valid")
    for text in verdict.unshown:
        console.say(f"not proven: {clean(text, 500)}")
