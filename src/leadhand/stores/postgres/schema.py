"""The tables: made and changed by numbered migrations, each in one transaction.

Whoever may create them does so when a store is opened for writing; a role that may not (as a
team's writers should not) is told who must. A session lock lets one migrate at a time, and
the owner's epoch is raised with each migration: a host of the older version that still runs
cannot append to tables it does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.errors import NotAllowed, StoreError
from leadhand.stores import sql
from leadhand.stores.postgres.session import FOLDER, OPEN_PATIENCE_S, Session, queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from leadhand.stores.postgres.address import Address

MIGRATING = 0x6C656164_6D696772
"""The number of the advisory lock under which migrations run."""


def migrations() -> tuple[sql.Migration, ...]:
    """All migrations, in order."""
    return sql.migrations_in(FOLDER)


def version(connection: psycopg.Connection[Any]) -> int:
    """The database's schema version; 0 where there is none of ours."""
    (there,) = connection.execute(queries()["has_meta"]).fetchone() or (False,)
    if not there:
        return 0
    found = connection.execute(queries()["meta"], ("schema",)).fetchone()
    return int(found[0]) if found else 0


def is_there(address: Address) -> bool:
    """Whether a database holds a log of ours, of whatever version."""
    session = Session(address, "look", patience_s=OPEN_PATIENCE_S)
    try:
        session.open()
        return session.do(version) > 0
    finally:
        session.close()


def check(connection: psycopg.Connection[Any], address: Address) -> None:
    """StoreError unless the tables are those this code knows."""
    found, newest = version(connection), migrations()[-1].number
    sql.refuse_newer(found, newest, address)
    if found < newest:
        has = f"has schema {found}, older than {newest}" if found else "has no log of Leadhand's"
        raise StoreError(
            f"{address}: this database {has}. Fix: as its owner, leadhand migrate {address}"
        )


def migrate(
    connection: psycopg.Connection[Any],
    address: Address,
    steps: Sequence[sql.Migration] | None = None,
) -> int:
    """Bring the database to the newest version; gives back how many migrations ran."""
    steps = migrations() if steps is None else steps
    found = version(connection)
    sql.refuse_newer(found, steps[-1].number, address)
    if found == steps[-1].number:
        return 0
    refuse_others(connection, address)
    ran = 0
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATING,))
        found = version(connection)  # again under the lock: another may have been faster
        for step in steps:
            if step.number <= found:
                continue
            if step.number != found + 1:
                raise StoreError(f"{address}: migration {step.number} does not follow {found}.")
            if not found:
                connection.execute("CREATE SCHEMA IF NOT EXISTS leadhand")
            connection.execute(step.text)
            connection.execute(queries()["set_meta"], (str(step.number), "schema"))
            connection.execute(queries()["raise_epoch"])
            found, ran = step.number, ran + 1
    return ran


def refuse_others(connection: psycopg.Connection[Any], address: Address) -> None:
    """A role that may read and append, but not make tables, is told so in plain words."""
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
            f"Fix: let the owner of the database run: leadhand migrate {address} --writer {user}"
        )
