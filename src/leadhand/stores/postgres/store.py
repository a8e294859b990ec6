"""The store on PostgreSQL: one log that a team shares, with the same promises as the file.

What is the same.  The port, the two hash chains, group commit by one writer thread, the owner's
epoch that every append is checked against. `tests/contracts/test_store.py` holds all stores to the
same contract.

One writer at a time.  Each append locks the one row that holds the end of the log, until it is
committed. So positions are assigned in the order in which they become visible: with a database
sequence, a slower transaction would appear behind a faster one, and a follower past that position
would never see it. The cost, serialized commits of two hosts, does not arise: there is one host,
and all its appends of a moment are one commit.

One host at a time.  A session lock (`lock.py`) keeps a second host from opening, and the server
releases it when the first one's connection ends. The epoch keeps a host that lost its connection,
and was replaced, from writing. Neither is sufficient alone. Engines of runs on Temporal share that
lock among themselves: any number of them, or one host.

One round trip.  A group is one call of `leadhand.append` (`sql/001-initial.sql`), which checks the
owner and every run's head, files the entries, links the batch and calls the followers; sent outside
a transaction it commits by itself.

Failures of the server: `writer.py` (a commit that was not answered), `session.py` (reconnection),
`reader.py` (following across reconnections). Rights of roles: `schema.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg

from leadhand.errors import LeadhandError, NotAllowed, StoreError
from leadhand.stores.archive import archived_conflict
from leadhand.stores.artifacts import digest_in
from leadhand.stores.body_form import shorten
from leadhand.stores.copy import refuse_half
from leadhand.stores.group_commit import AppendRequest, CommitDurations, misfit
from leadhand.stores.postgres import schema
from leadhand.stores.postgres.reader import PostgresReader
from leadhand.stores.postgres.session import (
    OPEN_PATIENCE_S,
    PATIENCE_S,
    Session,
    explain,
    queries,
)
from leadhand.stores.postgres.writer import PostgresWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.audit.chain import Batch
    from leadhand.ports import Entry
    from leadhand.stores.archive import ArchiveFiling, CopyStart
    from leadhand.stores.postgres.address import Address

QUEUE_BYTES_MAX = 64 * 1024 * 1024


class PostgresStore(PostgresReader):
    """A log in PostgreSQL, open for writing. Call `claim` before the first append.

    `shared`: no owner is required, and any number of processes may append, each to runs of its own;
    for logs that copy decisions made elsewhere.

    Methods are for one thread, the event loop's; artifacts may be put from any.
    """

    def __init__(
        self,
        address: Address,
        *,
        patience_s: float = PATIENCE_S,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        shared: bool = False,
        debug: bool = False,
        copying: bool = False,
    ) -> None:
        migrated(address)
        super().__init__(address, patience_s)
        self._queue_bytes_max = queue_bytes_max
        self._queued_bytes = 0
        try:
            refuse_half(self, address, copying=copying)
            self.writer = PostgresWriter(address, patience_s=patience_s, debug=debug, shared=shared)
        except BaseException:
            self.close_reader()
            raise

    @staticmethod
    def open_reader(address: Address) -> PostgresReader:
        """Return the log for reading only, whether it has a host or not."""
        return PostgresReader(address)

    @property
    def closed(self) -> bool:
        """Whether the store is closed."""
        return self._closed

    @property
    def refusal(self) -> LeadhandError | None:
        """Why appends are refused, if they are."""
        return self.writer.refusal

    def close_now(self) -> None:
        """Close the store without an event loop."""
        if not self._closed:
            self.close_reader()
            self.writer.stop().result()

    def _read_archived(self, run: str) -> tuple[list[int], list[Entry]]:
        """Raise `Conflict` for an archived run: nothing must be added to it."""
        if self.archive_number(run):
            raise archived_conflict(run)
        return [], []

    def file_away(self, filing: ArchiveFiling) -> None:
        """Record an archive and remove what it holds, in one commit."""
        self.writer.ask(lambda session: self.writer.file_away(session, filing)).result()

    def note_archive(self, number: int, entry: Entry, what: str) -> None:
        """Record that an archive was rewritten or deleted: `what` is the column that says it."""
        self.writer.ask(
            lambda session: self.writer.note_archive(session, number, entry, what)
        ).result()

    def remove_artifacts(self, refs: Sequence[str]) -> None:
        """Remove artifacts that archives hold from the database."""
        digests = [bytes.fromhex(digest_in(ref)) for ref in refs]

        def remove(connection: psycopg.Connection[Any]) -> None:
            with connection.transaction():
                connection.execute(queries()["allow_removal"])
                connection.execute(queries()["remove_artifacts"], (digests,))

        self._reading.do(remove)

    def give_back(self) -> int:
        """Give the space of removed entries back to the disk; return how many bytes."""
        return int(self.writer.ask(self.writer.give_back).result())

    def rebuild_lists(self) -> None:
        """Write what lists and totals need anew, from the summaries."""
        self._rows("rebuild_lists")

    def claim(self) -> int:
        """Become the owner. Return the new epoch, which every later append is checked against."""
        return self.writer.claim().result()

    def append(
        self,
        run: str,
        expected: int,
        entries: Sequence[Entry],
        summary: bytes | None = None,
        *,
        alone: bool = False,
    ) -> asyncio.Future[None]:
        """Append entries to a run's log; the future resolves once they are durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if (refusal := self._refusal(run, expected, entries)) is not None:
            future.set_exception(refusal)
            return future
        size = sum([len(entry.body) for entry in entries]) + 200 * len(entries)
        self._queued_bytes += size
        self.writer.put(AppendRequest(loop, future, run, expected, entries, summary, size))
        return future

    @property
    def head(self) -> Batch:
        """The last commit; also known once the store is closed."""
        return self.writer.head

    @property
    def took(self) -> CommitDurations:
        """The histogram of commit times."""
        return self.writer.took

    def room(self) -> bool:
        """Return whether new work should start: less is queued than the limit."""
        return self._queued_bytes - self.writer.settled_bytes < self._queue_bytes_max

    def put_artifact(self, data: bytes) -> str:
        """Store bytes durably; return their name, `sha256:…`."""
        return self._blobs.put(data)

    def adopt(self, name: str) -> None:
        """Begin a copy: take the other log's id. No host may open this log until it is complete."""
        try:
            self._note([("adopt", (name,)), ("set_meta", (name, "database"))])
        except NotAllowed:
            raise NotAllowed(
                f"{self.address}: a log is copied by the owner of the tables. "
                "Fix: name the owner in the address"
            ) from None
        self.writer.hurry()

    def begin_after(self, start: CopyStart) -> None:
        """Begin with what is left of the commits that archives cover."""
        if self.commits():
            return  # an earlier copy came further

        def begin(connection: psycopg.Connection[Any]) -> None:
            sql = queries()
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany(
                    sql["copy_run"],
                    [
                        (number, *each[:5], None if each.run[:1] == "$" else each.summary)
                        for number, each in start.runs
                    ],
                )
                cursor.executemany(
                    sql["copy_entry"],
                    [
                        (at, *each[1:4], shorten(each.body), each.hash, each.run)
                        for at, each in start.entries
                    ],
                )
                cursor.executemany(sql["copy_archive"], start.archives)
                cursor.executemany(
                    sql["copy_archived"], [(number, run) for run, number in start.archived]
                )
                last = max((number for number, _ in start.runs), default=0)
                end = start.end
                cursor.execute(sql["copy_tail"], (end.last, last, end.number, end.hash))

        self._reading.do(begin)

    def commit_together(self, requests: list[AppendRequest]) -> None:
        """Commit exactly these appends as one commit, for a copy."""
        self.writer.commit_together(requests)

    def settle(self, epoch: int) -> None:
        """End a copy: complete, with as many owners as the other log has had.

        With this commit everything before it is durable too.
        """
        self._note([("set_epoch", (epoch,)), ("settle", ())])

    def _note(self, facts: list[tuple[str, tuple[object, ...]]]) -> None:
        def write(connection: psycopg.Connection[Any]) -> None:
            with connection.transaction():
                for name, values in facts:
                    connection.execute(queries()[name], values)

        self._reading.do(write)
        self._database = ""

    async def close(self) -> None:
        """Finish all queued appends and close the store."""
        if not self._closed:
            self.close_reader()
            await asyncio.wrap_future(self.writer.stop())

    def _refusal(self, run: str, expected: int, entries: Sequence[Entry]) -> LeadhandError | None:
        if self._closed:
            return StoreError(f"{self.address}: closed")
        if (refusal := self.writer.refusal) is not None:
            return type(refusal)(*refusal.args)
        return misfit(run, expected, entries)


def migrated(address: Address) -> int:
    """Create or migrate the tables; return how many migrations ran."""
    session = Session(address, "migration", patience_s=OPEN_PATIENCE_S)
    try:
        session.open()
        return session.do(lambda connection: schema.migrate(connection, address))
    except psycopg.Error as error:
        raise explain(error, address) from None
    finally:
        session.close()
