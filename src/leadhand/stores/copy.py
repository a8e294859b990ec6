"""Copying a log from one store to another, commit by commit, with proof that both are equal.

The copy keeps everything that hashes cover: the name of the database, the bytes and position of
every entry, every commit. So both hash chains, and every anchor recorded for the old log, hold for
the new one.

Resuming after a crash needs no records: the copy ends with some commit, and if that commit has the
same hash in the source, the chain proves that all before it is the same. From its first moment to
its last the copy is marked, and no host opens a marked log: half a log would repeat what the other
half says was done.

The proof reads each log from end to end, checks every link of both chains against the stored bytes,
every header against its run, every artifact against its name; and then compares the results. Equal
heads of the commit chain mean equal entries; the headers, which no chain covers, are compared by a
hash of all of them.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from leadhand.audit.chain import GENESIS, START, Batch, link_batch, verify
from leadhand.audit.verify import artifacts_of
from leadhand.codec.events import decode
from leadhand.errors import Conflict, StoreCorrupt, StoreError
from leadhand.stores.archive import copy_start
from leadhand.stores.group_commit import AppendRequest
from leadhand.stores.log import each_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from leadhand.core.events import Event
    from leadhand.core.plan.model import Doc
    from leadhand.ports import Entry, RunHeader
    from leadhand.stores.log import Copy, Log


Head = tuple[int, bytes]


class Proof(NamedTuple):
    """The verified totals of a log."""

    database: str
    epoch: int
    streams: int
    """Runs, the host's own log and the library."""
    runs: int
    events: int
    own_events: int
    """Of these, events that belong to no run: the host's own and the library's."""
    commits: int
    head: str
    """The hash of the last commit: covers everything ever written."""
    headers: str
    archives: str
    """What the log knows of its archives; their files are not part of it."""
    artifacts: int
    artifact_names: str

    def document(self) -> Doc:
        """Return the proof in the form of `leadhand migrate --json`."""
        return self._asdict()


def refuse_half(log: Log, place: object, *, copying: bool) -> None:
    """Raise `StoreError` if a log is an unfinished copy, unless it is being copied to."""
    if not copying and log.copied():
        raise StoreError(
            f"{place}: a log was being copied here, and that was not finished. "
            "Fix: the same leadhand migrate, backup or restore again, which goes on where it ended"
        )


def groups(log: Log, after: int = 0) -> Iterator[tuple[Batch, list[Entry]]]:
    """Yield every commit with a number above `after`, with its entries."""
    held: list[tuple[int, Entry]] = []
    read = -1
    for batch in each_batch(log, after):
        read = max(read, batch.first - 1)
        while read < batch.last and (page := log.page(read)):
            held += page
            read = page[-1][0]
        size = next((at for at, (place, _) in enumerate(held) if place > batch.last), len(held))
        yield batch, [entry for _, entry in held[:size]]
        del held[:size]
    if held or (read >= 0 and log.page(read, 1)):
        raise StoreCorrupt("there are entries that belong to no commit")


class LogScan:
    """A scan of one log from its beginning to its end."""

    def __init__(self, log: Log, place: object, names: Iterable[str] = ()) -> None:
        """Prepare to scan `log`; `names` are artifacts that must exist besides the listed ones."""
        self._log, self._place = log, place
        self._heads: dict[str, Head] = {}
        self._archived: dict[str, int] = {}
        self.names: set[str] = set(names)
        """Artifacts kept with the log, and artifacts named by its events."""

    def prove(self) -> Proof:
        """Return the verified totals. Raise `StoreCorrupt` if anything in the log was altered."""
        try:
            return self._prove()
        except StoreCorrupt as error:
            raise StoreCorrupt(
                f"{self._place}: {error}. Fix: `leadhand verify --all` lists everything that is "
                "wrong; put back a good copy first"
            ) from None

    def _prove(self) -> Proof:
        last = self._begin()
        for batch, entries in groups(self._log):
            self._check(last, batch, entries)
            last = batch
        headers = self._log.runs()
        self._check_headers(headers)
        if self._log.strays():
            raise StoreCorrupt("there are entries that belong to no run")
        self.names.update(self._log.artifacts())
        for name in sorted(self.names):
            self._log.get_artifact(name)
        return Proof(
            database=self._log.database_id,
            epoch=self._log.epoch(),
            streams=len(headers),
            runs=sum(not header.run.startswith("$") for header in headers),
            events=last.last,
            own_events=sum(header.seq for header in headers if header.run.startswith("$")),
            commits=last.number,
            head=last.hash.hex(),
            headers=_digest(list(headers)),
            archives=_digest([self._log.archive_rows(), self._archived]),
            artifacts=len(self.names),
            artifact_names=_digest(sorted(self.names)),
        )

    def _begin(self) -> Batch:
        """Read what is left of the commits that archives cover; return the last of these."""
        start = copy_start(self._log)
        if start is None:
            return START
        self._archived = dict(start.archived)
        for _, entry in start.entries:
            self._check_entry(entry)
        for record in self._log.archives():
            for run, seq, digest in self._log.archived_heads(record.number):
                self._heads[run] = seq, digest
            for kept in record.made.kept:
                stood = self._heads.get(kept.run, (0, GENESIS))
                if stood[0] < kept.seq and kept.run not in self._archived:
                    raise StoreCorrupt(f"{kept.run}: entry {kept.seq} is missing")
        return start.end

    def _check_entry(self, entry: Entry) -> None:
        seq, head = self._heads.get(entry.run, (0, GENESIS))
        if problems := verify([entry], head, seq):
            raise StoreCorrupt(f"{entry.run} {entry.seq}: {problems[0].message}")
        self._heads[entry.run] = entry.seq, entry.hash
        self.names.update(artifacts_of([self._event(entry)]))

    def _check(self, last: Batch, batch: Batch, entries: list[Entry]) -> None:
        for entry in entries:
            self._check_entry(entry)
        follows = (batch.number, batch.first) == (last.number + 1, last.last + 1)
        hashes = [entry.hash for entry in entries]
        whole = len(entries) == batch.last - batch.first + 1
        if not (follows and whole) or batch.hash != link_batch(
            last.hash, batch.first, batch.last, hashes
        ):
            raise StoreCorrupt(f"commit {batch.number} does not match its hash")

    def _event(self, entry: Entry) -> Event:
        """Return the event of an entry.

        Raise `StoreError` if it cannot be read: it may name a result.
        """
        try:
            return decode(entry.version, entry.body)
        except StoreError as error:
            raise StoreError(f"{self._place}: {entry.run} {entry.seq}: {error}") from None

    def _check_headers(self, headers: list[RunHeader]) -> None:
        for header in headers:
            if self._heads.pop(header.run, None) != (header.seq, header.hash):
                raise StoreCorrupt(f"{header.run}: its log does not end where its header says")
        if self._heads:
            raise StoreCorrupt(f"{next(iter(self._heads))}: there is a log and no header")


