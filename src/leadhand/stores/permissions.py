"""Permissions of Leadhand's files: folders 0700, files 0600, under any umask.

A log holds plans, outputs and questions. Those are for the account that hosts the runs: other
accounts of the machine use the server. Files left open by older versions or a copy are tightened
when the host opens the database; files of another account cannot be, and `leadhand doctor` reports
them.
"""

from __future__ import annotations

import glob
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

STATE_FOLDER = ".leadhand"
FOLDER_MODE = 0o700
FILE_MODE = 0o600
BESIDE = (
    "-wal",
    "-shm",
    "-journal",
    ".lock",
    ".log",
    ".token",
    ".anchors",
    ".artifacts",
    ".verified",
    ".archives",
    ".archiving",
)
"""Suffixes of the files beside a database."""
LOG = "host.log"


def create_private(path: Path) -> bool:
    """Create an empty file that only this account can read; return whether it was missing."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    except FileExistsError:
        return False
    return True


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only this account can read: whole, or not at all. Raise `OSError`."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # of mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def tighten(path: Path) -> None:
    """Remove all rights of others from a file or folder of this account; ignore other owners."""
    with suppress(OSError):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid():
            return
        if found.st_mode & 0o077:
            path.chmod(stat.S_IMODE(found.st_mode) & ~0o077)


def tighten_store(database: Path) -> None:
    """Tighten a database, the files beside it, and its folder if it is ours.

    Except its token: a token that others could read is refused by the server, not silently used on.
    """
    for path in kept_by(database):
        if path.name != f"{database.name}.token":
            tighten(path)


def kept_by(database: Path) -> Iterator[Path]:
    """Yield the existing paths that a database consists of.

    Its folder is included only if it is a `.leadhand`: another folder is the user's own.
    """
    beside = [Path(f"{database}{end}") for end in BESIDE]
    with suppress(OSError):
        beside += database.parent.glob(f"{glob.escape(database.name)}[-.]*")
    if database.parent.name == STATE_FOLDER:
        beside += [database.parent, database.parent / LOG]
    yield from dict.fromkeys(path for path in (database, *beside) if path.exists())


def open_to_others(database: Path) -> list[Path]:
    """Return the paths of a database that other accounts may read or write.

    Paths in a folder that others cannot enter are excluded.
    """
    with suppress(OSError):
        if not database.parent.stat().st_mode & 0o077:
            return []
    found = []
    for path in kept_by(database):
        with suppress(OSError):
            if path.stat().st_mode & 0o077:
                found.append(path)
    return found
