"""The hash chains that reveal a changed log.

Two chains run through a database.

The *run chain* has a link for each entry, over the stored bytes (verify first, decode later; a
re-encoding is never hashed):

    sha256( previous hash          32 bytes, zeros before the first entry
          | length of the run's name, 4 bytes | seq, 8 | at, 8, signed | version, 4
          | the run's name, UTF-8
          | body )

All numbers are big-endian. The only part without a length before it is the body, and it comes last,
so two different entries cannot give the same input.

The *batch chain* has a link for each commit, over the hashes of the entries committed:

    sha256( previous hash, 32 | first position, 8 | last position, 8 | entry hashes, 32 each )

A run chain alone cannot show that its tail, or a whole run, is gone; the batch chain shows both,
and anchors outside the database record its head.

Everything here is pure.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is an exception class
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadhand.ports import Entry, RunHeader

GENESIS = bytes(32)
"""The hash before the first link of either chain."""

_pack_entry = Struct(">32sIQqI").pack
_pack_batch = Struct(">32sQQ").pack


class ChainProblem(NamedTuple):
    """One problem of a log."""

    run: str
    """Empty for a problem of the batch chain."""
    seq: int
    """The seq of the entry, or the number of the batch."""
    rule: str
    """gap, order, hash, run, head, batch."""
    message: str

    def __str__(self) -> str:
        return f"{self.run or 'batch'} {self.seq}: {self.message}"


class Batch(NamedTuple):
    """One commit: its positions and its link in the batch chain."""

    number: int
    first: int
    last: int
    hash: bytes


START = Batch(0, 0, 0, GENESIS)
"""The place before the first commit."""


def link(prev: bytes, run: str, seq: int, at: int, version: int, body: bytes) -> bytes:
    """Return the hash of an entry that follows the one with hash `prev`."""
    name = run.encode()
    return sha256(_pack_entry(prev, len(name), seq, at, version) + name + body).digest()


def link_batch(
    prev: bytes, first_position: int, last_position: int, entry_hashes: Sequence[bytes]
) -> bytes:
    """Return the hash of a commit that follows the one with hash `prev`."""
    digest = sha256(_pack_batch(prev, first_position, last_position))
    # In small pieces: from 2,048 bytes on hashlib releases the GIL, and in a process with a busy
    # event loop getting it back takes far longer than the hashing.
    for start in range(0, len(entry_hashes), 60):
        digest.update(b"".join(entry_hashes[start : start + 60]))
    return digest.digest()


def verify(entries: Iterable[Entry], start: bytes = GENESIS, after: int = 0) -> list[ChainProblem]:
    """Return the problems of the entries of one run that follow seq `after` with hash `start`.

    Continues after a problem from the stored hash, so that each is reported once.
    """
    problems: list[ChainProblem] = []
    prev, last, of = start, after, None
    for run, seq, at, version, body, digest in entries:
        of = run if of is None else of
        if run != of:
            problems.append(ChainProblem(of, seq, "run", f"an entry of {run} stands in this log"))
            continue
        if type(seq) is not int:
            problems.append(ChainProblem(run, last + 1, "order", "its number is not a number"))
            continue
        if seq > last + 1:
            missing = f"{last + 1}" if seq == last + 2 else f"{last + 1} to {seq - 1}"
            problems.append(ChainProblem(run, seq, "gap", f"missing before it: {missing}"))
        elif seq <= last:
            problems.append(ChainProblem(run, seq, "order", f"comes after {last}"))
        else:
            try:
                good = link(prev, run, seq, at, version, body) == digest
            except (TypeError, ValueError, AttributeError, StructError):
                good = False  # a value of another type than was written
            if not good:
                problems.append(ChainProblem(run, seq, "hash", "does not match its hash"))
        prev, last = digest, seq
    return problems


def verify_head(entries: Sequence[Entry], header: RunHeader) -> list[ChainProblem]:
    """Check that a run's last entry is the one in its header: a cut end shows."""
    seq, digest = (entries[-1].seq, entries[-1].hash) if entries else (0, GENESIS)
    if (seq, digest) == (header.seq, header.hash):
        return []
    return [
        ChainProblem(header.run, seq, "head", f"the log ends here, but {header.seq} was committed")
    ]


def verify_batches(
    batches: Iterable[Batch], hashes: Iterable[tuple[int, bytes]], after: Batch = START
) -> list[ChainProblem]:
    """Return the problems of the batch chain over (position, entry hash) pairs.

    Both come in order and are read once, so that a chain of any length needs little memory.

    Args:
        batches: the commits that follow `after`.
        hashes: the entries that follow the last one of `after`.
        after: the commit where the check begins; by default before the first one.
    """
    problems: list[ChainProblem] = []
    prev, number, position = after.hash, after.number, after.last
    stored = _Positions(hashes)
    for batch in batches:
        if batch.number != number + 1 or batch.first != position + 1:
            problems.append(ChainProblem("", batch.number, "gap", "missing before it: a commit"))
        found = stored.between(batch.first, batch.last)
        size = max(0, batch.last - batch.first + 1)
        if len(found) != size:
            message = f"{size - len(found)} of its {size} entries are missing"
            problems.append(ChainProblem("", batch.number, "batch", message))
        elif link_batch(prev, batch.first, batch.last, found) != batch.hash:
            problems.append(ChainProblem("", batch.number, "hash", "does not match its hash"))
        prev, number, position = batch.hash, batch.number, batch.last
    if strangers := stored.strangers():
        message = f"{strangers} entries belong to no commit"
        problems.append(ChainProblem("", number, "batch", message))
    return problems


class _Positions:
    """Entries by position, in order, each taken once. The numbers that are asked for may be forged:
    nothing counts up to one."""

    def __init__(self, hashes: Iterable[tuple[int, bytes]]) -> None:
        self._rest = iter(hashes)
        self._next = next(self._rest, None)
        self._strangers = 0

    def between(self, first: int, last: int) -> list[bytes]:
        """Return the hashes from one position to another; entries before them are strangers."""
        found: list[bytes] = []
        while self._next is not None and self._next[0] <= last:
            if self._next[0] >= first:
                found.append(self._next[1])
            else:
                self._strangers += 1
            self._next = next(self._rest, None)
        return found

    def strangers(self) -> int:
        """Return how many entries were taken by no commit, the rest included."""
        rest = 0 if self._next is None else 1 + sum(1 for _ in self._rest)
        return self._strangers + rest
