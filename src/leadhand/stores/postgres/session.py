"""Reconnecting connections to PostgreSQL, and its errors in plain words.

A connection is lost for many reasons (a restart, a failover, a cable) and all are handled alike:
reads are repeated, writes are looked up first (`writer.py`). The caller sets how long to keep
trying.

Errors are told apart by their code (SQLSTATE). While connecting there is none: the driver has only
the server's message, so permanent errors are recognized by their text.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import conninfo

from leadhand.errors import (
    LeadhandError,
    NotAllowed,
    StoreBroken,
    StoreCorrupt,
    StoreError,
    StoreFull,
    UsageError,
)
from leadhand.stores import sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.stores.postgres.address import Address

T = TypeVar("T")
FOLDER = Path(__file__).with_name("sql")
OPEN_PATIENCE_S = 10.0
"""How long a server may take to answer when a store is opened."""
PATIENCE_S = 300.0
"""How long a server may be unavailable while a store is in use."""
PAUSE_S = (0.02, 1.0)
"""The first and the longest pause between two attempts."""
FOR_GOOD = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "is not permitted to log in",
    "permission denied",
    "invalid",
    "could not translate host name",
    "does not support SSL",
    "certificate",
)
"""Texts of permanent errors of a server."""
PASSING = frozenset({"40001", "40P01", "55P03", "57014", "53300", "53200", "25006", "25P03"})
"""Codes of failures that left nothing behind and may pass."""
SETTINGS = (
    # Timeouts are set by us; and an idle host must not lose its connection, since its lock would go
    # with it. (A server knows some of these names or all.)
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout',"
    " 'lock_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout',"
    " 'transaction_timeout');"
    " SELECT set_config('default_transaction_isolation', 'read committed', false),"
    # 'on' is the least that survives a crash of the server; stronger settings are kept.
    " set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit')"
    " IN ('off', 'local') THEN 'on' ELSE current_setting('synchronous_commit') END, false)"
)


def queries() -> dict[str, str]:
    """Return the statements for PostgreSQL, by name."""
    return sql.queries_in(FOLDER / "queries.sql")


def options_of(address: Address, name: str) -> dict[str, Any]:
    """Return the driver's options besides the address; options in the address take precedence."""
    ours: dict[str, Any] = {
        "application_name": f"leadhand {name}",
        "connect_timeout": 10,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        "client_encoding": "utf8",
    }
    try:
        theirs = conninfo.conninfo_to_dict(address.dsn)
    except psycopg.Error:  # its message repeats the address
        raise UsageError(
            f"{address}: the address cannot be read. Fix: escape special characters of the "
            "password (%40 for @), or leave it to PGPASSWORD or ~/.pgpass"
        ) from None
    return {**ours, **theirs}


def connect(address: Address, name: str) -> psycopg.Connection[Any]:
    """Open a connection; one attempt."""
    return psycopg.connect(**options_of(address, name), autocommit=True)


