"""`leadhand archive`: move runs that have ended out of the database, keep archives, delete them.

For each archive, in this order: write down which file is about to be made; write it, sync it, read
it back and prove it; give it its name and sync the folder; then, in one commit, record it in the
log (`RunsArchived` on `$host`) and remove from the database what it holds. A process that dies
before that commit leaves the database as it was, and the next call removes its file; after it,
everything is done. Artifacts are removed after the commit, once an archive has been seen to hold
them.

The database needs to be without a host: hosts know where the log begins, and read what is removed.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from leadhand.app.anchors import append as append_anchor
from leadhand.app.anchors import signer_of
from leadhand.app.reader import ALL, summary_of
from leadhand.app.store_factory import host_state, open_reader, open_store
from leadhand.audit.anchors import file_of
from leadhand.audit.chain import GENESIS, Batch, link
from leadhand.audit.redaction import Redactor
from leadhand.audit.verify import artifacts_of
from leadhand.codec.events import decode, encode
from leadhand.core.carried import carried_results
from leadhand.core.events import EVENT_VERSION, RunStarted
from leadhand.core.host_events import (
    HOST_STREAM,
    ArchiveDeleted,
    ArchiveRewritten,
    HostOpened,
    KeptRun,
    RunsArchived,
)
from leadhand.core.rollback import SUFFIX as SUFFIX_OF_ROLLBACKS
from leadhand.core.views.run import ENDED
from leadhand.engine.host import VERSION
from leadhand.errors import ArchiveMissing, Bug, Conflict, StoreBroken, StoreCorrupt, StoreFull
from leadhand.ports import Entry, RunQuery
from leadhand.settings.product_logs import log_of_run
from leadhand.stores.archive import (
    PART,
    SUFFIX,
    Archive,
    ArchiveFiling,
    ArchiveProof,
    ArchiveRecord,
    ArchiveWriter,
    Intent,
    archive_folder,
    intent_file,
    read_intent,
    signed_record,
)
from leadhand.stores.group_commit import AppendRequest
from leadhand.stores.location import home
from leadhand.stores.log import each_batch
from leadhand.stores.permissions import write_private
from leadhand.stores.sqlite.connection import explain_os, sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leadhand.audit.anchors import Anchoring, Signer
    from leadhand.core.events import Event
    from leadhand.core.plan.model import Doc
    from leadhand.ports import RunHeader
    from leadhand.stores.location import StoreLocation
    from leadhand.stores.log import KeptStore, Log


BUNDLE_BYTES = 64 << 20
"""An archive is closed when its logs have this size: so much is removed in one commit."""
RUNS_AT_ONCE = 1000
_ARTIFACT = re.compile(rb"sha256:[0-9a-f]{64}")


@dataclass
class ArchiveReport:
    """What one call did, or would do."""

    dry_run: bool = False
    runs: int = 0
    entries: int = 0
    artifacts: int = 0
    """How many artifacts are no longer in the folder of artifacts."""
    made: list[ArchiveRecord] = field(default_factory=list)
    deleted: list[ArchiveRecord] = field(default_factory=list)
    rewritten: list[ArchiveRecord] = field(default_factory=list)
    stay: Counter[str] = field(default_factory=Counter)
    """How many runs ended before the moment and stay, by reason."""
    freed: int = 0
    """How many bytes the file of the database is smaller."""
    notes: list[str] = field(default_factory=list)

    def document(self) -> Doc:
        """Return the report in the form of `leadhand archive --json`."""
        return {
            "dry_run": self.dry_run,
            "runs": self.runs,
            "entries": self.entries,
            "artifacts": self.artifacts,
            "archives": [_row(each) for each in self.made],
            "deleted": [_row(each) for each in self.deleted],
            "rewritten": [_row(each) for each in self.rewritten],
            "stay": dict(sorted(self.stay.items())),
            "freed_bytes": self.freed,
            "notes": self.notes,
        }


def _row(record: ArchiveRecord) -> Doc:
    return {
        "archive": record.number,
        "file": str(record.folder / record.file),
        "bytes": record.size,
        "sha256": record.digest,
        "runs": record.made.runs,
        "entries": record.made.entries,
        "signed_by": record.made.key or None,
    }


class Archiving:
    """The archives of one database, for the commands that change them."""

    def __init__(
        self,
        place: StoreLocation,
        anchoring: Anchoring,
        actor: str,
        told: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Prepare to change the archives of the database at `place`; `told` gets the progress."""
        self._place, self._anchoring, self._actor, self._told = place, anchoring, actor, told
        self._home = home(place)

    # What is done.

    def preview(self, before: int, delete_before: int | None) -> ArchiveReport:
        """Return what `archive` would do."""
        log = open_reader(self._place)
        report = ArchiveReport(dry_run=True)
        try:
            with log.snapshot():
                for run in self._candidates(log, before, report):
                    report.runs += 1
                    header = log.header(run)
                    report.entries += header.seq if header is not None else 0
                report.deleted = _to_delete(log, delete_before)
        finally:
            log.close_reader()
        return report

    def archive(
        self, before: int, folder: Path | None, delete_before: int | None = None
    ) -> ArchiveReport:
        """Archive the runs that ended before a moment, and delete the archives that may go.

        Args:
            before: the moment, in UTC microseconds.
            folder: where the files go; None: beside the database.
            delete_before: archives of which every run ended before this are deleted.
        """
        target = (folder or archive_folder(self._home)).resolve()
        with self._owned() as writing:
            store, report = writing.store, ArchiveReport()
            runs = self._candidates(store, before, report)
            while runs:
                made = self._make(writing, target, runs, before)
                report.made.append(made)
                report.runs += made.made.runs
                report.entries += made.made.entries
                self._told(f"{report.runs:,} runs archived")
            for record in _to_delete(store, delete_before):
                self._delete(writing, record)
                report.deleted.append(record)
            report.artifacts = _tidy_artifacts(store)
            self._give_back(store, report)
        return report

    def erase(self, name: str, secret: str, reason: str) -> ArchiveReport:
        """Erase a secret from all archives.

        Entries keep the hash they had, and say `[secret:NAME]` in place of the value; an artifact
        that holds it is taken out. Raise `ArchiveMissing` if an archive is not there: nothing was
        changed then.
        """
        redactor = Redactor({name: secret})
        with self._owned() as writing:
            report = ArchiveReport()
            records = [each for each in writing.store.archives() if each.deleted is None]
            for record in records:
                writing.store.shelf.opened(record, "what is to be erased")
            for record in records:
                found = self._rewrite(writing, record, redactor, reason)
                if found is not None:
                    report.rewritten.append(found)
        return report

    # Which runs.

    def _candidates(self, log: Log, before: int, report: ArchiveReport) -> list[str]:
        """Return the runs to archive, the oldest change last; count those that stay, by reason."""
        needed = _needed(log)
        cursor, found = "", list[tuple[int, str]]()
        while True:
            query = RunQuery(until=before, sort="created", limit=RUNS_AT_ONCE, cursor=cursor)
            page = log.find_runs(query)
            for header in page.headers:
                reason = _stays(log, header, before, needed)
                if reason is None:
                    found.append((header.updated, header.run))
                elif reason:
                    report.stay[reason] += 1
            if page.next is None:
                break
            cursor = page.next
        return [run for _, run in sorted(found, reverse=True)]

    # One archive.

    def _make(self, writing: _Writing, folder: Path, runs: list[str], before: int) -> ArchiveRecord:
        """Make one archive of the first of some runs, which are taken out of the list."""
        store = writing.store
        after, number = store.archived_until(), len(store.archives()) + 1
        path = folder / _file_name(store.database_id, number)
        self._intend(Intent(new=str(path)))
        missing: set[str] = set()
        with ArchiveWriter(path, store.database_id, number, after) as writer:
            taken: dict[str, int] = {}
            size = 0
            while runs and size < BUNDLE_BYTES:
                run = runs.pop()
                size += _add_run(store, writer, run, taken, missing)
            end, lasts, others, kept = _span(store, after, taken)
            proof = writer.finish(end, lasts, others, kept, missing=missing, signer=writing.signer)
        made = _record(proof, path, self._actor, before)
        record = signed_record(store.database_id, made, writing.signer)
        filing = ArchiveFiling(record, writing.entry(record), list(taken))
        self._commit(lambda: store.file_away(filing), path)
        return ArchiveRecord(record)

    def _commit(self, commit: Callable[[], None], new: Path) -> None:
        """Commit the record of a new file; remove the file if that failed."""
        try:
            commit()
        except StoreBroken:
            raise  # whether it was committed is not known: the next call looks
        except BaseException:
            new.unlink(missing_ok=True)
            self._done()
            raise
        self._done()

    def _rewrite(
        self, writing: _Writing, record: ArchiveRecord, redactor: Redactor, reason: str
    ) -> ArchiveRecord | None:
        """Write an archive without a secret; return its new record, or None if it has none."""
        store = writing.store
        archive = store.shelf.opened(record, "what is to be erased")
        bad = {
            ref
            for ref in archive.index.artifacts
            if redactor.finds(archive.get_artifact(ref) or b"")
        }
        texts = any(redactor.finds(row[3]) for _, rows in archive.logs() for row in rows)
        if not bad and not texts:
            return None
        old = archive.path
        path = old.parent / _file_name(store.database_id, record.number)
        self._intend(Intent(new=str(path), old=str(old)))
        proof, changed = self._rewritten(writing, archive, path, bad, redactor)
        if proof.content.heads != record.made.heads:
            raise Bug(f"{path}: erasing has changed where its logs end")
        event = ArchiveRewritten(
            record.number,
            self._actor,
            reason,
            str(path.parent),
            path.name,
            proof.size,
            proof.digest,
            changed,
            len(bad),
        )
        signed = signed_record(store.database_id, event, writing.signer)
        entry = writing.entry(signed)
        self._commit(lambda: store.note_archive(record.number, entry, "rewritten"), path)
        store.shelf.close()
        _remove(old)
        return record.with_event(signed)

    def _rewritten(
        self,
        writing: _Writing,
        archive: Archive,
        path: Path,
        bad: set[str],
        redactor: Redactor,
    ) -> tuple[ArchiveProof, int]:
        """Write an archive anew; return its proof, and in how many entries something changed."""
        index, changed = archive.index, 0
        after = index.after.batch()
        with ArchiveWriter(path, index.database, index.number, after) as writer:
            for run in index.runs:
                positions, entries = archive.read(run)
                clean = [_redacted(entry, redactor) for entry in entries]
                now = {
                    old.seq for old, new in zip(entries, clean, strict=True) if old.body != new.body
                }
                changed += len(now)
                writer.add_run(run, positions, clean, now.union(archive.erased(run)))
            for ref in index.artifacts:
                if ref not in bad:
                    writer.add_artifact(ref, archive.get_artifact(ref) or b"")
            lasts, others = archive.commits()
            proof = writer.finish(
                index.end.batch(),
                lasts,
                others,
                index.kept,
                missing=index.missing,
                erased_artifacts=bad.union(index.erased_artifacts),
                signer=writing.signer,
            )
        return proof, changed

    def _delete(self, writing: _Writing, record: ArchiveRecord) -> None:
        """Record that an archive is deleted, then delete its file."""
        store = writing.store
        reason = "[archive] delete_after"
        event = ArchiveDeleted(record.number, self._actor, reason)
        entry = writing.entry(signed_record(store.database_id, event, writing.signer))
        path = store.shelf.place(record)
        store.note_archive(record.number, entry, "deleted")
        if path is not None:
            _remove(path)

    # Owning the database, and going on after a crash.

    @contextmanager
    def _owned(self) -> Iterator[_Writing]:
        """Open the database for writing, without a host, and finish what a crash left behind."""
        try:
            store, lock = open_store(self._place)
        except Conflict as error:
            if "is the host of this database" not in str(error):
                raise
            raise Conflict(
                f"{error}, and archiving needs the database for itself. Fix: end that process "
                "(runs go on with leadhand resume), archive, and start it again"
            ) from None
        try:
            self._recover(store)
            yield _Writing(store, signer_of(self._anchoring))
            file = file_of(self._home, self._anchoring)
            with suppress(OSError):
                append_anchor(file, store.head, store.database_id, signer_of(self._anchoring))
        finally:
            store.close_now()
            lock.release()

    def _recover(self, store: KeptStore) -> None:
        """Remove the files that an earlier process left, which no record names."""
        # By their names, which no two files have: folders may have been moved.
        known = {each.file for each in store.archives() if each.deleted is None}
        intent = read_intent(self._home)
        if intent is not None:
            made = Path(intent.new).name in known
            for name in (intent.old,) if made else (intent.new, intent.new + PART):
                if name and Path(name).name not in known:
                    _remove(Path(name))
            self._done()
        for record in store.archives():
            path = store.shelf.place(record) if record.deleted is not None else None
            if path is not None:
                _remove(path)

    def _intend(self, intent: Intent) -> None:
        try:
            write_private(intent_file(self._home), msgspec.json.encode(intent))
            sync_folder(intent_file(self._home).parent)
        except OSError as error:
            raise explain_os(error, intent_file(self._home)) from error

    def _done(self) -> None:
        intent_file(self._home).unlink(missing_ok=True)

    def _give_back(self, store: KeptStore, report: ArchiveReport) -> None:
        try:
            report.freed = store.give_back()
        except StoreFull:
            report.notes.append(
                "the file of the database could not be made smaller: there is no room on the disk "
                "for its new copy. Fix: free some, and run leadhand archive again"
            )


