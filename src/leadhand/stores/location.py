"""Where a log is: the path of a file, or the address of a PostgreSQL database.

Whoever is given a place needs to know no more than this. What belongs to this machine beside
the log (token, anchors, the log of a background host) is named after `home`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from leadhand.errors import UsageError
from leadhand.stores.postgres.address import Address, address_of, is_address

Place: TypeAlias = Path | Address


def place_of(text: str | Path, folder: Path, home: Path) -> Place:
    """What somebody wrote: an address, or a path from `folder`; `home` is for the machine's own."""
    if is_address(text):
        return address_of(str(text), home)
    return folder / Path(text).expanduser()


def home(place: Place) -> Path:
    """What belongs to this machine is named after this path."""
    return place.home if isinstance(place, Address) else place


def there(place: Place) -> bool:
    """Whether there is a log: a file, or a database, with our tables in it."""
    if not isinstance(place, Address):
        from leadhand.stores.sqlite.connection import begun

        return begun(place)
    need_driver()
    from leadhand.stores.postgres.schema import is_there

    return is_there(place)


def need_driver() -> None:
    """UsageError where PostgreSQL's driver, an extra, is not installed."""
    if find_spec("psycopg") is None:
        raise UsageError(
            "a store in PostgreSQL needs its driver. Fix: pip install 'leadhand[postgres]'"
        )


def spelled(place: Place) -> str:
    """A place in full, with its password if it has one: for another process of ours only."""
    return place.secret if isinstance(place, Address) else str(place)


def public(text: str) -> str:
    """What somebody wrote, for people: without a password."""
    if not is_address(text):
        return text
    try:
        return str(address_of(text, Path()))
    except UsageError:
        return "postgres://…"
