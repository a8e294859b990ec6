"""The store on SQLite: one file, one writer, group commit.

Why one writer.  All appends of all runs go through one connection, used by one thread at a time,
which also makes the checkpoints. Commits are ordered by construction, so `position` has no gaps
that a follower could skip; no transaction waits for another; and SQLite's WAL-reset bug (two
connections writing or checkpointing at once, 3.7.0 to 3.51.2) cannot occur. Only when one host
takes over from another could there be two such connections, and a lock prevents that while both are
alive (`lock.py`).

Why group commit.  A durable commit costs an fsync, some 0.2 ms on a good disk and 5 on a bad one,
whether it holds one entry or a thousand. The writer takes everything that has gathered while it was
busy and commits it together. No append waits longer for it: an append that comes alone is committed
alone.

Why FULL.  With `synchronous=NORMAL` a commit in WAL mode is not synced. It survives the death of
the process, so no test with kill -9 sees the difference, but not the loss of power: in
`tests/stores/test_power_cut.py` NORMAL loses acknowledged entries, FULL none. NORMAL can be asked
for by tests and benchmarks only.

Why one statement.  The sqlite3 module releases Python's interpreter lock for each step of each
statement, and with a busy event loop each time may cost 5 ms (`writer.sql`, and
`docs/decisions/0002-group-commit-in-one-statement.md` with figures). So a group is one INSERT into
a view whose trigger does all the work.

What is checked where.
  in append, by the caller     the entries are of that run and follow `expected`
  in the writer, from memory   `expected` is where the run's log ends (else Conflict)
  in the transaction           the owner's epoch is ours (else Fenced): as long as it is,
                               nobody else wrote, and what the writer remembers is right
  by the file's constraints    (run, seq) and position are unique; events are never changed
  with debug=True              each entry's hash follows from the one before
Hashes are otherwise the caller's word here; `audit/chain.py` verifies them on reading.

Why not always the queue.  A chain of steps has one append in flight, and a round trip to another
thread takes as long again as the commit. A caller that has nothing else to do (`alone=True`) has it
committed in its own thread, unless something is queued, the writer is at work, or another program
holds the file's lock.

Back-pressure.  The queue is bounded in bytes, but only by consent: `room()` tells whether new work
should start. `append` accepts everything, since a report that cannot be stored is work done twice.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadhand.errors import LeadhandError, StoreError
from leadhand.stores import sql
from leadhand.stores.archive import archived_conflict
from leadhand.stores.copy import refuse_half
from leadhand.stores.group_commit import AppendRequest, CommitDurations, misfit
from leadhand.stores.sqlite import connection as connect
from leadhand.stores.sqlite.reader import SqliteReader
from leadhand.stores.sqlite.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from leadhand.audit.chain import Batch
    from leadhand.ports import Entry
    from leadhand.stores.archive import ArchiveFiling, CopyStart


QUEUE_BYTES_MAX = 64 * 1024 * 1024
BUSY_S = 30.0


class SqliteStore(SqliteReader):
    """A store in a file, open for writing. Call `claim` before the first append.

    Methods are for one thread, the event loop's; artifacts may be put from any.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        synchronous: str = "FULL",
        busy_s: float = BUSY_S,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        debug: bool = False,
        copying: bool = False,
    ) -> None:
        path = Path(path).resolve()
        connection = connect.open_writer(path, synchronous=synchronous, busy_s=busy_s)
        try:
            with connect.explained(path):
                sql.migrate(connection, sql.migrations(), path)
            super().__init__(path)
        except BaseException:
            connection.close()
            raise
        try:
            refuse_half(self, path, copying=copying)
        except BaseException:
            self.close_reader()
            connection.close()
            raise
        self._queue_bytes_max = queue_bytes_max
        self._queued_bytes = 0
        self._writer = Writer(connection, path, busy_s=busy_s, debug=debug)
        self._writer.delivered = self._wake

    @staticmethod
    def open_reader(path: Path | str) -> SqliteReader:
        """Return the file for reading only, whether it has a host or not."""
        return SqliteReader(path)

    def claim(self) -> int:
        """Become the owner. Return the new epoch, which every later append is checked against."""
        return self._writer.claim().result()

    def append(
        self,
        run: str,
        expected: int,
        entries: Sequence[Entry],
        summary: bytes | None = None,
        *,
        alone: bool = False,
    ) -> asyncio.Future[None]:
        """Append entries to a run's log; the future resolves once they are durable.

        `alone`: the caller has nothing else to do until then, so it may be done at once.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if (refusal := self._refusal(run, expected, entries)) is not None:
            future.set_exception(refusal)
            return future
        size = sum([len(entry.body) for entry in entries]) + 200 * len(entries)
        # An empty queue is not enough: the writer may hold an append it has not committed yet.
        first = self._queued_bytes == self._writer.settled_bytes
        self._queued_bytes += size
        request = AppendRequest(loop, future, run, expected, entries, summary, size)
        if not (alone and first and self._writer.write_now(request)):
            self._writer.put(request)
        return future

    @property
    def head(self) -> Batch:
        """The last commit; also known once the store is closed."""
        return self._writer.head

    @property
    def took(self) -> CommitDurations:
        """The histogram of commit times."""
        return self._writer.took

    def room(self) -> bool:
        """Return whether new work should start: less is queued than the limit."""
        return self._queued_bytes - self._writer.settled_bytes < self._queue_bytes_max

    def put_artifact(self, data: bytes) -> str:
        """Store bytes durably; return their name, `sha256:…`."""
        return self._artifacts.put(data)

    def adopt(self, name: str) -> None:
        """Begin a copy: take the other log's id. No host may open this log until it is complete."""
        self._note([("adopt", (name,)), ("set_meta", (name, "database"))])
        self.claim()

    def begin_after(self, start: CopyStart) -> None:
        """Begin with what is left of the commits that archives cover."""
        self._writer.ask(lambda _connection: self._writer.begin_after(start)).result()

    def commit_together(self, requests: list[AppendRequest]) -> None:
        """Commit exactly these appends as one commit, for a copy."""
        self._writer.commit_together(requests)

    def settle(self, epoch: int) -> None:
        """End a copy: complete, with as many owners as the other log has had."""
        self._note([("set_meta", (epoch, "epoch")), ("settle", ())])

    def _read_archived(self, run: str) -> tuple[list[int], list[Entry]]:
        """Raise `Conflict` for an archived run: nothing must be added to it."""
        if self.archive_number(run):
            raise archived_conflict(run)
        return [], []

    def file_away(self, filing: ArchiveFiling) -> None:
        """Record an archive and remove what it holds, in one commit."""
        self._writer.ask(lambda _connection: self._writer.file_away(filing)).result()

    def note_archive(self, number: int, entry: Entry, what: str) -> None:
        """Record that an archive was rewritten or deleted: `what` is the column that says it."""
        self._writer.ask(
            lambda _connection: self._writer.note_archive(number, entry, what)
        ).result()

    def remove_artifacts(self, refs: Sequence[str]) -> None:
        """Remove artifacts that archives hold."""
        for ref in refs:
            self._artifacts.remove(ref)

    def give_back(self) -> int:
        """Give the space of removed entries back to the disk; return how many bytes."""
        return int(self._writer.ask(lambda _connection: self._writer.give_back()).result())

    def rebuild_lists(self) -> None:
        """Write what lists and totals need anew, from the summaries."""
        names = ("forget_lists", "rebuild_lists", "forget_totals", "rebuild_totals")
        self._note([(name, ()) for name in names])

    def _note(self, facts: list[tuple[str, tuple[Any, ...]]]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            with connect.explained(self.path):
                connection.execute("BEGIN IMMEDIATE")
                for name, values in facts:
                    connection.execute(self._sql[name], values)
                connection.execute("COMMIT")

        self._writer.ask(write).result()

    @property
    def refusal(self) -> LeadhandError | None:
        """Why appends are refused, if they are."""
        return self._writer.refusal

    def close_now(self) -> None:
        """Close the store without an event loop."""
        if not self._closed:
            self.close_reader()
            self._writer.stop().result()

    async def close(self) -> None:
        """Finish all queued appends and close the store."""
        if not self._closed:
            self.close_reader()  # first: the last connection to close moves the log into the file
            await asyncio.wrap_future(self._writer.stop())

    def _refusal(self, run: str, expected: int, entries: Sequence[Entry]) -> LeadhandError | None:
        if self._closed:
            return StoreError(f"{self.path}: closed")
        if (refusal := self._writer.refusal) is not None:
            return type(refusal)(*refusal.args)
        return misfit(run, expected, entries)
