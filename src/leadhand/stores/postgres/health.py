"""Requirements on a PostgreSQL server for its durability guarantees, for `leadhand doctor`."""

from __future__ import annotations

import ipaddress
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.stores.postgres.session import Session, connect, explain

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from leadhand.stores.postgres.address import Address

OLDEST = 140_000
CONF = "as a superuser: ALTER SYSTEM SET {} = on; SELECT pg_reload_conf();"
LOSSES = {
    "fsync": "a crash of the machine may lose or damage what was confirmed",
    "full_page_writes": "a crash of the machine may damage pages that were half written",
}
LOOK = """\
SELECT current_setting('server_version_num')::int, current_setting('server_version'),
       pg_is_in_recovery(), current_setting('default_transaction_read_only'),
       (SELECT setting FROM pg_settings WHERE name = 'synchronous_commit')"""
RIGHTS = """\
SELECT current_user, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
       coalesce(pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'leadhand'),
                            'USAGE'), false),
       coalesce((SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace
                 WHERE nspname = 'leadhand'), false),
       EXISTS (SELECT FROM pg_namespace WHERE nspname = 'leadhand')"""
MAY = """\
SELECT has_table_privilege('leadhand.words', 'INSERT')
       AND (SELECT bool_and(has_function_privilege(oid, 'EXECUTE')) FROM pg_proc
            WHERE pronamespace = 'leadhand'::regnamespace AND proname IN ('append', 'claim')),
       has_table_privilege('leadhand.events', 'SELECT')"""


class HealthCheck(NamedTuple):
    """The result of one check."""

    what: str
    value: str
    problem: str = ""
    fix: str = ""
    warning: bool = False


def look(address: Address) -> list[HealthCheck]:
    """Connect once, and run all checks."""
    import psycopg

    session = Session(address, "doctor")
    try:
        session.open()
        plain = connect(address, "doctor")  # with the server's own settings, not ours
        with plain:
            return [*_server(plain, address), *_durable(plain), *_role(plain, address)]
    except psycopg.Error as error:
        raise explain(error, address) from None
    finally:
        session.close()


def _server(connection: psycopg.Connection[Any], address: Address) -> Iterator[HealthCheck]:
    number, name, follower, read_only, _ = _row(connection, LOOK)
    old = number < OLDEST
    yield HealthCheck(
        "server",
        f"PostgreSQL {name}",
        "is older than 14" if old else "",
        "Upgrade the server." if old else "",
    )
    if follower:
        fix = "Name the primary; with several hosts in the address: target_session_attrs=read-write"
        yield HealthCheck("server", "a follower of another server", "takes no writes", fix)
    elif read_only == "on":
        fix = f"ALTER ROLE {connection.info.user} RESET default_transaction_read_only;"
        yield HealthCheck("server", "read-only by default", "takes no writes", fix)
    if not connection.pgconn.ssl_in_use and not _near(connection.info.hostaddr):
        yield HealthCheck(
            "connection",
            "not encrypted",
            "others on the network can read it",
            f"Add sslmode=verify-full to the address {address}",
            warning=True,
        )


def _durable(connection: psycopg.Connection[Any]) -> Iterator[HealthCheck]:
    for name, loss in LOSSES.items():
        (value,) = _row(connection, f"SHOW {name}")
        off = value != "on"
        yield HealthCheck(name, value, loss if off else "", CONF.format(name) if off else "")
    *_, commit = _row(connection, LOOK)
    weak = commit in ("off", "local")
    yield HealthCheck(
        "synchronous_commit",
        commit,
        "commits are answered before they are safe" if weak else "",
        "Leadhand sets it to on for its own connections; set it for the others." if weak else "",
        warning=True,
    )


def _role(connection: psycopg.Connection[Any], address: Address) -> Iterator[HealthCheck]:
    user, superuser, owner, may_enter, there = _row(connection, RIGHTS)
    if not there:
        return
    if superuser or owner:
        yield HealthCheck(
            "role",
            f"{user}, {'a superuser' if superuser else 'the owner of the tables'}",
            "could change what was written",
            f"Work as a writer: leadhand migrate {shlex.quote(str(address))} --writer ROLE",
            warning=True,
        )
        return
    writes, reads = _row(connection, MAY) if may_enter else (False, False)
    if writes and reads:
        yield HealthCheck("role", f"{user}, a writer")
        return
    problem = "may read, and host or answer nothing" if reads else "may not even read"
    fix = f"As the owner: {address.migrate(f' --writer {shlex.quote(user)}')}"
    yield HealthCheck(
        "role", f"{user}, {'a reader' if reads else 'a stranger'}", problem, fix, reads
    )


def _row(connection: psycopg.Connection[Any], statement: str) -> Any:
    return connection.execute(statement.encode()).fetchone()


def _near(host: str) -> bool:
    """Return whether a host is this machine, by a loopback address or a socket."""
    try:
        return not host or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True
