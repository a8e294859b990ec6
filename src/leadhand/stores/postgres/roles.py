"""Who may do what to a log in PostgreSQL: three kinds of role, each with no more than it needs.

    owner     made the tables; runs `leadhand migrate`. Nobody works with it day by day.
    writer    hosts runs, answers, reviews: may read, append and keep results, and cannot
              change or remove what is there.
    reader    looks: `ls`, `show`, `watch`, `verify`, dashboards, figures.

The log itself is changed through two functions that run as their owner (`sql/002-roles.sql`), so
a writer has no right to insert into, update or delete from it. Roles are made by whoever runs
the server; here they are only given their rights, and rights they had before are taken first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql as words

from leadhand.errors import UsageError
from leadhand.stores.postgres import schema
from leadhand.stores.postgres.session import FOLDER, OPEN_PATIENCE_S, Session, explain
from leadhand.stores.sql import queries_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.stores.postgres.address import Address

FILE = FOLDER / "roles.sql"
KINDS = ("reader", "writer")


def statements(kind: str, role: str) -> list[words.Composed]:
    """What is said to the server to make a role a reader or a writer, and no more than that."""
    named = queries_in(FILE)
    parts = ["none", "reader", *(["writer"] if kind == "writer" else [])]
    texts = [text for part in parts for text in named[part].split(";") if text.strip()]
    name = words.Identifier(role)
    return [words.SQL(text.strip()).format(role=name) for text in texts]


def grant(address: Address, readers: Sequence[str], writers: Sequence[str]) -> None:
    """Give roles their rights, all or none of them; as the owner of the tables."""
    for role in readers:
        if role in writers:
            raise UsageError(f"{role}: a writer reads too. Fix: name it once")

    def give(connection: psycopg.Connection[Any]) -> None:
        schema.refuse_others(connection, address)
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
