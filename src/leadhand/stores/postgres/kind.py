"""Logs in PostgreSQL, as a kind of store. The driver is an extra."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from leadhand.errors import UsageError
from leadhand.stores.location import Listening, StoreKind
from leadhand.stores.postgres.address import Address, address_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from leadhand.stores.log import KeptStore, Lock, Log


def need_driver() -> None:
    """Raise `UsageError` if the driver of PostgreSQL, an extra, is not installed."""
    if find_spec("psycopg") is None:
        raise UsageError(
            "a store in PostgreSQL needs its driver. Fix: pip install 'leadhand[postgres]'"
        )


class PostgresKind(StoreKind):
    """Databases that a team shares; hosts are locked and contacted through the database."""

    is_asked_by_itself = True

    def address_of(self, text: str, folder: Path) -> Address:
        """Read an address."""
        return address_of(text, folder)

    def is_there(self, place: Address) -> bool:
        """Return whether the database has our tables."""
        need_driver()
        from leadhand.stores.postgres.schema import is_there

        return is_there(place)

    def open(
        self, place: Address, *, socket: str, beside: bool, check: Callable[[KeptStore], None]
    ) -> tuple[KeptStore, Lock]:
        """Open the database, then lock it."""
        del socket  # its host is contacted through the database
        need_driver()
        from leadhand.stores.postgres.lock import PostgresLock
        from leadhand.stores.postgres.store import PostgresStore

        store = PostgresStore(place, shared=beside)
        lock = PostgresLock(store, shared=beside)
        try:
            check(store)
            lock.acquire()
        except BaseException:
            store.close_now()
            raise
        return store, lock

    def reader(self, place: Address) -> Log:
        """Open the database for reading."""
        need_driver()
        from leadhand.stores.postgres.reader import PostgresReader

        return PostgresReader(place)

    def version(self) -> int:
        """Return the number of the last migration."""
        from leadhand.stores.postgres import schema

        return schema.migrations()[-1].number

    def holder(self, place: Address) -> dict[str, Any] | None:
        """Return the holder of the lock, or None."""
        need_driver()
        from leadhand.stores.postgres.lock import holder

        return holder(place)

    def service(
        self, place: Address, answer: Callable[[bytes], Awaitable[bytes]]
    ) -> Listening | None:
        """Return a listener that receives through the database."""
        from leadhand.stores.postgres.host_messages import CommandService

        return CommandService(place, answer)

    async def ask(self, place: Address, request: bytes, wait_s: float) -> bytes | None:
        """Ask through the database."""
        need_driver()
        from leadhand.stores.postgres.host_messages import ask

        return await ask(place, request, wait_s)


KIND = PostgresKind()
