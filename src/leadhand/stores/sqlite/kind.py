"""Logs in files of SQLite, as a kind of store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.errors import UsageError
from leadhand.stores.location import NoLog, StoreAddress, StoreKind
from leadhand.stores.sqlite.connection import NotBegun, begun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leadhand.stores.log import KeptStore, Lock, Log


class FileKind(StoreKind):
    """Files; a lock beside each keeps a second host away."""

    def address_of(self, text: str, folder: Path) -> StoreAddress:
        """Raise UsageError: a file is named by its path."""
        del text, folder
        raise UsageError("a file of SQLite is named by its path, not by an address")

    def is_there(self, place: Path) -> bool:
        """Return whether there is a file with our tables in it."""
        return begun(place)

    def open(
        self, place: Path, *, socket: str, beside: bool, check: Callable[[KeptStore], None]
    ) -> tuple[KeptStore, Lock]:
        """Lock the file, then open it."""
        del beside  # a file has one writer
        from leadhand.stores.sqlite.lock import HostLock
        from leadhand.stores.sqlite.store import SqliteStore

        lock = HostLock(place)
        lock.acquire(socket)
        try:
            store = SqliteStore(place)
        except BaseException:
            lock.release()
            raise
        try:
            check(store)
        except BaseException:
            store.close_now()
            lock.release()
            raise
        return store, lock

    def reader(self, place: Path) -> Log:
        """Open the file for reading. Raise NoLog if there is none, or nothing in it."""
        from leadhand.stores.sqlite.reader import SqliteReader

        if not place.exists():
            raise NoLog(str(place))
        try:
            return SqliteReader(place)
        except NotBegun:
            raise NoLog(str(place)) from None

    def version(self) -> int:
        """Return the number of the last migration."""
        from leadhand.stores import sql

        return sql.migrations()[-1].number


KIND = FileKind()
