"""The tables: made and changed by numbered migrations, all in one transaction.

They are created when a role that may do so opens a store for writing; a role that may not (as a
team's writers should not) is told which role must. A lock lets one process migrate at a time, and
the hosts' own lock prevents migration under a running host: a host of the older version that comes
back later checks the version with each new connection, and does not continue. (The owner's epoch is
not changed: the log would know of one owner less than there were.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql as words

from leadhand.errors import Conflict, NotAllowed, StoreError, UsageError
from leadhand.stores import sql
from leadhand.stores.postgres.session import FOLDER, OPEN_PATIENCE_S, Session, explain, queries
from leadhand.stores.sql import queries_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.stores.postgres.address import Address


# Rights in a log in PostgreSQL: three kinds of role, each with no more than it needs.
#
#     owner     created the tables; runs `leadhand migrate`. Not used in daily work.
#     writer    hosts runs, answers, reviews: may read, append and store results, and cannot
#               change or remove existing rows.
#     reader    reads: `ls`, `show`, `watch`, `verify`, dashboards, metrics.
#
# The log itself is changed through two functions that run as their owner (001-initial.sql), so
# a writer has no right to insert into, update or delete from it. Roles are created by the
# operator of the server; here they only get their rights, after earlier rights are revoked.


FILE = FOLDER / "roles.sql"


def statements(kind: str, role: str) -> list[words.Composed]:
    """Return the statements that make a role a reader or a writer, and no more than that."""
    named = queries_in(FILE)
    parts = ["none", "reader", *(["writer"] if kind == "writer" else [])]
    texts = [text for part in parts for text in named[part].split(";") if text.strip()]
    name = words.Identifier(role)
    return [words.SQL(text.strip()).format(role=name) for text in texts]


def grant(address: Address, readers: Sequence[str], writers: Sequence[str]) -> None:
    """Give roles their rights, all or none of them; requires the owner of the tables."""
    for role in readers:
        if role in writers:
            raise UsageError(f"{role}: a writer reads too. Fix: name it once")

    def give(connection: psycopg.Connection[Any]) -> None:
        refuse_others(connection, address)
        with connection.transaction():
            for kind, roles in (("reader", readers), ("writer", writers)):
                for role in roles:
                    _refuse_unknown(connection, role)
                    for statement in statements(kind, role):
                        connection.execute(statement)

    session = Session(address, "roles", patience_s=OPEN_PATIENCE_S)
    try:
        session.open()
        session.do(give)
    except psycopg.Error as error:
        raise explain(error, address) from None
    finally:
        session.close()


def _refuse_unknown(connection: psycopg.Connection[Any], role: str) -> None:
    row = connection.execute(
        "SELECT rolsuper OR pg_has_role(rolname, nspowner, 'USAGE') FROM pg_roles, pg_namespace"
        " WHERE rolname = %s AND nspname = 'leadhand'",
        (role,),
    ).fetchone()
    if row is None:
        raise UsageError(
            f"there is no role {role}. Fix: let who runs the server make it: "
            f'CREATE ROLE "{role}" LOGIN'
        )
    if row[0]:
        raise UsageError(
            f"{role}: is the owner of the tables or a superuser, whose rights have no bounds. "
            "Fix: name another role"
        )


MIGRATING = 0x6C656164_6D696772
"""The number of the advisory lock under which migrations run."""
HOSTING = 0x6C656164_686F7374
"""The number of the advisory lock that a host holds."""


def migrations() -> tuple[sql.SchemaMigration, ...]:
    """Return all migrations, in order."""
    return sql.migrations_in(FOLDER)


def version(connection: psycopg.Connection[Any], address: Address) -> int:
    """Return the database's schema version; 0 if there is none.

    Raise `StoreError` if the schema is not ours.
    """
    (kind,) = connection.execute(queries()["whose"]).fetchone() or ("",)
    if kind == "empty":
        return 0
    if kind == "ours":
        found = connection.execute(queries()["meta"], ("schema",)).fetchone()
        if found is not None and found[0].isdecimal():
            return int(found[0])
    raise StoreError(
        f"{address}: the schema leadhand of this database holds something else than a log of "
        "Leadhand's. Fix: name another database"
    )


def is_there(address: Address) -> bool:
    """Return whether a database holds a log of ours, of any version."""
    session = Session(address, "look", patience_s=OPEN_PATIENCE_S)
    try:
        session.open()
        return session.do(lambda connection: version(connection, address)) > 0
    finally:
        session.close()


def check(connection: psycopg.Connection[Any], address: Address) -> None:
    """Raise `StoreError` unless the tables have the newest schema."""
    found, newest = version(connection, address), migrations()[-1].number
    sql.refuse_newer(found, newest, address)
    if found < newest:
        has = f"has schema {found}, older than {newest}" if found else "has no log of Leadhand's"
        raise StoreError(f"{address}: this database {has}. Fix: as its owner, {address.migrate()}")


def migrate(
    connection: psycopg.Connection[Any],
    address: Address,
    steps: Sequence[sql.SchemaMigration] | None = None,
) -> int:
    """Migrate the database to the newest version; return how many migrations ran."""
    steps = migrations() if steps is None else steps
    found = version(connection, address)
    sql.refuse_newer(found, steps[-1].number, address)
    if found == steps[-1].number:
        return 0
    refuse_others(connection, address)
    ran = 0
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATING,))
        found = version(connection, address)  # again, under the lock
        if found and not _unhosted(connection):
            raise Conflict(
                f"{address}: its tables are older than this version of Leadhand, and a host still "
                "works with them. Fix: end that host first (leadhand doctor names it)"
            )
        for step in steps:
            if step.number <= found:
                continue
            if step.number != found + 1:
                raise StoreError(f"{address}: migration {step.number} does not follow {found}.")
            if not found:
                connection.execute("CREATE SCHEMA IF NOT EXISTS leadhand")
            connection.execute(step.text)
            connection.execute(queries()["set_meta"], (str(step.number), "schema"))
            found, ran = step.number, ran + 1
    return ran


def _unhosted(connection: psycopg.Connection[Any]) -> bool:
    """Return whether no host runs; none can start during the transaction."""
    row = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (HOSTING,)).fetchone()
    return bool(row and row[0])


def refuse_others(connection: psycopg.Connection[Any], address: Address) -> None:
    """Raise for a role that may read and append, but not create tables."""
    row = connection.execute(
        "SELECT CASE WHEN to_regnamespace('leadhand') IS NULL"
        " THEN has_database_privilege(current_database(), 'CREATE')"
        " ELSE pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'leadhand'), 'USAGE')"
        " END, current_user"
    ).fetchone()
    allowed, user = row or (False, "")
    if not allowed:
        raise NotAllowed(
            f"{address}: the role {user} may not make or change tables here. "
            f"Fix: let the owner of the database run: {address.migrate(f' --writer {user}')}"
        )