def _digest(value: Any) -> str:
    return sha256(msgspec.json.encode(value)).hexdigest()


class Copied(NamedTuple):
    """The result of one call of `copy`."""

    resumed: int
    """The last commit that already existed; 0 for a copy from the beginning."""
    commits: int
    artifacts: int
    proof: Proof
    """The proof of the copy, equal to that of its source."""


def copy(
    source: Log, proof: Proof, names: set[str], target: Copy, told: Callable[[int, int], None]
) -> Copied:
    """Copy all of `source` to `target`, which is empty or holds the beginning of the same log.

    `told` is called with the number of copied commits and the total. A copy that is not proved
    equal stays marked, so that no host opens it.
    """
    begun = common(source, target)
    target.adopt(proof.database)
    if (start := copy_start(source)) is not None:
        target.begin_after(start)
    missing = sorted(names - set(target.artifacts()))
    for name in missing:
        if target.put_artifact(source.get_artifact(name)) != name:
            raise StoreCorrupt(f"the artifact {name} does not match its name")
    summaries = {h.run: (h.seq, h.summary) for h in source.runs() if not h.run.startswith("$")}
    done = begun
    for batch, entries in groups(source, begun):
        target.commit_together(list(_requests(entries, summaries)))
        done = batch.number
        told(done, proof.commits)
    found = LogScan(target, "the copy", names).prove()._replace(epoch=proof.epoch)
    if found != proof:
        raise StoreCorrupt(
            f"the copy is not equal to its source: {_difference(proof, found)}. "
            "Fix: empty the target and copy again; the source was not changed"
        )
    target.settle(proof.epoch)
    return Copied(begun, done - begun, len(missing), found)


def _difference(one: Proof, other: Proof) -> str:
    return ", ".join(
        f"{name} {mine} and {theirs}"
        for name, mine, theirs in zip(Proof._fields, one, other, strict=True)
        if mine != theirs
    )


def common(source: Log, target: Log) -> int:
    """Return how many commits already exist. Raise `Conflict` if they differ from the source's."""
    number = target.commits()
    theirs = target.batches(number - 1, 1) if number else []
    if not theirs and not target.count_runs():
        return 0
    if target.database_id != source.database_id:
        raise Conflict(
            f"the target holds another log ({number} commits), which is not touched. "
            "Fix: name an empty database or a new file"
        )
    if number > (last := source.commits()):
        raise Conflict(
            f"the target has gone on since it was copied: it has {number} commits, the source "
            f"{last}. Nothing was changed. Fix: work with the target; the source is older"
        )
    if target.archive_rows() != source.archive_rows():
        raise Conflict(
            "archives were made or changed since the target was copied, and the target holds what "
            "they hold. Nothing was changed. Fix: name an empty database or a new file"
        )
    if not number and source.archive_rows():
        return 0  # it was cut off before its first commit
    if not number or source.batches(number - 1, 1) != theirs:
        raise Conflict(
            f"the target holds the same log, but commit {number} is another there: each went on by "
            "itself. Nothing was changed. Fix: name an empty database or a new file"
        )
    return number


def _requests(
    entries: list[Entry], summaries: dict[str, tuple[int, bytes]]
) -> Iterator[AppendRequest]:
    """Yield the appends of one commit, in order; the summary with the last of its run."""
    nobody = cast("Any", None)  # no future to resolve
    for run, found in groupby(entries, key=lambda entry: entry.run):
        each = list(found)
        seq, text = summaries.get(run, (0, b""))
        summary = text if each[-1].seq == seq else None
        yield AppendRequest(nobody, nobody, run, each[0].seq - 1, each, summary, 0)