class Session:
    """One connection, reopened whenever it is lost. For one thread at a time: others wait."""

    def __init__(
        self,
        address: Address,
        name: str,
        *,
        patience_s: float = PATIENCE_S,
        ready: Callable[[psycopg.Connection[Any]], None] = lambda _connection: None,
    ) -> None:
        """Prepare a session; `ready` is called with each new connection before its first use."""
        self.address = address
        self.patience_s = patience_s
        self.ready = ready
        self._name = name
        self._connection: psycopg.Connection[Any] | None = None
        self._lock = threading.RLock()
        self._closed = False

    def open(self) -> None:
        """Connect for the first time."""
        self.connected(time.monotonic() + OPEN_PATIENCE_S)

    def connected(self, deadline: float) -> psycopg.Connection[Any]:
        """Return the connection; without one, try to connect until `deadline`."""
        with self._lock:
            pause = PAUSE_S[0]
            while self._connection is None:
                if self._closed:
                    raise StoreError(f"{self.address}: closed")
                try:
                    self._connection = self._made()
                except psycopg.Error as error:
                    if for_good(error) or time.monotonic() + pause > deadline:
                        raise explain(error, self.address) from None
                time.sleep(0 if self._connection else pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(2 * pause, PAUSE_S[1])
            return self._connection

    def _made(self) -> psycopg.Connection[Any]:
        connection = connect(self.address, self._name)
        try:
            connection.execute(SETTINGS)
            self.ready(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def drop(self) -> None:
        """Close a lost connection."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def rows(self, name: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Run one repeatable statement by its name; return its rows."""
        return self.fetch(queries()[name], values)

    def fetch(self, statement: str, values: tuple[Any, ...] | dict[str, Any]) -> list[Any]:
        """Run one repeatable statement; return its rows."""

        def ask(connection: psycopg.Connection[Any]) -> list[Any]:
            cursor = connection.execute(statement, values, binary=True)
            return cursor.fetchall() if cursor.description else []

        return self.do(ask)

    def do(
        self, work: Callable[[psycopg.Connection[Any]], T], patience_s: float | None = None
    ) -> T:
        """Run `work`, which may be repeated if the connection is lost meanwhile."""
        patience_s = self.patience_s if patience_s is None else min(patience_s, self.patience_s)
        deadline = time.monotonic() + patience_s
        with self._lock:
            while True:
                connection = self.connected(deadline)
                try:
                    return work(connection)
                except psycopg.Error as error:
                    if not self.passed(error) or time.monotonic() > deadline:
                        raise explain(error, self.address) from None

    def passed(self, error: psycopg.Error) -> bool:
        """Return whether to retry at once; close a lost connection."""
        connection = self._connection
        if lost(error) or connection is None or connection.broken or connection.closed:
            self.drop()
            return True
        if error.sqlstate == "25006":  # the server has become a standby
            self.drop()
        if error.sqlstate in PASSING:
            time.sleep(random.uniform(*PAUSE_S) / 10)  # noqa: S311 - so that two do not meet again
            return True
        return False

    def end_transaction(self) -> None:
        """End a transaction in which nothing was changed."""
        try:
            if self._connection is not None:
                self._connection.rollback()
        except psycopg.Error:
            self.drop()

    def close(self) -> None:
        """Close the session for good."""
        self._closed = True
        self.drop()


def pass_on_cancel() -> None:
    """Raise `CancelledError` if a driver's error hides that our task was cancelled.

    The driver answers a cancellation by ending its query, and if the connection is lost meanwhile
    it raises that error instead.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def lost(error: psycopg.Error) -> bool:
    """Return whether the server ended the connection."""
    code = error.sqlstate or ""
    return code.startswith("08") or code in {"57P01", "57P02", "57P03", "57P05"}


def for_good(error: psycopg.Error) -> bool:
    """Return whether connecting again cannot help."""
    code = error.sqlstate
    if code is not None:
        return not (lost(error) or code in PASSING)
    words = str(error)
    return any(each in words for each in FOR_GOOD)


def explain(error: psycopg.Error, address: Address) -> LeadhandError:
    """Return our error for one of the driver's, raised while nothing was being committed."""
    words = " ".join((error.diag.message_primary or str(error)).split())
    code, text = error.sqlstate or "", f"{address}: {words}"
    if code == "53100":
        return StoreFull(f"{address}: the server's disk is full. Fix: free some space and resume.")
    if code == "25006":
        return StoreError(
            f"{address}: this server takes no writes ({words}). Fix: name the primary; with "
            "several hosts in the address, add target_session_attrs=read-write"
        )
    if code == "42501":
        return NotAllowed(
            f"{text}. Fix: connect as a role that may, or let the owner grant it: "
            f"{address.migrate(' --writer ' + (address.user or 'ROLE'))}"
        )
    if code in {"3F000", "42P01", "42883", "42703"}:
        return StoreError(
            f"{address}: this database has no log of Leadhand's, or an older one ({words}). "
            f"Fix: as its owner, {address.migrate()}"
        )
    if code.startswith("XX") or code == "LH003":
        return StoreCorrupt(f"{text}. Fix: put back a copy; nothing was changed.")
    if code == "58030":
        return StoreBroken(f"{address}: the server's disk failed ({words}).")
    if code or not isinstance(error, psycopg.OperationalError):
        return StoreError(text)
    if "password" in words or "authentication failed" in words or "pg_hba" in words:
        return NotAllowed(
            f"{text}. Fix: give the password in PGPASSWORD or ~/.pgpass, or ask who runs the server"
        )
    if "invalid" in words:
        return UsageError(f"{text}. Fix: postgres://USER@HOST:PORT/DATABASE")
    if "does not exist" in words:
        return UsageError(f"{text}. Fix: let who runs the server make it (createdb, createuser)")
    return StoreError(
        f"{address}: the server cannot be reached ({words}). "
        "Fix: see that it runs, and that the address is right"
    )
