"""One host per log, or engines of Temporal: a lock that the server holds for a connection.

A host takes it exclusively; engines, and clients of Temporal, share it. So neither starts while the
other is at work.

The server releases it when that connection ends, for any reason. If the server itself was
restarted, the writer takes the lock again with its next connection, before it does anything else;
if another host was faster, it is fenced.
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
    """The lock of one open store; `shared`: together with other sharing holders."""

    def __init__(self, store: PostgresStore, *, shared: bool = False) -> None:
        self._store = store
        self._shared = shared

    def acquire(self) -> None:
        """Take the lock. Raise `Conflict`, which names the holder, if it is taken."""
        if self._store.writer.lock(shared=self._shared).result():
            return
        raise taken(self._store.address)

    def release(self) -> None:
        """Release the lock, if held; a closed store holds none."""
        if not self._store.closed:
            self._store.writer.unlock().result()


@contextmanager
def kept_from_hosts(address: Address) -> Iterator[None]:
    """Hold the lock without being a host, while a log is copied from."""
    session = Session(address, "copy")
    try:
        session.open()
        if not session.rows("try_lock", (HOSTING,))[0][0]:
            fix = "Fix: end it first; a log that is written to is not moved"
            raise Conflict(f"{taken(address)}. {fix}")
        yield
    finally:
        session.close()


def taken(address: Address) -> Conflict:
    """Return the error for a lock that is taken."""
    who = holder(address)
    if who and who["engines"]:
        count = who["engines"]
        many = f"{count} processes serve" if count > 1 else "a process serves"
        return Conflict(f"{address}: {many} runs here that Temporal hosts")
    name = f"process {who['pid']} on {who['machine']}" if who else "another process"
    return Conflict(f"{address}: {name} is the host of this database")


def holder(address: Address) -> dict[str, Any] | None:
    """Return the current holder of the lock, on any machine; None if it is free.

    `engines`: how many processes share it, for runs on Temporal; 0 for a host.
    """
    session = Session(address, "look")
    try:
        session.open()
        held = session.rows("lock_holder", (HOSTING,))
        if not held:
            return None
        known = session.rows("host")
    finally:
        session.close()
    nobody = {"pid": 0, "started": 0, "socket": "", "machine": "another machine", "engines": 0}
    if not held[0][1]:
        return {**nobody, "engines": len(held)}
    if not known or known[0][0] != held[0][0]:
        return nobody
    _, pid, machine, started = known[0]
    return {**nobody, "pid": pid, "started": started, "machine": machine}
