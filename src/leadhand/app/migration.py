"""Copies of a log: moved to another store, backed up, restored; and rights of roles.

Every copy is proved equal to its source, and its anchors come along. The source is only read. An
interrupted copy is resumed, and a complete one is only proved again.

While a log is moved, neither log can be hosted: the locks of both are held. A backup is taken while
its host works: it is the log at one moment. A backup into a file that holds an earlier one adds
what came since.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leadhand.app.store_factory import open_reader, schema_version
from leadhand.audit.anchors import file_of, lines_in, verify_anchors
from leadhand.errors import Conflict, StoreCorrupt, UsageError
from leadhand.settings.folders import make_store_folder
from leadhand.stores.copy import Copied, LogScan, Proof, common, copy, refuse_half
from leadhand.stores.location import home, there
from leadhand.stores.postgres.address import Address
from leadhand.stores.postgres.kind import need_driver
from leadhand.stores.sqlite.connection import explain_os, sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leadhand.audit.anchors import Anchoring
    from leadhand.core.plan.model import Doc
    from leadhand.stores.location import StoreLocation
    from leadhand.stores.log import Copy, Log


@dataclass(frozen=True, slots=True)
class Migration:
    """The result of a migration, with the totals of both logs."""

    copied: Copied
    source: Proof
    target: Proof
    anchors: int
    """The number of anchor lines that hold for the copy too."""

    def document(self) -> Doc:
        """Return the result in the form of `leadhand migrate --json`."""
        return {
            "equal": self.source == self.target,
            "resumed_at": self.copied.resumed,
            "copied": {"commits": self.copied.commits, "artifacts": self.copied.artifacts},
            "source": self.source.document(),
            "target": self.target.document(),
            "anchors": self.anchors,
        }


def move(
    source: StoreLocation,
    target: StoreLocation,
    anchoring: Anchoring,
    told: Callable[[int, int], None] = lambda _done, _all: None,
) -> Migration:
    """Move a log: copy it while no host has it. `told` is called with the progress."""
    with _unhosted(_movable(source)):
        return _copied(source, target, anchoring, told)


def back_up(
    source: StoreLocation,
    file: Path,
    anchoring: Anchoring,
    told: Callable[[int, int], None] = lambda _done, _all: None,
) -> Migration:
    """Copy a log, as it is at one moment, into a new file or over an earlier backup.

    Raise `Conflict` if the file holds another log, `UsageError` if there is no log to copy.
    """
    check_places(source, file)
    prepare(file)
    return _copied(source, file, anchoring, told)


def restore(
    file: Path,
    target: StoreLocation,
    anchoring: Anchoring,
    told: Callable[[int, int], None] = lambda _done, _all: None,
) -> Migration:
    """Copy a backup to where there is no log. Raise `Conflict` if there is one.

    Raise `UsageError` if the backup is empty: it ended before the first commit.
    """
    check_places(file, target)
    with _reading(file) as log:
        if not log.commits():
            raise UsageError(f"{file}: there is no commit in this backup. Fix: name another one")
    if there(target):
        with _reading(target) as log:
            if log.commits() and not log.copied():
                raise Conflict(
                    f"{target}: there is a log here already, which is not touched. "
                    "Fix: move it away with the files beside it, or name another --store"
                )
    prepare(target)
    return _copied(file, target, anchoring, told)


def _copied(
    source: StoreLocation,
    target: StoreLocation,
    anchoring: Anchoring,
    told: Callable[[int, int], None],
) -> Migration:
    """Copy a log and prove the copy equal to it."""
    target = _movable(target)
    if there(target):  # its content says more than the anchors beside it
        with _reading(source) as log, _reading(target) as held:
            common(log, held)
    lines = _anchors(source, target, anchoring)
    with _reading(source) as log:
        look = LogScan(log, source)
        proof = look.prove()
        with _receiving(target) as store:
            copied = copy(log, proof, look.names, store, told)
    with _reading(target) as log:
        _keep_anchors(lines, log, target, anchoring)
    return Migration(copied, proof, copied.proof, len(lines))


def check_places(source: StoreLocation, target: StoreLocation) -> None:
    """Raise `UsageError` unless there is a log to move, and another place to move it to.

    Raise `StoreError` if the source is an unfinished copy itself: it would be proved equal to that.
    """
    if _same(_movable(source), _movable(target)):
        raise UsageError("the source and the target are the same log")
    if not there(source):
        raise UsageError(f"there is no log at {source}; nothing was copied")
    with _reading(source) as log:
        refuse_half(log, source, copying=False)


def prepare(target: StoreLocation, readers: Sequence[str] = (), writers: Sequence[str] = ()) -> int:
    """Create or migrate the tables, and give roles their rights; return the schema version."""
    target = _movable(target)
    make_store_folder(target)
    if not isinstance(target, Address):
        if readers or writers:
            raise UsageError("a file has no roles: write permission for the file allows any change")
        from leadhand.stores.sqlite.store import SqliteStore

        asyncio.run(_opened_and_closed(lambda: SqliteStore(target, copying=True)))
        return schema_version(target)
    need_driver()
    from leadhand.stores.postgres import schema
    from leadhand.stores.postgres.store import migrated

    migrated(target)
    if readers or writers:
        schema.grant(target, readers, writers)
    return schema_version(target)


def _movable(place: StoreLocation) -> Path | Address:
    """Return the place. Raise UsageError for a kind of store that logs are not moved between."""
    if not isinstance(place, (Path, Address)):
        raise UsageError(f"{place}: only logs in files and in PostgreSQL can be moved or prepared")
    return place


async def _opened_and_closed(make: Callable[[], Log]) -> None:
    await make().close()


def _same(one: Path | Address, other: Path | Address) -> bool:
    if isinstance(one, Address) or isinstance(other, Address):
        return home(one).name == home(other).name and type(one) is type(other)
    with suppress(OSError):  # one of them does not exist
        return one.samefile(other)  # also by another name, as a hard link is
    return one.resolve() == other.resolve()


@contextmanager
def _reading(place: StoreLocation) -> Iterator[Log]:
    log = open_reader(place)
    try:
        with log.snapshot():
            yield log
    finally:
        log.close_reader()


@contextmanager
def _unhosted(place: Path | Address) -> Iterator[None]:
    """Keep hosts away from a log that is only read. Raise `Conflict` if it has one."""
    if isinstance(place, Address):
        from leadhand.stores.postgres.lock import kept_from_hosts

        with kept_from_hosts(place):
            yield
        return
    from leadhand.stores.sqlite.lock import HostLock

    lock = HostLock(place)
    try:
        lock.acquire()
    except Conflict as error:
        fix = "Fix: end it first; a log that is written to is not moved"
        raise Conflict(f"{error}. {fix}") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _receiving(place: Path | Address) -> Iterator[Copy]:
    if isinstance(place, Address):
        from leadhand.stores.postgres.lock import PostgresLock
        from leadhand.stores.postgres.store import PostgresStore

        shared = PostgresStore(place, shared=True, debug=True, copying=True)
        try:
            PostgresLock(shared).acquire()
            yield shared
        finally:
            shared.close_now()
        return
    from leadhand.stores.sqlite.store import SqliteStore

    with _unhosted(place):
        store = SqliteStore(place, debug=True, copying=True)
        try:
            yield store
        finally:
            asyncio.run(store.close())


def _anchors(source: StoreLocation, target: StoreLocation, anchoring: Anchoring) -> list[bytes]:
    """Return the anchors of the source. Raise `Conflict` if the target's file has others."""
    lines = _lines(file_of(home(source), anchoring))
    file = file_of(home(target), anchoring)
    if there_already := _lines(file):
        size = min(len(lines), len(there_already))
        if lines[:size] != there_already[:size]:
            raise Conflict(
                f"{file}: holds anchors of another log. Fix: move it away; nothing was copied"
            )
    return lines


def _lines(file: Path) -> list[bytes]:
    try:
        return lines_in(file.read_bytes())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise explain_os(error, file) from None


def _keep_anchors(
    lines: list[bytes], log: Log, target: StoreLocation, anchoring: Anchoring
) -> None:
    """Write the anchors beside the copy, once they are verified against it."""
    batches = {batch.number: batch for batch in log.batches()}
    batches |= {each.end.number: each.end for each in log.archives()}
    archived = log.archived_until().number
    found = verify_anchors(lines, batches, log.database_id, archived=archived)
    if found.problems:
        raise StoreCorrupt(
            f"{target}: the copy is equal to its source, and neither is what was anchored: "
            f"{found.problems[0].message}. Fix: leadhand verify --all, on the source"
        )
    file = file_of(home(target), anchoring)
    if len(_lines(file)) >= len(lines):
        return
    new = Path(f"{file}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.writelines(line + b"\n" for line in lines)
            opened.flush()
            os.fsync(descriptor)
        new.rename(file)
        sync_folder(file.parent)
    except OSError as error:
        raise explain_os(error, file) from None
