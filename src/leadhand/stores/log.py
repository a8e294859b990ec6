"""The log as a whole: what the application needs beyond the engine's port.

`ports.Store` is what a run needs. `ls`, `verify`, `export`, the server and the anchors also need
this; the durable stores (SQLite, PostgreSQL) have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from leadhand.ports import Store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from leadhand.audit.chain import Batch
    from leadhand.errors import LeadhandError
    from leadhand.ports import Entry, RunHeader, RunQuery, RunSlice
    from leadhand.stores.archive import ArchiveFiling, ArchiveRecord, ArchiveShelf, CopyStart
    from leadhand.stores.group_commit import AppendRequest, CommitDurations


ALL = 1 << 62
"""As many rows as there are; its negative is below every number, also a forged one."""
PAGE_ROWS = 1000
"""Rows that are read at once where all are read."""


def each_batch(log: Log, after: int = -ALL) -> Iterator[Batch]:
    """Yield the commits with a number above `after`, a page in memory at a time."""
    while page := log.batches(after, PAGE_ROWS):
        yield from page
        after = page[-1].number


def each_position(log: Log, after: int = -ALL) -> Iterator[tuple[int, bytes]]:
    """Yield position and hash of each entry above `after`, a page in memory at a time."""
    while page := log.positions(after, PAGE_ROWS):
        yield from page
        after = page[-1][0]


class Log(Protocol):
    """A log for reading; its host may write to it at the same time."""

    @property
    def path(self) -> Path:
        """The path after which local files beside the log are named."""

    @property
    def database_id(self) -> str:
        """The unique id of this log."""

    def read(self, run: str, after: int = 0) -> list[Entry]:
        """Return a run's entries with a seq above `after`, in order."""

    def runs(self) -> list[RunHeader]:
        """Return all runs, oldest first."""

    def numbered_runs(self, after: int, limit: int) -> list[tuple[int, RunHeader]]:
        """Return at most `limit` runs with a number above `after`, oldest first."""

    def count_runs(self) -> int:
        """Return how many runs there are, streams of the host and the library included."""

    def runs_since(self, position: int) -> list[str]:
        """Return the runs that have entries above a position."""

    def header(self, run: str) -> RunHeader | None:
        """Return the header of one run, or None."""

    def find_runs(self, query: RunQuery) -> RunSlice:
        """Return one page of the runs that `query` is for.

        Raise `ValueError` for a cursor or an order that does not exist.
        """

    def runs_by_prefix(self, prefix: str, limit: int = ...) -> list[str]:
        """Return the ids of runs that begin with `prefix`, sorted: at most `limit`."""

    def last_change(self) -> int:
        """Return when the last entry of any run was written, in UTC microseconds; 0 if none."""

    def totals(self, first_day: int, last_day: int, *, plans: bool = ...) -> dict[str, int]:
        """Return the sums over ended runs created on these days, by key.

        Days are counted from 1970-01-01 in UTC, and both are included. With `plans`, also the sums
        of each plan: where every run has a plan id of its own, as many as runs.
        """

    def daily_totals(self, first_day: int, last_day: int) -> list[tuple[int, str, int]]:
        """Return the sums by day and key, without the keys of single plans, workers and so on."""

    def commits(self) -> int:
        """Return how many commits there are, by the last one's number."""

    def last_position(self) -> int:
        """Return the position of the last entry; 0 when there is none."""

    def page(self, after: int, limit: int = ...) -> list[tuple[int, Entry]]:
        """Return entries of all runs with a position above `after`, in commit order."""

    def batches(self, after: int = ..., limit: int = ...) -> list[Batch]:
        """Return the batch chain, or `limit` of its commits with a number above `after`."""

    def batches_from(self, first: int, last: int) -> list[Batch]:
        """Return the commits that hold the positions `first` to `last`, and the commit before."""

    def positions(self, after: int = ..., limit: int = ...) -> list[tuple[int, bytes]]:
        """Return the position and the hash of entries above `after`, in commit order."""

    def places(self, run: str) -> list[int]:
        """Return the positions of a run's entries, in order."""

    def hashes(self, first: int, last: int) -> list[bytes]:
        """Return the hashes of the entries from one position to another."""

    def damage(self) -> list[str]:
        """Return the findings of the database's own check; empty for a sound one."""

    def wrong_lists(self) -> list[str]:
        """Return runs that lists do not show as their summaries say; at most 100."""

    def wrong_totals(self) -> list[tuple[int, str, int, int]]:
        """Return totals that are not the sums of the summaries: day, key, the sum, what is told.

        At most 100.
        """

    def odd_summaries(self) -> list[str]:
        """Return runs whose summary has a type that is never written."""

    def strays(self) -> list[int]:
        """Return the positions of entries whose run does not exist."""

    def epoch(self) -> Any:
        """Return the number of owners the log has had, as stored."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Make all reads inside see the log at one moment, despite commits of its host."""

    def follow(self, after: int = 0, gather_s: float = 0.0) -> AsyncGenerator[tuple[int, Entry]]:
        """Yield each entry of all runs with a position above `after`, in commit order, for ever.

        `gather_s` is the time that commits may gather before they are read.
        """

    def get_artifact(self, ref: str) -> bytes:
        """Return the bytes of an artifact. Raise `StoreCorrupt` if they are missing or altered."""

    def artifacts(self) -> list[str]:
        """Return the names of all artifacts that are kept with the log."""

    def archives(self) -> list[ArchiveRecord]:
        """Return what the log says of each archive, in order."""

    def archive_rows(self) -> list[tuple[int, int, int, int, int]]:
        """Return the table of archives, for a copy."""

    def archive_of(self, run: str) -> ArchiveRecord | None:
        """Return the archive that holds a run; None if the run is in the database, or not known."""

    def archive_number(self, run: str) -> int:
        """Return the number of the archive that holds a run; 0 if none does."""

    def archived_heads(self, number: int) -> list[tuple[str, int, bytes]]:
        """Return where the logs of the runs in an archive end, sorted by the names of the runs."""

    def archived_until(self) -> Batch:
        """Return the last commit that is no longer in the database; `START` if all are."""

    def erased(self, run: str) -> tuple[int, ...]:
        """Return the numbers of the entries of a run in which a secret was erased."""

    @property
    def shelf(self) -> ArchiveShelf:
        """The files of the archives."""

    def copied(self) -> str:
        """Return the id of the log that is being copied here; empty if none is."""

    async def close(self) -> None:
        """Close the log."""

    def close_reader(self) -> None:
        """Close the log without an event loop; followers end."""


