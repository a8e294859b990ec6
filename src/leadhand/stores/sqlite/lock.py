"""One host per database: a lock on `<database>.lock`, held as long as the host lives.

The operating system releases the lock when the process ends, for any reason. The file names its
holder, for others to read; it stays when the lock is released, since removing it would let two
processes lock two different files of the same name.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from leadhand.errors import Conflict
from leadhand.stores.permissions import FILE_MODE
from leadhand.stores.sqlite.connection import explain_os, make_folder

if TYPE_CHECKING:
    from types import TracebackType


RETRY_S = (0.01, 0.02, 0.05)
"""`holder` takes the lock for an instant; these pauses outlast it."""


class HostLock:
    """The lock of one database. Not for several threads."""

    def __init__(self, database: Path | str) -> None:
        self.path = Path(f"{Path(database).resolve()}.lock")
        self._handle: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._handle is not None

    def acquire(self, socket: str = "") -> None:
        """Take the lock. Raise `Conflict`, which names the holder, if it is taken."""
        if self._handle is not None:
            raise RuntimeError("the lock is held already")
        try:
            make_folder(self.path.parent)
            # Never inherited by a program we start (O_CLOEXEC is Python's default); a forked child
            # closes its copy, see below.
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        except OSError as error:
            raise explain_os(error, self.path) from error
        try:
            self._lock(handle)
            content = {"pid": os.getpid(), "started": time.time_ns() // 1000, "socket": socket}
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(content).encode() + b"\n", 0)
        except OSError as error:
            os.close(handle)
            raise explain_os(error, self.path) from error
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        _held.add(self)

    def release(self) -> None:
        """Release the lock, if held."""
        handle, self._handle = self._handle, None
        if handle is not None:
            _held.discard(self)
            with suppress(OSError):
                os.ftruncate(handle, 0)
            os.close(handle)

    def let_go_in_child(self) -> None:
        """Close this process's copy after a fork. The parent keeps the lock."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def holder(self) -> dict[str, Any] | None:
        """Return the current holder of the lock, in this process or another; None if it is free.

        `pid` (0 if it cannot be read), `started` (microseconds since the epoch), `socket`.
        """
        try:
            handle = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise explain_os(error, self.path) from error
        try:
            if _try(handle, fcntl.LOCK_SH):
                return None
            return _parse(os.pread(handle, 4096, 0))
        finally:
            os.close(handle)

    def __enter__(self) -> Self:
        if self._handle is None:
            self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.release()

    def _lock(self, handle: int) -> None:
        for pause in (*RETRY_S, 0):
            if _try(handle, fcntl.LOCK_EX):
                return
            time.sleep(pause)
        who = _parse(os.pread(handle, 4096, 0))
        name = f"process {who['pid']}" if who["pid"] else "another process"
        database = str(self.path).removesuffix(".lock")
        raise Conflict(f"{database}: {name} is the host of this database")


def _try(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _parse(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
        return {"pid": found["pid"], "started": found["started"], "socket": found["socket"]}
    except (ValueError, KeyError, TypeError):
        return {"pid": 0, "started": 0, "socket": ""}


_held: set[HostLock] = set()


def _let_go_in_child() -> None:
    """Close the child's copies after a fork: a lock belongs to the file, which both share."""
    for lock in list(_held):
        lock.let_go_in_child()
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)
