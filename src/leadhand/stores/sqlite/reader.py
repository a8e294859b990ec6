"""Reading a SQLite store: beside its host, after its host died, or inside the host itself."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from leadhand.audit.chain import Batch
from leadhand.errors import StoreCorrupt, StoreError
from leadhand.ports import Entry, RunHeader, RunQuery, RunSlice
from leadhand.stores import sql
from leadhand.stores.archive import ArchivedLogs
from leadhand.stores.artifacts import ArtifactFolder
from leadhand.stores.body_form import expand
from leadhand.stores.log import ALL, PAGE_ROWS
from leadhand.stores.run_list import PREFIXED_MAX, Wording, cursor_at, listing
from leadhand.stores.sqlite import connection

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator


T = TypeVar("T")
POLL_S = 0.1
WORDS = Wording(
    value=":{}".format,
    text="(run LIKE :like ESCAPE '^' OR goal LIKE :like ESCAPE '^' OR plan LIKE :like ESCAPE '^')",
    any_text="has_text(:text, run, goal, plan)",
)
MOMENT_MAX = 253_402_300_800_000_000
"""The end of the year 9999 in microseconds: later is damage."""


class SqliteReader(ArchivedLogs):
    """The reading half of a store. Takes no lock, claims nothing, changes nothing.

    In a folder without write permission, it reads what SQLite can: with a log left by a dead host
    and no right to recover it, opening fails; without a log, the file is read as it is, and
    `follow` sees nothing new.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path).resolve()
        self._sql = sql.queries()
        self._reading = connection.open_reader(self.path)
        self._reading.create_function("has_text", 4, _has_text)
        self._artifacts = ArtifactFolder(Path(f"{self.path}.artifacts"))
        self._wakers: set[asyncio.Event] = set()
        self._closed = False

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def database_id(self) -> str:
        """The permanent id of the file."""
        rows = self._rows("meta", ("database",))
        if not rows or not isinstance(rows[0][0], str):
            raise StoreCorrupt(f"{self.path}: its own name is damaged. Fix: put back a copy.")
        return str(rows[0][0])

    def read(self, run: str, after: int = 0) -> list[Entry]:
        """Return a run's entries with a seq above `after`, in order."""
        values = {"run": run, "after": after}
        rows = self._rows("read", values)
        if not rows and self._rows("has_more", values)[0][0]:
            if archived := self._read_archived(run)[1]:
                return [entry for entry in archived if entry.seq > after]
            rows = self._rows("read", values)  # written meanwhile; or the file is damaged
            if not rows:
                return [_entry(*row) for row in self._rows("scan", values)]
        rows.reverse()
        if not _whole(rows, after):
            return [_entry(*row) for row in self._rows("scan", values)]
        return [_entry(*row[:6]) for row in rows]

    def runs(self) -> list[RunHeader]:
        """Return all runs, oldest first."""
        return [_header(*row) for row in self._rows("runs")]

    def numbered_runs(self, after: int, limit: int) -> list[tuple[int, RunHeader]]:
        """Return at most `limit` runs with a number above `after`, oldest first."""
        return [
            (number, _header(*row)) for number, *row in self._rows("numbered_runs", (after, limit))
        ]

    def count_runs(self) -> int:
        """Return how many runs there are, streams of the host and the library included."""
        return int(self._rows("count_runs")[0][0])

    def runs_since(self, position: int) -> list[str]:
        """Return the runs that have entries above a position."""
        return [str(run) for (run,) in self._rows("runs_since", (position,))]

    def header(self, run: str) -> RunHeader | None:
        """Return the header of one run, or None."""
        rows = self._rows("header", (run,))
        return _header(*rows[0]) if rows else None

    def find_runs(self, query: RunQuery) -> RunSlice:
        """Return one page of the runs that `query` is for."""
        statement, values = listing(self._sql["find_runs"], query, WORDS)
        rows = self._fetch(statement, values)
        more = cursor_at(*rows[query.limit - 1][:2]) if len(rows) > query.limit else None
        return RunSlice([_header(*row[2:]) for row in rows[: query.limit]], more)

    def runs_by_prefix(self, prefix: str, limit: int = PREFIXED_MAX) -> list[str]:
        """Return the ids of runs that begin with `prefix`, sorted: at most `limit`."""
        return [
            str(run) for (run,) in self._rows("runs_by_prefix", {"prefix": prefix, "limit": limit})
        ]

    def last_change(self) -> int:
        """Return when the last entry of any run was written; 0 if there is none."""
        return _number(self._rows("last_change")[0][0])

    def totals(self, first_day: int, last_day: int, *, plans: bool = False) -> dict[str, int]:
        """Return the sums over ended runs created on these days, by key; see `Log.totals`."""
        name = "totals_with_plans" if plans else "totals"
        rows = self._rows(name, (first_day, last_day))
        return {str(key): number for key, number in rows if type(number) is int and number}

    def daily_totals(self, first_day: int, last_day: int) -> list[tuple[int, str, int]]:
        """Return the sums by day and key, without the keys of single plans, workers and so on."""
        rows = self._rows("daily_totals", (first_day, last_day))
        return [(day, str(key), number) for day, key, number in rows if type(number) is int]

    def wrong_lists(self) -> list[str]:
        """Return runs that lists do not show as their summaries say."""
        self._derive()
        return [str(run) for (run,) in self._rows("wrong_lists")]

    def wrong_totals(self) -> list[tuple[int, str, int, int]]:
        """Return totals that are not the sums of the summaries: day, key, the sum, what is told."""
        self._derive()
        return self._rows("wrong_totals")

    def _derive(self) -> None:
        """Let this connection derive lists and totals from the summaries."""
        for name in ("told", "listing", "summed"):
            self._fetch(sql.queries("lists")[name], ())

    def commits(self) -> int:
        """Return how many commits the file holds, by its last one's number."""
        return self._end(2)

    def last_position(self) -> int:
        """Return the position of the last entry; 0 when there is none."""
        return self._end(0)

    def page(self, after: int, limit: int = PAGE_ROWS) -> list[tuple[int, Entry]]:
        """Return entries of all runs with a position above `after`, in commit order."""
        return [(position, _entry(*row)) for position, *row in self._rows("page", (after, limit))]

    def batches(self, after: int = -ALL, limit: int = ALL) -> list[Batch]:
        """Return the batch chain, or `limit` of its commits with a number above `after`."""
        return [Batch(*row) for row in self._rows("batches", (after, limit))]

    def batches_from(self, first: int, last: int) -> list[Batch]:
        """Return the commits that hold the positions `first` to `last`, and the commit before."""
        return [Batch(*row) for row in self._rows("batches_from", (first, last))]

    def positions(self, after: int = -ALL, limit: int = ALL) -> list[tuple[int, bytes]]:
        """Return the position and the hash of entries above `after`, in commit order."""
        return self._rows("positions", (after, limit))

    def places(self, run: str) -> list[int]:
        """Return the positions of a run's entries, in order."""
        found = self._each(int, "places", {"run": run})[::-1]
        header = self.header(run)
        if header is not None and len(found) != header.seq:
            return self._read_archived(run)[0] or self._each(int, "scan_places", {"run": run})
        return found

    def hashes(self, first: int, last: int) -> list[bytes]:
        """Return the hashes of the entries from one position to another."""
        return self._each(bytes, "hashes", (first, last))

    def odd_summaries(self) -> list[str]:
        """Return runs whose summary has a type that is never written."""
        return [str(run) for (run,) in self._rows("odd_summaries")]

    def strays(self) -> list[int]:
        """Return the positions of entries whose run does not exist."""
        return [position for (position,) in self._rows("strays")]

    def epoch(self) -> Any:
        """Return the number of owners the file has had, as stored."""
        rows = self._rows("meta", ("epoch",))
        return rows[0][0] if rows else None

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Make all reads inside see the file at one moment, despite commits of its host."""
        with connection.explained(self.path):
            self._reading.execute("BEGIN")
        try:
            yield
        finally:
            self._reading.rollback()

    def damage(self) -> list[str]:
        """Return the findings of SQLite's own check: pages, types, rows that differ from an index.

        One sentence for each finding, with its table; empty for a sound file. The hash chains
        cannot show these: they cover query results, and a query may answer from an index that
        differs from the table.
        """
        try:
            found = [str(row[0]) for row in self._rows("integrity")]
            schema = [tuple(map(str, row)) for row in self._rows("schema")]
            links = self._wrong_links()
        except StoreError as error:
            return [str(error)]
        if found == ["ok"]:
            found = []
        found += links
        ours = sql.schema()
        found += [f"{kind} {name} is not as it was made" for kind, name, _ in {*schema} ^ {*ours}]
        return list(dict.fromkeys(found))

    def _wrong_links(self) -> list[str]:
        """Return what is wrong with the links by which a run's entries are found.

        Without them its log is read all the same, only slower.
        """
        entries, runs = self._rows("wrong_back"), self._rows("wrong_last")
        found = [f"events: {position} does not name the one before it" for (position,) in entries]
        return found + [f"runs: {run} does not name its last event" for (run,) in runs]

    async def follow(
        self, after: int = 0, gather_s: float = 0.0
    ) -> AsyncGenerator[tuple[int, Entry]]:
        """Yield each entry of all runs with a position above `after`, in commit order, for ever.

        (Until the store is closed.) It checks ten times a second whether another connection has
        committed; in the host, commits wake it: at once, or after `gather_s` for others to follow.
        """
        waker = asyncio.Event()
        self._wakers.add(waker)
        try:
            while not self._closed:
                waker.clear()
                version = self._rows("data_version")
                rows = self.page(after)
                for position, entry in rows:
                    yield position, entry
                    after = position
                while not (rows or waker.is_set() or self._closed or self._changed(version)):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(POLL_S):
                            await waker.wait()
                if gather_s:
                    await asyncio.sleep(gather_s)
        finally:
            self._wakers.discard(waker)

    def _changed(self, version: list[Any]) -> bool:
        return self._rows("data_version") != version

    def get_artifact(self, ref: str) -> bytes:
        """Return the bytes of an artifact. Raise `StoreCorrupt` if they are missing or altered."""
        try:
            return self._artifacts.get(ref)
        except StoreCorrupt:
            data = self.shelf.artifact(ref)
            if data is None:
                raise
            return data

    def artifacts(self) -> list[str]:
        """Return the names of all artifacts."""
        return self._artifacts.names()

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
        self._wake()
        self._close_archives()
        self._reading.close()

    def _wake(self) -> None:
        for waker in self._wakers:
            waker.set()

    def _end(self, column: int) -> int:
        found = self._rows("ends")[0][column]
        if type(found) is not int:
            raise StoreCorrupt(f"{self.path}: its counters are damaged. Fix: put back a copy.")
        return found

    def _each(self, kind: type[T], name: str, values: tuple[Any, ...] | dict[str, Any]) -> list[T]:
        """Return the one column of a query. Raise `StoreCorrupt` for a value of another type."""
        found = [value for (value,) in self._rows(name, values)]
        if any(type(value) is not kind for value in found):
            raise StoreCorrupt(
                f"{self.path}: its rows are damaged ({name}). Fix: put back a copy; "
                "`leadhand verify --all` lists everything."
            )
        return found

    def _rows(self, name: str, values: tuple[Any, ...] | dict[str, Any] = ()) -> list[Any]:
        return self._fetch(self._sql[name], values)

    def _fetch(self, statement: str, values: tuple[Any, ...] | dict[str, Any]) -> list[Any]:
        if self._closed:
            raise StoreError(f"{self.path}: closed")
        try:
            return self._reading.execute(statement, values).fetchall()
        except sqlite3.OperationalError as error:
            if "decode" not in str(error) or self._reading.text_factory is not str:
                raise connection.explain(error, self.path) from error
            # Invalid text: show it escaped. (Not from the start: it costs a call each.)
            self._reading.text_factory = _escaped
            return self._fetch(statement, values)
        except connection.DAMAGE as error:
            raise connection.explain(error, self.path) from error


def _entry(run: Any, seq: Any, at: Any, version: Any, stored: Any, digest: Any) -> Entry:
    return Entry(run, seq, at, version, expand(stored), digest)


def _whole(rows: list[Any], after: int) -> bool:
    """Return whether these are all entries of a run above a seq, up to where it ends."""
    numbers = range(after + 1, after + len(rows) + 1)
    return not rows or (rows[-1][6] == numbers[-1] and [row[1] for row in rows] == [*numbers])


def _header(run: Any, created: Any, updated: Any, seq: Any, digest: Any, summary: Any) -> RunHeader:
    """Return a run's header; a value of an unexpected type becomes empty.

    The log has the facts, and the chain tells whether it can be trusted.
    """
    name = _escaped(run) if isinstance(run, bytes) else str(run)
    return RunHeader(
        name, _number(created), _number(updated), _number(seq), _blob(digest), _blob(summary)
    )


def _number(value: Any) -> int:
    return value if type(value) is int and 0 <= value < MOMENT_MAX else 0


def _blob(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b""


def _has_text(text: Any, *fields: Any) -> bool:
    """Return whether one of the fields holds the text, which is in lower case."""
    return any(isinstance(field, str) and text in field.lower() for field in fields)


def _escaped(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")
