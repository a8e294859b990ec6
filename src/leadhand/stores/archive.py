"""The archive file: runs that have ended, whole, outside of the database.

    leadhand archive 1\\n     the first line
    frames                   each compressed by zstd: the logs of some runs, one artifact, or the
                             commits
    index                    compressed JSON: what is where, how much there is, what it all ends in
    seal                     JSON: where the index is, its hash, and a signature if there is a key
    length of the seal       8 digits, and the line end that closes the file

Laws:

1. A log is kept in the exact bytes that were hashed. No hash of an entry is stored: all of them are
   computed from the bytes, so a run is right if its log ends in the hash that the database knows,
   and the commits are right if the last one has the hash from which the database goes on.
2. An archive takes the place of all commits after those of the archive before it, up to its end.
   Entries in these commits of runs that stay in the database are in it by their hashes.
3. A file is written beside its name, synced, read back and proved before it gets that name; what it
   holds is removed from the database only after that, in the commit that records it.
4. Everything in a file is covered by the hash of the file in that record, which is in the chain of
   commits like any other event.
5. An erased secret is replaced in the bytes of its entry, and the entry keeps the hash it had: only
   such entries store one, the index names them, and the record says that the file was rewritten.

`ArchiveShelf` finds the file of a run for a reader of the database.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections import OrderedDict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from leadhand.audit.chain import GENESIS, START, Batch, link, link_batch
from leadhand.codec.events import decode
from leadhand.core.host_events import (
    HOST_STREAM,
    ArchiveDeleted,
    ArchiveRewritten,
    KeptRun,
    RunsArchived,
)
from leadhand.errors import ArchiveMissing, Conflict, StoreCorrupt, UsageError
from leadhand.ports import Entry
from leadhand.stores.artifacts import ref_of
from leadhand.stores.permissions import create_private
from leadhand.stores.sqlite.connection import explain_os, make_folder, sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from leadhand.audit.anchors import Signer
    from leadhand.audit.keys import PublicKey
    from leadhand.ports import RunHeader
    from leadhand.stores.log import Log


FORMAT = 1
FIRST_LINE = b"leadhand archive 1\n"
SEAL_DIGITS = 8
PURPOSE = b"leadhand archive\n"
"""Signed with each seal: a signature for another purpose is not valid here."""
RECORD_PURPOSE = b"leadhand archive record\n"
"""Signed with each event that records an archive."""
FRAME_BYTES = 1 << 20
"""Logs are compressed together up to this size: to read one run, so much is unpacked."""
LEVEL = 9
FRAME_MAX = 1 << 32
READ_BYTES = 1 << 20
FRAMES_KEPT = 2
FILES_KEPT = 4
SUFFIX = ".archive"
PART = ".part"
NEEDED = (
    "archives are compressed by zstd, which needs the package `zstandard`. "
    "Fix: pip install 'leadhand[archive]'"
)

Row = tuple[int, int, int, bytes] | tuple[int, int, int, bytes, bytes]
"""An entry in a frame: position, time, version, body; and its hash if something was erased."""


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A compressed part of the file."""

    start: int
    length: int
    size: int
    """The size when it is unpacked."""
    digest: str
    """The SHA-256 of the compressed bytes."""


class Link(msgspec.Struct, frozen=True, array_like=True):
    """A place in the chain of commits."""

    number: int
    position: int
    hash: str

    @classmethod
    def of(cls, batch: Batch) -> Self:
        """Return the place of a commit."""
        return cls(batch.number, batch.last, batch.hash.hex())

    def batch(self) -> Batch:
        """Return the commit at this place."""
        return Batch(self.number, 0, self.position, bytes.fromhex(self.hash))


