"""Writing anchors: at the end of each run, when it waits, at intervals, and at the close.

No run depends on it: an anchor that cannot be written is reported, and tried again at the next
occasion. Lines are appended and synced in a thread; ends of runs in quick succession share one.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from leadhand.audit.anchors import Anchor, Anchoring, file_of, line_of, lines_in, read_line
from leadhand.audit.chain import link_batch
from leadhand.errors import Conflict, NotAllowed, StoreCorrupt, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.audit.anchors import Signer
    from leadhand.audit.chain import Batch
    from leadhand.audit.keys import PublicKey
    from leadhand.stores.log import KeptStore


ANCHORED = ("ended", "waiting")
"""Notices after which the head of the log is anchored."""
GAP_S = 1.0
"""Ends of runs within this time share an anchor."""
TAIL_BYTES = 1 << 16


class Anchorer:
    """Anchors one database while it is hosted."""

    def __init__(
        self, store: KeptStore, anchoring: Anchoring, trouble: Callable[[str], None]
    ) -> None:
        self._store = store
        self._database = store.database_id
        self._file = file_of(store.path, anchoring)
        self._every_s = anchoring.every_s
        self._signer = signer_of(anchoring)
        self._trouble = trouble
        self._last_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._said = ""
        self._known = 0
        """The number of the last commit known to be anchored."""

    def refuse_cut(self) -> None:
        """Raise `Conflict` if the log ends before its anchor: an older copy would repeat work."""
        known = last_anchor(self._file)
        here = self._store.commits()
        if known is not None and known.database == self._database and known.number > here:
            raise Conflict(
                f"{self._store.path}: the log ends at commit {here}, and {self._file} says that "
                f"there were {known.number}: this is an older copy, and going on from it would do "
                "again what was done since. Fix: put the newer file back; or, if that is what you "
                "want, move the anchor file away first"
            )

    def refuse_altered(self, run: str) -> None:
        """Raise `StoreCorrupt` unless the commits of a run fit their hashes and the anchors.

        All commits from the run's first entry to the first anchor after its last one are computed
        again: a changed entry changes an anchored hash.
        """
        places = self._store.places(run)
        if not places:
            return
        anchors = [each for each in all_anchors(self._file) if each.database == self._database]
        upto = min((a.position for a in anchors if a.position >= places[-1]), default=places[-1])
        begin = self._store.archived_until()
        first = max(places[0], begin.last + 1)  # what is before is in archives
        before, batches = _span(self._store.batches_from(first, upto), first)
        stored = [
            (place, digest)
            for batch in batches
            for place, digest in enumerate(self._store.hashes(batch.first, batch.last), batch.first)
        ]
        problems = verify_span(before or begin, batches, stored)
        problems += self._kept(run)
        known = {batch.number: batch for batch in batches}
        for anchor in anchors:
            batch = known.get(anchor.number)
            if batch is not None and batch.hash.hex() != anchor.hash:
                problems.append(f"commit {anchor.number} is not what {self._file} says")
        if problems:
            raise StoreCorrupt(
                f"{self._store.path}: run {run} was approved by people, and its log is not what "
                f"was written: {problems[0]}. Nothing was started. Fix: put back a copy that "
                "`leadhand verify --all` accepts, and approve what is left anew"
            )

    def _kept(self, run: str) -> list[str]:
        """Return the problems of a run whose first entries are in commits that archives cover."""
        kept = [
            each for made in self._store.archives() for each in made.made.kept if each.run == run
        ]
        hashes = {entry.seq: entry.hash.hex() for entry in self._store.read(run)} if kept else {}
        return [
            f"entry {each.seq} is not what it was when archives were made"
            for each in kept
            if hashes.get(each.seq) != each.hash
        ]

    def latest(self) -> int:
        """Return the time of the last anchor, in UTC microseconds; 0 if there is none."""
        known = last_anchor(self._file)
        return known.at if known is not None and known.database == self._database else 0

    def open(self) -> None:
        """Start to anchor at intervals."""
        self._set(self._every_s)

    def soon(self) -> None:
        """Anchor soon: something important became durable."""
        self._set(max(0.0, self._last_s + GAP_S - time.monotonic()))

    def _set(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay_s, self._rung)

    def _rung(self) -> None:
        self._timer = None
        self._last_s = time.monotonic()
        self._set(self._every_s)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write(self._store.head))

    async def _write(self, head: Batch) -> None:
        if head.number <= self._known:
            return
        try:
            await asyncio.to_thread(append, self._file, head, self._database, self._signer)
            self._known = head.number
        except OSError as error:
            said = f"{self._file}: the anchor could not be written: {error.strerror}"
            if said != self._said:
                self._said = said
                self._trouble(said)

    async def close(self) -> None:
        """Write the last anchor, once the store is closed and its head can no longer move."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await self._task
        await self._write(self._store.head)


