"""Reading a log in PostgreSQL: beside its host, on any machine, or inside the host itself."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from leadhand.audit.chain import Batch
from leadhand.errors import StoreCorrupt, StoreError
from leadhand.ports import Entry, RunHeader, RunQuery, RunSlice
from leadhand.stores.archive import ArchivedLogs
from leadhand.stores.artifacts import ArtifactFolder, digest_in, ref_of
from leadhand.stores.body_form import expand
from leadhand.stores.log import ALL, PAGE_ROWS
from leadhand.stores.postgres import schema
from leadhand.stores.postgres.session import (
    PAUSE_S,
    Session,
    explain,
    for_good,
    options_of,
    pass_on_cancel,
    queries,
)
from leadhand.stores.run_list import PREFIXED_MAX, Wording, cursor_at, listing

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from pathlib import Path

    from leadhand.stores.postgres.address import Address


# Results by the hash of their bytes: small ones in the database, large ones in a shared folder.
#
# A database is a poor place for files of hundreds of megabytes, and a good one for everything else:
# backed up with the log, read wherever the log is read. So results larger than `IN_DATABASE_MAX` go
# to the folder in the address (`?artifacts=/mnt/shared`), through the small port below; an address
# without one keeps all in the database.
#
# A name in a log always has its bytes: they are durable before the name is returned. After a crash
# there may be bytes that no log names.


IN_DATABASE_MAX = 1 << 20
ROW_MAX = 512 << 20
"""The maximum size of a row of PostgreSQL in hexadecimal, with a margin."""


class Blobs:
    """All results of one log. May be used from several threads."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._session = Session(address, "artifacts")
        folder = address.artifacts
        self._shared = ArtifactFolder(folder) if folder is not None else None

    def put(self, data: bytes) -> str:
        """Store bytes durably; return their name."""
        if self._shared is not None and len(data) > IN_DATABASE_MAX:
            return self._shared.put(data)
        if len(data) > ROW_MAX:
            raise StoreError(
                f"{self._address}: a result of {len(data)} bytes is too large for the database. "
                "Fix: name a shared folder in the store's address: ?artifacts=/mnt/leadhand"
            )
        ref = ref_of(data)
        self._session.rows("put_artifact", (bytes.fromhex(digest_in(ref)), data))
        return ref

    def get(self, ref: str) -> bytes:
        """Return the bytes of an artifact. Raise `StoreCorrupt` if they are missing or altered."""
        digest = bytes.fromhex(digest_in(ref))
        rows = self._session.rows("get_artifact", (digest,))
        if not rows:
            if self._shared is not None:
                return self._shared.get(ref)
            raise StoreCorrupt(f"{self._address}: the artifact {ref} is missing")
        data = bytes(rows[0][0])
        if ref_of(data) != ref:
            raise StoreCorrupt(f"{self._address}: the bytes of {ref} do not match its name")
        return data

    def close(self) -> None:
        """Close the connection."""
        self._session.close()


HAS_TEXT = (
    "(strpos(lower(run), %(text)s::text) > 0 OR strpos(lower(goal), %(text)s::text) > 0"
    " OR strpos(lower(plan), %(text)s::text) > 0)"
)
WORDS = Wording(value="%({})s::text".format, text=HAS_TEXT, any_text=HAS_TEXT)
LOOK_S = 0.2
"""The interval at which a follower notices that its store was closed."""
POLL_S = 5.0
"""The interval of looks without a notification: one lost by a proxy only delays."""
READ_PATIENCE_S = 60.0
CHANNEL = "LISTEN leadhand"


