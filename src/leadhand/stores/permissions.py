"""Permissions of what Leadhand keeps: folders 0700, files 0600, whatever the umask says.

A log holds plans, outputs and questions. Those are for the account that hosts the runs: other
accounts of the machine speak to the server. What older versions or a copy left open is tightened
when the host opens the database; what belongs to another account cannot be, and `leadhand doctor`
tells.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

STATE_FOLDER = ".leadhand"
FOLDER_MODE = 0o700
FILE_MODE = 0o600
BESIDE = ("-wal", "-shm", "-journal", ".lock", ".log", ".token", ".anchors", ".artifacts")
"""What stands beside a database, by the end of its name."""
LOG = "host.log"


def create_private(path: Path) -> bool:
    """Make an empty file that only this account can read; return whether it was missing."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    except FileExistsError:
        return False
    return True


def tighten(path: Path) -> None:
    """Take all rights of others from a file or folder of this account; another's is left alone."""
    with suppress(OSError):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid():
            return
        if found.st_mode & 0o077:
            path.chmod(stat.S_IMODE(found.st_mode) & ~0o077)


def tighten_store(database: Path) -> None:
    """Tighten a database, what stands beside it, and its folder if it is ours.

    Not its token: one that others could read is refused by the server, not quietly used on.
    """
    for path in kept_by(database):
        if path.name != f"{database.name}.token":
            tighten(path)


def kept_by(database: Path) -> Iterator[Path]:
    """The paths that a database consists of, as far as they are there.

    Its folder is among them only if it is a `.leadhand`: another folder is the user's own.
    """
    beside = [Path(f"{database}{end}") for end in BESIDE]
    with suppress(OSError):
        beside += database.parent.glob(f"{glob.escape(database.name)}[-.]*")
    if database.parent.name == STATE_FOLDER:
        beside += [database.parent, database.parent / LOG]
    yield from dict.fromkeys(path for path in (database, *beside) if path.exists())


def open_to_others(database: Path) -> list[Path]:
    """The paths of a database that other accounts may read or write.

    What lies in a folder that others cannot enter is not among them.
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
