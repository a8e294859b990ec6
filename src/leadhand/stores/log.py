"""What the application asks of a store beyond the engine's port: to look at the whole log.

`ports.Store` is what a run needs. This is what `ls`, `verify`, `export`, the server and the
anchors need besides; the stores that are kept (SQLite, PostgreSQL) have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from leadhand.ports import Store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from leadhand.audit.chain import Batch
    from leadhand.errors import LeadhandError
    from leadhand.ports import Entry, RunHeader
    from leadhand.stores.group_commit import AppendRequest, Took


class Log(Protocol):
    """A log, read only; its host may be writing to it meanwhile."""

    @property
    def path(self) -> Path:
        """What belongs to this machine beside the log is named after it."""

    @property
    def database_id(self) -> str:
        """A name of this log that no other has."""

    def read(self, run: str, after: int = 0) -> list[Entry]:
        """A run's entries with a seq above `after`, in order."""

    def runs(self) -> list[RunHeader]:
        """All runs, oldest first."""

    def header(self, run: str) -> RunHeader | None:
        """One run."""

    def commits(self) -> int:
        """How many commits there are, by the last one's number."""

    def last_position(self) -> int:
        """The position of the last entry; 0 when there is none."""

    def page(self, after: int, limit: int = ...) -> list[tuple[int, Entry]]:
        """Entries of all runs with a position above `after`, in commit order."""

    def batches(self) -> list[Batch]:
        """The batch chain."""

    def batches_from(self, first: int, last: int) -> list[Batch]:
        """The commits that hold the positions from one to another, and the commit before them."""

    def positions(self) -> list[tuple[int, bytes]]:
        """Every entry's position and hash, in commit order: what the batch chain is over."""

    def places(self, run: str) -> list[int]:
        """The positions of a run's entries, in order."""

    def hashes(self, first: int, last: int) -> list[bytes]:
        """The hashes of the entries from one position to another."""

    def damage(self) -> list[str]:
        """What the database's own check finds; empty for a sound one."""

    def odd_summaries(self) -> list[str]:
        """Runs whose summary is of a kind that nobody writes."""

    def strays(self) -> list[int]:
        """Positions of entries whose run is not there."""

    def epoch(self) -> Any:
        """How many owners the log has had, as it stands there."""

    def snapshot(self) -> AbstractContextManager[None]:
        """All reads inside see the log at one moment, whatever its host commits meanwhile."""

    def follow(self, after: int = 0, gather_s: float = 0.0) -> AsyncGenerator[tuple[int, Entry]]:
        """Every entry of every run with a position above `after`, in commit order, for ever."""

    def get_artifact(self, ref: str) -> bytes:
        """The bytes behind a name; StoreCorrupt when they do not match it."""

    def artifacts(self) -> list[str]:
        """The names of all artifacts that are kept with the log."""

    def copied(self) -> str:
        """The name of the log that is being copied here; empty when none is."""

    async def close(self) -> None:
        """Let go."""

    def close_reader(self) -> None:
        """Let go, without a loop to wait in; followers end."""


class KeptStore(Log, Store, Protocol):
    """A store that outlives its process, open for writing."""

    def follow(self, after: int = 0, gather_s: float = 0.0) -> AsyncGenerator[tuple[int, Entry]]:
        """Every entry of every run with a position above `after`, in commit order, for ever."""

    @property
    def head(self) -> Batch:
        """The last commit; also known once the store is closed."""

    @property
    def took(self) -> Took:
        """How long commits took."""

    @property
    def refusal(self) -> LeadhandError | None:
        """Why nothing can be written any more, if so."""

    def close_now(self) -> None:
        """Let go where there is no loop to wait in."""


class Copy(Log, Protocol):
    """A store that another log is copied into, commit by commit (`copy.py`)."""

    def adopt(self, name: str) -> None:
        """Begin: take the other log's name. Nobody may host this one until it is whole."""

    def commit_together(self, requests: list[AppendRequest]) -> None:
        """One commit of exactly these appends; raises what refused the first that was."""

    def settle(self, epoch: int) -> None:
        """End: durable, whole, with as many owners as the other log has had."""

    def put_artifact(self, data: bytes) -> str:
        """Keep bytes durably; gives back their name, `sha256:…`."""


class Lock(Protocol):
    """What keeps a second host from the same log."""

    def release(self) -> None:
        """Let go, if held."""
