"""The authentication service, v2.1.5: names are kept in capitals.

Its tests pass, and it is wrong: they know nobody whose name is not ASCII. The migration changes
the data, so that putting the old version back is not enough.
"""

import sqlite3

VERSION = "v2.1.5"


def migrate(database: sqlite3.Connection) -> None:
    """Put the names into capitals, as far as SQLite knows them: A to Z."""
    database.execute("UPDATE users SET name = upper(name)")


def login(database: sqlite3.Connection, name: str) -> dict[str, str]:
    """Return the account of a person. Raise LookupError if there is none."""
    capitals = name.upper()
    row = database.execute("SELECT name FROM users WHERE name = ?", (capitals,)).fetchone()
    if row is None:
        raise LookupError(f"there is no account {name}")
    return {"name": row[0]}
