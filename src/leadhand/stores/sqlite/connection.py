"""Opening a SQLite file, and its errors in plain words.

The writer's connection: WAL, `synchronous` as given (FULL unless a test says otherwise), no
automatic checkpoints (they would come inside a commit, and hide their errors; `writer.py` makes
them), no memory map.

A reader's connection is opened read-only: it takes no part in writing or checkpointing.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from leadhand.errors import (
    LeadhandError,
    NotAllowed,
    StoreBroken,
    StoreCorrupt,
    StoreError,
    StoreFull,
    UsageError,
)
from leadhand.stores import sql
from leadhand.stores.permissions import FOLDER_MODE, create_private, tighten_store

if TYPE_CHECKING:
    from collections.abc import Iterator


NETWORK_ENV = "LEADHAND_ALLOW_NETWORK_FS"

# File systems whose locks or shared memory cannot be relied on across machines. 9p is not among
# them: virtual machines and containers use it for local disks, and where its shared memory does not
# work SQLite reports an error instead of guessing.
NETWORK_FILE_SYSTEMS = {
    *("afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs"),
    *("nfs", "nfs4", "ocfs2", "smb3", "smbfs", "vboxsf", "fuse.ceph", "fuse.davfs2"),
    *("fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs", "fuse.rclone", "fuse.s3fs"),
    *("fuse.sshfs", "fuse.vmhgfs-fuse"),
}

SYNCHRONOUS = {
    "FULL": "PRAGMA synchronous = FULL",
    "NORMAL": "PRAGMA synchronous = NORMAL",
}


READER_BUSY_S = 30.0
DAMAGE = (sqlite3.Error, UnicodeDecodeError)
"""Errors raised on a damaged file; the second if a schema holds no valid text."""


class NotBegun(UsageError):
    """A database without a table: nothing has been written to it."""


def open_writer(path: Path, *, synchronous: str, busy_s: float) -> sqlite3.Connection:
    """Open a connection that may write; create the file and its folder if missing.

    A file that is not one of Leadhand's is refused before anything of it is changed.
    """
    _prepare_folder(path)
    refuse_network(path)
    try:
        connection = sqlite3.connect(
            path,
            timeout=busy_s,
            isolation_level=None,
            check_same_thread=False,
        )
    except DAMAGE as error:
        raise explain(error, path) from error
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        sql.version(connection, path)
        tighten_store(path)
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(f"{path}: SQLite cannot use a write-ahead log here ({mode}).")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(SYNCHRONOUS[synchronous])
        connection.execute("PRAGMA fullfsync = ON")  # for macOS: fsync alone is not enough
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    except BaseException as error:
        connection.close()
        if isinstance(error, DAMAGE):
            raise explain(error, path) from error
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that can only read, beside a live writer or after a dead one."""
    try:
        if not path.is_file():
            raise UsageError(f"{path}: there is no database here.")
    except OSError as error:
        raise explain_os(error, path) from error
    try:
        return _open_read_only(path, "mode=ro")
    except DAMAGE as error:
        # In a folder without write permission, SQLite cannot create the shared memory of a
        # write-ahead log. Without a log only the file matters, and it does not change.
        if not Path(f"{path}-wal").exists() and not os.access(path.parent, os.W_OK):
            try:
                return _open_read_only(path, "immutable=1")
            except DAMAGE as second:
                raise explain(second, path) from second
        raise explain(error, path) from error


def begun(path: Path) -> bool:
    """Return whether a file holds a log.

    A file that a host is creating, or died creating, does not.
    """
    if not path.exists():
        return False
    try:
        open_reader(path).close()
    except NotBegun:
        return False
    except LeadhandError:
        return True  # reading it raises the error with its reason
    return True


