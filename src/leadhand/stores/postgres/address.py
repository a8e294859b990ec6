"""The address of a log in PostgreSQL, and the part of it that may be shown.

    postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full&artifacts=/mnt/shared

Everything is passed to the driver (libpq) but `artifacts`, the folder for large results that all
machines share. A password is better left out: the driver reads PGPASSWORD, ~/.pgpass and service
files. The displayed text of an address never contains one.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from leadhand.errors import UsageError
from leadhand.stores.location import StoreAddress

SCHEMES = ("postgres", "postgresql")
SECRET = re.compile("pass|secret", re.IGNORECASE)
"""Parameters that are never shown."""


@dataclass(frozen=True, slots=True)
class Address(StoreAddress):
    """The address of one database."""

    dsn: str = field(repr=False, compare=False)
    """What the driver is given."""
    artifacts: Path | None = None
    """The shared folder for large results; without one they too are kept in the database."""

    def migrate(self, options: str = "") -> str:
        """Return the command for the owner of the database, to be copied into a shell."""
        parts = urlsplit(self.shown)
        netloc = f"OWNER@{parts.netloc.rpartition('@')[2]}"
        address = parts._replace(netloc=netloc).geturl()
        return f"leadhand migrate {shlex.quote(address)}{options}"

    @property
    def user(self) -> str:
        """The role in the address; empty if the driver's settings name it."""
        return unquote(urlsplit(self.shown).username or "")


def address_of(text: str, folder: Path) -> Address:
    """Parse an address; `folder` is the place of this machine's own files beside it.

    Raise `UsageError`, which never repeats the text: it may hold a password.
    """
    try:
        parts = urlsplit(text)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise UsageError("the address of the PostgreSQL database cannot be read") from None
    if parts.scheme not in SCHEMES or not text.partition(":")[2].startswith("//"):
        raise UsageError(
            "a store is the path of a file or the address of a PostgreSQL database. "
            "Fix: postgres://USER@HOST/DATABASE"
        )
    who, at, where = parts.netloc.rpartition("@")
    # A password with an unescaped / or @ ends too early, and the rest of it would be shown.
    torn = "@" in who or ("@" in text and where and not at)
    if torn or parts.fragment or any(character.isspace() for character in text):
        raise UsageError(
            "the address of the PostgreSQL database has a character that must be escaped. "
            "Fix: write @ as %40, / as %2F, # as %23, a space as %20"
        )
    database = unquote(parts.path.removeprefix("/")) or dict(options).get("dbname", "")
    if not database:
        raise UsageError(
            "the address names no database. Fix: postgres://USER@HOST/DATABASE, "
            "with the password in PGPASSWORD or ~/.pgpass"
        )
    folders = [value for key, value in options if key == "artifacts"]
    theirs = [(key, value) for key, value in options if key != "artifacts"]
    public = [(key, value) for key, value in options if not SECRET.search(key)]
    user = f"{who.partition(':')[0]}{at}" if who.partition(":")[0] else ""
    hosts = [value for key, value in theirs if key in ("host", "hostaddr", "port")]
    name = hashlib.sha256("\0".join([where.lower(), database, *hosts]).encode()).hexdigest()[:12]
    return Address(
        secret=text,
        dsn=f"postgresql://{parts.netloc}{parts.path}{_query(theirs)}",
        shown=f"postgres://{user}{where}{parts.path}{_query(public)}",
        home=folder / f"postgres-{name}",
        artifacts=_folder(folders[-1]) if folders else None,
    )


def _query(options: list[tuple[str, str]]) -> str:
    return f"?{urlencode(options, safe='/', quote_via=quote)}" if options else ""


def _folder(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise UsageError(
            "artifacts=FOLDER in a store's address is a folder that all machines share. "
            "Fix: write its whole path, as artifacts=/mnt/leadhand"
        )
    return path