class ArchiveIndex(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive holds, and where."""

    format: int = FORMAT
    database: str
    number: int
    after: Link
    """The last commit that the archive before it covers."""
    end: Link
    """The last commit that this archive covers."""
    entries: int
    runs: dict[str, int]
    """The frame of each run, in the order of the file."""
    heads: str
    """The SHA-256 over the ends of the logs: `heads_digest`."""
    kept: tuple[KeptRun, ...]
    """The runs with entries in these commits that stay in the database."""
    artifacts: dict[str, int]
    """The frame of each artifact."""
    missing: tuple[str, ...] = ()
    """Artifacts that entries name, and that no longer existed."""
    erased: dict[str, tuple[int, ...]] = {}
    """By run, the numbers of the entries in which something was erased."""
    erased_artifacts: tuple[str, ...] = ()
    commits: int
    """The frame of the commits."""
    frames: tuple[Frame, ...]


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the file."""

    start: int
    """Where the index starts."""
    length: int
    digest: str
    """The SHA-256 of the compressed index."""
    key: str = ""
    public: str = ""
    signature: str = ""


class ArchiveProof(NamedTuple):
    """What a file was proved to hold."""

    content: ArchiveIndex
    size: int
    digest: str
    """The SHA-256 of the file."""
    signed_by: str
    """The name of the key that signed it; empty: not signed."""


class ArchiveRecord(NamedTuple):
    """What the log says of one archive."""

    made: RunsArchived
    rewritten: ArchiveRewritten | None = None
    deleted: ArchiveDeleted | None = None

    @property
    def number(self) -> int:
        """The number of the archive."""
        return self.made.archive

    @property
    def file(self) -> str:
        """The name of the file."""
        return (self.rewritten or self.made).file

    @property
    def folder(self) -> Path:
        """The folder that the file was written to."""
        return Path((self.rewritten or self.made).folder)

    @property
    def size(self) -> int:
        """The size of the file."""
        return (self.rewritten or self.made).size

    @property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        return (self.rewritten or self.made).digest

    @property
    def end(self) -> Batch:
        """The last commit that is no longer in the database."""
        made = self.made
        return Batch(made.commit, 0, made.position, bytes.fromhex(made.head))

    def with_event(self, event: object) -> ArchiveRecord:
        """Return the record after another event about the archive."""
        if isinstance(event, ArchiveRewritten):
            return self._replace(rewritten=event)
        return self._replace(deleted=event) if isinstance(event, ArchiveDeleted) else self


class ArchiveFiling(NamedTuple):
    """What a store needs to file an archive: its record, and what it holds."""

    record: RunsArchived
    entry: Entry
    """The record as the next entry of `$host`."""
    runs: Sequence[str]
    """The runs whose entries are removed."""


def heads_digest(heads: Iterable[tuple[str, int, bytes]]) -> str:
    """Return the SHA-256 over the ends of logs, which come sorted by the names of the runs."""
    digest = sha256()
    for run, seq, head in heads:
        digest.update(f"{run}\n{seq}\n{head.hex()}\n".encode())
    return digest.hexdigest()


def record_to_sign(database: str, record: msgspec.Struct) -> bytes:
    """Return the bytes that the signature of a record covers."""
    plain = msgspec.structs.replace(record, signature="")
    return RECORD_PURPOSE + database.encode() + b"\n" + msgspec.json.encode(plain)


def signed_record(database: str, record: Any, signer: Signer | None) -> Any:
    """Return the event that records an archive, signed if there is a key."""
    if signer is None:
        return record
    named = msgspec.structs.replace(record, key=signer.name)
    signature = b64encode(signer.sign(record_to_sign(database, named))).decode()
    return msgspec.structs.replace(named, signature=signature)


def archived_conflict(run: str) -> Conflict:
    """Return the error for a run that would be driven on and is in an archive."""
    return Conflict(
        f"run {run} has ended and is in an archive, so nothing can be added to it. "
        f"Fix: leadhand rerun {run} starts it anew as a run of its own"
    )


def _zstd() -> Any:
    try:
        import zstandard
    except ImportError:
        raise UsageError(NEEDED) from None
    return zstandard


# Writing.


class ArchiveWriter:
    """Writes one archive: runs, artifacts, then `finish`. The file has no name until then."""

    def __init__(self, path: Path, database: str, number: int, after: Batch) -> None:
        """Begin a file that will be at `path`."""
        self._path, self._part = path, path.with_name(path.name + PART)
        self._database, self._number, self._after = database, number, after
        self._compress = _zstd().ZstdCompressor(level=LEVEL, write_content_size=True).compress
        self._frames: list[Frame] = []
        self._runs: dict[str, int] = {}
        self._heads: list[tuple[str, int, bytes]] = []
        self._artifacts: dict[str, int] = {}
        self._erased: dict[str, tuple[int, ...]] = {}
        self._logs: list[tuple[str, list[Row]]] = []
        self._waiting = self.entries = self.size = 0
        try:
            make_folder(path.parent)
            self._part.unlink(missing_ok=True)
            create_private(self._part)
            self._file = self._part.open("wb")
        except OSError as error:
            raise explain_os(error, path.parent) from error
        try:
            self._write(FIRST_LINE)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what was written, unless it was named."""
        self._file.close()
        self._part.unlink(missing_ok=True)

    def add_run(
        self,
        run: str,
        positions: Sequence[int],
        entries: Sequence[Entry],
        erased: Iterable[int] = (),
    ) -> None:
        """Add a log; `erased` are the numbers of the entries whose bytes no longer fit their hash.

        Raise `StoreCorrupt` if it does not fit its hashes otherwise: what is wrong must not leave
        the database.
        """
        of_erased = frozenset(erased)
        rows: list[Row] = []
        prev = GENESIS
        if len(positions) != len(entries) or not entries:
            raise StoreCorrupt(f"the log of run {run} is incomplete. Fix: leadhand verify {run}")
        for seq, (position, entry) in enumerate(zip(positions, entries, strict=True), 1):
            plain = (position, entry.at, entry.version, entry.body)
            if seq in of_erased:
                rows.append((*plain, entry.hash))
            else:
                rows.append(plain)
                if link(prev, run, seq, entry.at, entry.version, entry.body) != entry.hash:
                    raise StoreCorrupt(
                        f"entry {seq} of run {run} does not match its hash, so nothing was "
                        f"archived. Fix: leadhand verify {run}"
                    )
            prev = entry.hash
            self._waiting += len(entry.body) + 20
        self._logs.append((run, rows))
        self._heads.append((run, len(entries), prev))
        self._runs[run] = -1
        if of_erased:
            self._erased[run] = tuple(sorted(of_erased))
        self.entries += len(entries)
        if self._waiting >= FRAME_BYTES:
            self._write_logs()

    def add_artifact(self, ref: str, data: bytes) -> None:
        """Add a large result."""
        if ref not in self._artifacts:
            self._artifacts[ref] = self._add_frame(data)

    def finish(
        self,
        end: Batch,
        lasts: Sequence[int],
        others: Sequence[tuple[int, bytes]],
        kept: Sequence[KeptRun],
        *,
        missing: Iterable[str] = (),
        erased_artifacts: Iterable[str] = (),
        signer: Signer | None = None,
    ) -> ArchiveProof:
        """Close the file, prove it, and give it its name. Return what it was proved to hold.

        Args:
            end: the last commit that the archive covers.
            lasts: the last position of each of its commits.
            others: position and hash of each entry in these commits that is of another run.
            kept: the runs that have these entries.
            missing: artifacts that no longer exist.
            erased_artifacts: artifacts that were erased.
            signer: the key, if there is one.
        """
        self._write_logs()
        commits = self._add_frame(msgspec.msgpack.encode((list(lasts), list(others))))
        index = ArchiveIndex(
            database=self._database,
            number=self._number,
            after=Link.of(self._after),
            end=Link.of(end),
            entries=self.entries,
            runs=self._runs,
            heads=heads_digest(sorted(self._heads)),
            kept=tuple(kept),
            artifacts=self._artifacts,
            missing=tuple(sorted(missing)),
            erased=self._erased,
            erased_artifacts=tuple(sorted(erased_artifacts)),
            commits=commits,
            frames=tuple(self._frames),
        )
        packed = self._compress(msgspec.json.encode(index))
        seal = Seal(start=self.size, length=len(packed), digest=sha256(packed).hexdigest())
        if signer is not None:
            seal = _signed(seal, signer)
        closing = msgspec.json.encode(seal)
        try:
            self._write(packed)
            self._write(closing + f"{len(closing):0{SEAL_DIGITS}d}\n".encode())
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            proof = prove(self._part)
            self._part.rename(self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            raise explain_os(error, self._path) from error
        return proof

    def _write_logs(self) -> None:
        if not self._logs:
            return
        number = self._add_frame(msgspec.msgpack.encode(self._logs))
        self._runs.update((run, number) for run, _ in self._logs)
        self._logs, self._waiting = [], 0

    def _add_frame(self, data: bytes) -> int:
        packed = self._compress(data)
        frame = Frame(self.size, len(packed), len(data), sha256(packed).hexdigest())
        self._frames.append(frame)
        self._write(packed)
        return len(self._frames) - 1

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise explain_os(error, self._path) from error
        self.size += len(data)


def _signed(seal: Seal, signer: Signer) -> Seal:
    from leadhand.audit.keys import PrivateKey

    assert isinstance(signer, PrivateKey)
    signature = b64encode(signer.sign(PURPOSE + seal.digest.encode())).decode()
    return msgspec.structs.replace(
        seal, key=signer.name, public=signer.public.text, signature=signature
    )


# Reading.


class Archive:
    """An archive file, open for reading: what is read is compared with the hashes in its index."""

    def __init__(self, path: Path) -> None:
        """Open the file at `path`. Raise `StoreCorrupt` if it is no archive, or a damaged one."""
        self.path = path
        try:
            self._file = path.open("rb")
            self.size = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise explain_os(error, path) from error
        self._unpack = _zstd().ZstdDecompressor().decompress
        self._kept: OrderedDict[int, dict[str, list[Row]]] = OrderedDict()
        try:
            self.seal, packed = self._read_seal()
            self.index = msgspec.json.decode(self._unpacked(packed), type=ArchiveIndex)
        except BaseException as error:
            self._file.close()
            if isinstance(error, msgspec.MsgspecError | ValueError):
                raise self._wrong(f"its index cannot be read ({error})") from None
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, run: str) -> tuple[list[int], list[Entry]]:
        """Return the positions and the entries of a run; empty if the archive does not hold it."""
        place = self.index.runs.get(run)
        if place is None:
            return [], []
        rows = self._logs(place).get(run)
        if rows is None:
            raise self._wrong(f"run {run} is not where its index says")
        return [row[0] for row in rows], list(_entries(run, rows))

    def erased(self, run: str) -> tuple[int, ...]:
        """Return the numbers of the entries of a run in which something was erased."""
        return self.index.erased.get(run, ())

    def get_artifact(self, ref: str) -> bytes | None:
        """Return the bytes of an artifact; None if the archive does not hold it."""
        place = self.index.artifacts.get(ref)
        if place is None:
            return None
        data = self.frame(place)
        if ref_of(data) != ref:
            raise self._wrong(f"{ref} is not what its name says")
        return data

    def commits(self) -> tuple[list[int], list[tuple[int, bytes]]]:
        """Return the last position of each commit, and the entries of other runs in them."""
        found: tuple[list[int], list[tuple[int, bytes]]] = msgspec.msgpack.decode(
            self.frame(self.index.commits), type=tuple[list[int], list[tuple[int, bytes]]]
        )
        return found

    def logs(self) -> Iterator[tuple[str, list[Row]]]:
        """Yield every run with its rows, in the order of the file."""
        for place in dict.fromkeys(self.index.runs.values()):
            yield from self._logs(place).items()

    def frame(self, place: int) -> bytes:
        """Return a part, unpacked. Raise `StoreCorrupt` if it is not as it was written."""
        try:
            frame = self.index.frames[place]
        except IndexError:
            raise self._wrong(f"it has no part {place}") from None
        packed = self._bytes(frame.start, frame.length)
        if sha256(packed).hexdigest() != frame.digest:
            raise self._wrong(f"the bytes from {frame.start} on are not what was written")
        data = self._unpacked(packed)
        if len(data) != frame.size:
            raise self._wrong(f"the bytes from {frame.start} on are not as many as were written")
        return data

    def _logs(self, place: int) -> dict[str, list[Row]]:
        known = self._kept.pop(place, None)
        if known is None:
            try:
                pairs = msgspec.msgpack.decode(
                    self.frame(place), type=list[tuple[str, list[tuple[Any, ...]]]]
                )
            except msgspec.MsgspecError as error:
                raise self._wrong(f"part {place} cannot be read ({error})") from None
            known = dict(pairs)
        self._kept[place] = known
        while len(self._kept) > FRAMES_KEPT:
            self._kept.popitem(last=False)
        return known

    def _read_seal(self) -> tuple[Seal, bytes]:
        """Return the seal and the packed index. The file must be exactly as long as they say."""
        end = self.size - SEAL_DIGITS - 1
        if end < len(FIRST_LINE) or self._bytes(0, len(FIRST_LINE)) != FIRST_LINE:
            raise self._wrong("it is no archive of Leadhand, or a truncated one")
        closing = self._bytes(end, SEAL_DIGITS + 1)
        length = int(closing[:-1]) if closing[:-1].isdigit() else 0
        if closing[-1:] != b"\n" or not 0 < length <= end:
            raise self._wrong("its end is not as it was written: it was truncated or extended")
        seal = msgspec.json.decode(self._bytes(end - length, length), type=Seal)
        if msgspec.json.encode(seal) != self._bytes(end - length, length):
            raise self._wrong("its seal is not as it was written")
        if seal.start < 0 or seal.start + seal.length != end - length:
            raise self._wrong("its parts do not reach from its beginning to its end")
        packed = self._bytes(seal.start, seal.length)
        if sha256(packed).hexdigest() != seal.digest:
            raise self._wrong("its index is not what was written")
        return seal, packed

    def _unpacked(self, packed: bytes) -> bytes:
        zstd = _zstd()
        try:
            if zstd.get_frame_parameters(packed).content_size > FRAME_MAX:
                raise self._wrong("one of its parts is larger than any part is")
            data: bytes = self._unpack(packed)
        except zstd.ZstdError as error:
            raise self._wrong(f"it cannot be unpacked ({error})") from None
        return data

    def _bytes(self, start: int, length: int) -> bytes:
        try:
            found = os.pread(self._file.fileno(), length, start)
        except (OSError, OverflowError, ValueError) as error:
            raise self._wrong(f"it cannot be read ({error})") from error
        if len(found) != length:
            raise self._wrong(f"it ends at byte {start + len(found)}, before its parts do")
        return found

    def _wrong(self, message: str) -> StoreCorrupt:
        return StoreCorrupt(f"{self.path}: {message}. Fix: put back a copy of this file")


def _entries(run: str, rows: Iterable[Any]) -> Iterator[Entry]:
    """Yield the entries of a log, with the hashes that follow from their bytes."""
    prev = GENESIS
    for seq, (_, at, version, body, *known) in enumerate(rows, 1):
        prev = known[0] if known else link(prev, run, seq, at, version, body)
        yield Entry(run, seq, at, version, body, prev)


# The proof.


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(READ_BYTES):
                digest.update(piece)
    except OSError as error:
        raise explain_os(error, path) from error
    return digest.hexdigest()


def is_archive(path: Path) -> bool:
    """Return whether a file begins as an archive does."""
    try:
        with path.open("rb") as file:
            return file.read(len(FIRST_LINE)) == FIRST_LINE
    except OSError:
        return False


def prove(
    path: Path,
    *,
    key: PublicKey | None = None,
    each_commit: Callable[[Batch], None] = lambda _batch: None,
    others: Callable[[int, bytes], None] = lambda _position, _hash: None,
) -> ArchiveProof:
    """Read a whole archive, and return what it was proved to hold.

    Every part is compared with its hash, every log and the chain of commits are computed again from
    their bytes, every artifact is compared with its name. Raise `StoreCorrupt` for the first thing
    that is wrong.

    Args:
        path: the file.
        key: the key that must have signed it.
        each_commit: called with each commit that it covers.
        others: called with each entry in these commits that is of a run outside of it.
    """
    with Archive(path) as archive:
        index = archive.index
        if index.format != FORMAT:
            raise StoreCorrupt(f"{path}: it is of format {index.format}, and {FORMAT} is known")
        signed_by = _check_seal(archive, key)
        _check_reach(archive)
        hashes = _span_hashes(archive, others)
        _check_chain(archive, hashes, each_commit)
        for ref in index.artifacts:
            archive.get_artifact(ref)
        return ArchiveProof(index, archive.size, file_digest(path), signed_by)


def _check_seal(archive: Archive, key: PublicKey | None) -> str:
    """Return the name of the key that signed an archive; empty if none did."""
    seal = archive.seal
    if not seal.signature:
        if key is not None:
            raise StoreCorrupt(f"{archive.path}: it is not signed, and should be by {key.name}")
        return ""
    from leadhand.audit.keys import PublicKey

    try:
        checker = key if key is not None else PublicKey.of(b64decode(seal.public, validate=True))
        good = checker.check(
            PURPOSE + seal.digest.encode(), b64decode(seal.signature, validate=True)
        )
    except (ValueError, UsageError) as error:
        raise StoreCorrupt(f"{archive.path}: its signature cannot be read ({error})") from None
    if not good or (seal.key, seal.public) != (checker.name, checker.text):
        raise StoreCorrupt(f"{archive.path}: it is not signed by {checker.name}")
    return checker.name


def _check_reach(archive: Archive) -> None:
    """Check that the parts lie behind each other, from the first line to the index."""
    at = len(FIRST_LINE)
    for frame in archive.index.frames:
        if frame.start != at or frame.length < 0:
            raise StoreCorrupt(f"{archive.path}: something lies between its parts, at byte {at}")
        at += frame.length
    if at != archive.seal.start:
        raise StoreCorrupt(f"{archive.path}: something lies between its parts, at byte {at}")


class _Span:
    """The hashes of the entries of some commits, by position."""

    def __init__(self, path: Path, first: int, last: int) -> None:
        self._path, self.first, self.last = path, first, last
        self._hashes = bytearray(32 * max(0, last - first + 1))
        self._known = bytearray(max(0, last - first + 1))

    def put(self, position: int, digest: bytes) -> None:
        """Note the hash of one entry. Raise `StoreCorrupt` if its place is taken."""
        place = position - self.first
        if self._known[place] or len(digest) != 32:
            raise StoreCorrupt(f"{self._path}: two entries have position {position}")
        self._known[place] = 1
        self._hashes[32 * place : 32 * place + 32] = digest

    def hashes(self, first: int, last: int) -> list[bytes]:
        """Return the hashes from one position to another."""
        begin, end = first - self.first, last - self.first + 1
        if not 0 <= begin < end <= len(self._known) or not all(self._known[begin:end]):
            raise StoreCorrupt(f"{self._path}: an entry from {first} to {last} is missing")
        return [bytes(self._hashes[32 * at : 32 * at + 32]) for at in range(begin, end)]


def _span_hashes(archive: Archive, others: Callable[[int, bytes], None]) -> _Span:
    """Return the hashes of all entries in the commits of an archive, computed from its logs."""
    index, path = archive.index, archive.path
    first, last = index.after.position + 1, index.end.position
    _, strange = archive.commits()
    own = index.entries
    if not 0 <= last - first + 1 <= own + len(strange):
        raise StoreCorrupt(f"{path}: it says that it ends at entry {last}, which it cannot")
    span = _Span(path, first, last)
    heads = []
    for run, rows in archive.logs():
        seq, digest, before = 0, GENESIS, 0
        erased = {at for at, row in enumerate(rows, 1) if len(row) > 4}
        if erased != set(index.erased.get(run, ())):
            raise StoreCorrupt(f"{path}: entries of run {run} are not as they were written")
        for (position, *_), entry in zip(rows, _entries(run, rows), strict=True):
            seq, digest = entry.seq, entry.hash
            if not before < position <= last:
                raise StoreCorrupt(f"{path}: entry {seq} of run {run} has no place in its commits")
            if position >= first:
                span.put(position, digest)
            before = position
        heads.append((run, seq, digest))
        own -= seq
    if own or heads_digest(sorted(heads)) != index.heads or len(heads) != len(index.runs):
        raise StoreCorrupt(f"{path}: its runs do not end as its index says")
    for position, digest in strange:
        if not first <= position <= last:
            raise StoreCorrupt(f"{path}: entry {position} has no place in its commits")
        span.put(position, digest)
        others(position, digest)
    if len(strange) != sum(each.seq - each.before for each in index.kept):
        raise StoreCorrupt(f"{path}: entries of its commits belong to no run")
    return span


def _check_chain(archive: Archive, span: _Span, each_commit: Callable[[Batch], None]) -> None:
    """Compute the chain of commits again, from the commit before the archive to its end."""
    index = archive.index
    last = index.after.batch()
    for end in archive.commits()[0]:
        first = last.last + 1
        digest = link_batch(last.hash, first, end, span.hashes(first, end))
        last = Batch(last.number + 1, first, end, digest)
        each_commit(last)
    if Link.of(last) != index.end:
        raise StoreCorrupt(
            f"{archive.path}: its entries and commits do not lead to the hash that commit "
            f"{index.end.number} has. Fix: put back a copy of this file"
        )


class CommitLink(NamedTuple):
    """One link of the chain of commits, with the hashes that it covers."""

    prev: bytes
    batch: Batch
    hashes: list[bytes]


def commit_links(log: Log, first: int, last: int) -> Iterator[CommitLink]:
    """Yield the commits that hold some positions, out of archives and the database.

    Raise `ArchiveMissing` if one of these archives is not there.
    """
    begin = START
    for record in log.archives():
        if record.end.last >= first and begin.last < last:
            archive = log.shelf.opened(record, f"commit {begin.number + 1}")
            span = _span_hashes(archive, lambda _position, _hash: None)
            prev = archive.index.after.batch()
            for end in archive.commits()[0]:
                hashes = span.hashes(prev.last + 1, end)
                digest = link_batch(prev.hash, prev.last + 1, end, hashes)
                batch = Batch(prev.number + 1, prev.last + 1, end, digest)
                if batch.last >= first and batch.first <= last:
                    yield CommitLink(prev.hash, batch, hashes)
                prev = batch
        begin = max(begin, record.end)
    before = begin.hash
    for batch in log.batches_from(max(first, begin.last + 1), last) if last > begin.last else ():
        if batch.last >= first and batch.first <= last:
            yield CommitLink(before, batch, log.hashes(batch.first, batch.last))
        before = batch.hash


# Where the files are.


def archive_folder(home: Path) -> Path:
    """Return the folder of archives beside a database."""
    return Path(f"{home}.archives")


class ArchiveShelf:
    """The archives of one database, as a reader of it finds them. Files stay open between reads."""

    def __init__(self, home: Path, records: Callable[[], list[ArchiveRecord]]) -> None:
        """Look for files beside the database at `home`, and where they were written to.

        In this order: a copy of a database must not touch the files of the one it is a copy of.
        """
        self._home, self._records = home, records
        self._open: OrderedDict[Path, Archive] = OrderedDict()

    def place(self, record: ArchiveRecord) -> Path | None:
        """Return where the file of an archive is; None if it is nowhere."""
        beside = archive_folder(self._home)
        for folder in dict.fromkeys((beside, record.folder)):
            path = folder / record.file
            if path.is_file():
                return path
        return None

    def opened(self, record: ArchiveRecord, wanted: str) -> Archive:
        """Return the archive, open.

        Raise `ArchiveMissing` if its file is not there; `wanted` says for what it is needed.
        """
        if record.deleted is not None:
            raise ArchiveMissing(
                f"{wanted} was in archive {record.number}, which {record.deleted.actor} deleted "
                f"({record.deleted.reason}). Only its row in the lists is left"
            )
        path = self.place(record)
        if path is None:
            raise ArchiveMissing(
                f"{wanted} is in archive {record.number}, whose file is missing: "
                f"{record.folder / record.file}. Fix: put it there, or into "
                f"{archive_folder(self._home)}"
            )
        known = self._open.pop(path, None) or Archive(path)
        self._open[path] = known
        while len(self._open) > FILES_KEPT:
            self._open.popitem(last=False)[1].close()
        if known.index.number != record.number or known.index.end != Link.of(record.end):
            raise StoreCorrupt(
                f"{path}: is another archive than number {record.number} of this database. "
                "Fix: put back a copy of this file"
            )
        return known

    def artifact(self, ref: str) -> bytes | None:
        """Return an artifact out of the archives that are there; None if none of them holds it."""
        for record in reversed(self._records()):
            if record.deleted is None and self.place(record) is not None:
                data = self.opened(record, ref).get_artifact(ref)
                if data is not None:
                    return data
        return None

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._open.popitem()[1].close()


class ArchivedLogs:
    """The half of a reader that knows of archives: a run that is in one is read from its file."""

    _archive_shelf: ArchiveShelf | None = None
    _archives_known: tuple[list[Any], list[ArchiveRecord]] | None = None
    """The table of archives as it was last read, and what it says."""

    if TYPE_CHECKING:

        @property
        def path(self) -> Path:
            """The path after which local files beside the log are named."""

        def page(self, after: int, limit: int = ...) -> list[tuple[int, Entry]]:
            """Return entries of all runs with a position above `after`, in commit order."""

        def _rows(self, name: str, values: tuple[Any, ...] = ()) -> list[Any]:
            """Return the rows of a query."""

    @property
    def shelf(self) -> ArchiveShelf:
        """The files of the archives."""
        if self._archive_shelf is None:
            self._archive_shelf = ArchiveShelf(self.path, self.archives)
        return self._archive_shelf

    def archives(self) -> list[ArchiveRecord]:
        """Return what the log says of each archive, in order."""
        rows = self._rows("archives")
        if self._archives_known is not None and rows == self._archives_known[0]:
            return self._archives_known[1]
        found = []
        for number, *positions in rows:
            events = [self._event_at(each) for each in positions if each]
            made = events[0] if events else None
            if not isinstance(made, RunsArchived):
                raise self._no_record(number)
            record = ArchiveRecord(made)
            for event in events[1:]:
                record = record.with_event(event)
            if [number] * len(events) != [getattr(each, "archive", 0) for each in events] or [
                each is not None for each in (record.made, record.rewritten, record.deleted)
            ] != [bool(each) for each in positions]:
                raise self._no_record(number)
            found.append(record)
        self._archives_known = rows, found
        return found

    def _no_record(self, number: int) -> StoreCorrupt:
        return StoreCorrupt(
            f"{self.path}: the log has no record of archive {number} where it should be. Fix: "
            "leadhand verify --all lists everything that is wrong; put back a copy"
        )

    def archive_rows(self) -> list[tuple[int, int, int, int, int]]:
        """Return the table of archives, for a copy."""
        return [tuple(map(int, row)) for row in self._rows("archive_rows")]  # type: ignore[misc]

    def archive_of(self, run: str) -> ArchiveRecord | None:
        """Return the archive that holds a run; None if the run is in the database, or not known."""
        number = self.archive_number(run)
        if not number:
            return None
        for record in self.archives():
            if record.number == number:
                return record
        raise StoreCorrupt(
            f"{self.path}: the log has no record of the archive that holds run {run}. "
            "Fix: put back a copy"
        )

    def archive_number(self, run: str) -> int:
        """Return the number of the archive that holds a run; 0 if none does."""
        rows = self._rows("archive_of", (run,))
        return int(rows[0][0]) if rows else 0

    def archived_heads(self, number: int) -> list[tuple[str, int, bytes]]:
        """Return where the logs of the runs in an archive end, sorted by the names of the runs."""
        rows = self._rows("archived_heads", (number,))
        return [(str(run), seq, bytes(digest)) for run, seq, digest in rows]

    def archived_until(self) -> Batch:
        """Return the last commit that is no longer in the database; `START` if all are."""
        return max((record.end for record in self.archives()), default=START)

    def erased(self, run: str) -> tuple[int, ...]:
        """Return the numbers of the entries of a run in which a secret was erased."""
        record = self.archive_of(run)
        if record is None or record.rewritten is None:
            return ()
        return self.shelf.opened(record, f"run {run}").erased(run)

    def _read_archived(self, run: str) -> tuple[list[int], list[Entry]]:
        """Return positions and entries of a run that is in an archive; empty if it is in none."""
        record = self.archive_of(run)
        if record is None:
            return [], []
        return self.shelf.opened(record, f"the log of run {run}").read(run)

    def _event_at(self, position: int) -> Any:
        found = [entry for place, entry in self.page(position - 1, 1) if place == position]
        if not found or found[0].run != HOST_STREAM:
            return None
        return decode(found[0].version, found[0].body)

    def _close_archives(self) -> None:
        if self._archive_shelf is not None:
            self._archive_shelf.close()


class CopyStart(NamedTuple):
    """What a copy of a log begins with if archives cover the first commits of the log."""

    end: Batch
    """The last commit that is no longer in the database."""
    archives: list[tuple[int, int, int, int, int]]
    """The table of archives."""
    archived: list[tuple[str, int]]
    """The runs in them."""
    runs: list[tuple[int, RunHeader]]
    """The runs that began in these commits, with their numbers, as they stood at the end."""
    entries: list[tuple[int, Entry]]
    """The entries of these commits that are still in the database."""


def copy_start(log: Log) -> CopyStart | None:
    """Return what a copy of a log begins with; None if all of its commits are there."""
    end = log.archived_until()
    if not end.number:
        return None
    entries: list[tuple[int, Entry]] = []
    place = 0
    while page := log.page(place):
        entries += [each for each in page if each[0] <= end.last]
        place = page[-1][0]
        if place > end.last:
            break
    last = {entry.run: entry for _, entry in entries}
    archived = [
        (run, record.number)
        for record in log.archives()
        for run, _, _ in log.archived_heads(record.number)
    ]
    gone = {run for run, _ in archived}
    runs: list[tuple[int, RunHeader]] = []
    number = 0
    while rows := log.numbered_runs(number, 1000):
        for number, header in rows:
            entry = last.get(header.run)
            if header.run in gone:
                runs.append((number, header))
            elif entry is not None:
                told = header.summary if entry.seq == header.seq else b""
                stood = header._replace(
                    updated=entry.at, seq=entry.seq, hash=entry.hash, summary=told
                )
                runs.append((number, stood))
    return CopyStart(end, log.archive_rows(), archived, runs, entries)


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """Which file is about to be written, in a file beside the database: after a crash it is known
    what to remove."""

    new: str
    old: str = ""
    """The file that it takes the place of."""


def intent_file(home: Path) -> Path:
    """Return the file that says which archive is being written."""
    return Path(f"{home}.archiving")


def read_intent(home: Path) -> Intent | None:
    """Return which archive was being written when an earlier process ended; None if none was."""
    try:
        return msgspec.json.decode(intent_file(home).read_bytes(), type=Intent)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError):
        return None
