"""Opening a log in any store, and contacting its host.

The only module that knows all stores. A store in PostgreSQL needs a driver that is an extra;
without it, the error says how to install it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.codec.events import decode
from leadhand.core import host_events as hosting
from leadhand.engine.guest.connection import GuestLine
from leadhand.engine.host_socket import LINE_BYTES_MAX, Answers, Service, socket_path
from leadhand.errors import Conflict, NotAllowed, UsageError
from leadhand.settings.folders import FOLDER
from leadhand.stores.location import NoLog, StoreAddress, home, is_address, kind_of, place_of, there

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.engine.host import EmbeddedHost
    from leadhand.ports import Entry, Store
    from leadhand.stores.artifacts import ArtifactFolder
    from leadhand.stores.location import Listening, StoreLocation
    from leadhand.stores.log import KeptStore, Lock, Log


ANSWER_WAIT_S = 30.0


def as_place(store: str | Path | StoreAddress | Store) -> StoreLocation | Store:
    """Return a store as given to a Lead: a path, an address, or the store itself."""
    if isinstance(store, str) and store == ":memory:":
        raise UsageError("a store is a file: pass a path, or leadhand.testing's MemoryStore()")
    if is_address(store):
        return place_of(str(store), Path.cwd(), Path.cwd() / FOLDER)
    return Path(store) if isinstance(store, str) else store


def open_store(
    place: StoreLocation, *, for_service: bool = False, beside: bool = False
) -> tuple[KeptStore, Lock]:
    """Open a store for writing, created if missing, with the lock of its host.

    Raise `Conflict` if a service elsewhere hosts its runs, unless it is opened for that
    (`for_service`); `beside`: next to other processes that do the same, if the store lets several
    write.
    """

    def check(store: KeptStore) -> None:
        if not for_service:
            hosting.refuse_elsewhere(host_state(store))

    socket = str(socket_path(home(place)))
    try:
        return kind_of(place).open(place, socket=socket, beside=beside, check=check)
    except Conflict:
        if isinstance(place, Path):  # its lock is looked at before its content
            _refuse_marked(place, for_service=for_service)
        raise


def host_state(log: Store | Log) -> hosting.HostState:
    """Return the state shared by all runs of a log."""
    return host_folded(log.read(hosting.HOST_STREAM))


def host_folded(entries: Iterable[Entry]) -> hosting.HostState:
    """Return the folded state of the host's own stream."""
    state = hosting.HostState()
    for entry in entries:
        hosting.evolve_host(state, decode(entry.version, entry.body))
    return state


def _refuse_marked(place: Path, *, for_service: bool) -> None:
    """Raise `Conflict` if the process that holds a file is an engine of a hosting service."""
    if for_service or not there(place):
        return
    log = open_reader(place)
    try:
        hosting.refuse_elsewhere(host_state(log))
    finally:
        log.close_reader()


def open_reader(place: StoreLocation) -> Log:
    """Open a log for reading, whether it has a host or not. Raise `UsageError` if there is none."""
    found = open_reader_if_there(place)
    if found is None:
        raise UsageError(f"there is no database at {place}; run something first, or give --store")
    return found


def open_reader_if_there(place: StoreLocation) -> Log | None:
    """Open a log for reading; None if there is no file, or nothing in it."""
    try:
        return kind_of(place).reader(place)
    except NoLog:
        return None


def schema_version(place: StoreLocation) -> int:
    """Return the version of the tables that this code writes there."""
    return kind_of(place).version()


def host_info(place: StoreLocation) -> dict[str, Any] | None:
    """Return the current host of a log, or None."""
    return kind_of(place).holder(place)


def marker(place: StoreLocation | Store, store: Store) -> str:
    """Return the marker of this host's processes: unique to the log, so that a copy has another."""
    if isinstance(place, StoreAddress):
        return f"{store.database_id}-{place.home.name.rpartition('-')[2]}"
    file = place.stat().st_ino if isinstance(place, Path) else 0
    return f"{store.database_id}-{file:x}"


def service_of(host: EmbeddedHost, place: StoreLocation) -> Listening:
    """Return the listener of a host: a socket beside the file, or the database itself."""
    own = kind_of(place).service(place, Answers(host).answer)
    return Service(host, socket_path(home(place))) if own is None else own


async def joining(place: Path, hello: dict[str, Any]) -> GuestLine | None:
    """Open a connection to the host of a database; None if no host listens.

    Raise `NotAllowed` if the host belongs to another user.
    """
    path = str(socket_path(place))
    try:
        reader, writer = await asyncio.open_unix_connection(path, limit=LINE_BYTES_MAX)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except PermissionError:
        raise other_user(place) from None
    writer.write(msgspec.json.encode(hello) + b"\n")
    return GuestLine(reader, writer)


def other_user(place: Path) -> NotAllowed:
    """Return the error for a host's socket of another user."""
    return NotAllowed(
        f"{place}: its host belongs to another user, who alone may have runs driven beside it. "
        "Fix: start the run as that user, or over HTTP where `leadhand serve` hosts it "
        "(POST /api/v1/runs); or give it a database of its own: --store OTHER.db"
    )


def artifacts_of(place: Path) -> ArtifactFolder:
    """Return the folder of large results of a log in a file, for all processes of its user."""
    from leadhand.stores.artifacts import ArtifactFolder

    return ArtifactFolder(Path(f"{place.resolve()}.artifacts"))


async def ask_host(place: StoreLocation, request: bytes) -> bytes | None:
    """Send one request to the host of a log; return its answer, or None without a host."""
    kind = kind_of(place)
    if kind.is_asked_by_itself:
        return await kind.ask(place, request, ANSWER_WAIT_S)
    try:
        reader, writer = await asyncio.open_unix_connection(
            str(socket_path(home(place))), limit=LINE_BYTES_MAX
        )
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    try:
        writer.write(request + b"\n")
        await writer.drain()
        line = await asyncio.wait_for(reader.readline(), ANSWER_WAIT_S)
    except (ConnectionError, TimeoutError) as error:
        raise Conflict(
            f"the host of {place} did not answer: {str(error) or 'timed out'}. The "
            "command may still be carried out."
        ) from None
    finally:
        writer.close()
    if not line:
        raise Conflict(f"the host of {place} ended before it answered; try again")
    return line
