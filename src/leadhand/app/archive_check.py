"""Verification of archives: what the log records of them, and what their files hold.

    records      the table of archives says what the log says; they follow each other without a gap
    signatures   once a record is signed, all later ones are
    ends         the logs in each archive end where the database says that these runs end
    kept         runs that stayed are, up to the end of an archive, what they were when it was made
    files        there, of the recorded size; where they are read: of the recorded hash, and proved

A file is read if its archive was made since the last verification, or if all is read. A person who
removes runs and writes a record of an archive that never was is found by its file: there is none,
or it does not lead to the hash from which the chain of commits goes on.
"""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leadhand.audit.chain import START, Batch, ChainProblem
from leadhand.codec.events import decode
from leadhand.core.host_events import (
    ARCHIVE_EVENTS,
    HOST_STREAM,
    RunsArchived,
)
from leadhand.errors import ArchiveMissing, LeadhandError
from leadhand.stores.archive import (
    ArchiveProof,
    ArchiveRecord,
    Link,
    heads_digest,
    prove,
    record_to_sign,
)
from leadhand.stores.log import each_position

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.app.reader import Reader
    from leadhand.audit.keys import PublicKey


@dataclass
class ArchiveFindings:
    """The result of checking the archives of a database."""

    problems: list[ChainProblem] = field(default_factory=list)
    begin: Batch = START
    """The last commit that is no longer in the database."""
    batches: dict[int, Batch] = field(default_factory=dict)
    """The ends of archives, and of those that were read the commits that were asked for."""
    readable: frozenset[int] = frozenset()
    """The archives whose files were read and are right."""
    runs: int = 0
    """The runs in all archives."""
    entries: int = 0
    unread: int = 0
    """The runs in archives that were not read."""
    unshown: list[str] = field(default_factory=list)
    """What cannot be excluded, and why."""
    count: int = 0

    def wrong(self, number: int, message: str) -> None:
        """Add a problem of an archive."""
        self.problems.append(ChainProblem("", number, "archive", message))


def check_archives(
    reader: Reader,
    wanted: Iterable[int],
    after: int,
    key: PublicKey | None,
    run: str | None = None,
) -> ArchiveFindings:
    """Check all archives of a database.

    Args:
        reader: the database.
        wanted: the numbers of commits that are to be told, if they are read.
        after: files of archives that were recorded at later positions are read; -1: all of them.
        key: the key that must have signed the records, if it is known.
        run: the archive that holds this run is read too.
    """
    holds = reader.store.archive_number(run) if run is not None else 0
    found = ArchiveFindings()
    told = _told(reader, found, key)
    if not told and not found.problems:
        return found
    try:
        stored = reader.store.archives()
    except LeadhandError as error:
        found.wrong(0, str(error))
        return found
    if stored != [record for record, _ in told]:
        found.wrong(0, "the table of archives does not say what the log records of them")
        return found
    found.count = len(told)
    readable = set()
    for record, position in told:
        read = position > after or record.number == holds
        if _check_one(reader, found, record, key, read=read, wanted=frozenset(wanted)):
            readable.add(record.number)
        elif record.deleted is None and not read:
            found.unread += record.made.runs
        found.begin = record.end
        found.batches[record.end.number] = record.end
        found.runs += record.made.runs
        found.entries += record.made.entries
    found.readable = frozenset(readable)
    _check_kept(reader, found, [record for record, _ in told])
    if found.unread:
        found.unshown.append(
            f"that {found.unread} runs in archives are still as they were when they were archived: "
            "their files were not read; --full reads them"
        )
    return found


def _told(
    reader: Reader, found: ArchiveFindings, key: PublicKey | None
) -> list[tuple[ArchiveRecord, int]]:
    """Return what the log records of archives, each with the position of its newest event."""
    told: list[tuple[ArchiveRecord, int]] = []
    signed = False
    entries = [each for each in reader.entries(HOST_STREAM) if _is_record(each.body)]
    places = reader.store.places(HOST_STREAM) if entries else []
    for entry in entries:
        event = decode(entry.version, entry.body)
        if not isinstance(event, ARCHIVE_EVENTS):
            continue
        number = event.archive
        if not 0 < entry.seq <= len(places):
            found.wrong(number, f"its record (event {entry.seq}) is not where it was written")
            continue
        place = places[entry.seq - 1]
        if key is not None:
            good = _is_signed(reader.store.database_id, event, key)
            if not good and (signed or event.signature):
                found.wrong(number, f"its record (event {entry.seq}) is not signed by {key.name}")
            signed = signed or good
        if isinstance(event, RunsArchived):
            if number != len(told) + 1:
                found.wrong(number, f"its record (event {entry.seq}) is out of order")
            told.append((ArchiveRecord(event), place))
        elif 0 < number <= len(told):
            told[number - 1] = told[number - 1][0].with_event(event), place
        else:
            found.wrong(number, f"event {entry.seq} is about an archive that was never made")
    if key is not None and told and not signed:
        found.unshown.append(f"that the archives were made here: no record is signed by {key.name}")
    return told


