"""One host per log: a lock that the server holds for the writer's connection.

The server lets go of it when that connection ends, however it ends. When it is the server that
went away, the writer takes the lock again with its next connection, before it does anything
else; if another host was faster, it is fenced.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from leadhand.errors import Conflict
from leadhand.stores.postgres.schema import HOSTING
from leadhand.stores.postgres.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leadhand.stores.postgres.address import Address
    from leadhand.stores.postgres.store import PostgresStore


class PostgresLock:
    """The lock of one open store."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def acquire(self) -> None:
        """Take the lock, or raise Conflict naming who has it."""
        if self._store.writer.lock().result():
            return
        who = holder(self._store.address)
        name = f"process {who['pid']} on {who['machine']}" if who else "another process"
        raise Conflict(f"{self._store.address}: {name} is the host of this database")

    def release(self) -> None:
        """Let go, if held; a store that is closed holds nothing."""
        if not self._store.closed:
            self._store.writer.unlock().result()


@contextmanager
def kept_from_hosts(address: Address) -> Iterator[None]:
    """Hold the lock without being a host, while a log is copied from."""
    session = Session(address, "copy")
    try:
        session.open()
        if not session.rows("try_lock", (HOSTING,))[0][0]:
            who = holder(address)
            name = f"process {who['pid']} on {who['machine']}" if who else "another process"
            raise Conflict(
                f"{address}: {name} is the host of this database. "
                "Fix: end it first; a log that is written to is not moved"
            )
        yield
    finally:
        session.close()


def holder(address: Address) -> dict[str, Any] | None:
    """Who holds the lock now, on whatever machine; None when it is free."""
    session = Session(address, "look")
    try:
        session.open()
        held = session.rows("lock_holder", (HOSTING,))
        if not held:
            return None
        known = session.rows("host")
    finally:
        session.close()
    if not known or known[0][0] != held[0][0]:
        return {"pid": 0, "started": 0, "socket": "", "machine": "another machine"}
    _, pid, machine, started = known[0]
    return {"pid": pid, "started": started, "socket": "", "machine": machine}
