"""The location of a log: the path of a file, or an address such as `postgres://…`.

The scheme of an address is the name of an entry point in the group `leadhand.stores`; it names a
`StoreKind`. PostgreSQL is one of them, and an installed package can bring others. A path is a file
of SQLite. Files of this machine beside the log (token, anchors, the log of a background host) are
named after `home`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from leadhand import plugins
from leadhand.core.wording import closest, listed
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leadhand.stores.log import KeptStore, Lock, Log

GROUP = "stores"
ADDRESS = re.compile(r"postgres(ql)?:|[a-z][a-z0-9+.-]*://", re.IGNORECASE)
"""Texts that are no file path: taken as one, a folder would be named after a password."""


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The address of a log that is not a file."""

    secret: str = field(repr=False)
    """The text as given, including its password: only for other processes of ours."""
    shown: str
    """The same for people, without secrets."""
    home: Path = field(compare=False)
    """Files of this machine (token, anchors, log) are named after this path."""

    def __str__(self) -> str:
        return self.shown

    @property
    def scheme(self) -> str:
        """The name of its kind."""
        return self.secret.partition(":")[0].lower()


StoreLocation: TypeAlias = Path | StoreAddress


class NoLog(UsageError):
    """There is no log to read at a location."""


class Listening(Protocol):
    """Receives messages of other processes to a host."""

    async def open(self) -> None:
        """Start to listen."""

    async def close(self) -> None:
        """Stop listening."""


class StoreKind(ABC):
    """How logs of one kind are found and opened. An entry point names an instance.

    The defaults suit a store whose host is reached on this machine only, and whose lock is a
    `stores.sqlite.lock.HostLock` on the `home` of the address.
    """

    @abstractmethod
    def address_of(self, text: str, folder: Path) -> StoreAddress:
        """Read an address; files of this machine go into `folder`.

        Raises:
            UsageError: it cannot be read. The message does not repeat it: it may hold a password.
        """

    @abstractmethod
    def is_there(self, place: Any) -> bool:
        """Return whether there is a log already."""

    @abstractmethod
    def open(
        self, place: Any, *, socket: str, beside: bool, check: Callable[[KeptStore], None]
    ) -> tuple[KeptStore, Lock]:
        """Open a log for writing, created if it does not exist, with the lock that is held.

        Args:
            place: where the log is.
            socket: the path at which its host can be reached, to be noted in the lock.
            beside: next to other processes that write, where the store allows several.
            check: to be called with the store before it is written to; it may raise.
        Raises:
            Conflict: another process hosts it.
        """

    @abstractmethod
    def reader(self, place: Any) -> Log:
        """Open a log for reading, whether it has a host or not. Raise NoLog if there is none."""

    def version(self) -> int:
        """Return the version of the tables that this code writes."""
        return 1

    def holder(self, place: Any) -> dict[str, Any] | None:
        """Return the current host of a log, or None."""
        from leadhand.stores.sqlite.lock import HostLock

        return HostLock(home(place)).holder()

    is_asked_by_itself = False
    """Whether `service` and `ask` say how a host is reached; else by a socket on this machine."""

    def service(self, place: Any, answer: Callable[[bytes], Awaitable[bytes]]) -> Listening | None:
        """Return the listener for messages of other processes to a host."""
        del place, answer
        return None

    async def ask(self, place: Any, request: bytes, wait_s: float) -> bytes | None:
        """Send one request to the host of a log; None if it has none."""
        raise NotImplementedError


def is_address(text: object) -> bool:
    """Return whether a text names a store that is not a file."""
    return isinstance(text, str) and ADDRESS.match(text) is not None


def kind_of(place: StoreLocation) -> StoreKind:
    """Return the kind of a log. Raise UsageError if no installed package brings it."""
    if isinstance(place, Path):
        from leadhand.stores.sqlite.kind import KIND

        return KIND
    return _kind(place.scheme)


def _kind(scheme: str) -> StoreKind:
    part = plugins.part(GROUP, scheme)
    if part is None:
        known = tuple(plugins.parts(GROUP))
        meant = closest(scheme, known)
        asked = f'Did you mean "{meant}"? ' if meant else ""
        fix = f"{asked}Fix: write {meant or 'postgres'}://…"
        raise UsageError(
            f"no kind of store is called {scheme!r}: a store is the path of a file, or an address "
            f"that begins with one of {listed(known)}. {fix}"
        )
    found = part.load()
    if not isinstance(found, StoreKind):
        raise UsageError(
            f"{part.module}:{part.attribute} of the package {part.package} is no StoreKind. "
            f"Fix: install {part.package} again, or remove it"
        )
    return found


def place_of(text: str | Path, folder: Path, home: Path) -> StoreLocation:
    """Return the location of a text: an address, or a path from `folder`.

    `home` names the local files of an address.
    """
    if isinstance(text, str) and is_address(text):
        return _kind(text.partition(":")[0].lower()).address_of(text, home)
    return folder / Path(text).expanduser()


def home(place: StoreLocation) -> Path:
    """Return the path after which local files beside the log are named."""
    return place.home if isinstance(place, StoreAddress) else place


def there(place: StoreLocation) -> bool:
    """Return whether there is a log: a file, or a database, with our tables in it."""
    return kind_of(place).is_there(place)


def spelled(place: StoreLocation) -> str:
    """Return a location in full, including its password: only for another process of ours."""
    return place.secret if isinstance(place, StoreAddress) else str(place)


def public(text: str) -> str:
    """Return a location as given, without its password: for people."""
    if not is_address(text):
        return text
    try:
        return str(place_of(text, Path(), Path()))
    except UsageError:
        return f"{text.partition(':')[0]}://…"