def _is_record(body: bytes) -> bool:
    return b"rchive" in body[:40]


def _is_signed(database: str, event: Any, key: PublicKey) -> bool:
    try:
        signature = b64decode(event.signature, validate=True)
    except ValueError:
        return False
    return bool(signature) and key.check(record_to_sign(database, event), signature)


def _check_one(
    reader: Reader,
    found: ArchiveFindings,
    record: ArchiveRecord,
    key: PublicKey | None,
    *,
    read: bool,
    wanted: frozenset[int],
) -> bool:
    """Check one archive; return whether its file was read and is right."""
    made, number = record.made, record.number
    if (record.end.number, record.end.last) < (found.begin.number, found.begin.last):
        found.wrong(number, "it ends before the archive that was made before it")
    heads = reader.store.archived_heads(number)
    if (len(heads), heads_digest(heads)) != (made.runs, made.heads):
        found.wrong(
            number,
            "the runs that the database counts to it, or the places where their logs end, are not "
            "those that it was made of",
        )
        return False
    if record.deleted is not None:
        found.unshown.append(
            f"what was in archive {number} ({made.runs} runs): {record.deleted.actor} deleted it "
            f"({record.deleted.reason})"
        )
        return False
    if record.rewritten is not None:
        new = record.rewritten
        found.unshown.append(
            f"what archive {number} said before {new.actor} erased secrets from it: {new.changed} "
            f"events were changed and {new.erased} artifacts taken out, and say so"
        )
    path = reader.store.shelf.place(record)
    if path is None:
        message = f"its file is missing: {record.folder / record.file}, with {made.runs} runs"
        if read:
            found.wrong(number, f"{message}. Fix: put it there, or beside the database")
        else:
            found.unshown.append(f"what is in archive {number}: {message}")
        return False
    if path.stat().st_size != record.size:
        found.wrong(number, f"{path} does not have the size that was recorded: {record.size} bytes")
        return False
    return read and _prove(found, record, path, key, wanted)


def _prove(
    found: ArchiveFindings,
    record: ArchiveRecord,
    path: Any,
    key: PublicKey | None,
    wanted: frozenset[int],
) -> bool:
    """Read a file and compare what it is proved to hold with its record."""

    def keep(batch: Batch) -> None:
        if batch.number in wanted:
            found.batches[batch.number] = batch

    signed = key if record.made.signature else None
    try:
        proof = prove(path, key=signed, each_commit=keep)
    except LeadhandError as error:
        found.wrong(record.number, str(error))
        return False
    except Exception as error:  # noqa: BLE001 - what was changed may be anything
        found.wrong(record.number, f"{path}: cannot be read ({type(error).__name__}: {error})")
        return False
    if (wrong := _differs(proof, record, found.begin)) is not None:
        found.wrong(record.number, f"{path}: {wrong}. Fix: put back a copy of this file")
        return False
    return True


def _differs(proof: ArchiveProof, record: ArchiveRecord, begin: Batch) -> str | None:
    """Return how a file differs from what was recorded of it; None if it does not."""
    made, content = record.made, proof.content
    if proof.digest != record.digest:
        return "it is not the file that was recorded: its SHA-256 is another"
    if content.after != Link.of(begin):
        return "it does not follow from the archive before it"
    if (content.number, content.end, content.heads) != (
        made.archive,
        Link.of(record.end),
        made.heads,
    ):
        return "it is another archive than the one that was recorded"
    if (len(content.runs), content.entries, content.kept) != (made.runs, made.entries, made.kept):
        return "it does not hold what was recorded of it"
    if (record.rewritten is None) and (content.erased or content.erased_artifacts):
        return "something was erased from it, and no record says so"
    return None


def _check_kept(reader: Reader, found: ArchiveFindings, records: list[ArchiveRecord]) -> None:
    """Check that the runs which stayed are what they were when the archives were made."""
    log = reader.store
    stood: dict[str, list[tuple[int, int, str]]] = {}
    for record in records:
        for each in record.made.kept:
            stood.setdefault(each.run, []).append((record.number, each.seq, each.hash))
    expected = 0
    for run, places in stood.items():
        archive = log.archive_of(run)
        if archive is not None and archive.number not in found.readable:
            continue  # its end was compared, and its file was not read
        try:
            entries = log.read(run)
        except ArchiveMissing:
            continue  # that was said
        hashes = {entry.seq: entry.hash.hex() for entry in entries}
        for number, seq, digest in places:
            if hashes.get(seq) != digest:
                found.problems.append(
                    ChainProblem(
                        run, seq, "archive", f"it is not what it was when archive {number} was made"
                    )
                )
        if archive is None:
            expected += max(seq for _, seq, _ in places)
    here = 0
    for position, _ in each_position(log):
        if position > found.begin.last:
            break
        here += 1
    if here != expected:
        found.problems.append(
            ChainProblem(
                "",
                found.begin.number,
                "archive",
                f"of the entries in archived commits, {expected} stayed in the database, and there "
                f"are {here}",
            )
        )