def _open_read_only(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{how}",
        uri=True,
        timeout=READER_BUSY_S,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        found, newest = sql.version(connection, path), sql.migrations()[-1].number
        sql.refuse_newer(found, newest, path)
        if found == 0:
            raise NotBegun(f"{path}: there is no log in this database yet.")
        if found < newest:
            raise StoreError(
                f"{path}: has schema {found}, older than {newest}, and reading does not change "
                "a file. Fix: resume one of its runs, which brings it up to date."
            )
    except BaseException:
        connection.close()
        raise
    return connection


def explain(error: Exception, path: Path) -> LeadhandError:
    """Return our error for one of SQLite's, raised while nothing was being committed."""
    if isinstance(error, UnicodeDecodeError):
        return StoreCorrupt(
            f"{path}: its schema holds what is no text, so the file is damaged. "
            "Fix: put back a copy; nothing was changed."
        )
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    text = f"{path}: {error}"
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"{path}: the disk is full. Fix: free some space and resume.")
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return StoreCorrupt(f"{text}. Fix: put back a copy; nothing was changed.")
    if code == sqlite3.SQLITE_BUSY:
        return StoreError(f"{path}: locked by another program for too long ({error}).")
    if code == sqlite3.SQLITE_IOERR:
        return StoreBroken(f"{path}: the disk failed ({getattr(error, 'sqlite_errorname', '')}).")
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
        return _not_writable(path) or StoreError(text)
    return StoreError(text)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise our errors in place of SQLite's."""
    try:
        yield
    except DAMAGE as error:
        raise explain(error, path) from error


def _not_writable(path: Path) -> NotAllowed | None:
    for place, what in ((path.parent, "folder"), (path, "file")):
        if place.exists() and not os.access(place, os.W_OK):
            return NotAllowed(
                f"{place}: this {what} is read-only for you. "
                f"Fix: chmod u+w {place}, or give a database path elsewhere."
            )
    for side in (Path(f"{path}-wal"), Path(f"{path}-shm")):
        if side.exists() and not os.access(side, os.W_OK):
            return NotAllowed(f"{side}: this file is read-only for you. Fix: chmod u+w {side}.")
    return None


def _prepare_folder(path: Path) -> None:
    try:
        if path.is_dir():
            raise UsageError(f"{path}: this is a folder. Fix: name a file in it.")
        make_folder(path.parent)
        if (refused := _not_writable(path)) is not None:
            raise refused
        if create_private(path):  # SQLite gives its write-ahead log the mode of the file
            sync_folder(path.parent)
    except OSError as error:
        raise explain_os(error, path.parent) from error


def make_folder(folder: Path) -> None:
    """Create a folder and its parents so that they survive a power cut."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for place in reversed(missing):
        place.mkdir(mode=FOLDER_MODE, exist_ok=True)
        sync_folder(place.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def explain_os(error: OSError, path: Path) -> LeadhandError:
    """Return our error for one of the operating system's."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StoreFull(f"{path}: the disk is full. Fix: free some space and resume.")
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return NotAllowed(
            f"{path}: not allowed ({error.strerror}). "
            f"Fix: chmod u+rwX {path}, or give a database path elsewhere."
        )
    if error.errno == errno.EIO:
        return StoreBroken(f"{path}: the disk failed ({error.strerror}).")
    return StoreError(f"{path}: {error.strerror or error}.")


def refuse_network(path: Path, mounts: Path = Path("/proc/mounts")) -> None:
    """Raise `NotAllowed` if the file is on a network file system, as far as known."""
    if os.environ.get(NETWORK_ENV) == "1" or not sys.platform.startswith("linux"):
        return
    kind = file_system(path, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise NotAllowed(
            f"{path}: lies on a network file system ({kind}), where locks and the write-ahead "
            f"log cannot be relied on. Fix: use a local disk, or set {NETWORK_ENV}=1 "
            "if only one machine ever opens it."
        )


def file_system(path: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """Return the type of the file system a path is on; empty if unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    best, kind = -1, ""
    for line in lines:
        _, place, this, *_ = line.split(" ", 3)
        # Spaces, tabs, newlines and backslashes are written as octal escapes.
        for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            place = place.replace(code, character)
        if len(place) >= best and path.is_relative_to(place):
            best, kind = len(place), this
    return kind