class PostgresReader(ArchivedLogs):
    """The reading half of a store. Claims nothing, changes nothing."""

    remote = True
    """A read may take as long as its server is unavailable; several threads may read."""

    def __init__(self, address: Address, patience_s: float = READ_PATIENCE_S) -> None:
        self.address = address
        self._reading = Session(
            address,
            "reader",
            patience_s=patience_s,
            ready=lambda connection: schema.check(connection, address),
        )
        self._reading.open()
        self._blobs = Blobs(address)
        self._database = ""
        self._snapshot = False
        self._closed = False

    @property
    def path(self) -> Path:
        """The path after which local files are named."""
        return self.address.home

    @property
    def database_id(self) -> str:
        """The permanent id of the log."""
        if not self._database:
            rows = self._rows("meta", ("database",))
            if not rows:
                raise StoreCorrupt(f"{self.address}: its own name is gone. Fix: put back a copy.")
            self._database = str(rows[0][0])
        return self._database

    def read(self, run: str, after: int = 0) -> list[Entry]:
        """Return a run's entries with a seq above `after`, in order."""
        found = [_entry(*row) for row in self._rows("read", (run, run, after))]
        return found or [entry for entry in self._read_archived(run)[1] if entry.seq > after]

    def runs(self) -> list[RunHeader]:
        """Return all runs, oldest first."""
        return list(map(RunHeader._make, self._rows("runs")))

    def numbered_runs(self, after: int, limit: int) -> list[tuple[int, RunHeader]]:
        """Return at most `limit` runs with a number above `after`, oldest first."""
        rows = self._rows("numbered_runs", (after, limit))
        return [(number, RunHeader(*row)) for number, *row in rows]

    def count_runs(self) -> int:
        """Return how many runs there are, streams of the host and the library included."""
        return int(self._rows("count_runs")[0][0])

    def runs_since(self, position: int) -> list[str]:
        """Return the runs that have entries above a position."""
        return [str(run) for (run,) in self._rows("runs_since", (position,))]

    def header(self, run: str) -> RunHeader | None:
        """Return the header of one run, or None."""
        rows = self._rows("header", (run,))
        return RunHeader._make(rows[0]) if rows else None

    def find_runs(self, query: RunQuery) -> RunSlice:
        """Return one page of the runs that `query` is for."""
        statement, values = listing(queries()["find_runs"], query, WORDS)
        clean = {
            # PostgreSQL has no character 0 in its texts; nothing is found with one.
            name: each.replace("\0", "\ufffd") if isinstance(each, str) else each
            for name, each in values.items()
        }
        rows = self._fetch(statement, clean)
        more = cursor_at(*rows[query.limit - 1][:2]) if len(rows) > query.limit else None
        return RunSlice([RunHeader._make(row[2:]) for row in rows[: query.limit]], more)

    def runs_by_prefix(self, prefix: str, limit: int = PREFIXED_MAX) -> list[str]:
        """Return the ids of runs that begin with `prefix`, sorted: at most `limit`."""
        values = {"prefix": prefix.replace("\0", "\ufffd"), "limit": limit}
        return [str(run) for (run,) in self._fetch(queries()["runs_by_prefix"], values)]

    def last_change(self) -> int:
        """Return when the last entry of any run was written; 0 if there is none."""
        return int(self._rows("last_change")[0][0])

    def totals(self, first_day: int, last_day: int, *, plans: bool = False) -> dict[str, int]:
        """Return the sums over ended runs created on these days, by key; see `Log.totals`."""
        name = "totals_with_plans" if plans else "totals"
        rows = self._rows(name, (first_day, last_day))
        return {str(key): int(number) for key, number in rows if number}

    def daily_totals(self, first_day: int, last_day: int) -> list[tuple[int, str, int]]:
        """Return the sums by day and key, without the keys of single plans, workers and so on."""
        return self._rows("daily_totals", (first_day, last_day))

    def wrong_lists(self) -> list[str]:
        """Return runs that lists do not show as their summaries say."""
        return [str(run) for (run,) in self._rows("wrong_lists")]

    def wrong_totals(self) -> list[tuple[int, str, int, int]]:
        """Return totals that are not the sums of the summaries: day, key, the sum, what is told."""
        return self._rows("wrong_totals")

    def commits(self) -> int:
        """Return how many commits there are, by the last one's number."""
        return int(self._rows("ends")[0][2])

    def last_position(self) -> int:
        """Return the position of the last entry; 0 when there is none."""
        return int(self._rows("tail")[0][0])

    def page(self, after: int, limit: int = PAGE_ROWS) -> list[tuple[int, Entry]]:
        """Return entries of all runs with a position above `after`, in commit order."""
        return [(position, _entry(*row)) for position, *row in self._rows("page", (after, limit))]

    def batches(self, after: int = -ALL, limit: int = ALL) -> list[Batch]:
        """Return the batch chain, or `limit` of its commits with a number above `after`."""
        return list(map(Batch._make, self._rows("batches", (after, limit))))

    def batches_from(self, first: int, last: int) -> list[Batch]:
        """Return the commits that hold the positions `first` to `last`, and the commit before."""
        return list(map(Batch._make, self._rows("batches_from", (first, last))))

    def positions(self, after: int = -ALL, limit: int = ALL) -> list[tuple[int, bytes]]:
        """Return the position and the hash of entries above `after`, in commit order."""
        return self._rows("positions", (after, limit))

    def places(self, run: str) -> list[int]:
        """Return the positions of a run's entries, in order."""
        found = [position for (position,) in self._rows("places", (run,))]
        return found or self._read_archived(run)[0]

    def hashes(self, first: int, last: int) -> list[bytes]:
        """Return the hashes of the entries from one position to another."""
        return [digest for (digest,) in self._rows("hashes", (first, last))]

    def damage(self) -> list[str]:
        """Return nothing: PostgreSQL checks its own pages (`data_checksums`, `pg_amcheck`)."""
        return []

    def odd_summaries(self) -> list[str]:
        """Return runs whose summary has a type that is never written."""
        return [str(run) for (run,) in self._rows("odd_summaries")]

    def strays(self) -> list[int]:
        """Return the positions of entries whose run does not exist."""
        return [position for (position,) in self._rows("strays")]

    def epoch(self) -> Any:
        """Return the number of owners the log has had, as stored."""
        rows = self._rows("epoch")
        return rows[0][0] if rows else None

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Make all reads inside see the log at one moment, despite commits of its host."""
        self._reading.do(
            lambda connection: connection.execute(
                "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
            )
        )
        self._snapshot = True
        try:
            yield
        finally:
            self._snapshot = False
            self._reading.end_transaction()

    async def follow(
        self, after: int = 0, gather_s: float = 0.0
    ) -> AsyncGenerator[tuple[int, Entry]]:
        """Yield each entry of all runs with a position above `after`, in commit order, for ever.

        (Until the store is closed.) It listens first and then reads the existing entries, also
        after every loss of its connection; so nothing can come between the two. Commits have
        `gather_s` to follow each other before they are read.
        """
        pause = PAUSE_S[0]
        while not self._closed:
            try:
                async with await self._listening() as connection:
                    pause = PAUSE_S[0]
                    while not self._closed:
                        rows = await _page(connection, after)
                        for position, *row in rows:
                            yield position, _entry(*row)
                            after = position
                        if not rows:
                            await self._called(connection)
                            await asyncio.sleep(gather_s)
            except psycopg.Error as error:
                pass_on_cancel()
                if for_good(error):
                    raise explain(error, self.address) from None
            if not self._closed:
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_S[1])

    async def _listening(self) -> psycopg.AsyncConnection[Any]:
        options = options_of(self.address, "follower")
        connection = await psycopg.AsyncConnection.connect(**options, autocommit=True)
        try:
            await connection.execute(CHANNEL)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _called(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Wait until something was committed, or may have been."""
        deadline = time.monotonic() + POLL_S
        while not self._closed and time.monotonic() < deadline:
            async for _ in connection.notifies(timeout=LOOK_S, stop_after=1):
                return

    def get_artifact(self, ref: str) -> bytes:
        """Return the bytes of an artifact. Raise `StoreCorrupt` if they are missing or altered."""
        try:
            return self._blobs.get(ref)
        except StoreCorrupt:
            data = self.shelf.artifact(ref)
            if data is None:
                raise
            return data

    def artifacts(self) -> list[str]:
        """Return the names of all artifacts in the database; a shared folder may hold more."""
        return [f"sha256:{bytes(digest).hex()}" for (digest,) in self._rows("artifacts")]

    def copied(self) -> str:
        """Return the id of the log that is being copied here; empty if none is."""
        rows = self._rows("meta", ("copying",))
        return str(rows[0][0]) if rows else ""

    async def close(self) -> None:
        """Close the reader."""
        self.close_reader()

    def close_reader(self) -> None:
        """Close the reader without an event loop; followers end."""
        self._closed = True
        self._close_archives()
        self._reading.close()
        self._blobs.close()

    def _rows(self, name: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return self._fetch(queries()[name], values)

    def _fetch(self, statement: str, values: tuple[Any, ...] | dict[str, Any]) -> list[Any]:
        if self._closed:
            raise StoreError(f"{self.address}: closed")
        if not self._snapshot:
            return self._reading.fetch(statement, values)
        # A new connection would show another moment.
        connection = self._reading.connected(0)
        try:
            return connection.execute(statement, values, binary=True).fetchall()
        except psycopg.Error as error:
            raise explain(error, self.address) from None


async def _page(connection: psycopg.AsyncConnection[Any], after: int) -> list[Any]:
    cursor = connection.cursor(binary=True)
    await cursor.execute(queries()["page"], (after, PAGE_ROWS))
    return await cursor.fetchall()


def _entry(run: str, seq: int, at: int, version: int, stored: bytes, digest: bytes) -> Entry:
    return Entry(run, seq, at, version, expand(stored), digest)
