"""Who owns a hub, and the traces a killed git leaves in it."""

import asyncio
import contextlib
import fcntl
import os
import shutil
from pathlib import Path

from leadhand.errors import Conflict

WAIT_S = 10.0
LOOK_S = 0.05
TEMPORARY = ("index/take-*", "found-*", "gate-*", "hub.new")


async def hold(path: Path, wait_s: float = WAIT_S) -> int:
    """A descriptor that holds the lock; git calls of a dead owner are waited for."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = asyncio.get_running_loop().time() + wait_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(LOOK_S)
                continue
            os.close(lock)
            raise Conflict(f"{path.parent} is in use by another process") from None
        else:
            return lock


def tidy(path: Path, folder: Path) -> int:
    """Remove lock files and half-written objects; only for one who holds the lock and is alone."""
    gone = 0
    for left in (place for pattern in TEMPORARY for place in path.glob(pattern)):
        shutil.rmtree(left, ignore_errors=True)
    for place, _, names in os.walk(folder):
        inside_objects = Path(place).is_relative_to(folder / "objects")
        for name in names:
            half = inside_objects and name.startswith(("tmp_", ".tmp-"))
            if half or (name.endswith(".lock") and not inside_objects) or name == "pack.lock":
                with contextlib.suppress(FileNotFoundError):
                    (Path(place) / name).unlink()
                    gone += 1
    return gone