class KeptStore(Log, Store, Protocol):
    """A durable store, open for writing."""

    def follow(self, after: int = 0, gather_s: float = 0.0) -> AsyncGenerator[tuple[int, Entry]]:
        """Yield each entry of all runs with a position above `after`, in commit order, for ever.

        `gather_s` is the time that commits may gather before they are read.
        """

    def commit_together(self, requests: list[AppendRequest]) -> None:
        """Commit exactly these appends as one commit; raise the first refusal."""

    def file_away(self, filing: ArchiveFiling) -> None:
        """Record an archive and remove what it holds, in one commit.

        Raise what an append raises; then nothing was removed.
        """

    def note_archive(self, number: int, entry: Entry, what: str) -> None:
        """Record that an archive was rewritten or deleted: `what` is the column that says it."""

    def remove_artifacts(self, refs: Sequence[str]) -> None:
        """Remove artifacts that archives hold; those in a folder that is shared stay."""

    def give_back(self) -> int:
        """Give the space of removed entries back to the disk; return how many bytes.

        Raise `StoreFull` if there is no room for it: then nothing was changed.
        """

    def rebuild_lists(self) -> None:
        """Write what lists and totals need anew, from the summaries."""

    @property
    def head(self) -> Batch:
        """The last commit; also known once the store is closed."""

    @property
    def took(self) -> CommitDurations:
        """The histogram of commit times."""

    @property
    def refusal(self) -> LeadhandError | None:
        """Why appends are refused, if they are."""

    def close_now(self) -> None:
        """Close the store without an event loop."""


class Copy(Log, Protocol):
    """A store that another log is copied into, commit by commit (`copy.py`)."""

    def adopt(self, name: str) -> None:
        """Begin a copy: take the other log's id. No host may open this log until it is complete."""

    def begin_after(self, start: CopyStart) -> None:
        """Begin with what is left of the commits that archives cover; again if that was cut off."""

    def commit_together(self, requests: list[AppendRequest]) -> None:
        """Commit exactly these appends as one commit; raise the first refusal."""

    def settle(self, epoch: int) -> None:
        """End a copy: durable, complete, with as many owners as the other log has had."""

    def put_artifact(self, data: bytes) -> str:
        """Store bytes durably; return their name, `sha256:…`."""


class Lock(Protocol):
    """A lock that keeps a second host from the same log."""

    def release(self) -> None:
        """Release the lock, if held."""