def _span(batches: list[Batch], first: int) -> tuple[Batch | None, list[Batch]]:
    """Return the commit before the one that holds position `first`, and the commits from there."""
    earlier = [batch for batch in batches if batch.last < first]
    return (earlier[-1] if earlier else None), [b for b in batches if b.last >= first]


def verify_span(before: Batch, batches: list[Batch], stored: list[tuple[int, bytes]]) -> list[str]:
    """Return the problems of consecutive commits, in words."""
    prev, hashes, last = before.hash, dict(stored), before.last
    found: list[str] = []
    for batch in batches:
        own = [hashes[p] for p in range(batch.first, batch.last + 1) if p in hashes]
        whole = len(own) == batch.last - batch.first + 1 and batch.first == last + 1
        if not whole or link_batch(prev, batch.first, batch.last, own) != batch.hash:
            found.append(f"commit {batch.number} does not match its hash")
        prev, last = batch.hash, batch.last
    return found


def all_anchors(file: Path) -> list[Anchor]:
    """Return the readable lines of an anchor file."""
    try:
        lines = lines_in(file.read_bytes())
    except OSError:
        return []
    return [anchor for line in lines if (anchor := read_line(line)) is not None]


def last_anchor(file: Path) -> Anchor | None:
    """Return the last line of an anchor file, if it is readable."""
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - TAIL_BYTES))
            lines = lines_in(opened.read())
    except OSError:
        return None
    return read_line(lines[-1]) if lines else None


def append(file: Path, head: Batch, database: str, signer: Signer | None) -> bool:
    """Append a head to an anchor file; return False if its last line already has it."""
    descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as opened:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # several engines may share the file
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - TAIL_BYTES))
        tail = opened.read()
        lines = lines_in(tail)
        last = lines[-1] if lines else b""
        known = read_line(last)
        if not head.number or (known is not None and known.number >= head.number):
            return False
        torn = len(tail) - tail.rfind(b"\n") - 1
        if torn:  # a line torn by a power cut was never an anchor
            with suppress(OSError):
                opened.truncate(size - torn)
        at = time.time_ns() // 1000
        os.write(descriptor, line_of(head, database, at, last, signer) + b"\n")
        os.fsync(descriptor)
    return True


def signer_of(anchoring: Anchoring) -> Signer | None:
    """Return the configured signing key, or None. Raise `NotAllowed` if others may read it."""
    if anchoring.key is None:
        return None
    from leadhand.audit.keys import PrivateKey

    try:
        if anchoring.key.stat().st_mode & 0o077:
            raise NotAllowed(
                f"{anchoring.key}: other accounts can read this key. Fix: chmod 600 {anchoring.key}"
            )
        return PrivateKey.of(anchoring.key.read_bytes(), str(anchoring.key))
    except OSError as error:
        raise UsageError(
            f"{anchoring.key}: the key that signs anchors cannot be read ({error.strerror}). "
            "Fix: leadhand audit-key makes one; [audit] key names it"
        ) from None


def public_key(anchoring: Anchoring, given: str | Path | None = None) -> PublicKey | None:
    """Return the public key in the file `given`, else the one beside the configured key.

    None if there is neither. Raise `UsageError` for a file that cannot be read or is no key.
    """
    beside = None if anchoring.key is None else Path(f"{anchoring.key}.pub")
    file = Path(given) if given else beside if beside is not None and beside.exists() else None
    if file is None:
        return None
    from leadhand.audit.keys import PublicKey

    try:
        return PublicKey.of(file.read_bytes(), str(file))
    except OSError as error:
        raise UsageError(
            f"{file}: the public key cannot be read: {error.strerror}. Fix: name the .pub file of "
            "the key that signed the log"
        ) from None
