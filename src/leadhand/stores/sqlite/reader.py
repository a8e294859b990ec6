"""Reading a SQLite store: beside its host, after its host died, or inside the host itself."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from leadhand.audit.chain import Batch
from leadhand.errors import StoreCorrupt, StoreError
from leadhand.ports import Entry, RunHeader
from leadhand.stores import sql
from leadhand.stores.artifacts import ArtifactFolder
from leadhand.stores.sqlite import connection

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator


T = TypeVar("T")
POLL_S = 0.1
PAGE_ROWS = 1000
MOMENT_MAX = 253_402_300_800_000_000
"""The end of the year 9999 in microseconds: later is damage."""


class SqliteReader:
    """The reading half of a store. Takes no lock, claims nothing, changes nothing.

    In a folder it may not write to, it reads what SQLite can: with a log left by a dead
    host and no right to recover it, opening fails; without a log, the file is read as it
    stands, and `follow` sees nothing new.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).resolve()
        self._sql = sql.queries()
        self._reading = connection.open_reader(self.path)
        self._artifacts = ArtifactFolder(Path(f"{self.path}.artifacts"))
        self._wakers: set[asyncio.Event] = set()
        self._closed = False

    @property
    def database_id(self) -> str:
        """The file's own name, the same for life."""
        rows = self._rows("meta", ("database",))
        if not rows or not isinstance(rows[0][0], str):
            raise StoreCorrupt(f"{self.path}: its own name is damaged. Fix: put back a copy.")
        return str(rows[0][0])

    def read(self, run: str, after: int = 0) -> list[Entry]:
        """A run's entries with a seq above `after`, in order."""
        return list(map(Entry._make, self._rows("read", (run, run, after))))

    def runs(self) -> list[RunHeader]:
        """All runs, oldest first."""
        return [_header(*row) for row in self._rows("runs")]

    def header(self, run: str) -> RunHeader | None:
        """One run."""
        rows = self._rows("header", (run,))
        return _header(*rows[0]) if rows else None

    def commits(self) -> int:
        """How many commits the file holds, by its last one's number."""
        return self._end(2)

    def last_position(self) -> int:
        """The position of the last entry; 0 when there is none."""
        return self._end(0)

    def page(self, after: int, limit: int = PAGE_ROWS) -> list[tuple[int, Entry]]:
        """Entries of all runs with a position above `after`, in commit order."""
        return [(position, Entry(*row)) for position, *row in self._rows("page", (after, limit))]

    def batches(self) -> list[Batch]:
        """The batch chain."""
        return [Batch(*row) for row in self._rows("batches")]

    def batches_from(self, first: int, last: int) -> list[Batch]:
        """The commits that hold the positions from one to another, and the commit before them."""
        return [Batch(*row) for row in self._rows("batches_from", (first, last))]

    def positions(self) -> list[tuple[int, bytes]]:
        """Every entry's position and hash, in commit order: what the batch chain is over."""
        return self._rows("positions")

    def places(self, run: str) -> list[int]:
        """The positions of a run's entries, in order."""
        return self._each(int, "places", (run,))

    def hashes(self, first: int, last: int) -> list[bytes]:
        """The hashes of the entries from one position to another."""
        return self._each(bytes, "hashes", (first, last))

    def odd_summaries(self) -> list[str]:
        """Runs whose summary is of a kind that nobody writes."""
        return [str(run) for (run,) in self._rows("odd_summaries")]

    def strays(self) -> list[int]:
        """Positions of entries whose run is not there."""
        return [position for (position,) in self._rows("strays")]

    def epoch(self) -> Any:
        """How many owners the file has had, as it stands there."""
        rows = self._rows("meta", ("epoch",))
        return rows[0][0] if rows else None

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All reads inside see the file at one moment, whatever its host commits meanwhile."""
        with connection.explained(self.path):
            self._reading.execute("BEGIN")
        try:
            yield
        finally:
            self._reading.rollback()

    def damage(self) -> list[str]:
        """What SQLite's own check finds: pages, types, rows that an index knows otherwise.

        Returns: a sentence for each finding, with the table it is about; empty for a sound file.
        The hash chains cannot show these: they are over what a query gives, and a query may answer
        from an index what stands otherwise in the table.
        """
        try:
            found = [str(row[0]) for row in self._rows("integrity")]
            schema = [tuple(map(str, row)) for row in self._rows("schema")]
        except StoreError as error:
            return [str(error)]
        if found == ["ok"]:
            found = []
        ours = sql.schema()
        found += [f"{kind} {name} is not as it was made" for kind, name, _ in {*schema} ^ {*ours}]
        return list(dict.fromkeys(found))

    async def follow(
        self, after: int = 0, gather_s: float = 0.0
    ) -> AsyncGenerator[tuple[int, Entry]]:
        """Every entry of every run with a position above `after`, in commit order, for ever.

        (Until the store is closed.) Asks whether another connection has committed ten times a
        second; in the host, commits wake it: at once, or when others have had `gather_s` to
        follow the first.
        """
        waker = asyncio.Event()
        self._wakers.add(waker)
        try:
            while not self._closed:
                waker.clear()
                version = self._rows("data_version")
                rows = self._rows("page", (after, PAGE_ROWS))
                for position, *row in rows:
                    yield position, Entry(*row)
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
        """The bytes behind a name; StoreCorrupt when they do not match it."""
        return self._artifacts.get(ref)

    def artifacts(self) -> list[str]:
        """The names of all artifacts."""
        return self._artifacts.names()

    def copied(self) -> str:
        """The name of the log that is being copied here; empty when none is."""
        rows = self._rows("meta", ("copying",))
        return str(rows[0][0]) if rows else ""

    async def close(self) -> None:
        """Let go."""
        self.close_reader()

    def close_reader(self) -> None:
        """Let go, without a loop to wait in; followers end."""
        self._closed = True
        self._wake()
        self._reading.close()

    def _wake(self) -> None:
        for waker in self._wakers:
            waker.set()

    def _end(self, column: int) -> int:
        found = self._rows("ends")[0][column]
        if type(found) is not int:
            raise StoreCorrupt(f"{self.path}: its counters are damaged. Fix: put back a copy.")
        return found

    def _each(self, kind: type[T], name: str, values: tuple[Any, ...]) -> list[T]:
        """The one column of a query. Raise StoreCorrupt for a value of another kind."""
        found = [value for (value,) in self._rows(name, values)]
        if any(type(value) is not kind for value in found):
            raise StoreCorrupt(
                f"{self.path}: its rows are damaged ({name}). Fix: put back a copy; "
                "`leadhand verify --all` lists everything."
            )
        return found

    def _rows(self, name: str, values: tuple[Any, ...] = ()) -> list[Any]:
        if self._closed:
            raise StoreError(f"{self.path}: closed")
        try:
            return self._reading.execute(self._sql[name], values).fetchall()
        except sqlite3.OperationalError as error:
            if "decode" not in str(error) or self._reading.text_factory is not str:
                raise connection.explain(error, self.path) from error
            # A text that is none: show it escaped. (Not from the start: it costs a call each.)
            self._reading.text_factory = _escaped
            return self._rows(name, values)
        except connection.DAMAGE as error:
            raise connection.explain(error, self.path) from error


def _header(run: Any, created: Any, updated: Any, seq: Any, digest: Any, summary: Any) -> RunHeader:
    """A run's header; what is not of the kind that was written counts as nothing.

    The log says the rest, and the chain says whether it can be trusted.
    """
    name = _escaped(run) if isinstance(run, bytes) else str(run)
    return RunHeader(
        name, _number(created), _number(updated), _number(seq), _blob(digest), _blob(summary)
    )


def _number(value: Any) -> int:
    return value if type(value) is int and 0 <= value < MOMENT_MAX else 0


def _blob(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b""


def _escaped(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")
