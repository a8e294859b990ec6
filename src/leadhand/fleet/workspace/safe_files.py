"""The files of a folder that somebody else may change: no link on the way to one is followed.

A path is looked up by the kernel from its beginning, and any folder of it that has become a link
leads elsewhere: to another slot, to a secret, to a device that never answers. So each part is
opened from the folder before it, and a link among them means that there is no such file. A file
that is open is then the one that was meant, whatever becomes of its name.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
BESIDE = frozenset({errno.ENOTDIR, errno.ELOOP, errno.ENOENT, errno.ENXIO})
"""A part of the way is no folder, or a link, or gone; or a pipe stands there."""
CHUNK = 1 << 20


class Within:
    """Open it with `with`; names are relative, in bytes, as git says them."""

    def __init__(self, folder: Path) -> None:
        self._top = os.open(folder, FOLDER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._top)

    def lstat(self, name: bytes) -> os.stat_result:
        """Of the file or link itself; FileNotFoundError when the way there is not plain."""
        with self._parent(name) as (folder, last):
            return os.stat(last, dir_fd=folder, follow_symlinks=False)

    def link(self, name: bytes) -> bytes:
        """Where a link points."""
        with self._parent(name) as (folder, last):
            return os.readlink(last, dir_fd=folder)

    @contextlib.contextmanager
    def file(self, name: bytes) -> Iterator[IO[bytes]]:
        """A plain file, to be read; FileNotFoundError for anything else."""
        with self._parent(name) as (folder, last):
            file = os.fdopen(os.open(last, FILE, dir_fd=folder), "rb", buffering=0)
        with file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileNotFoundError(errno.ENOENT, "not a plain file")
            yield file

    @contextlib.contextmanager
    def _parent(self, name: bytes) -> Iterator[tuple[int, bytes]]:
        *folders, last = name.split(b"/")
        here = self._top
        try:
            for part in folders:
                inner = os.open(part, FOLDER, dir_fd=here)
                if here != self._top:
                    os.close(here)
                here = inner
            yield here, last
        except OSError as error:
            if error.errno in BESIDE:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None
            raise
        finally:
            if here != self._top:
                os.close(here)


def chunks(file: IO[bytes], most: int) -> Iterator[bytes]:
    """The first bytes of a file, and no more than these, should it grow meanwhile."""
    while most > 0 and (chunk := file.read(min(CHUNK, most))):
        most -= len(chunk)
        yield chunk
