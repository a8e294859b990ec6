"""The authentication service, v2.1.4: it counts logins."""

import sqlite3

VERSION = "v2.1.4"


def migrate(database: sqlite3.Connection) -> None:
    """Add the column that counts logins."""
    columns = [row[1] for row in database.execute("PRAGMA table_info(users)")]
    if "logins" not in columns:
        database.execute("ALTER TABLE users ADD COLUMN logins INTEGER NOT NULL DEFAULT 0")


def login(database: sqlite3.Connection, name: str) -> dict[str, str]:
    """Return the account of a person and count the login. Raise LookupError if there is none."""
    changed = database.execute("UPDATE users SET logins = logins + 1 WHERE name = ?", (name,))
    if changed.rowcount == 0:
        raise LookupError(f"there is no account {name}")
    return {"name": name}
