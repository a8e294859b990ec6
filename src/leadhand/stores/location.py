"""The location of a log: the path of a file, or the address of a PostgreSQL database.

Files of this machine beside the log (token, anchors, the log of a background host) are named after
`home`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from leadhand.errors import UsageError
from leadhand.stores.postgres.address import Address, address_of, is_address

Place: TypeAlias = Path | Address


def place_of(text: str | Path, folder: Path, home: Path) -> Place:
    """Return the location of a text: an address, or a path from `folder`.

    `home` names the local files of an address.
    """
    if is_address(text):
        return address_of(str(text), home)
    return folder / Path(text).expanduser()


def home(place: Place) -> Path:
    """Return the path after which local files beside the log are named."""
    return place.home if isinstance(place, Address) else place


def there(place: Place) -> bool:
    """Return whether there is a log: a file, or a database, with our tables in it."""
    if not isinstance(place, Address):
        from leadhand.stores.sqlite.connection import begun

        return begun(place)
    need_driver()
    from leadhand.stores.postgres.schema import is_there

    return is_there(place)


def need_driver() -> None:
    """Raise `UsageError` if the driver of PostgreSQL, an extra, is not installed."""
    if find_spec("psycopg") is None:
        raise UsageError(
            "a store in PostgreSQL needs its driver. Fix: pip install 'leadhand[postgres]'"
        )


def spelled(place: Place) -> str:
    """Return a location in full, including its password: only for another process of ours."""
    return place.secret if isinstance(place, Address) else str(place)


def public(text: str) -> str:
    """Return a location as given, without its password: for people."""
    if not is_address(text):
        return text
    try:
        return str(address_of(text, Path()))
    except UsageError:
        return "postgres://…"
