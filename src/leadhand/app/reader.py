"""Reading runs without owning them: the basis of `show`, `watch`, `ls` and `logs`."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from leadhand.app.store_factory import open_reader, open_reader_if_there
from leadhand.audit.chain import GENESIS, verify, verify_head
from leadhand.codec.events import decode_all
from leadhand.core.host_events import HOST_STREAM, HostState, evolve_host
from leadhand.core.rollback import SUFFIX
from leadhand.core.views.run import RunSummary
from leadhand.engine.fold import fold, gc_paused
from leadhand.engine.library_store import library_of
from leadhand.errors import StoreCorrupt, UsageError
from leadhand.ports import RunQuery
from leadhand.stores.location import there

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leadhand.core.events import Event
    from leadhand.core.library import LibraryState
    from leadhand.core.state.model import State
    from leadhand.ports import Entry, RunHeader, RunSlice
    from leadhand.stores.location import StoreLocation
    from leadhand.stores.log import Log


ALL = 1 << 31
"""As many runs as there are."""


def summary_of(header: RunHeader) -> RunSummary | None:
    """Return the summary beside a run's log; None if it is missing or unreadable."""
    try:
        return msgspec.json.decode(header.summary, type=RunSummary)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


@contextmanager
def reading(place: StoreLocation) -> Iterator[Reader]:
    """Open a database for reading, whether it has a host or not, and close it."""
    reader = Reader(place)
    try:
        yield reader
    finally:
        reader.store.close_reader()


class LogAccess:
    """A database that one command reads more than once: opened when it is first read, then kept.

    Who writes to the database in this process calls `close` first: the writer must be the last to
    close it, so that nothing is left of its write-ahead log. It opens again when it is read again.
    """

    def __init__(self, place: StoreLocation) -> None:
        self.place = place
        self._reader: Reader | None = None
        self._written: State | None = None

    @property
    def reader(self) -> Reader:
        """The open reader. Raise `UsageError` if there is no log."""
        if self._reader is None:
            self._reader = Reader(self.place)
        return self._reader

    def reader_if_there(self) -> Reader | None:
        """Return the open reader; None if there is no log."""
        if self._reader is None:
            is_there = isinstance(self.place, Path) or there(self.place)
            log = open_reader_if_there(self.place) if is_there else None
            self._reader = None if log is None else Reader(self.place, log)
        return self._reader

    def wrote(self, state: State) -> None:
        """Keep the state of a run as this process has just written it."""
        self._written = state

    def state(self, run: str) -> State:
        """Return the state of a run, without reading what this process has just written."""
        if self._written is not None and self._written.run == run:
            return self._written
        return self.reader.state(run)

    def close(self) -> None:
        """Close the reader, if it is open."""
        if self._reader is not None:
            self._reader.store.close_reader()
            self._reader = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Reader:
    """A database for reading; a host may write to it at the same time."""

    def __init__(self, place: StoreLocation, log: Log | None = None) -> None:
        """Open the database at `place`, unless `log` is given: the same, open already."""
        self.store = open_reader(place) if log is None else log
        self._heads: dict[str, tuple[int, bytes]] = {}

    def runs(self) -> list[RunHeader]:
        """Return the headers of all runs, oldest first."""
        return [header for header in self.store.runs() if header.run[:1] != "$"]

    def find_runs(self, query: RunQuery) -> RunSlice:
        """Return one page of the runs that `query` is for, without opening their logs.

        Raise `ValueError` for a cursor or an order that does not exist.
        """
        return self.store.find_runs(query)

    def open_runs(self) -> list[RunHeader]:
        """Return the runs that have not ended, oldest first."""
        return self.find_runs(RunQuery(open=True, sort="created", limit=ALL)).headers

    def waiting_runs(self) -> list[RunHeader]:
        """Return the runs with an open question to a person, oldest first."""
        return self.find_runs(RunQuery(waiting=True, sort="created", limit=ALL)).headers

    def resolve(self, prefix: str) -> str:
        """Return the only run whose id begins with `prefix`.

        Raise `UsageError` if there is none.
        """
        if prefix[:1] not in ("", "$") and self.store.header(prefix) is not None:
            return prefix
        found = self.store.runs_by_prefix(prefix)
        # A rollback has the id of its run with a suffix: it is meant only if the suffix is given.
        found = [r for r in found if not (r.endswith(SUFFIX) and r.removesuffix(SUFFIX) in found)]
        if not found:
            raise UsageError(f"there is no run {prefix}; `leadhand ls` lists them")
        if len(found) > 1:
            raise UsageError(f"{prefix} could be any of: {', '.join(sorted(found)[:8])}")
        return found[0]

    def entries(self, run: str, after: int = 0) -> list[Entry]:
        """Return a run's stored entries, unverified."""
        return self.store.read(run, after)

    def verified(self, run: str, after: int = 0) -> list[Entry]:
        """Return a run's stored entries. Raise `StoreCorrupt` if they were altered."""
        header = self.store.header(run)  # first: a host may be appending meanwhile
        entries = self.store.read(run, after)
        seq, head = self._heads.get(run, (0, GENESIS)) if after else (0, GENESIS)
        problems = verify(entries, head, after) if seq == after else []
        if problems and (erased := self.store.erased(run)):
            problems = [each for each in problems if each.rule != "hash" or each.seq not in erased]
        if not problems and header and header.seq > (entries[-1].seq if entries else after):
            problems = verify_head(entries, header)
        if problems:
            raise StoreCorrupt(
                f"the log of run {run} was changed or damaged: {problems[0].message} "
                f"(event {problems[0].seq}). Fix: `leadhand verify {run}` lists everything."
            )
        if entries:
            self._heads[run] = (entries[-1].seq, entries[-1].hash)
        return entries

    def events(self, run: str, after: int = 0) -> list[tuple[Entry, Event]]:
        """Return a run's events, with their headers."""
        with gc_paused():
            entries = self.verified(run, after)
            events = decode_all([(entry.version, entry.body) for entry in entries])
            return list(zip(entries, events, strict=True))

    def state(self, run: str) -> State:
        """Return the folded state of a run."""
        state = fold(self.verified(run))
        if state.started is None:
            raise StoreCorrupt(f"the log of run {run} has no beginning")
        return state

    def host_state(self) -> HostState:
        """Return the state shared by all runs."""
        state = HostState()
        for _entry, event in self.events(HOST_STREAM):
            evolve_host(state, event)
        return state

    def library(self) -> LibraryState:
        """Return the plans of the library."""
        return library_of(self.store)

    async def close(self) -> None:
        """Close the database."""
        await self.store.close()