class _Writing:
    """The store that is written to, and the end of the host's own stream."""

    def __init__(self, store: KeptStore, signer: Signer | None) -> None:
        self.store, self.signer = store, signer
        self._opened = False

    def entry(self, event: Event) -> Entry:
        """Return an event as the next entry of `$host`; before the first one, claim the store."""
        if not self._opened:
            self._opened = True
            state = host_state(self.store)
            owner = self.store.claim()
            opened = HostOpened(owner, os.getpid(), VERSION, state.max_concurrency)
            entry = self._next(opened)
            no_future: object = None
            self.store.commit_together(
                [AppendRequest(no_future, no_future, HOST_STREAM, entry.seq - 1, [entry], None, 0)]  # type: ignore[arg-type]
            )
        return self._next(event)

    def _next(self, event: Event) -> Entry:
        header = self.store.header(HOST_STREAM)
        seq, head, at = (header.seq, header.hash, header.updated) if header else (0, GENESIS, 0)
        body, at = encode(event), max(time.time_ns() // 1000, at)
        digest = link(head, HOST_STREAM, seq + 1, at, EVENT_VERSION, body)
        return Entry(HOST_STREAM, seq + 1, at, EVENT_VERSION, body, digest)


def _needed(log: Log) -> set[str]:
    """Return the runs that open runs refer to: what they repeat, took results from, or undo."""
    found: set[str] = set()
    for header in log.find_runs(RunQuery(open=True, limit=ALL)).headers:
        found.add(header.run.removesuffix(SUFFIX_OF_ROLLBACKS))
        entries = log.read(header.run)
        first = decode(entries[0].version, entries[0].body) if entries else None
        if isinstance(first, RunStarted):
            found.add(str(first.plan.get("rerun_of", "")))
            found.update(each.run for each in carried_results(first.plan).values())
    return found


def _stays(log: Log, header: RunHeader, before: int, needed: set[str]) -> str | None:
    """Return why a run stays in the database; None if it goes, "" if it does not count."""
    told = summary_of(header)
    if told is None or told.status not in ENDED or not told.ended:
        return "open"
    if told.ended >= before or log.archive_number(header.run):
        return ""
    if header.run in needed:
        return "needed by an open run"
    return "of a product" if log_of_run(header.run) is not None else None


def _to_delete(log: Log, before: int | None) -> list[ArchiveRecord]:
    if before is None:
        return []
    return [each for each in log.archives() if each.deleted is None and each.made.before <= before]


def _file_name(database: str, number: int) -> str:
    """Return a name that no other archive has: files of an older copy of the log stay."""
    return f"leadhand-{database[:8]}-{number:06d}-{os.urandom(4).hex()}{SUFFIX}"


def _add_run(
    store: KeptStore, writer: ArchiveWriter, run: str, taken: dict[str, int], missing: set[str]
) -> int:
    """Add a run to an archive, with its artifacts; return the size of its log."""
    entries, positions = store.read(run), store.places(run)
    header = store.header(run)
    if header is None or not entries or entries[-1].hash != header.hash:
        raise StoreCorrupt(
            f"the log of run {run} does not end as its header says, so nothing was archived. "
            f"Fix: leadhand verify {run}"
        )
    writer.add_run(run, positions, entries)
    taken[run] = positions[-1]
    naming = [entry for entry in entries if b'"sha256:' in entry.body]
    for ref in artifacts_of(decode(entry.version, entry.body) for entry in naming):
        try:
            writer.add_artifact(ref, store.get_artifact(ref))
        except (StoreCorrupt, ArchiveMissing):
            missing.add(ref)  # erased before: its name is left
    return sum(len(entry.body) for entry in entries)


def _span(
    store: KeptStore, after: Batch, taken: dict[str, int]
) -> tuple[Batch, list[int], list[tuple[int, bytes]], list[KeptRun]]:
    """Return the commits up to the last entry of the runs that were taken.

    The last commit, the last position of each, the entries of other runs in them, and where the
    logs of these runs stand.
    """
    last = max(taken.values())
    end, lasts = after, list[int]()
    for batch in each_batch(store, after.number):
        if end.last >= last:
            break
        end = batch
        lasts.append(batch.last)
    others: list[tuple[int, bytes]] = []
    kept: dict[str, tuple[int, Entry]] = {}
    place = after.last
    while place < end.last and (page := store.page(place)):
        for position, entry in page:
            if position <= end.last and entry.run not in taken:
                others.append((position, entry.hash))
                kept[entry.run] = (kept.get(entry.run, (entry.seq - 1, entry))[0], entry)
        place = page[-1][0]
    stand = [
        KeptRun(run, before, entry.seq, entry.hash.hex())
        for run, (before, entry) in sorted(kept.items())
    ]
    return end, lasts, others, stand


def _record(proof: ArchiveProof, path: Path, actor: str, before: int) -> RunsArchived:
    index = proof.content
    return RunsArchived(
        index.number,
        actor,
        before,
        str(path.parent),
        path.name,
        proof.size,
        proof.digest,
        index.end.number,
        index.end.position,
        index.end.hash,
        len(index.runs),
        index.entries,
        index.heads,
        index.kept,
    )


def _redacted(entry: Entry, redactor: Redactor) -> Entry:
    """Return an entry without the secret; it keeps its hash."""
    if not redactor.finds(entry.body):
        return entry
    doc = msgspec.json.decode(entry.body)
    body = msgspec.json.encode(redactor.value(doc))
    if redactor.finds(body):
        raise Bug(f"run {entry.run}: entry {entry.seq} still holds what was to be erased")
    decode(entry.version, body)  # what is left can be read
    return entry._replace(body=body)


def _tidy_artifacts(store: KeptStore) -> int:
    """Remove the artifacts that only archived runs name, if an archive that is there holds them."""
    there = set(store.artifacts())
    held: set[str] = set()
    for record in store.archives() if there else ():
        if record.deleted is None and store.shelf.place(record) is not None:
            archive = store.shelf.opened(record, "its index")
            # Read, so that nothing is removed which is not there a second time.
            held.update(
                ref
                for ref in there.intersection(archive.index.artifacts)
                if archive.get_artifact(ref) is not None
            )
    held -= _named(store) if held else set()
    store.remove_artifacts(sorted(held))
    return len(held)


def _named(store: KeptStore) -> set[str]:
    """Return the artifacts that entries in the database name."""
    found: set[str] = set()
    place = 0
    while page := store.page(place):
        for _, entry in page:
            if b"sha256:" in entry.body:
                found.update(each.decode() for each in _ARTIFACT.findall(entry.body))
        place = page[-1][0]
    return found


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            sync_folder(path.parent)
    except OSError as error:
        raise explain_os(error, path) from error
