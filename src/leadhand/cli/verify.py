"""`leadhand verify`: hash chains, and every invariant over the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import reading, settings_of, store_option
from leadhand.cli.text import clean, count
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.app.reader import Reader
    from leadhand.core.plan import Doc
    from leadhand.ports import Entry


@command("verify", "leadhand verify 7kq3\nleadhand verify --all")
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="Every run, and the chain of commits.")
@store_option
def verify(console: Console, run: str | None, everything: bool, store: str | None) -> int:  # noqa: FBT001 - click passes it
    """Check that a log is complete, unchanged, and keeps every rule the engine promises.

    The same checker that the tests use. Each violation is listed with its place and rule; the
    exit code is then 1.
    """
    if everything == (run is not None):
        raise UsageError("name a RUN, or give --all")
    found: list[Doc] = []
    with reading(settings_of(store)) as reader:
        runs = [header.run for header in reader.runs()] if run is None else [reader.resolve(run)]
        entries = 0
        for ident in runs:
            problems, size = check_run(reader, ident)
            entries += size
            found += problems
        if everything:
            found += check_commits(reader)
    if console.json:
        doc = {"valid": not found, "runs": len(runs), "entries": entries, "violations": found}
        console.document(doc)
        return 1 if found else 0
    for each in found:
        where = f"{each['run'] or 'commits'} {each['seq']}"
        console.out(f"{where}  {each['rule']}  {clean(each['message'], 500)}")
    looked_at = f"{count(len(runs), 'run')}, {count(entries, 'event')}"
    if found:
        console.say(f"{console.paint(count(len(found), 'violation'), 'red')} in {looked_at}")
        return 1
    good = console.paint("verified", "green")
    console.say(f"{good}: {looked_at}, every hash and every rule holds")
    return 0


def check_run(reader: Reader, ident: str) -> tuple[list[Doc], int]:
    """What is wrong with one run; the chain first, since nothing else counts without it."""
    from leadhand.audit import chain
    from leadhand.codec.events import decode
    from leadhand.core import invariants

    found: list[Doc] = []
    entries: list[Entry] = []
    try:
        entries = reader.entries(ident)
        found += [problem._asdict() for problem in chain.verify(entries)]
        header = reader.store.header(ident)
        if header is not None:
            found += [problem._asdict() for problem in chain.verify_head(entries, header)]
        events = [(entry.at, decode(entry.version, entry.body)) for entry in entries]
        for each in invariants.check(events):
            found.append({"run": ident, **each._asdict()})
    except Exception as error:  # noqa: BLE001 - what was changed may be anything
        found.append(_unreadable(ident, error))
    return found, len(entries)


def check_commits(reader: Reader) -> list[Doc]:
    """What is wrong with the chain over all commits: a whole missing run shows here."""
    from leadhand.audit import chain

    store = reader.store
    try:
        problems = chain.verify_batches(store.batches(), store.positions())
    except Exception as error:  # noqa: BLE001 - what was changed may be anything
        return [_unreadable("", error)]
    return [problem._asdict() for problem in problems]


def _unreadable(run: str, error: Exception) -> Doc:
    message = f"{type(error).__name__}: {error}"
    return {"run": run, "seq": 0, "rule": "unreadable", "message": message}
